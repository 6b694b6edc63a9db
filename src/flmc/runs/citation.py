"""How to cite a record or a sweep: a paragraph for a methods section and BibTeX entries, made of
what the record says and of nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting
from flmc.base.tables import format_up
from flmc.planning.fairness import QUANTITIES
from flmc.runs.files.durable_files import read_json
from flmc.runs.records import Record, load
from flmc.runs.sweeps.reservations import reservations_in_words

TITLE = "flmc: federated Langevin Monte Carlo over a noisy uplink"
AUTHOR = "The flmc authors"
PAPER = (
    "Leveraging Channel Noise for Sampling and Privacy via Quantized Federated Langevin Monte Carlo"
)
PAPER_AUTHORS = ("Zhang, Yunchuan", "Liu, Dongzhu", "Simeone, Osvaldo")
"""Authors of the paper whose method flmc implements."""
PAPER_IN = "IEEE International Workshop on Signal Processing Advances in Wireless Communications"
PAPER_YEAR = 2022
PAPER_EPRINT = "2202.13932"
"""Number of the paper on arXiv. All constants from ``TITLE`` to this one repeat ``CITATION.cff``,
which has no date for flmc itself, because no version has been released."""


@dataclass(frozen=True)
class Citation:
    """How to cite a result. Made by :func:`flmc.cite`.

    Attributes
    ----------
    methods
        A paragraph for a methods section, with facts from the record only.
    bibtex
        BibTeX entries of flmc, in the version that made the result, and of the paper whose method
        it implements.
    """

    methods: str
    bibtex: str

    def __str__(self) -> str:
        return f"{self.methods}\n\n{self.bibtex}"

    def to_document(self) -> dict[str, Any]:
        """The paragraph, the BibTeX entries and the version of this format, by name, for JSON."""
        return {
            "schema_version": ANSWER_VERSION,
            "methods": self.methods,
            "bibtex": self.bibtex,
        }


def cite(directory: str | Path) -> Citation:
    """How to cite the run, the sweep or the reproduced study in a directory.

    Parameters
    ----------
    directory
        Directory that ``flmc run --out``, ``flmc sweep --out`` or ``flmc reproduce --out`` made, or
        the argument ``out`` of :func:`flmc.run` or :func:`flmc.sweep`.

    Returns
    -------
    Citation
        ``print`` shows the paragraph and the entries. Where a record of an earlier version lacks a
        fact, the paragraph says that it is not recorded.

    Raises
    ------
    InvalidSetting
        If the directory holds no record, sweep or study, or a record of version 1, which does
        not say how the run was made.
    RunFailed
        If the file of the record or sweep is damaged.

    Examples
    --------
    >>> import tempfile
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    >>> plan = flmc.plan(model, flmc.Digital(), num_rounds=6, num_burn_in=2)
    >>> with tempfile.TemporaryDirectory() as out:
    ...     result = flmc.run(plan, model, engine="numpy", out=out)
    ...     citation = flmc.cite(out)
    >>> citation.methods[:54]
    'One chain of 6 rounds, of which 2 were burn-in, was si'
    >>> citation.bibtex.splitlines()[0]
    '@software{flmc,'
    """
    path = Path(directory)
    if (path / "study.json").exists():
        study = read_json(path / "study.json", signed=True)
        sentences, made_by = [*_of_study(study)], [study["provenance"]]
    elif (path / "sweep.json").exists():
        grid = read_json(path / "sweep.json")
        sentences, made_by = [*_of_sweep(grid)], [*(grid.get("provenance") or {}).values()]
    else:
        record = load(path)
        if not record.asked:
            raise InvalidSetting(
                f"{str(path)!r} is a record of version 1, which does not say how it was made"
            )
        sentences = [*_of_record(record)]
        # Records of earlier versions of flmc state only the versions of flmc, NumPy and Python.
        asked = record.asked
        known = asked.get("provenance") or {
            "flmc": asked["versions"]["flmc"],
            "libraries": {n: v for n, v in asked["versions"].items() if n == "numpy"},
            "python": asked["versions"].get("python"),
        }
        made_by = [known]
    sentences += _of_machines(made_by)
    return Citation(" ".join(sentences), _bibtex(made_by))


def _of_record(record: Record) -> Iterator[str]:
    """Sentences about a recorded run: chains and rounds, model and data, uplink, gain and step,
    privacy, variance ratio, and the digest of the plan."""
    asked, plan = record.asked, record.asked["plan"]
    count = asked["num_chains"]
    chains = "One chain" if count == 1 else f"{count} chains"
    were = "was" if count == 1 else "were"
    unfinished = "" if record.result is not None else f" ({record.round} rounds are done so far)"
    where = "in a federation of separate processes" if "federation" in asked else "simulated"
    yield (
        f"{chains} of {plan['num_rounds']} rounds, of which {plan['num_burn_in']} were burn-in,"
        f" {were} {where} with seed {asked['seed']} on the {asked['engine']} engine{unfinished}."
    )
    yield _of_problem(asked.get("resolved") or asked.get("settings"), asked.get("contents"))
    uplink = _uplink(plan)
    yield f"{plan['num_devices']} devices transmitted by the {plan['scheme']} scheme ({uplink})."
    scheduler, update = plan.get("scheduler"), plan.get("update")
    if scheduler is not None and scheduler["type"] != "AllDevices":
        yield f"Who transmitted in a round was decided by {_object(scheduler)}."
    if update is not None:  # the document has no update if it is Langevin's
        yield f"The server's update was {_object(update)} in place of a Langevin step."
    gain = plan["gain"] if isinstance(plan["gain"], float) else None
    step = plan.get("effective_step_size")
    yield (
        ("The gain was " + (f"{gain:.6g}" if gain is not None else "another in each round"))
        + f", decided by: {plan['binding']}; the step size was {plan['step_size']:.6g}"
        + ("." if step is None else f" (effective {step:.6g}).")
    )
    yield _of_privacy(record)
    metrics = (record.result or {}).get("metrics")
    if metrics:
        ratio = metrics["variance_ratio"]
        error = "" if ratio["se"] is None else f" ± {ratio['se']:.2g}"
        yield (
            "Against the exact posterior the variance ratio of the draws was"
            f" {ratio['mean']:.4g}{error} (1 is right; ±: standard error)."
        )
    yield f"The plan's digest is {asked['plan_digest']}."


def _uplink(plan: Mapping[str, Any]) -> str:
    """Text that describes the uplink in a plan's JSON document: its class and its settings,
    separated by commas; settings that are null are left out."""
    return ", ".join(
        _in_words(name, value) for name, value in plan["uplink"].items() if value is not None
    )


def _in_words(name: str, value: Any) -> str:
    """Text of one setting in a plan's JSON document: its name and value, or, for an object, its
    name, class and own settings. Of the key ``type`` only the value is given."""
    label = name.replace("_", " ")
    if not isinstance(value, Mapping):
        return str(value) if name == "type" else f"{label} {value}"
    return f"{label} {_object(value)}"


def _object(value: Mapping[str, Any]) -> str:
    """Text of an object in a plan's JSON document, such as a link or a fading: its class and its
    own settings, without those that are null."""
    own = [_in_words(n, v) for n, v in value.items() if n != "type" and v is not None]
    return str(value["type"]) + (f" with {' and '.join(own)}" if own else "")


def _of_problem(
    settings: Mapping[str, Any] | None,
    contents: Mapping[str, str] | None,
    varied: Collection[str] = (),
) -> str:
    """A sentence about the model and the data of a run, from its settings (None: they were given in
    Python). ``contents`` has SHA-256 digests of data files and of the user's own code, by name, and
    ``varied`` the names of settings that differ between the points of a sweep."""
    if settings is None:
        text = "Model and data were given in Python and are not recorded"
    else:
        model, file = settings.get("model", "linear"), settings.get("data_file")
        text = "The model varied" if "model" in varied else f"The model was {model!r}"
        if "data_file" in varied:
            text += ", and so did the data"
        elif file is not None:
            text += f" on the data of {file!r}"
            text += "" if settings.get("target") is None else f", target {settings['target']!r}"
            text += "" if settings.get("deal") is None else f", dealt {settings['deal']!r}"
            text += _of_sizes(settings, ": {samples} examples on {devices} devices, {dim} entries")
        elif model == "linear" and "model" not in varied:
            sizes = "{samples} examples with {dim} features on {devices} devices"
            text += _of_sizes(settings, " on {experiments} synthetic data set(s) of " + sizes)
    if contents:
        listed = ", ".join(f"{name} {digest[:12]}" for name, digest in sorted(contents.items()))
        text += f" (SHA-256 of data files and own code: {listed})"
    return text + "."


def _of_sizes(settings: Mapping[str, Any], words: str) -> str:
    """The text ``words``, with the sizes of the data from ``settings`` put in place of names in
    braces, as in ``{samples} examples``. A size that varies or is not known reads ``(samples not
    fixed)``. Empty if no size is known."""
    names = ("samples", "devices", "dim", "experiments")
    if all(settings.get(name) is None for name in names):
        return ""
    return words.format(**{name: settings.get(name) or f"({name} not fixed)" for name in names})


def _of_privacy(record: Record) -> str:
    """A sentence about the privacy of a recorded run: epsilon and delta of one chain, who states
    it and what limits the statement, or the reason why there is none."""
    plan = record.asked["plan"]
    covered = (record.result or {}).get("coverage")
    if plan.get("unknown_privacy") is not None:
        return f"There is no privacy statement: {plan['unknown_privacy']}."
    if covered is None:
        asked = plan["asked"]
        return f"The privacy of the run is not in this record (criterion {asked['privacy']!r})."
    epsilon = covered["epsilon"]
    text = (
        "No bound of epsilon is known for the run"
        if epsilon is None
        else f"One chain of the run is ({format_up(epsilon)}, {covered['delta']:g})-differentially"
        " private"
    )
    if covered.get("stated_by") is not None:
        text += f", as stated by {covered['stated_by']}, which flmc has not proven"
    elif "stated_by" not in covered:  # records of earlier versions do not say who states it
        link = plan["uplink"].get("link") or {"type": ""}
        for what, kind in (("uplink", plan["uplink"]["type"]), ("link", link["type"])):
            if ":" in kind:
                text += (
                    f", for the user's own {what} {kind}, which may have stated it itself: then"
                    " flmc has not proven it"
                )
    neighbouring = (plan.get("privacy") or {}).get("neighbouring")
    text += "" if neighbouring is None else f", neighbouring data: {neighbouring}"
    text += (
        f"; all {record.asked['num_chains']} chains together have epsilon"
        f" {format_up(covered['epsilon_all_chains'])}"
        if record.asked["num_chains"] > 1 and covered["epsilon_all_chains"] is not None
        else ""
    )
    if covered["data_dependent"]:
        text += (
            "; the plan was computed from the devices' data, so that this holds for a simulation"
            " and is no statement for a deployment"
        )
    return text + "."


def _of_sweep(grid: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about a sweep, from the content of its ``sweep.json``: the settings that varied,
    the settings that were fixed, limits of the privacy statements, and the quantity in which
    methods were made equal."""
    axes = grid["sweep"]
    count = 1
    for values in axes.values():
        count *= len(values)
    varied = "; ".join(f"{name} over {_values(values)}" for name, values in axes.items())
    done = "planned" if grid.get("plan_only") else "planned and simulated"
    yield f"{count} points of a grid were {done}: {varied}."
    resolved = grid.get("resolved")
    yield _of_problem({**grid["settings"], **(resolved or {})}, grid.get("contents"), axes)
    held = resolved or grid["settings"]
    shown = ", ".join(f"{n} = {v}" for n, v in held.items() if v is not None)
    kind = "All other settings" if resolved else "Settings that were given for all points"
    yield f"{kind}: {shown}." if shown else "All other settings had their defaults."
    if "auto" in held.values():
        yield (
            "What is auto was chosen for each point by itself; the table has the chosen step and"
            " burn-in in its columns step_size_used and burn_in_used, and the engine in"
            " engine_used."
        )
    if grid.get("privacy") is None:
        yield (
            "Who states the privacy of the points, and whether their plans were computed from the"
            " devices' data, is not in this file."
        )
    else:
        yield from (
            f"{text[0].upper()}{text[1:]}." for text in reservations_in_words(grid["privacy"])
        )
    if grid.get("equal") is not None:
        yield f"Methods were made equal: {QUANTITIES[grid['equal']].definition}."
    if grid.get("hold_out") is not None:
        yield f"A share of {grid['hold_out']} of every device's examples was held out."


