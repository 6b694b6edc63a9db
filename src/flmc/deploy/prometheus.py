"""Metrics of a role for Prometheus, on this machine only.

A scrape reads the role as it is at that moment; between scrapes nothing is counted twice and
nothing is kept. The numbers say how a run goes. No payload is among them."""

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
    """An open page of metrics.

    Parameters
    ----------
    httpd, thread
        The server and its thread, as ``prometheus_client`` gives them.
    """

    def __init__(self, httpd: Any, thread: threading.Thread) -> None:
        self._httpd, self._thread = httpd, thread
        self.port = int(httpd.server_port)
        """Port at 127.0.0.1."""

    def close(self) -> None:
        """Stop answering, and free the port."""
        self._httpd.shutdown()
        self._httpd.server_close()
        self._thread.join()


def open_metrics(role: Role, port: int) -> MetricsServer:
    """Offer the metrics of a role at 127.0.0.1 until the returned server is closed.

    ``role.numbers`` become ``flmc_<role>_<name>``: a counter where the name ends with ``_total``,
    else a gauge. Dropped messages become ``flmc_dropped_total`` with the labels role and reason.

    Parameters
    ----------
    role
        What is measured.
    port
        Where to listen; 0: a free port, which the server knows.

    Raises
    ------
    InvalidSetting
        If the port cannot be used.
    MissingExtra
        If ``prometheus_client`` is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise MissingExtra("metrics need the extra mqtt: pip install 'flmc[mqtt]'") from error
    checks.at_least("port", port, 0, highest=65535)
    # An own registry, so that metrics of this process's Python are not shown as the role's.
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
    """Offer the metrics of a role while the context lasts; gives the port.

    Parameters
    ----------
    role
        What is measured.
    port
        Where to listen at 127.0.0.1; 0: a free port; None: nowhere.
    """
    if port is None:
        yield None
        return
    server = open_metrics(role, port)
    try:
        yield server.port
    finally:
        server.close()


class _RoleCollector:
    """Reads a role when Prometheus asks."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._kind = role.identity.partition("-")[0]

    def collect(self) -> Iterator[Metric]:
        """All metrics of the role."""
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
        # All reasons, also those at zero: what is missing has no rate.
        for reason in sorted({*REASONS, *counts}):
            dropped.add_metric((self._kind, reason), counts.get(reason, 0))
        yield dropped


def _steadily(read: Callable[[], _Read]) -> _Read:
    """What a function reads of a role that another thread may change meanwhile."""
    for _ in range(20):
        try:
            return read()
        except RuntimeError:  # a dictionary changed its size while it was read
            continue
    return read()
