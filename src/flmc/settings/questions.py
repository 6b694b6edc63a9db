"""Searches for values of settings: ``suggest_settings`` finds values for all that a user left open,
and ``solve`` the smallest or best value of one setting with which a plan meets its requirements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from flmc.base.errors import FlmcError, InvalidSetting, RunFailed
from flmc.base.progress import Progress
from flmc.base.tables import Grid, Listing, Row, format_short
from flmc.models.model import Model
from flmc.planning.answer_suggestion import AnswerQuestion
from flmc.planning.decision import Request
from flmc.planning.judgement import all_objections, objections
from flmc.planning.plans import Plan
from flmc.planning.public_model import PublicModel
from flmc.planning.requirements import Requirement
from flmc.planning.search import Axis, Candidate, Trial, smallest
from flmc.planning.suggestion import PublicQuestion, find_obstacles, reasons
from flmc.settings.assembly import assemble, make_limits, planner_arguments
from flmc.settings.construction import make_model, make_uplink, scheme_of
from flmc.settings.registered import LINKS
from flmc.settings.schema import Settings, merge

_FIXABLE = {
    "link": "link",
    "slope_parameter": "slope_parameter",
    "clip": "clip",
    "example_clip": "example_bound",
    "example_norm": "example_bound",
    "rounds": "num_rounds",
    "burn_in": "num_burn_in",
}
"""Settings that the search for suggestions leaves unchanged if the user gave them, each with the
name by which the search knows it."""
_FACTOR = math.log(2.0)
AXES = {
    "snr_db": Axis(3.0, 60.0, 0.1),
    "epsilon": Axis(_FACTOR, math.log(1e4), 0.01),
    "rounds": Axis(_FACTOR, math.log(1e4), 0.01, whole=True),
    "devices": Axis(_FACTOR, math.log(1e3), 0.01, whole=True),
    "samples": Axis(_FACTOR, math.log(1e4), 0.01, whole=True),
    "clip": Axis(0.25, 2.0, 0.02, best=True),
    "slope_parameter": Axis(0.25, 2.0, 0.02, best=True),
}
"""Settings for which ``solve`` can find the smallest or, with ``best``, the best value. The three
numbers of each are the first step of the search, its largest distance from the value in the user's
settings, and its precision: in decibels for ``snr_db``, else in natural logarithms of the value."""


@dataclass(frozen=True)
class SuggestedSettings:
    """Values for the settings that a user left open, with which a plan meets its requirements, and
    the plan that was tried for them."""

    settings: dict[str, Any]
    """Suggested values by name of the setting; settings that the user gave are not among them."""
    trial: Trial
    """The trial of the search with these values: model, uplink, limits and arguments of the
    planner, and the plan made from them."""

    def listing(self) -> Listing:
        """Rows of the suggested settings with the reason for each, and a last row with command-line
        options that set them all."""
        rows = tuple(Row(name, reason) for name, reason in reasons(self.trial))
        title = "suggested, from public knowledge (standard normal features and residuals)"
        return Listing(title, (*rows, Row("options", self.options)))

    @property
    def options(self) -> str:
        """The suggested settings as options of the command line, such as ``--clip 20``."""
        return " ".join(
            f"--{name.replace('_', '-')} {value:.6g}"
            if isinstance(value, float)
            else f"--{name.replace('_', '-')} {value}"
            for name, value in self.settings.items()
        )


def public_question(settings: Settings, requirements: Sequence[Requirement] = ()) -> PublicQuestion:
    """The search for values of the settings that a user left open, with a model that knows only the
    numbers of examples, devices and entries, which are public. If the aim is an answer, the search
    keeps to plans that meet ``requirements``; for a chain it ignores them.

    Raises ``InvalidSetting`` unless the model is linear regression, the uplink has a channel, and
    there are at least as many examples as devices."""
    if settings.model != "linear":
        raise InvalidSetting(
            f"suggestions are for linear regression, got the model {settings.model!r}"
        )
    if scheme_of(settings).noise_is_exact:
        raise InvalidSetting(
            "suggestions are for uplinks over a channel, got the scheme"
            f" {settings.scheme!r} without one"
        )
    if settings.devices > settings.samples:
        raise InvalidSetting(
            f"devices must not exceed samples = {settings.samples}, got {settings.devices}"
        )
    given = settings.model_fields_set
    fixed = {_FIXABLE[name] for name in given & _FIXABLE.keys()}
    changes: dict[str, Any] = {}
    if settings.link == "auto":
        fixed -= {"link"}
        changes["link"] = "sigmoid"
    # A parameter written behind the link's name fixes the slope.
    if ":" in settings.link:
        fixed |= {"slope_parameter"}
    if settings.burn_in == "auto":
        fixed -= {"num_burn_in"}
    bounded = settings.example_clip is not None or settings.example_norm is not None
    if settings.neighbouring == "example" and not bounded:
        changes["example_norm"] = 1.0  # a starting value, which the search replaces
    arguments = planner_arguments(settings)
    arguments["scheduler"].check(settings.rounds, settings.devices)
    if "start" not in given:
        arguments["start"] = "zero"
    held = Candidate(
        PublicModel(settings.samples, settings.devices, settings.dim),
        make_uplink(settings.model_copy(update=changes)),
        make_limits(settings),
        Request(**arguments),
    )
    if settings.aim == "answer":
        return AnswerQuestion(held, frozenset(fixed), requirements=tuple(requirements))
    return PublicQuestion(held, frozenset(fixed))


def suggest_settings(
    settings: Settings, requirements: Sequence[Requirement] = ()
) -> SuggestedSettings:
    """Find values for the settings that a user left open, with which the plan has no findings,
    except notes and findings that no setting can remove. If the aim is an answer, the plan also
    meets the ``requirements``, and the tried values with the smallest predicted interval score are
    chosen. If it is a chain, those with the fewest rounds are chosen, and ``requirements`` are
    ignored.

    Raises ``RunFailed`` if there are no such values. Its message says by how far which single
    number would have to be relaxed, or why the values do not suit the data that were drawn."""
    question = public_question(settings, requirements)
    against = ""
    for trial in question.suggestions():
        chosen = _as_settings(trial, settings)
        plan = assemble(_with(settings, chosen)).plan()
        worst = [each.short or each.message for each in objections(plan)]
        if settings.aim == "answer":
            worst += [text for each in requirements if (text := each.broken(plan)) is not None]
        if not worst:
            return SuggestedSettings(chosen, trial)
        against = worst[0]
    if against:
        raise RunFailed(
            "settings fit as far as public knowledge tells, but not the data that were drawn:"
            f" {against}; use more examples, or other values"
        )
    obstacles, lacking = find_obstacles(question.calibrated), question.lacking
    lacking = f" (at best, {lacking})" if lacking else ""
    if not obstacles:
        raise RunFailed(
            f"no settings fit{lacking}, and relaxing a single number does not help: relax several,"
            " or what has no number (langevin, privacy, gain, scheduling, fading)"
        )
    ways = "; or ".join(each.words for each in obstacles)
    raise RunFailed(
        f"no settings fit{lacking}. With all else as it is, this alone would do: {ways}"
    )


def _with(settings: Settings, changes: dict[str, Any]) -> Settings:
    """A checked copy of the settings with the values in ``changes`` (by name); settings that
    neither the user nor ``changes`` gave still count as not given."""
    return merge({}, {**settings.model_dump(exclude_unset=True), **changes})


def _as_settings(trial: Trial, given: Settings) -> dict[str, Any]:
    """Settings, by name, of the uplink, the planner's arguments and the plan in ``trial``. Settings
    that the user gave in ``given`` are left out, unless their value is ``auto``."""
    uplink, request, plan = trial.candidate.uplink, trial.candidate.request, trial.plan
    assert plan is not None
    chosen: dict[str, Any] = {}
    link = uplink.link
    entry = next((each for each in LINKS if link is not None and each.maker is type(link)), None)
    if entry is not None and entry.parameters:
        chosen["link"] = entry.name
        chosen["slope_parameter"] = getattr(link, entry.parameters[0].name)
    chosen |= {
        "clip": uplink.clip,
        "rounds": request.num_rounds,
        "burn_in": plan.num_burn_in,
        "start": request.start,
        "public_smoothness": request.public_smoothness,
        "public_convexity": request.public_convexity,
    }
    for name in ("example_clip", "example_norm"):
        if getattr(uplink, name) is not None:
            chosen[name] = getattr(uplink, name)
    return {
        name: value
        for name, value in chosen.items()
        if name not in given.model_fields_set or getattr(given, name) == "auto"
    }


class Point(NamedTuple):
    """One value that ``solve`` tried for a setting, the plan for it, and the objections to that
    plan."""

    value: float
    plan: Plan | None
    """The plan with the tried value; None where no plan can be made."""
    broken: tuple[str, ...]
    """Objections to the plan, a sentence each: findings against it, gravest first, then
    requirements that it does not meet. Empty if there are none; where no plan can be made, the
    reason."""

    @property
    def badness(self) -> tuple[int, float]:
        """Sort key that is smallest for the best value. The first number counts the sentences in
        ``broken``, each infeasible finding ten times; the second is the predicted squared distance
        from the posterior plus a penalty for a long burn-in."""
        plan = self.plan
        if plan is None:
            return 1000, math.inf
        law = plan.prediction
        off = 0.0 if law is None else law.distance_squared or 0.0
        slow = (plan.rounds_needed or 0) / max(1, plan.num_rounds)
        hopeless = sum(each.severity == "infeasible" for each in all_objections(plan))
        return len(self.broken) + 9 * hopeless, off + plan.dim * slow


@dataclass(frozen=True)
class Solution:
    """Result of ``solve``: the smallest or best value of one setting with which a plan meets its
    requirements, the plan itself, and all values that were tried."""

    name: str
    value: float
    settings: Settings
    """The settings with ``value`` for the setting ``name`` and, if suggestions were asked for, with
    suggested values for settings that the user left open."""
    plan: Plan
    """The plan made from ``settings``; the exact accountant, not an estimate, checked its privacy
    budget."""
    curve: tuple[Point, ...]
    """All values that were tried, in ascending order. For a budget of the whole run, or with
    suggested settings, the privacy limits in their plans are only estimates."""
    suggested: Listing | None = None
    """Rows of the settings that were suggested together with ``value``; None if no suggestions were
    asked for."""

    @property
    def at_end(self) -> bool:
        """Whether ``value`` lies at an end of the range of tried values, so that a value outside
        might meet the requirements, too, or be better; False for the whole number 1, below which no
        value is allowed."""
        tried = [point.value for point in self.curve]
        lowest = self.value <= min(tried) and not (AXES[self.name].whole and self.value <= 1)
        return lowest or (AXES[self.name].best and self.value >= max(tried))

    @property
    def words(self) -> str:
        """A sentence that states the found value and what stands in the way of a smaller one, or
        that the search ended at the edge of its range."""
        if not self.at_end:
            kind = "best" if AXES[self.name].best else "smallest"
            text = f"{self.name} = {self.value:.5g} is the {kind} value that meets the requirements"
            below = [each for each in self.curve if each.value < self.value and each.broken]
            if below and not AXES[self.name].best:
                text += f"; at {below[-1].value:.5g}, {'; '.join(below[-1].broken)}"
            return text
        if AXES[self.name].best:
            return (
                f"{self.name} = {self.value:.5g} is the best of the values that were tried, and the"
                " last of them: the search ends there, and one beyond may be better; begin nearer"
                f" to it, with --{self.name.replace('_', '-')}"
            )
        return (
            f"{self.name} = {self.value:.5g} meets the requirements and is where the search ends:"
            " all values that were tried do, so smaller ones may do too"
        )

    def grid(self) -> Grid:
        """Table with a row for each tried value: gain, binding constraint, temperature (or width of
        an answer), needed burn-in and shift of its plan, and whether it meets the requirements."""
        return _grid_of(self.name, self.curve)

    def to_document(self) -> dict[str, Any]:
        """The found value and all tried values with numbers of their plans, as plain values for
        JSON; the plan itself is left out."""
        return {
            "name": self.name,
            "value": self.value,
            "at_end": self.at_end,
            "estimated": self.settings.scope == "run" or self.suggested is not None,
            "curve": [
                {
                    "value": point.value,
                    "gain": point.plan and point.plan.typical_gain,
                    "binding": point.plan and point.plan.binding,
                    "temperature": point.plan and point.plan.temperature,
                    "width": _width(point.plan),
                    "rounds_needed": point.plan and point.plan.rounds_needed,
                    "broken": list(point.broken),
                }
                for point in self.curve
            ],
        }


class Unsolved(RunFailed):
    """Error that no tried value of a setting meets the requirements; ``curve`` has the tried
    values, in ascending order."""

    def __init__(self, message: str, name: str, curve: tuple[Point, ...]) -> None:
        super().__init__(message)
        self.name, self.curve = name, curve

    def grid(self) -> Grid:
        """Table with a row for each tried value: numbers of its plan, and the causes for which it
        does not meet the requirements."""
        return _grid_of(self.name, self.curve)


def _grid_of(name: str, curve: Sequence[Point]) -> Grid:
    """Table with a row for each tried value of the setting ``name``: gain, binding constraint,
    temperature (or width of an answer), needed burn-in and shift of its plan, and whether it meets
    the requirements."""
    # For an answer, the width counts, and a temperature above 1 is no objection.
    answers = any(plan is not None and plan.aim == "answer" for _, plan, _ in curve)
    heat = "width" if answers else "temper-\nature"
    header = ("gain", "binds", heat, "burn-in\nneeded", "shift\nin sd", "meets")
    rows: list[tuple[str, ...]] = []
    for value, plan, broken in curve:
        causes = ", ".join(dict.fromkeys(_cause(each) for each in broken))
        why = f"no: {causes}" if broken else "yes"
        if plan is None:
            rows.append((f"{value:.5g}", "-", "-", "-", "-", "-", why))
            continue
        law = plan.prediction
        shift = law.mean_shift if law else None
        if shift is not None and shift < 0.001:
            shift = 0.0
        first = _width(plan) if answers else plan.temperature
        cells = [format_short(each) for each in (first, plan.rounds_needed, shift)]
        gain = format_short(plan.typical_gain)
        rows.append((f"{value:.5g}", gain, plan.binding, *cells, why))
    return Grid((name, *header), tuple(rows), f"plans for values of {name}")


def _width(plan: Plan | None) -> float | None:
    """Predicted width of a plan's answer in the worst direction; None without a plan, or where no
    answer is predicted."""
    return None if plan is None or plan.answer is None else plan.answer.width


def _cause(sentence: str) -> str:
    """Short name of the finding or requirement behind a sentence of ``Point.broken``, for a table:
    the sentence up to its first colon, at most 24 characters."""
    return sentence.split(":")[0].removesuffix(" is not met")[:24]


def solve(
    settings: Settings,
    name: str,
    requirements: Sequence[Requirement] = (),
    *,
    suggest: bool = False,
    progress: Progress | None = None,
) -> Solution:
    """Smallest (or best) value of the setting ``name``, one of :data:`AXES`, with which the plan
    meets the requirements and has no findings, except notes and findings that no setting can
    remove.

    The search is for the smallest SNR, epsilon, or number of rounds, devices or examples, and for
    the best clip and slope parameter. With ``suggest``, the other settings that the user left open
    get suggested values, anew for every tried value; without it, a burn-in that the user did not
    give is automatic. Raises ``RunFailed`` if no tried value meets the requirements."""
    _check(settings, name)
    trials = _Values(settings, name, tuple(requirements), suggest, progress)
    return trials.best() if AXES[name].best else trials.smallest()


def _check(settings: Settings, name: str) -> None:
    """Raise ``InvalidSetting`` if ``name`` is not a setting that ``solve`` can search for, or has
    no effect with this scheme, privacy and model."""
    if name not in AXES:
        raise InvalidSetting(f"solve must be one of {', '.join(AXES)}; got {name!r}")
    scheme = scheme_of(settings)
    idle = {
        "epsilon": settings.privacy == "off" or scheme.noise_is_exact,
        "snr_db": scheme.noise_is_exact,
        "clip": scheme.noise_is_exact,
        "slope_parameter": "link" not in scheme.setting_names(),
        "devices": settings.model != "linear",
        "samples": settings.model != "linear",
    }
    if idle.get(name, False):
        raise InvalidSetting(
            f"{name} has no effect with scheme {settings.scheme!r}, privacy {settings.privacy!r}"
            f" and model {settings.model!r}: it cannot be solved for"
        )


class _Values:
    """The plans that ``solve`` makes for values of one setting: each value is tried once, and its
    plan kept."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        requirements: tuple[Requirement, ...],
        suggest: bool,
        progress: Progress | None,
    ) -> None:
        self.given, self.name, self.axis = settings, name, AXES[name]
        self.requirements, self.suggest, self.progress = requirements, suggest, progress
        self.tried: dict[float, Point] = {}
        self.models: dict[Any, Model] = {}

    def settings_at(self, value: float) -> Settings:
        """The settings with ``value`` for the setting that is searched; a burn-in that the user did
        not give is automatic, unless settings are suggested."""
        changes: dict[str, Any] = {self.name: int(value) if self.axis.whole else value}
        if "burn_in" not in self.given.model_fields_set and not self.suggest:
            changes["burn_in"] = "auto"
        return _with(self.given, changes)

    def at(self, place: float) -> Point:
        """Try the value at ``place``, which is in decibels for ``snr_db`` and else the natural
        logarithm of the value, and return it with its plan and the objections to the plan. Each
        value is tried only once."""
        value = place if self.name == "snr_db" else math.exp(place)
        if self.axis.whole:
            # The logarithm of a whole number is rounded, and its exponential may be slightly above
            # that number: without the factor, ``ceil`` would give the next one.
            value = float(max(1, math.ceil(value * (1 - 1e-12))))
        if value not in self.tried:
            self.tried[value] = self._try(value)
            if self.progress is not None:
                # The number of values that will be tried is not known: progress approaches 1
                # without reaching it.
                self.progress(1.0 - 0.9 ** len(self.tried))
        return self.tried[value]

    def _try(self, value: float) -> Point:
        """Make the plan for one value, and return both with the objections to the plan; the plan is
        None if none can be made. Its privacy limit may be an estimate."""
        try:
            settings = self.settings_at(value)
            if self.suggest:
                question = public_question(settings, self.requirements)
                best = question.answer.best
                broken = () if best else (question.lacking or "no settings fit",)
                plan = best.plan if best else None
                if plan is not None and best is not None:
                    plan = replace(plan, answer=best.answer)
                return Point(value, plan, broken)
            plan = assemble(settings, self._model(settings)).try_plan()
        except InvalidSetting as error:
            return Point(value, None, (str(error),))
        return Point(value, plan, self.broken(plan, roughly=True))

    def _model(self, settings: Settings) -> Model:
        """The model that ``settings`` describe. It is made once for each combination of numbers of
        devices, examples and entries, and kept: the search changes nothing else of a model."""
        key = (settings.devices, settings.samples, settings.dim)
        if key not in self.models:
            self.models[key] = make_model(settings)
        return self.models[key]

    def broken(self, plan: Plan, *, roughly: bool) -> tuple[str, ...]:
        """Objections to a plan, a sentence each: findings against it, and requirements that it does
        not meet. With ``roughly`` the whole run's epsilon is a quick estimate."""
        against = [f"{each.code}: {each.short or each.message}" for each in all_objections(plan)]
        asked = (each.broken(plan, roughly=roughly) for each in self.requirements)
        return (*against, *(text for text in asked if text is not None))

    def start(self) -> float:
        """The value in the user's settings, at which the search begins: in decibels for ``snr_db``,
        else its natural logarithm."""
        value = getattr(self.given, self.name)
        if value is None:
            # A sigmoid's slope parameter is twice its slope; for other links that is a good enough
            # start.
            value = assemble(self.given).uplink.slope * 2.0
        return float(value) if self.name == "snr_db" else math.log(value)

    def smallest(self) -> Solution:
        """Solution with the smallest value whose plan meets the requirements; raises ``RunFailed``
        if no value does."""
        place = smallest(lambda place: not self.at(place).broken, self.start(), self.axis)
        if place is None:
            raise self._failure()
        return self._verified(self._beyond(place))

    def _beyond(self, place: float) -> Iterator[Point]:
        """The tried value at ``place`` (decibels if the setting is ``snr_db``, else the natural
        logarithm of its value), then seven larger ones, 1, 2, 4 and up to 64 times the search's
        precision above it, for the case that the exact accountant allows less than the estimate for
        the first."""
        # Estimates of the privacy limit err by a few per cent: mostly the first or the second value
        # passes the exact accountant.
        for more in (0, 1, 2, 4, 8, 16, 32, 64):
            yield self.at(place + more * self.axis.resolution)

    def best(self) -> Solution:
        """Solution with the best value, by ``Point.badness``, of evenly spaced values about the
        given one; raises ``RunFailed`` if none of the best three meets the requirements."""
        start, axis = self.start(), self.axis
        count = int(axis.reach / axis.step)
        points = [self.at(start + index * axis.step) for index in range(-count, count + 1)]
        made = [point for point in points if point.plan is not None]
        if not made:
            raise self._failure()
        return self._verified(sorted(made, key=lambda point: point.badness)[:3])

    def _verified(self, points: Iterable[Point]) -> Solution:
        """Solution with the first of the values ``points`` whose plan meets the requirements when
        it is made with the exact privacy accountant; raises ``RunFailed`` if none does."""
        why = ""
        for point in points:
            settings, listing = self.settings_at(point.value), None
            try:
                if self.suggest:
                    suggested = suggest_settings(settings, self.requirements)
                    settings, listing = _with(settings, suggested.settings), suggested.listing()
                plan = assemble(settings).plan()
            except FlmcError as error:  # the exact accountant may refuse what the estimate promised
                why = str(error)
                continue
            broken = self.broken(plan, roughly=False)
            if not broken:
                return Solution(self.name, point.value, settings, plan, self.curve, listing)
            why = broken[0]
        raise self._failure(why)

    @property
    def curve(self) -> tuple[Point, ...]:
        """The tried values of the setting that the search varies, each with the plan that it gave
        or the reason why it gave none, in ascending order of the value."""
        return tuple(self.tried[each] for each in sorted(self.tried))

    def _failure(self, why: str = "") -> Unsolved:
        """The error of a search without result. Its message gives the objections that all tried
        values have in common, and those to the best value; ``why`` is the objection of the exact
        accountant, if there was one."""
        curve, name = self.curve, self.name
        what = (
            f"no value of {name} from {curve[0].value:.5g} to {curve[-1].value:.5g} was found that"
            " meets the requirements"
        )
        made = [point for point in curve if point.plan is not None]
        if not made:
            return Unsolved(f"{what}: none can be planned for: {curve[0].broken[0]}", name, curve)
        best = min(made, key=lambda point: point.badness)
        # Objections of different values are compared by their short names, because the numbers in
        # the sentences differ.
        common = set.intersection(*({_cause(each) for each in point.broken} for point in made))
        always = [each for each in best.broken if _cause(each) in common]
        if always:
            what += f"; at all of them: {'; '.join(always)}"
        rest = [each for each in best.broken if each not in always]
        if rest:
            also = " also" if always else ""
            what += f"; at the best of them, {best.value:.5g},{also}: {'; '.join(rest)}"
        if why and not best.broken:
            what += f"; with the exact privacy limit: {why}"
        return Unsolved(what, name, curve)
