r"""Clip, link, slope and rounds that are chosen by rule, each with its reason.

The rules use what the plan knows of the curvature. Near the posterior the sum of local gradients
has covariance H, the curvature, and where devices are alike each of the K has a share 1/K of that:
an entry of a local gradient has a standard deviation of at most :math:`\sqrt{L/K}`. Where devices
are not alike, local gradients are larger and cancel in the sum; what a short pilot finds of that
(:func:`flmc.check_model`) is told, and not used. Only the link of linear regression is chosen by
what data say, and the plan is then marked."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning.decision import Request, decide
from flmc.planning.limits import Limits
from flmc.planning.plans import Plan
from flmc.planning.search.link_choice import choose_link
from flmc.planning.step_size import Curvature
from flmc.uplink.link import Link
from flmc.uplink.links import Linear, Probit, Sigmoid
from flmc.uplink.schemes import Digital
from flmc.uplink.uplink import Uplink

CLIPPED_AT = 4.25
"""Standard deviations of a local gradient's entry at which it is clipped: 2 in 100 000 where
devices are alike, and some room where they are not."""
_STEEPNESS = 0.5
"""Slope times clip of a curved link: at the clip its mean bit is 8 % below a straight one's."""
_WANTED_DRAWS = 400.0
"""Independent draws that a chain is to be worth: means are then known to 0.05 standard deviations,
standard deviations to 4 %."""
_FEW_DRAWS = 20.0
"""Independent draws below which a choice of rounds is a warning."""
_FIRST_TRIAL, _MOST_ROUNDS, _MOST_TRIALS = 300, 1_000_000, 12
"""Rounds of the first trial, rounds at most, and trials of finding their number."""
_WORTHWHILE = 1.1
"""Factor by which more rounds must raise the number of draws that they are worth."""

Auto = Literal["auto"]


@dataclass(frozen=True)
class Automatic:
    """What is to be chosen.

    Attributes
    ----------
    clip, link, slope, rounds
        Whether the uplink's clip, its link, the slope of its link, and the number of rounds are to
        be chosen.
    """

    clip: bool = False
    link: bool = False
    slope: bool = False
    rounds: bool = False

    @property
    def nothing(self) -> bool:
        """Whether nothing is to be chosen."""
        return not (self.clip or self.link or self.slope or self.rounds)


@dataclass(frozen=True)
class Chosen:
    """What was chosen.

    Attributes
    ----------
    uplink, request
        The uplink and the settings with what was chosen in them.
    notes
        A line about each choice.
    from_data
        Whether a choice used what was computed from the devices' data.
    """

    uplink: Uplink
    request: Request
    notes: tuple[Finding, ...]
    from_data: bool


def choose(
    model: Model, uplink: Uplink, limits: Limits, request: Request, asked: Automatic
) -> Chosen:
    """Choose clip, link, slope and rounds in this order, where that is asked for.

    Parameters
    ----------
    model, uplink, limits, request
        What is planned.
    asked
        What is to be chosen.

    Raises
    ------
    InvalidSetting
        If the curvature that a rule needs is not known, or the uplink has no link.
    """
    curvature = request.curvature(model)
    notes = []
    if asked.clip:
        uplink, note = _with_clip(model, uplink, curvature)
        notes.append(note)
    if asked.link or asked.slope:
        settled = replace(request, num_rounds=300, num_burn_in=200) if asked.rounds else request
        uplink, note = _with_link(model, _digital(uplink), limits, settled, slope=not asked.link)
        notes.append(note)
    if asked.rounds:
        request, note = _with_rounds(model, uplink, limits, request)
        notes.append(note)
    # A link that is chosen by prediction looks at the posterior, whatever else is public.
    predicted = asked.link and isinstance(model, LinearGaussian)
    return Chosen(uplink, request, tuple(notes), predicted or not curvature.public)


def _with_clip(model: Model, uplink: Uplink, curvature: Curvature) -> tuple[Uplink, Finding]:
    """The uplink with a clip that leaves local gradients near the posterior as they are."""
    if curvature.smoothness is None:
        raise InvalidSetting("clip 'auto' needs the smoothness, which is not known: give a clip")
    spread = math.sqrt(curvature.smoothness / model.num_devices)
    clip = float(f"{CLIPPED_AT * spread:.3g}")
    size = f"an entry's standard deviation, sqrt(L/K) = {spread:.3g}"
    if uplink.clips_norm:
        clip = float(f"{CLIPPED_AT * spread * math.sqrt(model.dim):.3g}")
        size = f"sqrt(dim L/K) = {spread * math.sqrt(model.dim):.3g}"
    text = (
        f"clip {clip:g}: {CLIPPED_AT:g} times {size}, with smoothness L ="
        f" {curvature.smoothness:.3g} and K = {model.num_devices}, which leaves gradients near the"
        " posterior as they are if devices are alike"
    )
    return replace(uplink, clip=clip), Finding("chosen-clip", "note", text)


