r"""The answer: what a server knows of theta after one short, noisy, private chain.

In every round the server receives an estimate of the gradient at theta. Theta depends on the data,
but the noise of an estimate is a martingale difference, so that the likelihood of all rounds is a
product of one factor for each round. Mode and curvature of the posterior follow from a regression
of the estimates on theta, in which every round counts; the posterior follows from mode and
curvature, and is widened by the uncertainty that noise leaves about both. ``docs/answer.md``
derives it. The answer is computed from signals that the server receives anyway: it costs neither
privacy nor rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.base.special import ndtr
from flmc.base.tables import Grid, Listing, Row, format_percent
from flmc.evaluation import named_draws
from flmc.evaluation.inference_data import to_arviz
from flmc.evaluation.theta_law import PriorGradient, ThetaLaw
from flmc.evaluation.transcript import Transcript
from flmc.evaluation.wide_law import WideLaws
from flmc.models.affine import Coordinates
from flmc.models.distributions import Gaussian, Prior
from flmc.models.model import Model
from flmc.planning.answer_forecast import WIDE
from flmc.planning.answer_law import MOST_ANSWERED
from flmc.planning.plans import Plan
from flmc.planning.step_size import Curvature

Predict = Callable[[Array], Array | None]
"""A function that takes draws of theta for the first data set, (1, draw, dim), and returns the
model's predictions at each, (1, draw, prediction); None for a model without predictions."""

_MOST_ROWS = 12
"""Largest number of entries of theta that are printed with an answer; a last row counts the
others."""
OF_GRADIENTS = frozenset(
    (
        "clipped", "mean-not-sum", "mean-shift", "noise-law", "not-a-gradient", "not-finite",
        "not-linear", "random-gradient", "reported-loss", "reported-shift", "saturated-bits",
        "smoothness-too-small", "tails", "weak-response",
    )
)  # fmt: skip
"""Codes of findings that doubt the server's estimates of gradients: these count against an answer,
which is computed from such estimates, as they do against a chain of draws."""
_CLIPPED = 0.015
"""Share of clipped gradient entries in the kept rounds above which a burn-in that is far too short,
or of unknown length, and a missing forecast count against an answer."""
_DOUBTS = OF_GRADIENTS | {
    "bounds-contradicted", "burn-in", "burn-in-unknown", "curvature-by-chance",
    "curvature-unknown", "linearity-unknown", "no-prediction", "noise-memory", "not-quadratic",
    "several-modes", "strong-prior",
}  # fmt: skip
"""Codes of the findings that say that an answer may be wrong, if their light is *sampling*. All
other findings say only that its intervals are wide, or that the draws of its chain cannot be
judged."""
_SHOWN_DRAWS = 4000
"""Number of draws from which values of parameters with supports are summarised; the ends of a 90 %
interval then have a standard error of 0.03 standard deviations."""


def doubting(
    find: Callable[..., Answer], findings: Sequence[Finding], clipped: float, plan: Plan
) -> Callable[..., Answer]:
    """A function that calls ``find``, which computes an answer, and adds to the answer those
    ``findings`` of plan and run that doubt the server's estimates of the gradient, or tell of
    several modes, of which a transcript shows one. ``clipped`` is
    the share of clipped gradient entries in the kept rounds, NaN where it is not known. If it is
    above 1.5 % or not known, a burn-in that is much too short and a missing forecast are added,
    too. Noise that depends on earlier rounds is always added. The answer also gets the degrees of
    freedom that the ``plan`` predicted, so that a curvature that the rounds seem to tell only by
    chance is doubted."""
    codes = OF_GRADIENTS | {"not-judged", "several-modes"}
    if not clipped <= _CLIPPED:
        codes |= {"burn-in", "burn-in-unknown", "no-prediction"}
    speak = [
        each
        for each in findings
        if each.code in codes
        and each.severity != "note"
        and (each.code != "burn-in" or each.severity == "infeasible")
    ]
    told = {each.code for each in findings}
    if plan.prediction is None and not told & {"no-prediction", "not-judged"}:
        # This finding says that the chain cannot be judged. Its code is not in ``_DOUBTS``: it
        # holds for the draws as well, and so it is no reason to show them in place of the answer.
        speak.append(Finding("not-judged", "unknown", _NOT_FORECAST, "no forecast", {}))
    predicted = plan.prediction is not None or "not-judged" in told
    if clipped > _CLIPPED and not predicted and "clipped" not in told:
        share = format_percent(clipped)
        text = (
            f"{share} of the gradients' entries were clipped, and what that does to the mean was"
            " not predicted: use a larger clip"
        )
        speak.append(Finding("clipped", "warning", text, f"{share} clipped", {"clipped": clipped}))
    if _noise_remembers(plan):
        speak.append(Finding("noise-memory", "warning", _MEMORY, "noise with a memory", {}))
    degrees = np.inf if plan.answer is None else plan.answer.degrees

    def found(**words: Any) -> Answer:
        return replace(find(**words), of_gradients=tuple(speak), planned_degrees=degrees)

    return found


