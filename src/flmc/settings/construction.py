"""Models, uplinks, links, fadings, noise laws and engines made from the settings that name them.

Settings may name a user's own code, such as ``mine.links:Steep``, which is then imported. On the
command line the user asks for that. A record or a file of settings may come from somebody else:
commands that read one call ``named_code`` first, which lists the code that the settings name and
imports nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.data.dealing import split_evenly
from flmc.data.federated import FederatedData
from flmc.data.linear_data import LinearData
from flmc.data.reading import read
from flmc.data.synthetic import DrawnExamples, draw_linear, draw_linear_statistics
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.models.wide_linear import WIDE, WideLinear
from flmc.settings.registered import ENGINES, FADINGS, LINKS, MODELS, NOISE_LAWS, SCHEMES
from flmc.settings.registry import CURRENT_DIRECTORY
from flmc.settings.schema import Settings, naming
from flmc.uplink.example_clipping import typical_shrink
from flmc.uplink.fading import Fading
from flmc.uplink.link import Link
from flmc.uplink.noise import NoiseLaw
from flmc.uplink.uplink import Uplink

if TYPE_CHECKING:  # for annotations only: planning must not wait for the import of the engines
    from flmc.sampling.engine import Engine

_MOST_STATISTICS = 500_000_000
"""Largest total size of the devices' sufficient statistics, in numbers (4 GB), that a linear
regression with clipped examples keeps beside its examples; where they would take more, it has
examples alone."""


OF_DATA_FILES = (
    *("target", "device_column", "deal", "features", "classes", "categories", "standardise"),
    "missing",
)
"""Settings that say how the file in ``data_file`` is read."""


def make_model(settings: Settings) -> Model:
    """The model that settings name: a registered one on the examples in ``data_file``, linear
    regression on synthetic data, or one of the user's own. Settings that would have no effect, or
    do not fit each other, raise ``InvalidSetting``."""
    if settings.data_file is not None:
        return model_of(settings, data_of_file(settings, settings.data_file))
    refuse(settings, OF_DATA_FILES, "are for data_file")
    if settings.model in MODELS.names and settings.model != "linear":
        raise InvalidSetting(f"model {settings.model!r} needs data: give data_file")
    if settings.model != "linear":
        refuse(
            settings,
            ("devices", "dim", "samples", "experiments", "data"),
            "come from the model that was given",
        )
        model: Model = MODELS.build(settings.model)
        return model
    sizes = split_evenly(settings.samples, settings.devices)
    name = _about_examples(settings)
    if name is not None:
        if settings.data != "examples":
            raise InvalidSetting(
                f"{name} needs data = 'examples', got 'sufficient': there are no single examples"
            )
        # Where single examples are clipped, the examples are kept in memory whatever their number;
        # if statistics fit beside them, they give the exact posterior.
        if settings.devices * settings.dim**2 <= _MOST_STATISTICS:
            return LinearGaussian(draw_examples(settings, settings.experiments))
        return _wide(settings, sizes)
    if settings.dim > WIDE:
        # With so many entries, sufficient statistics (dim^2 numbers for every device) would take
        # too much memory.
        return _wide(settings, sizes)
    statistics = draw_linear_statistics(
        settings.seed,
        num_experiments=settings.experiments,
        num_samples=settings.samples,
        dim=settings.dim,
        num_devices=settings.devices,
        device_sizes=sizes,
        kind=settings.data,
    )
    return LinearGaussian(statistics)


def data_of_file(settings: Settings, source: str) -> FederatedData:
    """Examples in the file ``source``, for a registered model. They belong to devices as the file
    says, or are dealt to devices anew as the setting ``deal`` says."""
    refuse(settings, ("dim", "samples", "experiments", "data"), "come from data_file")
    if settings.deal is None:
        refuse(settings, ("devices",), "are those of data_file unless deal says how to deal anew")
    if settings.model not in MODELS.names:
        raise InvalidSetting(
            f"data_file is for the models {', '.join(MODELS.names)}; got {settings.model!r}"
        )
    data = read(
        source,
        target=settings.target,
        device_column=settings.device_column,
        features=settings.features,
        categories=settings.categories,
        classes=settings.classes,
        standardise=settings.standardise,
        missing=settings.missing,
    )
    data = _with_named_classes(data, MODELS[settings.model].classes)
    if settings.deal is not None:
        data = data.split(settings.devices, settings.deal, settings.seed)
    return data


def _with_named_classes(data: FederatedData, wanted: str | None) -> FederatedData:
    """``data`` with named classes, if the model wants classes (``wanted`` is ``two`` or
    ``several``) and the targets are whole numbers: the distinct numbers become the names, and two
    classes become -1 and +1. Other data are returned unchanged, because the model itself says why
    it refuses them."""
    values = np.unique(data.targets)
    if wanted is None or data.classes or not np.array_equal(values, np.rint(values)):
        return data
    if wanted == "two" and len(values) == 2:
        targets = np.where(data.targets == values[1], 1.0, -1.0)
    elif wanted == "several" and len(values) > 2 and np.array_equal(values, np.arange(len(values))):
        targets = data.targets
    else:
        return data
    return replace(data, targets=targets, classes=tuple(f"{value:g}" for value in values))


def model_of(settings: Settings, data: FederatedData) -> Model:
    """The registered model that settings name, for the examples of all devices in ``data``."""
    model: Model = MODELS[settings.model].maker(
        data.to_linear() if settings.model == "linear" else data
    )
    # If features were scaled with numbers from the data, plans of this model count as
    # data-dependent.
    model.made_from_data = model.made_from_data or data.data_dependent
    model.num_examples = data.num_samples
    return model


def draw_examples(settings: Settings, num_experiments: int | None) -> LinearData:
    """Synthetic examples of linear regression for ``num_experiments`` data sets; None: for one data
    set, in arrays without an axis for data sets."""
    return draw_linear(
        settings.seed,
        num_experiments=num_experiments,
        num_samples=settings.samples,
        dim=settings.dim,
        num_devices=settings.devices,
        device_sizes=split_evenly(settings.samples, settings.devices),
    )


def _wide(settings: Settings, sizes: tuple[int, ...]) -> WideLinear:
    """Linear regression that keeps its synthetic examples, because sufficient statistics would take
    ``dim`` squared numbers a device; ``sizes`` are the devices' numbers of examples. Very many
    examples are drawn only when a gradient is first computed, so that a plan need not wait for
    them."""
    many = DrawnExamples(settings.seed, settings.experiments, sizes, settings.dim)
    return WideLinear(many if many.too_many else draw_examples(settings, settings.experiments))


def make_uplink(settings: Settings) -> Uplink:
    """The uplink that settings describe: an object of the scheme's class, with the settings that
    this class takes.

    Settings of a link raise ``InvalidSetting`` for a scheme without a link, and settings of a
    channel for a scheme without a channel."""
    made, own = SCHEMES.made_of(settings.scheme)
    kind: type[Uplink] = made
    taken = kind.setting_names()
    if "link" in not_taken(settings):
        with_link = [each.name for each in SCHEMES if "link" in each.maker.setting_names()]
        why = f"are for the {' and '.join(with_link)} scheme, not {settings.scheme}"
        refuse(settings, _OF_LINKS, why)
    if kind.noise_is_exact:
        why = f"are for a channel, and {settings.scheme} has none"
        refuse(settings, _OF_CHANNELS, why)
    fields = {name: _FIELDS[name](settings) for name in taken if name in _FIELDS}
    if fields.get("noise_law", "") is None:  # no law was given: the class uses its own
        del fields["noise_law"]
    # Parameters written behind the name of the scheme take precedence over settings of the same
    # name.
    return kind.from_settings({**fields, **own})


_OF_LINKS = ("link", "slope_parameter")
_OF_CHANNELS = ("csi_error", "average_snr_db", "fading", "noise_law")
"""Settings that only a scheme with a channel takes; ``_OF_LINKS`` above has those that only a
scheme with a link takes."""


def not_taken(settings: Settings) -> tuple[str, ...]:
    """Names of the settings that have no meaning for the scheme that these settings name."""
    kind = scheme_of(settings)
    without_link = () if "link" in kind.setting_names() else _OF_LINKS
    return (*without_link, *(_OF_CHANNELS if kind.noise_is_exact else ()))


def idle_settings(settings: Settings) -> set[str]:
    """Names of the settings that have no effect beside the others: those that the scheme does not
    take, and sizes and laws of synthetic data where the data come from a file or the model is the
    user's own."""
    taken = scheme_of(settings).setting_names()
    idle = {name for name in _FIELDS if name not in taken} | set(not_taken(settings))
    if settings.example_clip is None and settings.example_norm is None:
        idle.add("example_shrink")
    if settings.privacy == "off":
        idle |= {"epsilon", "allocation"}
    if settings.data_file is not None or settings.model not in MODELS.names:
        idle |= {"dim", "samples", "experiments", "data"}
        idle |= set() if settings.deal is not None else {"devices"}
    return idle


