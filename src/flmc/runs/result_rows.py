"""A result in rows: metrics with their standard errors beside what is expected, what one chain
delivers and what its epsilon covers, agreement of the chains, warnings.

Everything that shows a result (``print``, the command line, pages) draws these rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flmc.base.tables import Listing, Row, format_percent
from flmc.evaluation.quality.metrics import Metrics
from flmc.evaluation.quality.one_chain import OneChain, Spread

if TYPE_CHECKING:
    from flmc.runs.results import Result


def listing(result: Result) -> Listing:
    """All rows of a result, under a title.

    Parameters
    ----------
    result
        A finished run.
    """
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
        rows.append(Row("privacy", result.coverage.in_words))
    if not math.isnan(result.clipped_fraction):
        rows.append(Row("clipped entries", format_percent(result.clipped_fraction)))
    if result.blocking:
        rows.append(Row("engine", f"{result.engine}, {result.blocking}"))
    if result.diagnostics is not None:
        rows += result.diagnostics.rows
    return Listing(title, (*rows, *(finding.row for finding in result.findings)))


def _rows_without_posterior(result: Result) -> list[Row]:
    """Mean and standard deviation of the first data set, and Stein's evidence."""
    sd = np.sqrt(result.variance[0])
    rows = [
        Row(name, np.array2string(value, precision=4))
        for name, value in (("mean", result.mean[0]), ("sd", sd))
    ]
    return rows + ([] if result.evidence is None else result.evidence.rows)


def _rows_against_posterior(result: Result, metrics: Metrics) -> list[Row]:
    """The metrics, each beside what is expected of it."""
    ratio, shift, source = _expected(result, metrics)
    directions = (
        f"{metrics.variance_ratio_smallest.mean:.4g} to {metrics.variance_ratio_largest.mean:.4g}"
        " over directions"
    )
    share = format_percent(metrics.mean_error_squared.mean / metrics.posterior_trace)
    floor = f"{metrics.wasserstein2_floor:.2g} of as many exact draws"
    rows = [
        Row(
            "variance ratio",
            f"{metrics.variance_ratio} (expected: {ratio:.3g}, {source}; {directions})",
        ),
        Row(
            "squared mean error",
            f"{metrics.mean_error_squared} (expected: {shift:.2g}; {share} of trace(Sigma))",
        ),
        Row("squared W2 distance", f"{metrics.wasserstein2_squared} (expected: {floor})"),
        Row("MSE", f"{metrics.mse} (exact draws: trace(Sigma) = {metrics.posterior_trace:.4g})"),
    ]
    rows += [] if result.one_chain is None else one_chain_rows(result.one_chain)
    return rows + [Row("note", text, severity="warning") for text in notes(result, metrics)]


def one_chain_rows(one: OneChain) -> list[Row]:
    """What a single chain delivers, beside the law that all chains together estimate.

    Parameters
    ----------
    one
        Numbers of single chains, with their spread over chains.
    """
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
    """A share of single chains in per cent, with its spread over chains.

    Parameters
    ----------
    share
        Mean, standard deviation over chains, and standard error.
    """
    mean, sd, se = (100 * value for value in share)
    return f"{mean:.3g}{_plus_minus(se)} % of trace(Sigma)" + _over_chains(sd, " %")


def _in_words(value: Spread) -> str:
    """A number of single chains with its spread over chains."""
    return f"{value.mean:.3g}{_plus_minus(value.se)}" + _over_chains(value.sd, "")


def _plus_minus(error: float) -> str:
    return "" if math.isnan(error) else f" ± {error:.2g}"


def _over_chains(sd: float, unit: str) -> str:
    return "" if math.isnan(sd) else f" (sd {sd:.2g}{unit} over chains)"


def _expected(result: Result, metrics: Metrics) -> tuple[float, float, str]:
    """Variance ratio and squared mean error to expect, and whether they are predicted or those of
    exact draws."""
    # The mean of n independent draws is off by trace(Sigma)/n, even if the draws are exact.
    chance = metrics.posterior_trace / metrics.independent_draws
    prediction = result.plan.prediction
    if prediction is None:
        return 1.0, chance, "exact draws"
    ratio = prediction.variance_ratio
    if metrics.shift_from == "nothing":
        ratio += prediction.relative_mean_error
    return ratio, chance + prediction.mean_error_squared, "predicted"


def notes(result: Result, metrics: Metrics) -> list[str]:
    """What to keep in mind with the metrics of a result: far from the prediction, or too few
    chains.

    Parameters
    ----------
    result, metrics
        A finished run with a known posterior, and its metrics.
    """
    found = []
    prediction = result.plan.prediction
    if prediction is not None:
        off = abs(metrics.variance_ratio.mean - _expected(result, metrics)[0])
        # Five standard errors are no chance; 10 % allows for what the prediction leaves out.
        if off > 5 * metrics.variance_ratio.se + 0.1 * prediction.variance_ratio:
            found.append(
                "the variance ratio is far from what was predicted: a burn-in too short, or deep"
                " fades"
            )
    return found + notes_on_chains(metrics)


def notes_on_chains(metrics: Metrics) -> list[str]:
    """What metrics leave out, or count in, because a data set has too few chains.

    Parameters
    ----------
    metrics
        Quality of the draws.
    """
    found = []
    if metrics.chains_for_wasserstein2 is not None:
        found.append(
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
        found.append(
            f"with one chain a data set the variance ratio is about the exact mean: {counted}; use"
            " 2 or more chains a data set to tell them apart"
        )
    return found
