"""The result of a run: draws, moments, metrics, privacy, and findings against them.

Everything that shows a result (``print``, the command line, pages) draws the rows of
:func:`listing`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.documents import to_document
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding, Grade
from flmc.base.tables import Grid, Listing, Row, format_percent
from flmc.base.version import VERSION
from flmc.evaluation import named_draws
from flmc.evaluation.answer import Answer, doubting
from flmc.evaluation.data_sets import median_interval
from flmc.evaluation.diagnostics import Mixing, judge_mixing
from flmc.evaluation.metrics import Metrics
from flmc.evaluation.one_chain import OneChain, Spread
from flmc.evaluation.shown_answer import AnswerMode, FindAnswer, ShownAnswer
from flmc.evaluation.stein import Evidence
from flmc.evaluation.tails import judge_shape
from flmc.models.pointwise import Pointwise
from flmc.planning.plans import Plan
from flmc.planning.plans.over_runs import OverRuns
from flmc.planning.plans.release import Coverage, coverage_of
from flmc.planning.plans.verdict import Verdict, verdict_of
from flmc.runs import records
from flmc.runs.ledger import Ledger
from flmc.runs.recorder import Recorder
from flmc.sampling.moments import Moments
from flmc.sampling.path import ChainPath
from flmc.uplink.noise import is_normal

_MOST_ROWS = 12
"""Largest number of entries of theta whose mean and standard deviation are printed; a last row
counts the others."""
_MOST_NAMES = 2048
"""Largest number of entries of theta for which JSON lists the names; with more, it has null."""


def listing(result: Result, answer: AnswerMode = "auto") -> Listing:
    """All rows of a printed result: metrics with standard errors beside their expected values (or,
    if the posterior is not known, mean, standard deviation and Stein ratios), quality and privacy
    of one chain, agreement of the chains, findings and, unless ``answer`` is ``chain``, what the
    server knows after the run."""
    title = (
        f"{result.plan.uplink.scheme} uplink, {len(result.mean)} data set(s), {result.num_chains}"
        " chain(s) each"
    )
    metrics = result.metrics
    if metrics is None:
        rows = _rows_without_posterior(result)
    else:
        title += f", {metrics.num_draws} draws a data set, {result.seconds:.1f} s CPU"
        rows = _rows_against_posterior(result, metrics)
    if result.coverage is not None:
        rows.append(Row("privacy, one chain", result.coverage.in_words))
    if not math.isnan(result.clipped_fraction):
        rows.append(Row("clipped entries", format_percent(result.clipped_fraction)))
    if result.blocking:
        rows.append(Row("engine", f"{result.engine}, {result.blocking}"))
    if result.diagnostics is not None:
        rows += result.diagnostics.rows
    verdict = result.verdict
    lights = [] if verdict is None else [each.row for each in verdict.lights]
    shown = (*lights, *rows, *(finding.row for finding in result.findings))
    if answer != "chain":
        shown += tuple(result.shown_answer(answer).rows())
    return Listing(title, shown, None if verdict is None else verdict.headline)


def _rows_without_posterior(result: Result) -> list[Row]:
    """Rows of a result whose exact posterior is not known: by name of the parameter, mean and
    standard deviation of the draws of the first data set, and its Stein ratios and shifts. If no
    draws were kept, mean and standard deviation are of the entries of theta, from which the model
    computes parameters with a limited range."""
    names, mean = named_draws.entry_names(result.mean.shape[1], result.layout), result.mean[0]
    sd = np.sqrt(result.variance[0])
    if result.layout is not None and not result.layout.free and result.chains is not None:
        names, values = named_draws.by_entry(result.chains[0], result.layout)
        flat = values.reshape(-1, len(names))
        mean, sd = flat.mean(axis=0), flat.std(axis=0)
    each = zip(names[:_MOST_ROWS], mean, sd, strict=False)
    rows = [Row("draws", "mean ± sd")]
    rows += [Row(name, f"{middle:.4g} ± {spread:.2g}") for name, middle, spread in each]
    if len(names) > _MOST_ROWS:
        rows.append(Row("", f"and {len(names) - _MOST_ROWS} more entries, in summary()"))
    return rows + ([] if result.evidence is None else result.evidence.rows)


def _rows_against_posterior(result: Result, metrics: Metrics) -> list[Row]:
    """Rows with the metrics of the draws against the exact posterior, each beside its expected
    value, and with notes of caution about them."""
    ratio, shift, source = _expected(result, metrics)
    directions = (
        f"{metrics.variance_ratio_smallest.mean:.4g} to {metrics.variance_ratio_largest.mean:.4g}"
        " over directions"
    )
    share = format_percent(metrics.mean_error_squared.mean / metrics.posterior_trace)
    floor = f"{metrics.wasserstein2_floor:.2g} of as many exact draws"
    stated = {
        "variance_ratio": f"(expected: {ratio:.3g}, {source}; {directions})",
        "mean_error_squared": f"(expected: {shift:.2g}; {share} of trace(Sigma))",
        "wasserstein2_squared": f"(expected: {floor})",
        "mse": f"(exact draws: trace(Sigma) = {metrics.posterior_trace:.4g})",
    }
    words = ("variance ratio", "squared mean error", "squared W2 distance", "MSE")
    rows = [
        Row(label, f"{metrics.in_words(name)} {beside}")
        for label, (name, beside) in zip(words, stated.items(), strict=True)
    ]
    rows += [] if result.one_chain is None else one_chain_rows(result.one_chain)
    return rows + [Row("note", text, severity="warning") for text in notes_on_chains(metrics)]


def one_chain_rows(one: OneChain) -> list[Row]:
    """Rows that state the quality of a single chain, for a table that also has metrics of all
    chains together."""
    common, shared = one.common_error.mean, ""
    if not math.isnan(common):
        shared = f"; {100 * common:.2g} % is common to all chains of a data set"
    rows = [
        Row("one chain: squared mean error", f"{share_in_words(one.mean_error)}{shared}"),
        Row("one chain: variance ratio", f"{_in_words(one.variance_ratio)}, about its own mean"),
    ]
    if one.wasserstein2 is not None:
        rows.append(Row("one chain: squared W2 distance", share_in_words(one.wasserstein2)))
    return rows


def share_in_words(share: Spread) -> str:
    """Text of a share of trace(Sigma), the total variance of the posterior, that was measured on
    single chains: in per cent, with standard error and standard deviation over chains."""
    mean, sd, se = (100 * value for value in share)
    return f"{mean:.3g}{_plus_minus(se)} % of trace(Sigma)" + _over_chains(sd, " %")


def _in_words(value: Spread) -> str:
    """Text of a number that was measured on single chains: its mean over chains, standard error,
    and standard deviation over chains."""
    return f"{value.mean:.3g}{_plus_minus(value.se)}" + _over_chains(value.sd, "")


def _plus_minus(error: float) -> str:
    return "" if math.isnan(error) else f" ± {error:.2g}"


def _over_chains(sd: float, unit: str) -> str:
    return "" if math.isnan(sd) else f" (sd {sd:.2g}{unit} over chains)"


def _expected(result: Result, metrics: Metrics) -> tuple[float, float, str]:
    """Three values: the expected variance ratio; the expected squared distance of the draws' mean
    from the posterior mean; and words that say what is expected, "exact draws" if the plan has no
    prediction, else "predicted", with a range if single runs differ."""
    # The mean of n independent draws is off by trace(Sigma)/n in squared distance, even if the
    # draws are exact.
    chance = metrics.posterior_trace / metrics.independent_draws
    prediction = result.plan.prediction
    if prediction is None:
        return 1.0, chance, "exact draws"
    ratio, source = prediction.variance_ratio, "predicted"
    runs = _predicted_runs(result.plan)
    if runs is not None:
        ratio = runs.median
        source = (
            f"predicted for half of all runs; {runs.low:.3g} to {runs.high:.3g} for nine of ten"
        )
    if metrics.shift_from == "nothing":
        ratio += prediction.relative_mean_error
    return ratio, chance + prediction.mean_error_squared, source


def _predicted_runs(plan: Plan) -> OverRuns | None:
    """Predicted variance ratios of single runs, where these differ so much that one number does not
    describe them; else None."""
    runs, heat, law = plan.over_runs, plan.temperature, plan.prediction
    if runs is None or not runs.uneven or heat is None or law is None:
        return None
    return runs.scaled(law.variance_ratio / heat)


_SURE_OF_MEDIAN = 0.9973
"""Probability with which an interval must hold the median over data sets. The interval is used
where heavy tails make a mean useless, in place of the mean plus or minus three standard errors."""
_CERTAIN_OF_MEDIAN = 0.9999
"""Probability with which an interval must hold the median over data sets, used where heavy tails
make a mean useless, in place of the mean plus or minus five standard errors. The interval comes
from a sign test, and takes 15 data sets."""
_OFF_FROM_PREDICTION = 0.1
"""Share of the predicted variance ratio by which a measured one may be off beyond chance, because
the prediction neglects small effects."""
_OFF_IN_VARIANCE, _HOPELESS_IN_VARIANCE, _OFF_IN_MEAN = 0.25, 0.5, 0.25
"""Limits of a measured result, to be exceeded by more than three standard errors: the deviation of
the variance ratio from 1 that brings a warning, the deviation that makes the run infeasible, and
the error of the mean that brings a warning, in posterior standard deviations."""


def _measured(metrics: Metrics) -> list[Finding]:
    """Findings that the draws have not the variance or not the mean of the exact posterior: the
    variance ratio or the mean is off by more than a fixed limit and three standard errors
    together."""
    findings = []
    ratio = metrics.variance_ratio
    typical, low, high = ratio.mean, ratio.mean - 3 * ratio.se, ratio.mean + 3 * ratio.se
    middle = metrics.middles.get("variance_ratio")
    if middle is not None and middle.heavy:
        # With heavy tails, a few data sets decide the mean and its standard error, which then show
        # nothing: the median and its interval are compared instead.
        held = median_interval(metrics.each["variance_ratio"], _SURE_OF_MEDIAN)
        typical, (low, high) = middle.median, held or (low, high)
    off = max(low - 1.0, 1.0 - high)  # NaN where no ratio is known: the next comparison is false
    if off > _OFF_IN_VARIANCE:
        stated = metrics.in_words("variance_ratio")
        text = f"measured variance ratio {stated}: the draws are not those of the posterior"
        grade: Grade = "infeasible" if off > _HOPELESS_IN_VARIANCE else "warning"
        short = f"measured variance ratio {typical:.3g}, must be 1"
        numbers = {"variance_ratio": typical, "se": ratio.se}
        findings.append(Finding("measured-variance", grade, text, short, numbers))
    error = metrics.mean_error_squared
    chance = metrics.posterior_trace / metrics.independent_draws
    share = (error.mean - chance - 3 * error.se) / metrics.posterior_trace
    if share > _OFF_IN_MEAN**2:
        short = f"measured mean off by {math.sqrt(share):.2g} posterior sd or more"
        text = f"{short}, on average over directions: the draws are in the wrong place"
        grade = "infeasible" if share > 1.0 else "warning"
        findings.append(Finding("measured-mean", grade, text, short, {"mean_error": share}))
    return findings


def _missed(result: Result, metrics: Metrics) -> list[Finding]:
    """One finding, in a list, if the measured variance ratio differs from the predicted one by more
    than chance and 10 % of the prediction; else an empty list."""
    plan = result.plan
    if plan.prediction is None:
        return []
    ratio, runs = metrics.variance_ratio, _predicted_runs(plan)
    predicted = _expected(result, metrics)[0]
    middle = metrics.middles.get("variance_ratio")
    low, high = ratio.mean - 5 * ratio.se, ratio.mean + 5 * ratio.se
    if runs is not None or (middle is not None and middle.heavy):
        held = median_interval(metrics.each.get("variance_ratio", np.empty(0)), _CERTAIN_OF_MEDIAN)
        if held is None:  # too few data sets for an interval of the median
            return []
        low, high = held
    # Where single runs are predicted to differ, a measured median anywhere in their predicted range
    # agrees with the prediction.
    least, most = (predicted, predicted) if runs is None else (runs.low, runs.high)
    slack = _OFF_FROM_PREDICTION * predicted
    if not (low > most + slack or high < least - slack):
        return []
    causes = ["a burn-in too short"]
    if not plan.uplink.known_fading.constant:
        causes.append("deep fades")
    if not is_normal(plan.uplink.noise_law):
        causes.append("noise of another variance than was planned for")
    short = f"measured variance ratio is not the predicted {predicted:.3g}"
    text = (
        f"the variance ratio, {metrics.in_words('variance_ratio')}, is far from what was predicted,"
        f" {predicted:.3g}: {', or '.join(causes)}"
    )
    numbers = {"variance_ratio": ratio.mean, "predicted": predicted}
    return [Finding("prediction-missed", "warning", text, short, numbers)]


def notes_on_chains(metrics: Metrics) -> list[str]:
    """Sentences of caution about metrics that need more chains for each data set than were run: the
    squared W2 distance and the variance ratio."""
    texts = []
    if metrics.chains_for_wasserstein2 is not None:
        texts.append(
            "the squared W2 distance is not given: it needs 20 independent draws a data set, and"
            f" there are {metrics.independent_draws:.1f}; use {metrics.chains_for_wasserstein2}"
            " or more chains a data set"
        )
    if metrics.shift_from != "chains":
        counted = (
            "a shift of the mean that differs between data sets counts as spread"
            if metrics.shift_from == "data sets"
            else "a shift of the mean counts as spread, and there is no standard error"
        )
        texts.append(
            f"with one chain a data set the variance ratio is about the exact mean: {counted}; use"
            " 2 or more chains a data set to tell them apart"
        )
    return texts


@dataclass(frozen=True)
class Result:
    """A finished run, made by :func:`flmc.run`: its plan, its draws (from ``path``) or their
    ``moments``, and their quality and privacy. ``metrics`` state the quality where the exact
    posterior is known, ``evidence`` where it is not."""

    plan: Plan
    """The plan with which the run was made."""
    seed: int
    num_chains: int
    """Number of chains that were run for every data set."""
    engine: str
    """Name of the engine that advanced the chains: ``numpy``, ``numba`` or ``jax``."""
    seconds: float
    """CPU seconds that this process took, without those before an interruption."""
    metrics: Metrics | None
    """Quality against the exact posterior; None for a model whose posterior is not known."""
    clipped_fraction: float
    """Fraction of kept rounds' gradient entries that clipping changed; NaN where devices do not
    report it."""
    num_undefined: int
    """Number of gradient entries that were not finite; a device treats NaN as 0."""
    moments: Moments
    """Sums over kept rounds of the deviation of theta from a fixed point and of products of its
    entries, from which mean and covariance are computed."""
    path: ChainPath | None
    """Stored positions of the chains, from which draws and answer follow; None if no draws were
    kept."""
    evidence: Evidence | None = None
    """Stein ratios and shifts of the first data set, from gradients at the draws; None for a model
    whose posterior is known."""
    model_findings: tuple[Finding, ...] = ()
    """Findings of :func:`flmc.check_model` before the run, for a model whose posterior is not
    known."""
    predictions: Array | None = None
    """Predictions of the model at some draws of the first data set, (chain, draw, prediction); None
    for a model without predictions, or where no draws were kept."""
    blocking: str = ""
    """How the engine grouped the chains for speed, in words; empty if the engine had no choice."""
    measure_one_chain: Callable[[], OneChain | None] = lambda: None
    """Function that computes :attr:`one_chain`, the quality of single chains."""
    find_answer: FindAnswer | None = None
    """Function that computes the answer of :meth:`posterior`, with the keyword arguments of
    :func:`flmc.evaluation.answer.find_answer`; None if no draws were kept."""
    tail_draws: Array | None = None
    """About 10,000 draws of the first data set, (1, chain, draw, dim), by which tails are judged
    where noise is not normal, whether draws were kept or not; else None."""
    layout: named_draws.Layout | None = None
    """Name and shape of every parameter in theta; None for a model without names."""
    pointwise: Callable[[], Pointwise | None] = lambda: None
    """Function that returns the likelihood, data and simulated data of single examples, for ArviZ;
    it returns None for a model that does not know single examples."""

    @cached_property
    def chains(self) -> Array | None:
        """Kept draws, (experiment, chain, draw, dim), computed from the positions when they are
        first asked for; None if they were not kept."""
        return None if self.path is None else self.path.draws

    @property
    def draws(self) -> Array:
        """Kept draws, (experiment * chain, draw, dim): data sets and their chains share the first
        axis, all chains of the first data set coming first. ``draws_by_chain`` has them apart.
        ``InvalidSetting`` if none were kept."""
        return self.draws_by_chain.reshape(-1, *self.draws_by_chain.shape[2:])

    @property
    def draws_by_chain(self) -> Array:
        """Kept draws, (experiment, chain, draw, dim); ``InvalidSetting`` if none were kept."""
        if self.chains is None:
            raise InvalidSetting("this run kept no draws: run it with keep_draws=True")
        return self.chains

    @property
    def kept_draws(self) -> Array | None:
        """Kept draws, (experiment, chain, draw, dim); None if they were not kept."""
        return self.chains

    @property
    def burn_in(self) -> Array | None:
        """Theta after every round of the burn-in, (experiment, chain, round, dim); None if it was
        not kept: with draws thinned out, without them, or where it would take too much memory."""
        return None if self.path is None else self.path.burn_in

    @property
    def mean(self) -> Array:
        """Mean of the draws over all chains and kept rounds, (experiment, dim)."""
        return self.moments.mean

    @property
    def covariance(self) -> Array:
        """Covariance of the draws over all chains and kept rounds, (experiment, dim, dim);
        ``InvalidSetting`` for a model with too many entries, whose result has the ``variance``
        only."""
        return self.moments.covariance

    @property
    def variance(self) -> Array:
        """Variance of every entry of theta over all chains and kept rounds, (experiment, dim)."""
        return self.moments.variance

    def posterior(self, *, by_chain: bool = False) -> Answer:
        """The answer: what the server knows of theta after this run, as mean, covariance, intervals
        and draws. It is computed from what the server saw in all rounds, burn-in included, and its
        intervals hold whatever the temperature of the chain.

        Parameters
        ----------
        by_chain
            Whether every chain has an answer of its own, as if it alone had been run. Answers are
            then ordered by data set, then by chain. Privacy of a run is stated for one chain.

        Returns
        -------
        Answer
            One answer for every data set, from all of its chains together; with ``by_chain`` one
            for every chain.

        Raises
        ------
        InvalidSetting
            If draws were not kept or are thinned out, the link has no slope, or theta has too many
            entries.

        Examples
        --------
        >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
        >>> uplink = flmc.Analog(clip=30, snr_db=40)
        >>> plan = flmc.plan(model, uplink, flmc.Limits(privacy="off"), num_rounds=400)
        >>> answer = flmc.run(plan, model, seed=1).posterior()
        >>> answer.intervals(0.9).shape, answer.draws(100).shape
        ((1, 5, 2), (1, 100, 5))
        """
        find = self._find_doubting
        if find is None:
            raise InvalidSetting("an answer needs the draws: run it with keep_draws=True")
        return find(by_chain=by_chain)

    @property
    def _find_doubting(self) -> FindAnswer | None:
        """The function that computes answers, wrapped so that each answer has those findings of the
        run that put it in doubt; None if no draws were kept."""
        find = self.find_answer
        return (
            None
            if find is None
            else doubting(find, self.findings, self.clipped_fraction, self.plan)
        )

    @property
    def _first_draws(self) -> Array:
        """Kept draws of the first data set, (chain, draw, dim)."""
        return self.draws[: self.num_chains]

    def parameters(self) -> dict[str, Array]:
        """Kept draws of the first data set by name of the model's parameter, each (chain, draw,
        shape of the parameter...)."""
        return named_draws.by_parameter(self._first_draws, self.layout)

    def summary(self, interval: float = 0.9) -> Grid:
        """A table with mean, standard deviation, central interval, Monte Carlo error, effective
        draws and R-hat of every entry of theta, for the first data set.

        Parameters
        ----------
        interval
            Probability of the central interval.
        """
        return named_draws.summarise(self._first_draws, self.layout, interval)

    def to_dataframe(self) -> Any:
        """Kept draws of the first data set as a pandas data frame: chain, draw, and every entry."""
        return named_draws.to_dataframe(self._first_draws, self.layout)

    def to_arviz(self, *, thin: int | None = None, seed: int = 0) -> Any:
        """Kept draws of the first data set as a DataTree of ArviZ, with names, dimensions and
        coordinates; needs the extra ``arviz``.

        The groups are ``posterior``, ``sample_stats`` (the round of each draw and, if it is known,
        the log density ``lp``) and, for a model that knows its examples, ``log_likelihood`` and
        ``observed_data``, whose examples bear the names of their devices, so that ``loo`` of
        arviz-stats works; ``posterior_predictive`` if the model can simulate, or has predictions at
        every draw. What is said of examples comes from the data of all devices: it is for
        simulation, and no privacy statement covers it.

        Parameters
        ----------
        thin
            Take every n-th draw of a chain. None: 1, or as many as leave ten million log
            likelihoods of examples.
        seed
            Seed of the posterior predictive.

        Examples
        --------
        >>> model = flmc.LinearGaussian(
        ...     flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4)
        ... )
        >>> plan = flmc.plan(model, flmc.Digital(), num_rounds=60, num_burn_in=20)
        >>> tree = flmc.run(plan, model, chains=4, engine="numpy").to_arviz(thin=2)
        >>> tree["posterior"]["theta"].sizes["draw"], tree["log_likelihood"]["y"].sizes["example"]
        (20, 40)
        """
        # imported here, because few results are given to ArviZ
        from flmc.evaluation.inference_data import thin_for_examples, thinned_draws, to_arviz

        drawn, pointwise = self._first_draws, self.pointwise()
        thin = thin_for_examples(drawn, pointwise) if thin is None else thin
        same = self.predictions is not None and self.predictions.shape[1] == drawn.shape[1]
        predicted = self.predictions[:, ::thin] if same and self.predictions is not None else None
        chosen = thinned_draws(drawn, thin)
        every = 1 if self.path is None else self.path.thin
        rounds = self.plan.num_burn_in + every * np.arange(1, drawn.shape[1] + 1)
        return to_arviz(
            chosen,
            self.layout,
            predictions=predicted,
            rounds=rounds[::thin],
            pointwise=pointwise,
            seed=seed,
        )

    def save(self, directory: str | Path) -> Path:
        """Write plan, metrics, mean, covariance and draws (if kept) to a new directory.

        Parameters
        ----------
        directory
            A directory that does not exist, or is empty.

        Returns
        -------
        Path
            The directory; :func:`flmc.load` opens it.

        Raises
        ------
        InvalidSetting
            If the directory is not empty, or cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> data = flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4)
        >>> model = flmc.LinearGaussian(data)
        >>> plan = flmc.plan(model, flmc.Digital(), num_rounds=6, num_burn_in=2)
        >>> result = flmc.run(plan, model, engine="numpy")
        >>> with tempfile.TemporaryDirectory() as place:
        ...     flmc.load(result.save(place)).arrays["covariance"].shape
        (1, 5, 5)
        """
        path = Path(directory)
        with records.create(
            path,
            describe(self.plan, self.seed, self.num_chains, self.engine, self.path is not None),
        ):
            Recorder(path, Ledger(self.plan), lambda _: None, "").finish(
                self.to_document(), self.arrays
            )
        return path

    @property
    def arrays(self) -> dict[str, Array]:
        """Arrays of ``draws.npz`` in a record, by name: mean, covariance (or variance, where
        entries are many) and, if they were kept, draws and the positions that an answer needs
        beside them: of the burn-in, or of all rounds where draws are midpoints."""
        arrays = {"mean": self.mean}
        if self.moments.has_covariance:
            arrays["covariance"] = self.covariance
        else:
            arrays["variance"] = self.variance
        if self.chains is not None:
            arrays["draws"] = self.chains
        if self.path is not None:
            arrays |= self.path.arrays
        return arrays

    def to_document(self) -> dict[str, Any]:
        """The result as plain values, for JSON, without its arrays; NaN and infinity are null."""
        return {
            "schema_version": records.SCHEMA_VERSION,
            "plan": self.plan.to_document(),
            "metrics": metrics_document(self.metrics),
            "one_chain": None if self.one_chain is None else self.one_chain.to_document(),
            "over_data_sets": over_data_sets(self.metrics),
            "num_chains": self.num_chains,
            "coverage": None if self.coverage is None else self.coverage.to_document(),
            "clipped_fraction": to_document(self.clipped_fraction),
            "num_undefined": self.num_undefined,
            "entries": self._names if self.plan.dim <= _MOST_NAMES else None,
            "diagnostics": None if self.diagnostics is None else self.diagnostics.to_document(),
            "findings": [finding.to_document() for finding in self.findings],
            "warnings": self.warnings,
            "evidence": None if self.evidence is None else self.evidence.to_document(),
            "posterior_trace": None if self.metrics is None else self.metrics.posterior_trace,
            "independent_draws": None if self.metrics is None else self.metrics.independent_draws,
            "wasserstein2_floor": None if self.metrics is None else self.metrics.wasserstein2_floor,
            "shift_from": None if self.metrics is None else self.metrics.shift_from,
            "notes": [] if self.metrics is None else notes_on_chains(self.metrics),
            "version": VERSION,
            "engine": self.engine,
            "blocking": self.blocking,
            "seconds": self.seconds,
            "seed": self.seed,
        }

    def __str__(self) -> str:
        return str(self.listing())

    def listing(self, answer: AnswerMode = "auto") -> Listing:
        """The result as rows for printing: metrics beside their expected values, agreement of the
        chains, findings, and the answer.

        Parameters
        ----------
        answer
            ``chain``: only rows about the draws of the chains; ``aware``: rows of the answer
            (:meth:`posterior`) as well; ``auto``: rows of the answer, or the reason why there is
            none or why it may be wrong.

        Raises
        ------
        InvalidSetting
            If ``answer`` is ``aware`` and the run has no answer.
        """
        return listing(self, answer)

    def shown_answer(self, mode: AnswerMode, *, all_chains: bool = False) -> ShownAnswer:
        """The answer for the first data set, or the reason for which none is shown.

        Parameters
        ----------
        mode
            ``auto``: the reason is shown if there is no answer or if it may be wrong; ``aware``: an
            answer is always shown, and ``InvalidSetting`` raised if there is none.
        all_chains
            Whether the answer uses all chains together; False: the first chain alone, which is what
            the stated epsilon covers.
        """
        shape = (len(self.mean), self.num_chains, self.plan.num_rounds, self.plan.dim)
        return ShownAnswer.of(self._find_doubting, mode, shape, all_chains=all_chains)

    @cached_property
    def coverage(self) -> Coverage | None:
        """What the run's epsilon covers: one chain, with its epsilon, and beside it the epsilon of
        releasing all chains; None where the privacy is unknown."""
        return coverage_of(self.plan, self.num_chains)

    @cached_property
    def one_chain(self) -> OneChain | None:
        """Quality of a single chain against the exact posterior; None for a model whose posterior
        is not known, or whose covariance has too many entries to be kept."""
        return self.measure_one_chain()

    @cached_property
    def diagnostics(self) -> Mixing | None:
        """R-hat and effective sample sizes of the first data set, over its entries of theta and its
        predictions; None without kept draws, or with fewer than 4 draws in a chain.

        At most about 10,000 draws, 20 entries and 20 predictions are used; :func:`flmc.diagnose`
        uses all draws and entries."""
        return judge_mixing(self.chains, self.predictions, self._names)

    @property
    def _names(self) -> list[str]:
        """Names of the entries of theta, one for each of the dim entries."""
        return named_draws.entry_names(self.mean.shape[1], self.layout)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Findings against the plan, the model and the run: those of the plan and of the check of
        the model, of gradients that were not finite, and of the chains' draws (agreement, Stein
        ratios, distance from a known posterior), or of the answer if the plan's aim is one."""
        mixing, findings = self.diagnostics, list(self.plan.findings)
        # If the plan was made with the data, a pilot has checked the model for it, too: findings of
        # both checks are listed once.
        known = {(each.code, each.severity) for each in findings}
        findings += [
            each for each in self.model_findings if (each.code, each.severity) not in known
        ]
        if self.plan.aim == "answer":
            findings += self._answer_findings
        elif mixing is not None:
            findings += mixing.findings(known_posterior=self.metrics is not None)
        # The findings below are about draws that are given out. Where the aim is an answer, no
        # draws are given out, and the chain may have any temperature.
        of_draws = self.plan.aim == "chain"
        if of_draws and self.evidence is not None:
            findings += self.evidence.findings(mixing)
        if of_draws and self.metrics is not None:  # the posterior is known, and it is normal
            findings += [*_measured(self.metrics), *_missed(self, self.metrics)]
            findings += self._shape_findings
        if self.num_undefined:
            text = f"{self.num_undefined} gradient entries were not finite; NaN counts as 0"
            numbers = {"num_undefined": float(self.num_undefined)}
            findings.append(Finding("not-finite", "warning", text, numbers=numbers))
        return tuple(findings)

    @property
    def _shape_findings(self) -> list[Finding]:
        """Findings about the tails of the draws, for a model whose posterior is normal."""
        doubted = shape_in_doubt(self.plan)
        if self.tail_draws is None:
            return judge_shape(self.chains, self.diagnostics, doubted=doubted, names=self._names)
        mixing = judge_mixing(self.tail_draws, names=self._names)
        return judge_shape(self.tail_draws, mixing, doubted=doubted, names=self._names)

    @property
    def _answer_findings(self) -> tuple[Finding, ...]:
        """Findings against the answer of the first data set; if there is no answer, one finding
        that says why."""
        try:
            if self.find_answer is None:
                raise InvalidSetting("it needs the draws: run it with keep_draws=True")
            return self.find_answer(by_chain=False).findings
        except InvalidSetting as error:
            short = "there is no answer"
            return (Finding("no-answer", "unknown", f"{short}: {error}", short),)

    @cached_property
    def verdict(self) -> Verdict | None:
        """Verdict on the plan and the run: the three lights, worsened by what the run has found
        against them; None for a plan that was not judged."""
        if not self.plan.judged:
            return None
        return verdict_of(self.plan, self.findings, with_run=True)

    @property
    def warnings(self) -> list[str]:
        """Objections to the result, a sentence each: all findings that are not mere notes."""
        return [each.message for each in self.findings if each.severity != "note"]