_NOT_FORECAST = (
    "nothing was predicted of this run: clipped gradients, or a curved link beside devices that are"
    " not alike, move the mean, and do not show in what the server received; plan with the model,"
    " or let devices report"
)
_MEMORY = (
    "which devices transmit follows from earlier rounds, and with it the noise of the estimates: an"
    " answer takes that of every round to be new, so its intervals may be too narrow or too wide;"
    " choose devices at random, independently in every round, or let all transmit"
)


def _noise_remembers(plan: Plan) -> bool:
    """Whether the noise of the estimates depends on earlier rounds, because the devices that
    transmit in a round do. False for bits and other random symbols: their own randomness, which is
    new in every round, outweighs the noise that absent devices cause."""
    if plan.scheduler.everyone or plan.uplink.symbol_format.levels is not None:
        return False
    if plan.active is not None:
        return not (plan.active == plan.active[0]).all()
    slow = plan.scheduler.by_channel and not plan.uplink.fading.independent
    return slow or not plan.scheduler.forgets


def answer_of(
    seen: Transcript,
    prior: PriorGradient,
    coordinates: Coordinates | None = None,
    layout: named_draws.Layout | None = None,
    exact: Gaussian | None = None,
    predict: Predict | None = None,
    public: Curvature | None = None,
) -> Answer:
    """The answer of every data set, from its transcript ``seen`` and ``prior``, the gradient of the
    negative log prior. All arguments are in the sampler's ``coordinates`` (None: they are the
    model's), the answer is in the model's. ``layout`` names the entries of theta, ``exact`` is the
    exact posterior, ``predict`` computes the model's predictions, and ``public`` is what is
    publicly known of the posterior's curvature; None for what does not exist or is not known.
    ``InvalidSetting`` where the rounds are too few."""
    law: ThetaLaw | WideLaws
    if seen.positions.shape[3] > MOST_ANSWERED:
        law = WideLaws.of(seen, prior, coordinates, public, known=exact is not None)
    else:
        law = ThetaLaw.of(seen, prior, coordinates, public)
    if exact is not None and coordinates is not None:
        scale = coordinates.scale
        covariance = scale @ exact.covariance @ scale.T
        exact = Gaussian(np.asarray(coordinates.to_model(exact.mean)), covariance)
    return Answer(law, layout, exact, predict)


def find_answer(
    plan: Plan,
    seed: int,
    model: Model,
    positions: Array,
    origin: Array | None = None,
    *,
    by_chain: bool = False,
    sets: int | None = None,
    chains: int | None = None,
) -> Answer:
    """The answer of every data set of a run, from its stored ``positions`` after consecutive
    rounds, (data set, chain, round, dim), of which the last is the plan's last: those of all kept
    rounds, or of the burn-in, too. They are deviations from ``origin`` (data set, dim), or theta
    (None), in the sampler's coordinates. Only the first ``sets`` data sets and their first
    ``chains`` chains are used; None: all. With ``by_chain`` each chain gives an answer of its own,
    as if it were a data set. The model contributes only prior, coordinates, names, predictions and
    the exact posterior where it is known. ``InvalidSetting`` where the stored positions do not tell
    what the server saw."""
    used = positions[:sets, :chains]
    seen = Transcript.of_run(plan, seed, used, None if origin is None else origin[:sets])
    exact = model.posterior
    if exact is not None and (by_chain or len(used) < len(exact.mean)):
        repeats = used.shape[1] if by_chain else 1
        mean, covariance = exact.mean[: len(used)], exact.covariance[: len(used)]
        exact = Gaussian(np.repeat(mean, repeats, 0), np.repeat(covariance, repeats, 0))
    return _answer_of_model(plan, seen.by_chain if by_chain else seen, model, exact)