def scheme_of(settings: Settings) -> type[Uplink]:
    """Class of the uplink whose name is the setting ``scheme``; it tells which settings the scheme
    takes."""
    kind: type[Uplink] = SCHEMES.made_of(settings.scheme)[0]
    return kind


def make_link(settings: Settings) -> Link:
    """The link that settings name; its parameter is the setting ``slope_parameter``, or is written
    behind the link's name, as in ``sigmoid:0.05``."""
    parameter, name = settings.slope_parameter, settings.link
    link: Link
    if parameter is None:
        link = LINKS.build(name)
        return link
    if name not in LINKS.names or not LINKS[name].parameters:
        with_parameter = " and ".join(entry.name for entry in LINKS if entry.parameters)
        raise InvalidSetting(
            f"slope_parameter is for the links {with_parameter}; {name!r} takes none, got"
            f" {parameter}"
        )
    link = LINKS[name].build(parameter)
    return link


def make_fading(value: str | float) -> Fading:
    """The fading that a setting describes: a number is a constant path gain, a text names a
    registered fading or an object of the user's own."""
    fading: Fading
    # On the command line a number is a text, too.
    if isinstance(value, str) and not checks.is_number(value):
        fading = FADINGS.build(value)
    else:
        fading = FADINGS["constant"].build(float(value))
    return fading


