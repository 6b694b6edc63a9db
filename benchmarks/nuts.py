"""What NumPyro's NUTS costs on the posteriors of posteriordb, with all data in one place and
without noise: what no federation has."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from judging import Distance, fewest_draws
from posteriors import Posterior

CHAINS, WARM_UP, DRAWS = 4, 500, 1000
"""Chains of NUTS, one after the other, with so many steps of warm-up and draws each."""


class Timed(NamedTuple):
    """What NUTS costs on one posterior: processor seconds with warm-up and without compilation,
    effective draws of all chains in the entry that has fewest, and how far its draws are from the
    reference."""

    cpu: float
    draws: float
    distance: Distance


def timed(given: Posterior) -> Timed:
    """NUTS on the log density of a posterior as flmc has it, pooled, in the same coordinates and in
    double precision."""
    import jax
    from numpyro.infer import NUTS

    reference, model = given.reference(), given.pooled()
    starts = model.start_point + 0.1 * np.random.default_rng(1).standard_normal((CHAINS, model.dim))
    with jax.enable_x64():

        def potential(theta: Any) -> Any:
            return model._costs.total(theta, model._data)

        kernel = NUTS(potential_fn=potential)

        def chain(key: Any, start: Any) -> Any:
            state = kernel.init(key, WARM_UP, start, (), {})
            steps = jax.lax.scan(
                lambda state, _: (kernel.sample(state, (), {}), state.z), state, None,
                length=WARM_UP + DRAWS + 1,
            )[1]  # fmt: skip
            return steps[WARM_UP + 1 :]

        # Compiled before the clock runs.
        keys = jax.random.split(jax.random.key(0), CHAINS)
        compiled = jax.jit(chain).lower(keys[0], starts[0]).compile()
        began = time.process_time()
        each = zip(keys, starts, strict=True)
        draws = np.stack([np.asarray(compiled(key, start)) for key, start in each])
        cpu = time.process_time() - began
    theta = draws if model.coordinates is None else model.coordinates.to_model(draws)
    columns = given.columns(model, np.asarray(theta))
    distance = Distance.measured(
        columns, reference.mean, reference.sd, reference.mean_error, reference.variance_error,
        reference.draws,
    )  # fmt: skip
    return Timed(cpu, fewest_draws(columns), distance)