def _of_study(study: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about the reproduction of a published study: the command, the settings changed in
    the study's base case, and the settings of curves that the user added."""
    yield (
        f"The study {study['paper']!r} was measured again by `{study['command']}`, with"
        f" {study['experiments']} experiments and seed {study['seed']}."
    )
    if study["changes"]:
        changed = ", ".join(f"{name} = {value}" for name, value in study["changes"].items())
        yield f"Its base case was changed: {changed}."
    for name, words in study["curves"].items():
        yield f"Settings of the added curve {name!r}: {words}."


def _values(values: list[Any]) -> str:
    """Text of the values of a setting, separated by commas; of more than eight values only the
    first, the last and their number."""
    shown = [str(value) for value in values]
    return (
        ", ".join(shown) if len(shown) <= 8 else f"{shown[0]} to {shown[-1]} ({len(shown)} values)"
    )


def _of_machines(made_by: list[dict[str, Any]]) -> Iterator[str]:
    """Sentences about the software and the processors that computed a result."""
    if not made_by:
        yield "Which versions and processors computed it is not recorded."
    for each in made_by:
        libraries = ", ".join(f"{name} {v}" for name, v in (each.get("libraries") or {}).items())
        text = f"Computed by flmc {each['flmc']}"
        commit, sources = each.get("commit"), each.get("sources")
        text += " (commit not recorded" if commit is None else f" (commit {commit}"
        text += ")" if sources is None else f", SHA-256 of its sources {sources[:12]})"
        text += f" with {libraries}" if libraries else ""
        text += "" if each.get("python") is None else f", {each['python']}"
        text += "" if each.get("blas") is None else f", BLAS {each['blas']}"
        if each.get("processor") is not None:
            text += f", on {each['processor']} ({each['system']})"
            features = each.get("features") or []
            text += f" with {', '.join(features)}" if features else ""
        yield f"{text}."


def _bibtex(made_by: list[dict[str, Any]]) -> str:
    """BibTeX entries of flmc and of the paper whose method it implements. The entry of flmc has the
    versions that computed the result, and the commit if all of it was computed by one known
    commit."""
    fields = {"title": f"{{{TITLE}}}", "author": f"{{{AUTHOR}}}"}
    versions = {each["flmc"] for each in made_by}
    if versions:
        fields["version"] = ", ".join(sorted(versions))
    commits = {each.get("commit") for each in made_by}
    if len(commits) == 1 and None not in commits:
        fields["note"] = f"commit {commits.pop()}"
    paper = {
        "title": f"{{{PAPER}}}",
        "author": " and ".join(PAPER_AUTHORS),
        "booktitle": PAPER_IN,
        "year": str(PAPER_YEAR),
        "eprint": PAPER_EPRINT,
        "archiveprefix": "arXiv",
    }
    return f"{_entry('software', 'flmc', fields)}\n\n{_entry('inproceedings', 'qflmc', paper)}"


def _entry(kind: str, key: str, fields: Mapping[str, str]) -> str:
    """Text of one BibTeX entry of the type ``kind``, such as ``software``, with the citation key
    ``key``."""
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])
