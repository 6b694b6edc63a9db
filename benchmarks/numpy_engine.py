"""CPU time of the NumPy engine at the standard point: 1000 data sets, 20 devices, dim 5, 300 rounds."""

import json
import statistics
import time

import numpy as np

import flmc
from flmc.randomness import Purpose, generator

REPEATS = 7


def random_numbers_alone() -> None:
    """The limit: 30 million uniform and 1.5 million normal numbers, in arrays that stay in cache."""
    rng = generator(0, Purpose.PLANNING)
    uniform, normal = np.empty(30_000), np.empty(1_500)
    for _ in range(1000):
        rng.random(out=uniform)
        rng.standard_normal(out=normal)


def cpu_seconds(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


model = flmc.LinearGaussian(flmc.data.draw_linear_statistics(seed=3, num_experiments=1000))
digital, analog = (flmc.plan(model, uplink) for uplink in (flmc.Digital(), flmc.Analog()))
works = {
    "random numbers alone": random_numbers_alone,
    "numpy engine, digital": lambda: flmc.run(digital, model, seed=1, keep_draws=False),
    "numpy engine, analog": lambda: flmc.run(analog, model, seed=1, keep_draws=False),
}
times = {name: [] for name in works}
for _ in range(REPEATS):
    for name, work in works.items():
        times[name].append(cpu_seconds(work))
medians = {name: statistics.median(values) for name, values in times.items()}
limit = medians["random numbers alone"]
for name, seconds in medians.items():
    print(f"{name:24s} {seconds:7.3f} s CPU  {seconds / limit:6.1f} times the random numbers alone")
print(json.dumps(medians))