def _digital(uplink: Uplink) -> Digital:
    if not isinstance(uplink, Digital):
        raise InvalidSetting(f"link 'auto' is for the digital scheme, got {uplink.scheme!r}")
    return uplink


def _with_link(
    model: Model, uplink: Digital, limits: Limits, request: Request, *, slope: bool
) -> tuple[Uplink, Finding]:
    """The uplink with a link that suits the devices, or with another slope of its own link."""
    if slope:
        return _with_slope(uplink)
    if isinstance(model, LinearGaussian):
        settings = {name: value for name, value in vars(request).items() if value is not None}
        chosen = choose_link(model, uplink, limits, **settings)
        text = f"link {chosen.link!r}: by prediction its samples are closest to the posterior"
        return chosen, Finding("chosen-link", "note", text)
    text = (
        "link Linear(1.0): straight, so that the mean of the samples stays where it belongs even"
        " if devices are not alike; nothing that bends could be judged without data"
    )
    if limits.epsilon is not None:
        text += "; where devices are alike, a sigmoid or probit link costs less privacy"
    return replace(uplink, link=Linear(1.0)), Finding("chosen-link", "note", text)


def _with_slope(uplink: Digital) -> tuple[Uplink, Finding]:
    """The uplink with a slope of its link that fits the clip."""
    link: Link = uplink.link
    # The slope at 0 is a/2 for the sigmoid and a sqrt(2/pi) for the probit.
    factor = {Sigmoid: 0.5, Probit: math.sqrt(2.0 / math.pi)}.get(type(link))
    if factor is None or not isinstance(link, Sigmoid | Probit):
        raise InvalidSetting(
            f"slope 'auto' is for the links sigmoid and probit, got {type(link).__name__}"
        )
    parameter = float(f"{_STEEPNESS / (factor * uplink.clip):.3g}")
    text = (
        f"slope parameter {parameter:g}: the slope at 0 times the clip {uplink.clip:g} is"
        f" {_STEEPNESS:g}, so that the link bends by 8 % at the clip and hardly below it"
    )
    changed = replace(uplink, link=replace(link, slope_parameter=parameter))
    return changed, Finding("chosen-slope", "note", text)


def _with_rounds(
    model: Model, uplink: Uplink, limits: Limits, request: Request
) -> tuple[Request, Finding]:
    """The settings with as many rounds as burn-in and enough independent draws take."""
    convexity = request.curvature(model).convexity

    def tried(count: int) -> Plan:
        found = decide(
            model, uplink, limits, replace(request, num_rounds=count, num_burn_in="auto")
        )
        if found.effective_step_size is None or convexity is None:
            raise InvalidSetting(
                "rounds 'auto' need slope and convexity, which are not known: give a number, or"
                " public curvature"
            )
        return found

    plan = tried(_FIRST_TRIAL)
    for _ in range(_MOST_TRIALS):
        forgotten = (plan.effective_step_size or 0.0) * (convexity or 0.0)
        count = min(_MOST_ROUNDS, _rounds_for(plan, forgotten))
        if count <= plan.num_rounds:
            break
        longer = tried(count)
        # A budget of the run is shared by all rounds: more of them may be worth no more draws.
        if (longer.effective_draws or 0.0) < _WORTHWHILE * (plan.effective_draws or 0.0):
            break
        plan = longer
    settled = replace(request, num_rounds=plan.num_rounds, num_burn_in=plan.num_burn_in)
    few = (plan.effective_draws or 0.0) < _FEW_DRAWS
    return settled, Finding("chosen-rounds", "warning" if few else "note", _rounds_in_words(plan))


def _rounds_for(plan: Plan, forgotten: float) -> int:
    """Rounds that burn-in and the wanted draws take, two significant digits; a chain forgets this
    share of its deviation in a round."""
    each = 1.0 if forgotten >= 1.0 else (2.0 - forgotten) / forgotten
    wanted = (plan.rounds_needed or 0) + math.ceil(_WANTED_DRAWS * each)
    unit = int(10 ** max(0, len(str(wanted)) - 2))
    return -(-wanted // unit) * unit


def _rounds_in_words(plan: Plan) -> str:
    """What the number of rounds is made of."""
    needed = plan.rounds_needed or 0
    arrives = "until a chain has arrived"
    if needed > plan.num_burn_in:
        arrives = f"of burn-in, where {needed} would be needed"
    text = (
        f"rounds {plan.num_rounds}: {plan.num_burn_in} {arrives}, and"
        f" {plan.num_rounds - plan.num_burn_in} in which it is worth"
        f" {plan.effective_draws or 0:.3g} independent draws"
    )
    if plan.num_rounds >= _MOST_ROUNDS:
        text += f"; {_WANTED_DRAWS:g} were wanted, and {_MOST_ROUNDS} rounds are the most: the"
        text += " posterior is far wider in one direction than in another, use flmc.whiten"
    elif (plan.effective_draws or 0.0) < 0.9 * _WANTED_DRAWS:
        text += f"; {_WANTED_DRAWS:g} were wanted, but more rounds share the budget of the run"
    return text
