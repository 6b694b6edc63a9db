"""Metrics of a role for Prometheus, on this machine only.

A scrape reads the role at that moment; nothing is kept between scrapes, and no payload is among
the numbers.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from flmc.base import checks
from flmc.base.errors import InvalidSetting, MissingExtra
from flmc.base.version import VERSION
from flmc.deploy.role import Role
from flmc.wire.drops import REASONS

if TYPE_CHECKING:
    from prometheus_client.core import Metric


_ADDRESS = "127.0.0.1"
_TOTAL = "_total"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_Read = TypeVar("_Read")


class MetricsServer:
    """A running HTTP server of a role's metrics, made of the server and the thread that
    ``prometheus_client`` has started."""

    def __init__(self, httpd: Any, thread: threading.Thread) -> None:
        self._httpd, self._thread = httpd, thread
        self.port = int(httpd.server_port)
        """TCP port of 127.0.0.1 at which the metrics are served."""

    def close(self) -> None:
        """Stop serving the page of metrics, and free its port."""
        self._httpd.shutdown()
        self._httpd.server_close()
        self._thread.join()


def open_metrics(role: Role, port: int) -> MetricsServer:
    """Offer the metrics of a role at 127.0.0.1 until the returned server is closed; port 0 means
    any free port. Raises ``InvalidSetting`` if the port cannot be used.

    ``role.numbers`` become ``flmc_<role>_<name>``: counters where the name ends with
    ``_total``, gauges elsewhere. Dropped messages become ``flmc_dropped_total`` with the labels
    role and reason.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise MissingExtra("metrics need the extra mqtt: pip install 'flmc[mqtt]'") from error
    checks.at_least("port", port, 0, highest=65535)
    # The metrics are in a registry of their own, because the default one would add metrics of this
    # Python process.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_RoleCollector(role))
    try:
        httpd, thread = start_http_server(port, addr=_ADDRESS, registry=registry)
    except OSError as error:
        raise InvalidSetting(
            f"cannot offer metrics at {_ADDRESS}, port {port}: {error}; choose another port"
        ) from error
    return MetricsServer(httpd, thread)


@contextmanager
def serve_metrics(role: Role, port: int | None) -> Iterator[int | None]:
    """Offer the metrics of a role at 127.0.0.1 while the context lasts, and yield the port; if
    ``port`` is None, offer none and yield None."""
    if port is None:
        yield None
        return
    server = open_metrics(role, port)
    try:
        yield server.port
    finally:
        server.close()


class _RoleCollector:
    """Collector of ``prometheus_client`` that reads a role's numbers and dropped messages whenever
    Prometheus asks."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._kind = role.identity.partition("-")[0]

    def collect(self) -> Iterator[Metric]:
        """All metrics of the role at this moment: its identity, run and version as labels, its
        numbers, and its dropped messages by reason."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        role = self._role
        about = GaugeMetricFamily(
            "flmc_role_info", "who this is", labels=("role", "identity", "run", "version")
        )
        about.add_metric((self._kind, role.identity, role.run, VERSION), 1.0)
        yield about
        for name, value in sorted(_steadily(lambda: dict(role.numbers)).items()):
            number = float(value)
            if not _NAME.fullmatch(name) or math.isnan(number):
                continue
            family = CounterMetricFamily if name.endswith(_TOTAL) else GaugeMetricFamily
            words = name.removesuffix(_TOTAL).replace("_", " ")
            yield family(f"flmc_{self._kind}_{name}", f"{words} of the {self._kind}", number)
        dropped = CounterMetricFamily(
            "flmc_dropped", "messages that were dropped, by reason", labels=("role", "reason")
        )
        counts: Mapping[str, int] = _steadily(lambda: dict(role.drops.counts))
        # Reasons for which no message was dropped yet are reported too: Prometheus computes no rate
        # from a missing series.
        for reason in sorted({*REASONS, *counts}):
            dropped.add_metric((self._kind, reason), counts.get(reason, 0))
        yield dropped


def _steadily(read: Callable[[], _Read]) -> _Read:
    """The result of ``read``, which copies a dictionary of the role; it is called again if it fails
    because the role's thread has changed the dictionary meanwhile."""
    for _ in range(20):
        try:
            return read()
        except RuntimeError:  # another thread changed the size of a dictionary while it was read
            continue
    return read()
