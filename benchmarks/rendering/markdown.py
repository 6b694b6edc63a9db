"""The tables of the JSON as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flmc.views.reports import wrap_prose

Row = Mapping[str, Any]


def number(value: Any, digits: int = 3) -> str:
    """A number with so many significant digits and without an exponent; a dash for None."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ") if value >= 10_000 else str(value)
    if not isinstance(value, float):
        return str(value)
    rounded = float(f"{value:.{digits}g}")
    places = max(0, digits - 1 - _exponent(rounded))
    return number(round(rounded)) if places == 0 else f"{rounded:.{places}f}"


def _exponent(value: float) -> int:
    """Power of ten of the first digit; 0 for zero."""
    return int(f"{value:e}".partition("e")[2]) if value else 0


def table(rows: Iterable[Row], columns: Mapping[str, str | Callable[[Row], Any]]) -> str:
    """A Markdown table.

    Parameters
    ----------
    rows
        What is shown, one line each.
    columns
        Key of a row, or a function of it, by the heading.
    """
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        if row.get("absent"):
            first = next(iter(columns.values()))
            name = first(row) if callable(first) else row.get(first)
            lines.append(f"| {name} | {_unsplit(row['absent'])}" + " |" * (len(columns) - 1))
            continue
        cells = (of(row) if callable(of) else row.get(of) for of in columns.values())
        lines.append("| " + " | ".join(map(number, cells)) + " |")
    return "\n".join(lines)


def _unsplit(text: str) -> str:
    """Text that does not end a cell."""
    return text.replace("|", "/")


def milliseconds(key: str = "seconds") -> Callable[[Row], Any]:
    """A column of seconds in milliseconds."""
    return lambda row: None if row.get(key) is None else 1e3 * row[key]


def render(document: Row) -> str:
    """All tables of a document, with the machine and the date before them."""
    parts = [wrap_prose(_origin(document))]
    for name, (title, words, make) in SECTIONS.items():
        if document.get(name):
            parts += [f"### {title}", *([wrap_prose(words)] if words else [])]
            parts.append(make(document[name]))
    return "\n\n".join(parts) + "\n"