def find_federated_answer(
    plan: Plan,
    model: Model | Prior,
    theta: Array,
    num_active: Array,
    gain: Array,
    *,
    layout: named_draws.Layout | None = None,
    by_chain: bool = False,
    sets: int | None = None,
    chains: int | None = None,
) -> Answer:
    """The answer of a federation's chains, from ``theta`` after consecutive rounds, (chain, round,
    dim), of which the last is the plan's last, and two records of every round, in which all chains
    agree: the number of devices that answered, (round), and the gain with which symbols arrived,
    (round, 1 or dim). ``model`` may be a prior alone, because the server has no data; the entries
    of theta then have the names in ``layout``, None: no names. Only the first ``chains`` chains are
    used; None: all. With ``by_chain`` each chain gives an answer of its own. ``sets`` changes
    nothing: there is one data set."""
    seen = Transcript.of_rounds(plan, theta[:chains], num_active, gain)
    seen = seen.by_chain if by_chain else seen
    if isinstance(model, Prior):
        return answer_of(seen, model.gradient, None, layout, public=plan.public_curvature)
    if model.coordinates is not None:
        raise InvalidSetting("a federation samples in the model's own coordinates: give that model")
    return _answer_of_model(plan, seen, model, model.posterior)


def _answer_of_model(plan: Plan, seen: Transcript, model: Model, exact: Gaussian | None) -> Answer:
    """The answer of every data set from its transcript ``seen`` and the parts of a model that need
    no data: prior, coordinates, names, and predictions. ``exact`` holds the posteriors of the
    transcript's data sets; None where they are unknown."""

    def prior(theta: Array) -> Array:
        return model.num_devices * model.prior_share(theta)

    def predict(theta: Array) -> Array | None:
        return model.predict(theta, slice(0, 1))

    public = plan.public_curvature
    return answer_of(seen, prior, model.coordinates, model.layout, exact, predict, public)


