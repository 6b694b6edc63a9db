"""What stands in the way where no settings fit: single requirements, and by how much."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from flmc.planning.decision import Request
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import has_budget
from flmc.planning.search.suggestion import Search
from flmc.uplink.schemes import Digital
from flmc.uplink.uplink import Uplink

_MOST = math.log(1000.0)
"""Largest factor by which a requirement is relaxed, in logarithms."""
_RESOLUTION = 0.03
"""To what a factor is found, in logarithms."""
_TRIED = 4
"""Uplinks that are tried with a relaxed requirement: those that need the fewest rounds."""


class Obstacle(NamedTuple):
    """A requirement that, relaxed alone, would let some settings fit.

    Attributes
    ----------
    name
        Name of the setting.
    given
        Its value; None for what has no number.
    needed
        The value that would do, with all other requirements as they are; None for what has no
        number.
    """

    name: str
    given: float | None
    needed: float | None

    @property
    def words(self) -> str:
        """The obstacle as part of a sentence."""
        if self.name == "neighbouring":
            return "neighbouring 'example' instead of 'device'"
        if self.needed is None:
            return f"{self.name} left open"
        whole = self.name in ("samples", "devices", "rounds", "burn_in")
        needed = f"{self.needed:.0f}" if whole else f"{self.needed:.4g}"
        given = "" if self.given is None else f" instead of {self.given:.6g}"
        return f"{self.name} {needed}{given}"


def find_obstacles(search: Search) -> list[Obstacle]:
    """Requirements of which every single one, relaxed, lets some settings fit.

    Parameters
    ----------
    search
        A search that finds nothing.

    Returns
    -------
    list of Obstacle
        Fixed settings first, then budget, SNR, examples and devices.
    """
    return [*_fixed(search), *_scaled(search)]


def _fixed(search: Search) -> Iterator[Obstacle]:
    """Settings that were fixed and might be left open."""
    for name in sorted(search.fixed):
        found = replace(search, fixed=search.fixed - {name}).ranked
        if found:
            given = _number(name, search.uplink, search.request)
            needed = _number(name, found[0].uplink, found[0])
            yield Obstacle(name.removeprefix("num_"), given, needed)
    step = search.request.step_size
    if step != "auto":
        found = replace(search, request=replace(search.request, step_size="auto")).ranked
        if found:
            yield Obstacle("step_size", float(step), found[0].step_size)
    if search.limits.neighbouring == "device" and has_budget(search.uplink, search.limits):
        hidden = replace(search, limits=replace(search.limits, neighbouring="example"))
        if any(hidden.settle(uplink) is not None for uplink in hidden.uplinks()):
            yield Obstacle("neighbouring", None, None)


def _number(name: str, uplink: Uplink, counts: Request | Plan) -> float | None:
    """The number that a setting has, in the uplink or among the rounds; None where it has none."""
    held: object = counts if name in ("num_rounds", "num_burn_in") else uplink
    if name == "slope_parameter":
        held = uplink.link if isinstance(uplink, Digital) else None
    value = getattr(held, name, None)
    return float(value) if isinstance(value, int | float) else None


def _scaled(search: Search) -> Iterator[Obstacle]:
    """Requirements with a number that may be scaled: budget, SNR, examples, devices."""
    limits, uplink = search.limits, search.uplink
    picked = _promising(search)
    if has_budget(uplink, limits):
        budget = limits.epsilon or 0.0
        factor = _smallest_factor(
            lambda f: replace(search, limits=replace(limits, epsilon=budget * f)), picked
        )
        if factor is not None:
            yield Obstacle("epsilon", budget, budget * factor)
    snr = uplink.snr_db
    factor = _smallest_factor(
        lambda f: replace(search, uplink=replace(uplink, snr_db=snr + 20 * math.log10(f))), picked
    )
    if factor is not None:
        yield Obstacle("snr_db", snr, snr + 20 * math.log10(factor))
    samples, devices = search.num_samples, search.num_devices
    factor = _smallest_factor(lambda f: replace(search, num_samples=math.ceil(samples * f)), picked)
    if factor is not None:
        yield Obstacle("samples", samples, math.ceil(samples * factor))
    # With fewer than four examples a device, local gradients are not what public knowledge says.
    most = max(devices, samples // 4)
    factor = _smallest_factor(
        lambda f: replace(search, num_devices=min(most, math.ceil(devices * f))), picked
    )
    if factor is not None:
        yield Obstacle("devices", devices, min(most, math.ceil(devices * factor)))


def _promising(search: Search) -> list[int]:
    """Places, among the uplinks that are tried, of those that come nearest to what is needed."""
    free = replace(search, fixed=search.fixed - {"num_rounds"})
    loose = replace(free.limits, privacy="off")
    needed = []
    for uplink in search.uplinks():
        plan = replace(free, limits=loose).settle(uplink) or replace(search, limits=loose).settle(
            uplink
        )
        needed.append(math.inf if plan is None else float(plan.num_rounds))
    order = sorted(range(len(needed)), key=needed.__getitem__)
    return order[:_TRIED]


def _smallest_factor(relaxed: Callable[[float], Search], picked: list[int]) -> float | None:
    """Smallest factor with which a relaxed search finds something; None if there is none."""

    def finds(log_factor: float) -> bool:
        search = relaxed(math.exp(log_factor))
        uplinks = list(search.uplinks())
        return any(search.settle(uplinks[at]) is not None for at in picked if at < len(uplinks))

    low, high = 0.0, _MOST
    if not finds(high):
        return None
    while high - low > _RESOLUTION:
        middle = (low + high) / 2
        low, high = (low, middle) if finds(middle) else (middle, high)
    return math.exp(high)