def shape_in_doubt(plan: Plan) -> bool:
    """Whether the draws of a plan may have the right variance and yet the wrong shape, because the
    receiver's noise is not normal. False where the aim is an answer, which does not rest on the law
    of the draws."""
    return plan.aim == "chain" and not is_normal(plan.uplink.noise_law)


def metrics_document(metrics: Metrics | None) -> dict[str, Any] | None:
    """Metrics by name, each with ``mean`` and standard error ``se``, for JSON; NaN is None (null).
    None if ``metrics`` is None."""
    if metrics is None:
        return None
    return {
        name: {
            part: None if math.isnan(value) else value
            for part, value in zip(("mean", "se"), estimate, strict=True)
        }
        for name, estimate in metrics.estimates.items()
    }


def over_data_sets(metrics: Metrics | None) -> dict[str, Any] | None:
    """Median and quartiles of each metric over data sets, by name of the metric, for JSON; None for
    one data set, or if ``metrics`` is None."""
    if metrics is None or not metrics.middles:
        return None
    return {name: middle.to_document() for name, middle in metrics.middles.items()}


def describe(
    plan: Plan, seed: int, num_chains: int, engine: str, keep_draws: bool, thin: int = 1
) -> dict[str, Any]:
    """The part of ``run.json`` that describes a run: plan, digest of the plan, seed, number of
    chains, name of the engine, and which draws are kept."""
    return {
        "plan": plan.to_document(with_run=False),
        "plan_digest": plan.digest,
        "seed": seed,
        "num_chains": num_chains,
        "engine": engine,
        "keep_draws": keep_draws,
        "thin": thin,
    }