@dataclass(frozen=True)
class Answer:
    """What the server of each data set knows of theta after a run: mean, covariance, intervals and
    draws, and by how much the noise makes them wider than the exact posterior. Made by
    :meth:`flmc.Result.posterior`."""

    _law: ThetaLaw | WideLaws
    layout: named_draws.Layout | None = None
    """Name and shape of every parameter in theta; None for a model without names."""
    exact: Gaussian | None = None
    """The exact posterior of every data set, in the model's coordinates; None where it is not
    known."""
    _predict: Predict | None = None
    of_gradients: tuple[Finding, ...] = ()
    """Findings of plan and run that doubt the server's estimates of the gradient, for errors that
    no transcript shows: a curved link, or a clip, shifts the mean if the devices' data differ."""
    planned_degrees: float = np.inf
    """Degrees of freedom of the estimated curvature in the direction in which they are fewest, as
    the plan predicted them; infinite where it predicted none."""

    @property
    def num_rounds(self) -> Array:
        """Number of rounds that the answer uses, of all chains together, (data set)."""
        return self._law.num_rounds

    @cached_property
    def mean(self) -> Array:
        """Mean of theta as the server knows it, (data set, dim), in the model's coordinates."""
        return self._to_model(self._law.mean)

    @property
    def covariance(self) -> Array:
        """Covariance of theta as the server knows it, (data set, dim, dim), in the model's
        coordinates; for more than 200 entries it is computed at every use, because it is large."""
        return self._law.covariance

    @cached_property
    def sd(self) -> Array:
        """Standard deviation of every entry of theta as the server knows it, (data set, dim)."""
        return np.asarray(np.sqrt(self._law.variances[2]))

    @cached_property
    def width(self) -> Array:
        """Ratio of two standard deviations of every entry of theta, (data set, dim): as the server
        knows it, over that of the exact posterior, which is computed from the curvature that the
        run's gradients show."""
        return np.asarray(self.sd / np.sqrt(self._law.variances[0]))

    @cached_property
    def parts(self) -> dict[str, Array]:
        """Three shares of the total variance of theta, an array (data set) each, that add up to 1:
        ``data`` is the exact posterior's own variance, ``noise`` is added because channel,
        quantisation and privacy hide where the posterior's mean is, and ``curvature`` because they
        hide how wide the posterior is."""
        data, known, _ = (each.sum(axis=1) for each in self._law.variances)
        total = np.square(self.sd).sum(axis=1)
        shares = (data / total, (known - data) / total, (total - known) / total)
        return dict(zip(("data", "noise", "curvature"), shares, strict=True))

    def intervals(self, probability: float = 0.9) -> Array:
        """Central intervals of every entry of theta, as the server knows them.

        Parameters
        ----------
        probability
            Probability that an entry lies in its interval, between 0 and 1.

        Returns
        -------
        Array
            Lower and upper ends, (data set, dim, 2).
        """
        checks.between("probability", probability, 0.0, 1.0)
        half = self._law.half_widths(probability)
        return np.stack([self.mean - half, self.mean + half], axis=-1)

    def held(self, probability: float = 0.9) -> Array | None:
        """Probability that the exact posterior gives to each of the answer's intervals. Its average
        over data sets whose theta is drawn from the prior is the intervals' coverage.

        Parameters
        ----------
        probability
            Probability that the answer states for its intervals, between 0 and 1.

        Returns
        -------
        Array or None
            Probabilities, (data set, dim); None where the exact posterior is not known.
        """
        if self.exact is None:
            return None
        sd = np.sqrt(np.einsum("eii->ei", self.exact.covariance))
        ends = self.intervals(probability) - self.exact.mean[..., None]
        low, high = np.moveaxis(ends, -1, 0) / sd
        return np.asarray(ndtr(high) - ndtr(low))

    def draws(self, num_draws: int = 1000, seed: int = 0) -> Array:
        """Independent draws of theta from the law that the answer states, in the model's
        coordinates.

        Parameters
        ----------
        num_draws
            Number of draws for every data set.
        seed
            Seed of their random numbers.

        Returns
        -------
        Array
            Theta, (data set, draw, dim).
        """
        return self._to_model(self._draw(len(self.mean), num_draws, seed))

    def _draw(self, num_sets: int, num_draws: int, seed: int) -> Array:
        """Independent draws of theta from the law that the answer states, for the first
        ``num_sets`` data sets, (data set, draw, dim), in the sampler's coordinates."""
        checks.at_least("num_draws", num_draws, 1)
        streams = (np.random.default_rng([seed, e]) for e in range(num_sets))
        return np.stack([self._law.draw(e, num_draws, rng) for e, rng in enumerate(streams)])

    def predictions(self, num_draws: int = 1000, seed: int = 0) -> Array | None:
        """Predictions of the model at independent draws of theta from the answer, for the first
        data set.

        Parameters
        ----------
        num_draws, seed
            Number of draws, and the seed of their random numbers.

        Returns
        -------
        Array or None
            Predictions, (draw, prediction); None for a model without predictions.
        """
        if self._predict is None:
            return None
        predicted = self._predict(self._draw(1, num_draws, seed))
        return None if predicted is None else np.asarray(predicted[0])

    def parameters(self, num_draws: int = 1000, seed: int = 0) -> dict[str, Array]:
        """Independent draws from the answer of the first data set, as a dictionary with an array
        for each parameter of the model by its name: (draw, ...), with the parameter's own axes
        behind that of draws.

        Parameters
        ----------
        num_draws, seed
            Number of draws, and the seed of their random numbers.
        """
        drawn = named_draws.by_parameter(self._first_draws(num_draws, seed), self.layout)
        return {name: each[0] for name, each in drawn.items()}

    def to_dataframe(self, num_draws: int = 1000, seed: int = 0) -> Any:
        """Independent draws from the answer of the first data set as a pandas data frame: a row
        for each draw, with the draw's number and a column for each entry of theta. Its attribute
        ``attrs`` has the list ``doubts``: why the answer may be wrong.

        Parameters
        ----------
        num_draws, seed
            Number of draws, and the seed of their random numbers.
        """
        drawn = self._first_draws(num_draws, seed)
        frame = named_draws.to_dataframe(drawn, self.layout).drop(columns="chain")
        frame.attrs["doubts"] = [each.message for each in self.doubts]
        return frame

    def to_arviz(self, num_draws: int = 1000, seed: int = 0) -> Any:
        """Independent draws from the answer of the first data set as a DataTree of ArviZ with one
        chain, and the model's predictions at these draws; needs the extra ``arviz``. Where the
        answer may be wrong, the group ``posterior`` has the attribute ``doubts``.

        Parameters
        ----------
        num_draws, seed
            Number of draws, and the seed of their random numbers.
        """
        predicted = self.predictions(num_draws, seed)
        predicted = None if predicted is None else predicted[None]
        drawn = self._first_draws(num_draws, seed)
        doubts = [each.message for each in self.doubts]
        return to_arviz(drawn, self.layout, predictions=predicted, doubts=doubts)

    def _first_draws(self, num_draws: int, seed: int) -> Array:
        """Independent draws from the answer of the first data set, (1, draw, dim), in the model's
        coordinates; the first axis stands for a single chain."""
        return self._to_model(self._draw(1, num_draws, seed))

    def summary(self, probability: float = 0.9) -> Grid:
        """A table with mean, standard deviation, central interval and width of every entry, for the
        first data set. Where parameters have supports, the table shows their values at draws from
        the answer, and no widths, because widths are known for theta only.

        Parameters
        ----------
        probability
            Probability of the interval.
        """
        edges = (f"{50 * (1 - probability):.3g} %", f"{50 * (1 + probability):.3g} %")
        header: tuple[str, ...] = ("entry", "mean", "sd", *edges)
        text = f"{self.num_rounds[0]} rounds; "
        names, columns = self._columns(probability)
        if len(columns) == 5:
            header, text = (*header, "width"), f"{text}width: sd beside that of the exact posterior"
        else:
            text = f"{text}values at {_SHOWN_DRAWS} draws from the answer"
        if self.doubts:
            text = f"{text}; doubted: {', '.join(each.short or each.code for each in self.doubts)}"
        rows = tuple(
            (name, *(f"{column[i]:.4g}" for column in columns)) for i, name in enumerate(names)
        )
        return Grid(header, rows, text)

    def _columns(self, probability: float) -> tuple[list[str], tuple[Array, ...]]:
        """Names of the shown entries and, for the first data set, their mean, standard deviation,
        lower and upper end of the central interval, and width, (entry) each. Where parameters have
        supports, the numbers are of the parameters' values at draws from the answer, and the width
        is left out. With more than 200 entries theta itself is shown, because the draws would take
        too much memory."""
        dim = self.mean.shape[1]
        if self.layout is None or self.layout.free or dim > MOST_ANSWERED:
            low, high = np.moveaxis(self.intervals(probability)[0], -1, 0)
            names = named_draws.entry_names(self.mean.shape[1], self.layout)
            return names, (self.mean[0], self.sd[0], low, high, self.width[0])
        names, values = named_draws.by_entry(self._first_draws(_SHOWN_DRAWS, 0), self.layout)
        ends = np.array([(1 - probability) / 2, (1 + probability) / 2])
        low, high = np.quantile(values[0], ends, axis=0)
        return names, (values[0].mean(axis=0), values[0].std(axis=0), low, high)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings against the answer of the first data set."""
        return self.findings_of(0)

    def findings_of(self, data_set: int) -> tuple[Finding, ...]:
        """Findings against the answer of one data set: biased estimates of the gradient (from the
        findings of plan and run; but a shift of the mean is left out where intervals are so wide
        that they hold in spite of it), a curvature that the rounds do not tell, gradients that are
        not linear in theta, or not known to be, or wide intervals.

        Parameters
        ----------
        data_set
            Number of the data set, from 0.
        """
        findings = self._law.findings(
            data_set, self.of_gradients, self.planned_degrees, self._names
        )
        width = float(self.width[data_set].max())
        if width > WIDE:
            short = f"intervals are {width:.2g} times as wide as those of the exact posterior"
            text = f"{short}; more rounds, a higher SNR, or a larger epsilon make them narrower"
            findings.append(Finding("wide", "warning", text, short, {"width": width}, "use"))
        return tuple(findings)

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """Findings because of which the answer of the first data set may be wrong; the draws of a
        chain at temperature 1 are then the better choice. They are: the rounds tell a curvature
        only by chance, or far less of it than planned, the posterior is not normal, or not known to
        be, or estimates of the gradient are biased. Findings with another light say only that
        intervals are wide."""
        # An answer of more than 200 entries is hardly tested by its own rounds, so a chain that
        # nobody can judge is a reason for doubt, too.
        codes = _DOUBTS | {"not-judged"} if isinstance(self._law, WideLaws) else _DOUBTS
        return tuple(f for f in self.findings if f.light == "sampling" and f.code in codes)

    def rows(self, probability: float = 0.9) -> list[Row]:
        """Rows of a listing for the answer of the first data set: one for each of at most 12
        entries, with mean, standard deviation and central interval as :meth:`summary` has them;
        then the mean and the largest width of all entries of theta, and the three parts of the
        variance.

        Parameters
        ----------
        probability
            Probability of the intervals.
        """
        names, columns = self._columns(probability)
        rows = []
        for i, name in enumerate(names):
            mean, sd, low, high, *width = (column[i] for column in columns)
            shown = f"{mean:.4g} ± {sd:.2g} ({low:.4g} to {high:.4g})"
            rows.append(Row(name, shown + "".join(f", width {each:.3g}" for each in width)))
        if len(rows) > _MOST_ROWS:
            rest = Row("", f"and {len(rows) - _MOST_ROWS} more entries")
            rows = [*rows[:_MOST_ROWS], rest]
        usual, largest = self.width[0].mean(), self.width[0].max()
        beside = f"{usual:.3g} times that of the exact posterior on average, {largest:.3g} at most"
        parts = {name: float(share[0]) for name, share in self.parts.items()}
        shares = (
            f"{100 * parts['data']:.3g} % data, {format_percent(parts['noise'])} channel,"
            f" quantisation and privacy, {format_percent(parts['curvature'])} unknown curvature"
        )
        return [*rows, Row("width", beside), Row("variance", shares)]

    def listing(self, probability: float = 0.9) -> Listing:
        """The answer of the first data set as rows for printing, with its findings.

        Parameters
        ----------
        probability
            Probability of the intervals.
        """
        shown = (*self.rows(probability), *(each.row for each in self.findings))
        title = f"mean ± sd, {100 * probability:.3g} % interval"
        return Listing(f"what the server knows, {self.num_rounds[0]} rounds: {title}", shown)

    def to_document(self, probability: float = 0.9) -> dict[str, Any]:
        """The answer of the first data set as numbers, texts and lists by name, for JSON; the
        covariance is None for more than 200 entries, where it is large.

        Parameters
        ----------
        probability
            Probability of the intervals.
        """
        wide = isinstance(self._law, WideLaws)
        return {
            "entries": self._names,
            "mean": self.mean[0].tolist(),
            "sd": self.sd[0].tolist(),
            "covariance": None if wide else self.covariance[0].tolist(),
            "interval": probability,
            "ends": self.intervals(probability)[0].tolist(),
            "width": self.width[0].tolist(),
            "parts": {name: float(share[0]) for name, share in self.parts.items()},
            "num_rounds": int(self.num_rounds[0]),
            "findings": [each.to_document() for each in self.findings],
        }

    def __str__(self) -> str:
        return str(self.listing())

    @property
    def _names(self) -> list[str]:
        """Names of the entries of theta, from the ``layout`` where there is one, else ``theta[0]``
        and so on."""
        return named_draws.entry_names(self.mean.shape[1], self.layout)

    def _to_model(self, theta: Array) -> Array:
        """The values ``theta`` (..., dim), which are in the sampler's coordinates, in the model's;
        same shape."""
        coordinates = self._law.coordinates
        return theta if coordinates is None else np.asarray(coordinates.to_model(theta))
