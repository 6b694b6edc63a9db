"""Runs of a problem: the engine alone, and `flmc.run` as users call it."""

from __future__ import annotations

from functools import partial
from typing import Any

import flmc
from jobs.problem import Problem
from measuring.job import Job, need


def chosen(plan: flmc.Plan, model: flmc.LinearGaussian, chains: int) -> str:
    """The engine that `auto` takes for so many chains."""
    try:
        from flmc.sampling.engine_choice import choose_engine
    except ImportError:  # an old commit has it elsewhere, and only this fact needs it
        return "auto"
    return choose_engine("auto", plan, model).name


def kernel(engine: str = "auto", **sizes: Any) -> Job:
    """The engine alone: all rounds of all chains, with sums and no draws."""
    # Imported here: `run` and `plan` also work with old commits that have it elsewhere.
    from flmc.sampling.simulation import simulate

    if engine != "auto":
        need(engine)
    problem = Problem(**sizes)
    turn = partial(
        simulate, problem.plan, problem.model, 0, problem.chains, engine=engine, keep_draws=False
    )
    name = chosen(problem.plan, problem.model, problem.chains) if engine == "auto" else engine
    return Job(turn, {"engine": name})


def run(**sizes: Any) -> Job:
    """`flmc.run` as users call it: with its draws, evaluated."""
    problem = Problem(**sizes)
    return Job(partial(flmc.run, problem.plan, problem.model, chains=problem.chains), {})


def fresh_run(**sizes: Any) -> Job:
    """The first `flmc.run` of a model and a plan that were just made, in a warm process."""
    problem = Problem(**sizes)
    made: list[tuple[flmc.Plan, flmc.LinearGaussian]] = []

    def before() -> None:
        model = problem.make_model()
        made[:] = [(problem.make_plan(model), model)]

    def turn() -> None:
        [(plan, model)] = made
        flmc.run(plan, model, chains=problem.chains)

    return Job(turn, {}, before)


def plan(**sizes: Any) -> Job:
    """`flmc.plan` of a model that is there."""
    problem = Problem(**sizes)
    return Job(partial(problem.make_plan, problem.model), {})


def answer(**sizes: Any) -> Job:
    """The answers of a run that is there: mean and covariance of every data set."""
    problem = Problem(**sizes)
    result = flmc.run(problem.plan, problem.model, chains=problem.chains)

    def turn() -> None:
        found = result.posterior()
        _ = found.mean, found.covariance

    return Job(turn, {})


JOBS = {"answer": answer, "kernel": kernel, "run": run, "fresh run": fresh_run, "plan": plan}