def _origin(document: Row) -> str:
    """Where the numbers come from."""
    machine = document["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items() if v)
    quick = ", small cases only" if document.get("quick") else ""
    return (
        f"Measured on {machine['date']} at commit `{machine['commit']}`: {machine['processor']},"
        f" {machine['processors']} virtual processors with a last cache of"
        f" {number(machine['last_cache_megabytes'])} MB, {number(machine['memory_gigabytes'])} GB"
        f" of memory; Python {machine['python']}, {versions}. CPU time of all threads, medians of"
        f" {document['repeats']} interleaved repeats{quick}; memory is the peak of a process with"
        " all its imports."
    )


def _limits(rows: Sequence[Row]) -> str:
    return table(
        rows, {"limit of one core": "limit", "measured": "billions_per_second", "unit": "unit"}
    )


def _standard(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(row["what"] for row in rows))
    both = []
    for name in names:
        found = {row["scheme"]: row for row in rows if row["what"] == name}
        digital, analog = found.get("digital", {}), found.get("analog", {})
        both.append(
            {
                "what": name,
                "digital": milliseconds()(digital),
                "digital times": digital.get("times_the_kernel"),
                "analog": milliseconds()(analog),
                "analog times": analog.get("times_the_kernel"),
                "memory": digital.get("peak_megabytes"),
                "absent": digital.get("absent"),
            }
        )
    return table(
        both,
        {
            "": "what",
            "digital, ms": "digital",
            "times the kernel": "digital times",
            "analog, ms": "analog",
            "times its kernel": "analog times",
            "memory, MB": "memory",
        },
    )


def _large(rows: Sequence[Row]) -> str:
    shown = [row for row in rows if row["against"] != "dim, chains"]
    chains = [row for row in rows if row["against"] == "dim, chains"]
    columns: dict[str, str | Callable[[Row], Any]] = {
        "devices": "devices",
        "dim": "dim",
        "experiments": "experiments",
        "chains": "chains",
        "engine": "engine",
        "ns a symbol": "ns_per_symbol",
        "FMA limit": "compute_ns_per_symbol",
        "memory limit": lambda row: (
            row.get("stream_ns_per_symbol") if row.get("must_stream") else None
        ),
        "times the larger": "times_the_limit",
        "NumPy": "numpy_ns_per_symbol",
        "memory, MB": "peak_megabytes",
    }
    return table(
        [row for row in [*shown, *chains] if row.get("ns_per_symbol") or row.get("absent")], columns
    )


def _few(rows: Sequence[Row]) -> str:
    return table(
        rows,
        {
            "varied": "against",
            "value": "value",
            "ms": milliseconds(),
            "ns a symbol": "ns_per_symbol",
            "bound, ms": milliseconds("bound_seconds"),
            "times the bound": "times_the_bound",
            "memory, MB": "peak_megabytes",
        },
    )


def _plain(rows: Sequence[Row]) -> str:
    return table(
        rows,
        {
            "scheme": "scheme",
            "dim": "dim",
            "experiments": "experiments",
            "chains": "chains",
            "engine, ns a symbol": "engine_ns_per_symbol",
            "plain Numba": "plain_ns_per_symbol",
            "times": "times",
            "kernel": "kind",
            "first call, s": "plain_first_seconds",
        },
    )


def _starts(rows: Sequence[Row]) -> str:
    return table(
        rows,
        {"a run in a new process": "start", "seconds": "seconds", "memory, MB": "peak_megabytes"},
    )


def _peer(rows: Sequence[Row]) -> str:
    return table(rows, {"": "what", "seconds": "seconds", "memory, MB": "peak_megabytes"})


def _jax(rows: Sequence[Row]) -> str:
    return table(
        rows,
        {
            "what": "what",
            "job": "job",
            "ms": milliseconds(),
            "times": lambda row: f"{number(row['times'])} {row['beside']}",
            "memory, MB": "peak_megabytes",
        },
    )


def _recording(rows: Sequence[Row]) -> str:
    return table(
        rows,
        {
            "engine": "engine",
            "draws": "draws",
            "plain, ms": milliseconds("plain_seconds"),
            "recorded, ms": milliseconds("recorded_seconds"),
            "more, %": "overhead_percent",
            "memory, MB": "peak_megabytes",
        },
    )


def _federation(rows: Sequence[Row]) -> str:
    return table(
        rows,
        {
            "devices": "devices",
            "TLS": "tls",
            "journals in": "journals",
            "active at the end": lambda row: round(row["active"]),
            "beyond the slot, ms": "beyond_slot_ms",
            "CPU of the devices, ms": "devices_ms",
            "of the air": "air_ms",
            "of the broker": "broker_ms",
            "of the server": "server_ms",
            "memory of the devices, MB": "peak_megabytes_devices",
            "of the air, MB": "peak_megabytes_air",
            "of the broker, MB": "peak_megabytes_broker",
        },
    )


def every_column(rows: Sequence[Row]) -> str:
    """Rows of a part that chooses its own columns: their keys, with spaces."""
    if all(row.get("absent") for row in rows):
        return " ".join(f"Left out: {row['absent']}." for row in rows)
    keys = list(dict.fromkeys(key for row in rows for key in row if key != "absent"))
    columns: dict[str, str | Callable[[Row], Any]] = {key.replace("_", " "): key for key in keys}
    return table(rows, columns)


SECTIONS: dict[str, tuple[str, str, Callable[[Sequence[Row]], str]]] = {
    "limits": (
        "Limits of the machine",
        "Best of the repeats, by CPU time.",
        _limits,
    ),
    "standard": (
        "The standard point",
        "1000 data sets, 20 devices, 5 entries, 300 rounds: 30 million symbols. *Kernel alone* is"
        " the engine with sums and no draws; *around the kernel* is what `flmc.run` adds.",
        _standard,
    ),
    "large": (
        "Large problems",
        "The digital scheme, 300 rounds. The FMA limit is the time of 2 K m² operations for each"
        " chain and round; the memory limit that of reading K m (m + 1) numbers for each data set"
        " and round, where a data set is larger than a core's share of the last cache.",
        _large,
    ),
    "few": (
        "Few and many",
        "20 devices, 5 entries, digital; 300 rounds unless they are varied, with 8 data sets then."
        " The bound is 1.5 (1 ms + cost of full vectors of 8 chains), at the smallest cost of a"
        " symbol in this table.",
        _few,
    ),
    "plain": (
        "Beside plain Numba",
        "Rounds alone, 20 devices: the machine code of the engine, and the best plain Numba that we"
        " could write (`benchmarks/jobs/plain_numba.py`), whose first call compiles. The two of a"
        " row take turns. Measured apart from the other tables, while other work took most of both"
        " processors. [The page of the engine](compiled_engine.md) draws the conclusion.",
        _plain,
    ),
    "planning": ("Planning", "", every_column),
    "reproduction": ("Reproduction", "", every_column),
    "starts": ("Start", "", _starts),
    "peer": (
        "The predecessor's experiment",
        "`flmc reproduce --paper wflmc`: 100 runs at each of 8 SNR with each of 3 allocations,"
        " after compilation. Most of the whole is the convex programs of the adaptive allocation.",
        _peer,
    ),
    "jax": ("JAX", "All rows share a process, and so its memory.", _jax),
    "recording": (
        "Recording",
        "The standard point with and without a record; all rows share a process.",
        _recording,
    ),
    "federation": (
        "A federation of real processes",
        "mosquitto, air and server are processes of their own; all devices share one more, each"
        " with its own connection, certificate and journal (one fsync an answer). 5 entries, 20"
        " rounds, a slot of 50 ms. Clock time of a round less the slot, and CPU time of a round:"
        " medians over rounds, and over up to 3 runs.",
        _federation,
    ),
}
"""Title, words and table of every part, in the order of the page."""
