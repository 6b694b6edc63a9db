"""The plan's own sampler and its baselines side by side, with one seed."""

from __future__ import annotations

import math
from contextlib import nullcontext

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, one_blas_thread
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.progress import Progress, report_part
from flmc.base.randomness import check_seed
from flmc.data.federated import FederatedData
from flmc.evaluation.metrics import Estimate
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.runs.baselines.methods import Method, methods
from flmc.runs.baselines.scoring import Scorer, make_scorer
from flmc.runs.baselines.table import BaselineComparison, MethodScores
from flmc.sampling.engine import Engine
from flmc.sampling.numpy_engine import NumpyEngine
from flmc.sampling.roles import majority_server
from flmc.sampling.simulation import simulate


def compare_baselines(
    plan: Plan,
    model: Model,
    test: FederatedData,
    seed: int = 0,
    *,
    chains: int = 1,
    engine: str = "auto",
    only: tuple[str, ...] | None = None,
    progress: Progress | None = None,
) -> BaselineComparison:
    """Run a plan's sampler and its baselines with one seed, and score them on held-out examples.

    The baselines are FedSGD over the plan's channel as an analog uplink; a one-bit majority vote
    over the same channel; DP-FedSGD with the plan's epsilon of the run and no channel; Langevin
    sampling with exact gradients; and posteriors of single devices. Their steps follow the rules in
    :mod:`flmc.runs.baselines.methods`.

    Parameters
    ----------
    plan, model
        What :func:`flmc.plan` made, and the model that it was made for: linear regression of one
        data set, or a model from log densities whose target has classes.
    test
        Examples that the model has not learned from.
    seed
        Of all randomness: methods with the same channel see the same fading and noise.
    chains
        Chains of every method, each a release of its own; scores are means over them.
    engine
        Engine of all methods but the majority vote, which runs on `numpy`.
    only
        Names of the methods to run; None: all.
    progress
        Called with the finished fraction now and then.

    Returns
    -------
    BaselineComparison
        ``print`` shows it as a table.

    Raises
    ------
    InvalidSetting
        If the plan is for another model, nothing is known to judge the model by, or a name is none
        of a method.

    Examples
    --------
    >>> from flmc.runs.baselines import compare_baselines
    >>> drawn = flmc.data.draw_linear(seed=1, num_samples=400, num_devices=4)
    >>> data = flmc.data.FederatedData(drawn.features, drawn.targets, drawn.device_sizes)
    >>> learn, test = data.hold_out(0.25)
    >>> model = flmc.LinearGaussian(learn.to_linear())
    >>> plan = flmc.plan(model, flmc.Analog(), num_rounds=60, num_burn_in=30)
    >>> found = compare_baselines(plan, model, test, engine="numpy")
    >>> [each.name for each in found.methods][:3]
    ['flmc', 'FedSGD', 'majority vote']
    """
    _check(plan, model)
    check_seed(seed)
    checks.at_least("chains", chains, 1)
    scorer = make_scorer(model, test)
    known = methods(plan, model)
    names = tuple(each.name for each in known)
    for name in only or ():
        checks.one_of("a method", name, names)
    asked = [each for each in known if only is None or each.name in only]
    found, missing = [], {}
    for index, method in enumerate(asked):
        try:
            found.append(_run(method, scorer, seed, chains, engine))
        except (InvalidSetting, RunFailed) as error:
            if method.name == "flmc":  # without the sampler itself there is nothing to compare
                raise
            missing[method.name] = str(error)
        report_part(progress, index, len(asked))(1.0)
    if not found:
        raise InvalidSetting(f"no method could be run: {'; '.join(missing.values())}")
    return BaselineComparison(plan, tuple(found), missing, scorer.num_test, chains, seed)


def _check(plan: Plan, model: Model) -> None:
    """Refuse a plan that was made for another model, or that overspends its budget."""
    if (plan.num_devices, plan.dim) != (model.num_devices, model.dim):
        raise InvalidSetting(
            f"the plan is for {plan.num_devices} devices and dim {plan.dim}, the model has"
            f" {model.num_devices} and {model.dim}"
        )
    if plan.affordable_rounds < plan.num_rounds:
        raise InvalidSetting(
            f"the plan's gain keeps its budget for {plan.affordable_rounds} of {plan.num_rounds}"
            " rounds only: use a smaller gain, or none"
        )


def _run(method: Method, scorer: Scorer, seed: int, chains: int, engine: str) -> MethodScores:
    """Run and score one method; devices that sample alone are averaged, chain by chain."""
    each: list[dict[str, Array]] = []
    plans: list[Plan] = []
    for plan, model in method.plans():
        groups = _draws(
            plan, model, seed, chains, NumpyEngine(majority_server) if method.votes else engine
        )
        each.append(scorer.score(groups if method.samples else groups.mean(axis=1, keepdims=True)))
        plans.append(plan)
    first = plans[0]
    cost = first.run_cost if method.private else None
    unknown = (first.unknown_privacy or "") if method.private else method.no_statement
    steps = [p.step_size if method.votes else p.effective_step_size or p.step_size for p in plans]
    scores = {name: np.mean([one[name] for one in each], axis=0) for name in each[0]}
    return MethodScores(
        name=method.name,
        channel=method.channel,
        samples=method.samples,
        cost=cost,
        no_statement=unknown,
        data_dependent=first.data_dependent,
        num_rounds=first.num_rounds,
        step_size=float(np.median(steps)),
        scores={name: _estimate(values) for name, values in scores.items()},
    )


def _draws(plan: Plan, model: Model, seed: int, chains: int, engine: Engine | str) -> Array:
    """Theta of the kept rounds in the model's own coordinates, (chain, draw, dim)."""
    with one_blas_thread() if isinstance(model, LinearGaussian) else nullcontext():
        done = simulate(plan, model, seed, chains, engine=engine, keep_draws=True)
    if done.draws is None:  # they were asked for
        raise RunFailed("the engine kept no draws")
    draws = done.draws[0]
    return draws if model.coordinates is None else np.asarray(model.coordinates.to_model(draws))


def _estimate(values: Array) -> Estimate:
    """Mean over chains, with its standard error where there are several."""
    return Estimate.over(values) if len(values) > 1 else Estimate(float(values[0]), math.nan)
