"""The ServerApp: a strategy that plays the air and the Langevin server, and a report."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from flmc.base.errors import RunFailed
from flmc.privacy.safe_noise.entropy import SystemEntropy
from flmc_flower.report import compare
from flmc_flower.task import Array, Settings, aggregate, make_plan

WAIT_FOR_DEVICES = 120.0
"""Seconds in which all devices must have connected."""
WAIT_FOR_ANSWERS = 120.0
"""Seconds in which all devices must have answered a broadcast."""

app = ServerApp()


class Langevin(Strategy):
    """Federated Langevin Monte Carlo: broadcast theta, add the devices' bits and exact noise, step.

    Parameters
    ----------
    settings
        What everybody knows.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.theta: Array = np.zeros(settings.dim)
        self.draws: list[Array] = []
        self.finished: list[float] = []

    def summary(self) -> None:
        """Print the plan, without the cost of the run, which the report has."""
        print(make_plan(self.settings).listing(with_run=False))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A message with theta for every device.

        Parameters
        ----------
        server_round, arrays, config, grid
            As Flower gives them; ``arrays`` has theta.
        """
        content = RecordDict({"arrays": arrays, "config": config})
        nodes = _wait_for_nodes(grid, self.settings.num_devices)
        return [Message(content, node, MessageType.TRAIN) for node in nodes]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The new theta, from the answers of all devices.

        Parameters
        ----------
        server_round, replies
            As Flower gives them.
        """
        answers = []
        for reply in replies:
            if reply.has_error():
                raise RunFailed(f"a device failed in round {server_round}: {reply.error.reason}")
            answers.extend(reply.content["bits"].to_numpy_ndarrays())
        update = aggregate(self.theta, answers, server_round, self.settings, SystemEntropy())
        self.theta = update.theta
        if server_round > self.settings.num_burn_in:
            self.draws.append(self.theta)
        self.finished.append(time.perf_counter())
        return ArrayRecord([self.theta]), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """No message: whatever devices said about their data besides the bits would cost privacy.

        Parameters
        ----------
        server_round, arrays, config, grid
            As Flower gives them.
        """
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Nothing.

        Parameters
        ----------
        server_round, replies
            As Flower gives them.
        """
        return None


def _wait_for_nodes(grid: Grid, count: int) -> list[int]:
    """Nodes of all devices, once they are connected."""
    until = time.monotonic() + WAIT_FOR_DEVICES
    while (found := len(nodes := sorted(grid.get_node_ids()))) != count:
        if time.monotonic() > until:
            raise RunFailed(f"there must be {count} SuperNodes, one for each device, got {found}")
        time.sleep(0.2)
    return nodes


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds, and print what they found and what they cost.

    Parameters
    ----------
    grid, context
        As Flower gives them.
    """
    settings = Settings.from_run_config(context.run_config)
    strategy = Langevin(settings)
    strategy.start(
        grid,
        ArrayRecord([strategy.theta]),
        num_rounds=settings.num_rounds,
        timeout=WAIT_FOR_ANSWERS,
    )
    plan = make_plan(settings)
    print(compare(np.array(strategy.draws), settings))
    print(f"privacy of the run, one example replaced: {plan.run_cost}")
    # The first round starts the processes.
    seconds = np.diff(strategy.finished)
    print(f"seconds per round: median {np.median(seconds):.3f}, largest {seconds.max():.3f}")
