"""Metrics of a role, scraped as Prometheus does."""

from __future__ import annotations

import math
import socket
import urllib.request
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from flmc.base.errors import InvalidSetting
from flmc.base.version import VERSION
from flmc.deploy.prometheus import open_metrics, serve_metrics
from flmc.deploy.role import Outgoing, Role
from flmc.wire.drops import REASONS
from flmc.wire.topics import Topic
from support import full_only

Sample = tuple[str, tuple[tuple[str, str], ...]]


class Measured(Role):
    """A role of which some numbers are known."""

    def __init__(self, identity: str = "device-7") -> None:
        super().__init__(identity, "demo")
        self.known: dict[str, float] = {"round": 3.0, "answers_total": 12.0}

    @property
    def subscriptions(self) -> tuple[str, ...]:
        return ()

    @property
    def numbers(self) -> Mapping[str, float]:
        return self.known

    def connected(self, now: float) -> list[Outgoing]:
        return []

    def take(self, topic: Topic, payload: bytes, now: float) -> list[Outgoing]:
        return []


def scrape(port: int) -> tuple[dict[Sample, float], dict[str, str]]:
    """Values by name and labels, and the kind of every metric."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    values, kinds = dict[Sample, float](), dict[str, str]()
    for family in text_string_to_metric_families(text):
        kinds[family.name] = family.type
        for sample in family.samples:
            values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return values, kinds


def test_numbers_and_drops_of_a_role() -> None:
    role = Measured()
    role.drops.count("late", "flmc/1/demo/uplink/device-7", 10)
    role.drops.count("late", "flmc/1/demo/uplink/device-7", 10)
    with serve_metrics(role, 0) as port:
        assert port
        values, kinds = scrape(port)
    assert values["flmc_device_round", ()] == 3
    assert values["flmc_device_answers_total", ()] == 12
    assert (kinds["flmc_device_round"], kinds["flmc_device_answers"]) == ("gauge", "counter")
    about = (("identity", "device-7"), ("role", "device"), ("run", "demo"), ("version", VERSION))
    assert values["flmc_role_info", about] == 1
    dropped = {labels: value for (name, labels), value in values.items() if "dropped" in name}
    assert dropped[("reason", "late"), ("role", "device")] == 2
    assert dropped[("reason", "malformed"), ("role", "device")] == 0
    assert len(dropped) == len(REASONS)
    assert not any(name.startswith(("python_", "process_")) for name, _ in values)


def test_a_scrape_reads_the_role_as_it_is() -> None:
    role = Measured("air")
    with serve_metrics(role, 0) as port:
        assert port
        role.known["round"] = 4.0
        assert scrape(port)[0]["flmc_air_round", ()] == 4
        role.known = {"epsilon": math.inf, "unknown": math.nan, "no name!": 1.0}
        values, _ = scrape(port)
    assert values["flmc_air_epsilon", ()] == math.inf
    assert {name for name, _ in values} == {"flmc_role_info", "flmc_air_epsilon"} | {
        "flmc_dropped_total"
    }


class Changing(Measured):
    """A role that another thread changes while its numbers are read, for the first few times."""

    failures = 3

    @property
    def numbers(self) -> Mapping[str, float]:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("dictionary changed size during iteration")
        return self.known


def test_a_role_may_change_while_it_is_read() -> None:
    """Metrics are read in another thread than the role's."""
    with serve_metrics(Changing("air"), 0) as port:
        assert port
        assert scrape(port)[0]["flmc_air_round", ()] == 3


def test_only_this_machine_is_answered() -> None:
    with serve_metrics(Measured(), 0) as port:
        assert port
        with socket.socket() as other:
            # The rest of the addresses of this machine is free: nothing listens at all of them.
            other.bind(("127.0.0.2", port))
        with pytest.raises(ConnectionRefusedError), socket.socket() as other:
            other.connect(("127.0.0.2", port))


@full_only
def test_the_port_is_free_afterwards() -> None:
    server = open_metrics(Measured(), 0)
    scrape(server.port)
    with pytest.raises(InvalidSetting, match=f"port {server.port}"):
        open_metrics(Measured(), server.port)
    server.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30)
    with serve_metrics(Measured(), server.port) as port:
        assert port == server.port


def test_no_port_means_no_metrics() -> None:
    with serve_metrics(Measured(), None) as port:
        assert port is None
    with pytest.raises(InvalidSetting, match="65535"):
        open_metrics(Measured(), 70_000)