def make_noise_law(settings: Settings) -> NoiseLaw | None:
    """The law of the receiver's noise that settings name; None if they name none, so that the
    scheme's own law holds."""
    law: NoiseLaw | None = None
    if settings.noise_law is not None:
        law = NOISE_LAWS.build(settings.noise_law)
    return law


def make_engine(settings: Settings) -> Engine | str:
    """The engine that settings name: the name of a registered one, or an object of the user's
    own."""
    return engine_named(settings.engine)


def engine_named(name: str) -> Engine | str:
    """The name of a registered engine, unchanged, or the user's own engine object that the text
    ``name`` refers to; ``InvalidSetting`` for any other text."""
    engine: Engine | str = ENGINES.check_name(name)
    if ENGINES.is_own(name):
        engine = ENGINES.load(name)
    return engine


def spell_link(link: Link) -> str:
    """Text that settings can hold for a registered link, with its parameters in full precision; a
    link that is not registered raises ``InvalidSetting``."""
    entry = LINKS.maker_of(link)
    if entry is None:
        raise InvalidSetting(f"the link {link.name} has no name in settings: {LINKS.choices}")
    return entry.spell(link)


def _about_examples(settings: Settings) -> str | None:
    """Name of the first setting that needs single examples (``example_clip``, ``example_norm``, or
    a ``batch_share`` below 1) and that the user gave; None if there is none."""
    if settings.example_clip is not None:
        return "example_clip"
    if settings.example_norm is not None:
        return "example_norm"
    return "batch_share" if settings.batch_share < 1.0 else None


def _example_shrink(settings: Settings) -> float:
    """Share of the gradient's response that is left after the gradients of single examples are
    clipped: 1 without clipping, else the number that the user gave or the typical share for linear
    regression."""
    if settings.example_clip is None and settings.example_norm is None:
        refuse(settings, ("example_shrink",), "is for example_clip or example_norm")
        return 1.0
    if settings.example_shrink != "auto":
        return settings.example_shrink
    if settings.model != "linear":
        raise InvalidSetting(
            f"example_shrink 'auto' is for linear regression: give a number in (0, 1] for"
            f" {settings.model!r}, what clipping examples leaves of its gradients (1: hardly any"
            " example is clipped)"
        )
    return typical_shrink(settings.example_clip, settings.example_norm, settings.dim)


_FIELDS: dict[str, Callable[[Settings], Any]] = {
    **{
        name: attrgetter(name)
        for name in (
            *("clip", "clipping", "modulation", "csi_error", "average_snr_db"),
            *("snr_db", "noise_power", "example_clip", "example_norm", "batch_share"),
        )
    },
    "fading": lambda settings: make_fading(settings.fading),
    "noise_law": make_noise_law,
    "example_shrink": _example_shrink,
    "link": make_link,
}
"""For each field of an uplink, by its name, a function that computes its value from the
settings."""


def refuse(settings: Settings, names: tuple[str, ...], why: str) -> None:
    """Raise ``InvalidSetting`` if the user gave any of the settings ``names``, which would have no
    effect. The message is all of ``names``, then ``why``, then the first setting that was given."""
    given = [name for name in names if name in settings.model_fields_set]
    if given:
        raise InvalidSetting(
            f"{' and '.join(names)} {why}, got {given[0]} = {getattr(settings, given[0])!r}"
        )


def named_code(settings: Mapping[str, Any]) -> dict[str, str]:
    """Texts such as ``mine.links:Steep`` by which settings name a user's own code, by name of the
    setting; nothing is imported.

    For example ``{"link": "mine.links:Steep"}``; empty where settings name only built-in
    objects."""
    return {
        name: text
        for name, registry in naming().items()
        if isinstance(text := settings.get(name), str) and registry.is_own(text)
    }


def in_words(named: Mapping[str, str]) -> str:
    """Text that lists settings, each with the user's own code that it names: ``link
    'mine.links:Steep', ...``."""
    return ", ".join(f"{name} {text!r}" for name, text in named.items())


@contextmanager
def searching_only(directory: Path | None) -> Iterator[None]:
    """Context manager within which modules are imported from where Python installs them and from
    ``directory``, but not from the current directory, where a stranger's files may lie."""
    before = list(sys.path)
    here = os.path.realpath(os.getcwd())
    # An empty path means the current directory too, and so does any link to it.
    sys.path[:] = [path for path in before if path and os.path.realpath(path) != here]
    if directory is not None:
        sys.path.insert(0, str(directory.resolve()))
    token = CURRENT_DIRECTORY.set(False)
    try:
        yield
    finally:
        CURRENT_DIRECTORY.reset(token)
        sys.path[:] = before
