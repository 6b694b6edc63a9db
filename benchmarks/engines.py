"""How close the fast engine is to the limit that its random numbers set, and what a sweep point
costs.

CPU time (of all threads) throughout, medians of interleaved repeats, because the machine is shared
and noisy: ratios inside one run mean something, seconds hardly. Writes a table, and the same as
JSON with ``--json FILE``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import flmc
from flmc.sampling.compiled import kernel
from flmc.sampling.compiled.kernel import LANES
from flmc.sampling.simulation import simulate

LOOP_SHARE = 500
"""The plain loop runs one experiment in so many, and its time is scaled."""


def draw_random_numbers(
    experiments: int, devices: int, dim: int, rounds: int, *, bits: bool
) -> None:
    """The limit: the words and normals of a sweep point, and nothing else, by as many threads as
    the engine has."""
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(
            _draw, [(-(-experiments // threads), devices, dim, rounds, bits)] * threads
        ):
            pass


def _draw(what: tuple[int, int, int, int, bool]) -> None:
    experiments, devices, dim, rounds, bits = what
    state = np.random.default_rng(0).integers(0, 2**32, 4 * LANES, dtype=np.uint32)
    words = np.empty(max(devices, 8) * dim * LANES, np.uint32)
    normals = np.empty(8 * dim * LANES, np.float32)
    blocks = -(-experiments // LANES)
    kernel.draw_alone(
        state,
        words,
        normals,
        np.uint64(devices * dim if bits else 0),
        np.uint64(8 * dim),
        blocks,
        rounds,
    )


def plain_loop(model: flmc.LinearGaussian, plan: flmc.Plan, experiments: int) -> None:
    """As a researcher would write it: one experiment, one round, one device after the other."""
    rng = np.random.default_rng(0)
    gain, step, slope = plan.typical_gain, plan.step_size, 0.05
    for experiment in range(experiments):
        hessian, offset = model.hessian[experiment], model.offset[experiment]
        theta = rng.standard_normal(model.dim)
        kept = []
        for r in range(plan.num_rounds):
            received = rng.standard_normal(model.dim)
            for k in range(model.num_devices):
                gradient = np.clip(hessian[k] @ theta - offset[k], -30.0, 30.0)
                if plan.uplink.scheme == "digital":
                    probability = 1 / (1 + np.exp(-slope * gradient))
                    received += gain * np.where(rng.random(model.dim) < probability, 1.0, -1.0)
                else:
                    received += gain * gradient
            theta = theta - step * received / gain
            if r >= plan.num_burn_in:
                kept.append(theta)


def interleaved(jobs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of every job; jobs take turns."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()  # compile, warm the caches
    for _ in range(repeats):
        for name, job in jobs.items():
            began = time.process_time()
            job()
            times[name].append(time.process_time() - began)
    return {name: float(np.median(values)) for name, values in times.items()}


def model_of(experiments: int, devices: int = 20, dim: int = 5) -> flmc.LinearGaussian:
    samples = max(1200, devices * dim)
    source = flmc.data.draw_linear_statistics(
        0,
        num_experiments=experiments,
        num_samples=samples,
        dim=dim,
        num_devices=devices,
        kind="sufficient",
    )
    return flmc.LinearGaussian(source)


def compare_engines(repeats: int, experiments: int) -> list[dict[str, Any]]:
    model = model_of(experiments)
    rows = []
    for uplink in (flmc.Digital(), flmc.Analog()):
        plan = flmc.plan(model, uplink, forecast=False)
        bits = uplink.scheme == "digital"
        part = max(1, experiments // LOOP_SHARE)

        def limit(bits: bool = bits) -> None:
            draw_random_numbers(experiments, 20, 5, 300, bits=bits)

        def engine(name: str, plan: flmc.Plan = plan) -> Callable[[], Any]:
            return lambda: simulate(plan, model, 0, engine=name)

        jobs: dict[str, Callable[[], Any]] = {
            "limit": limit,
            "numba": engine("numba"),
            "numpy": engine("numpy"),
            "loop": lambda plan=plan, part=part: plain_loop(model, plan, part),
        }
        found = interleaved(jobs, repeats)
        found["loop"] *= experiments / part
        rows.append(
            {"scheme": uplink.scheme, **{f"{name}_seconds": value for name, value in found.items()}}
        )
    both = rows[0]["limit_seconds"]
    for row in rows:
        fast = row["numba_seconds"]
        row.update(
            numba_over_limit=fast / row["limit_seconds"],
            numba_over_words_and_normals=fast / both,
            numpy_over_numba=row["numpy_seconds"] / fast,
            loop_over_numba=row["loop_seconds"] / fast,
        )
    return rows


def measure_scaling(repeats: int, quick: bool) -> list[dict[str, Any]]:
    """Cost of the numba engine, and of NumPy's where it is bearable, against devices, entries and
    experiments."""
    cases = [("devices", K, 1000, K, 5) for K in (5, 20, 100, 1000)]
    cases += [("dim", m, 1000 if m <= 20 else 100, 20, m) for m in (2, 5, 10, 20, 50, 100)]
    cases += [("experiments", E, E, 20, 5) for E in (100, 1000, 10_000, 100_000)]
    rows = []
    for name, value, experiments, devices, dim in cases:
        entries = experiments * devices * dim * 300
        if quick and entries > 2e7:
            continue
        model = model_of(experiments, devices, dim)
        plan = flmc.plan(model, flmc.Digital(), forecast=False)
        names = ["numba", "numpy"] if entries <= 7e7 else ["numba"]
        jobs = {name: partial(simulate, plan, model, 0, engine=name) for name in names}
        found = interleaved(jobs, repeats if entries <= 4e8 else 1)
        rows.append(
            {
                "against": name,
                "value": value,
                "experiments": experiments,
                "numba_seconds": found["numba"],
                "numba_ns_per_symbol": 1e9 * found["numba"] / entries,
                "numpy_over_numba": found["numpy"] / found["numba"] if "numpy" in found else None,
            }
        )
        print(f"  {name} {value}: {found['numba']:.3f} s", file=sys.stderr)
    return rows


def measure_start() -> dict[str, float]:
    """CPU seconds of a small run in a new process: with nothing compiled, and from the cache; peak
    memory, from Linux's own count, because that of getrusage begins with the peak of the process
    which started this one."""
    code = (
        "import time\nfrom flmc.cli import main\nmain(['run', '--rounds', '3', '--burn-in', '1',"
        " '--chains', '1', '--json'])\npeak = next(line.split()[1] for line in"
        " open('/proc/self/status') if line.startswith('VmHWM'))\nprint(time.process_time(),"
        " int(peak) / 1024)"
    )
    with tempfile.TemporaryDirectory() as cache:
        found = []
        for _ in range(2):
            out = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True,
                env={"NUMBA_CACHE_DIR": cache, "PATH": ""},
            ).stdout  # fmt: skip
            found.append([float(value) for value in out.split()[-2:]])
    return {
        "first_seconds": found[0][0],
        "cached_seconds": found[1][0],
        "cached_megabytes": found[1][1],
    }


def table(rows: list[dict[str, Any]]) -> str:
    header = list(rows[0])
    cells = [[_cell(row[name]) for name in header] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in cells)) for i, name in enumerate(header)]
    return "\n".join(
        "  ".join(text.rjust(w) for text, w in zip(line, widths, strict=True))
        for line in [header, *cells]
    )


def _cell(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--experiments", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="small cases only")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    start = measure_start()
    engines = compare_engines(options.repeats, options.experiments)
    print(
        f"One sweep point, {options.experiments} experiments, CPU seconds, medians of"
        f" {options.repeats}:\n"
    )
    print(table(engines))
    scaling = measure_scaling(3, options.quick)
    print("\nCost of a digital point:\n")
    print(table(scaling))
    print("\nStart-up, a tiny run in a new process:\n")
    print(table([start]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory of this process: {peak:.0f} MB")
    if options.json is not None:
        document = {
            "machine": platform.processor() or platform.machine(),
            "engines": engines,
            "scaling": scaling,
            "start": start,
            "peak_megabytes": peak,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
