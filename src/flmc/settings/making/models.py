"""From settings to models: synthetic linear regression, models on files, a user's own."""

from __future__ import annotations

from flmc.base.errors import InvalidSetting
from flmc.data.drawn_examples import DrawnExamples
from flmc.data.federated import FederatedData
from flmc.data.linear import LinearData
from flmc.data.reading import read
from flmc.data.synthetic import draw_linear, draw_linear_statistics
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.models.wide_linear import WIDE, WideLinear
from flmc.settings.registered import MODELS, SPLITS
from flmc.settings.schema import Settings
from flmc.settings.uplinks import refuse

_MOST_STATISTICS = 500_000_000
"""Numbers of the devices' sufficient statistics beyond which they are not made: 4 GB."""


def make_model(settings: Settings) -> Model:
    """The paper's linear regression on synthetic data, or a model of the user's own.

    Parameters
    ----------
    settings
        Checked settings; ``model`` is `linear` or ``package.module:object``. What describes
        synthetic data is refused beside a user's own model.
    """
    if settings.data_file is not None:
        return model_of(settings, data_of_file(settings, settings.data_file))
    refuse(settings, ("target", "device_column", "deal", "standardise"), "are for data_file")
    if settings.model in MODELS.names and settings.model != "linear":
        raise InvalidSetting(f"model {settings.model!r} needs data: give data_file")
    if settings.model != "linear":
        refuse(
            settings,
            ("devices", "dim", "samples", "experiments", "data", "split"),
            "come from the model that was given",
        )
        model: Model = MODELS.build(settings.model)
        return model
    sizes = SPLITS[settings.split].maker(settings.samples, settings.devices)
    if settings.example_clip is not None or settings.example_norm is not None:
        if settings.data != "examples":
            name = "example_clip" if settings.example_norm is None else "example_norm"
            raise InvalidSetting(
                f"{name} needs data = 'examples', got 'sufficient': there are no examples to clip"
            )
        if settings.devices * settings.dim**2 <= _MOST_STATISTICS:
            return LinearGaussian(draw_examples(settings, settings.experiments))
        return _wide(settings, sizes)
    if settings.dim > WIDE:
        # Statistics would take dim^2 numbers of every device.
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


def _wide(settings: Settings, sizes: tuple[int, ...]) -> WideLinear:
    """Linear regression that is held as examples; very many are not drawn for a plan."""
    many = DrawnExamples(settings.seed, settings.experiments, sizes, settings.dim)
    return WideLinear(many if many.too_many else draw_examples(settings, settings.experiments))


def draw_examples(settings: Settings, num_experiments: int | None) -> LinearData:
    """Synthetic examples of linear regression.

    Parameters
    ----------
    settings
        Checked settings.
    num_experiments
        Data sets; None: one, without an axis for it.
    """
    return draw_linear(
        settings.seed,
        num_experiments=num_experiments,
        num_samples=settings.samples,
        dim=settings.dim,
        num_devices=settings.devices,
        device_sizes=SPLITS[settings.split].maker(settings.samples, settings.devices),
    )


def data_of_file(settings: Settings, source: str) -> FederatedData:
    """The examples of a file for a registered model, dealt anew if that is asked for.

    Parameters
    ----------
    settings
        Checked settings.
    source
        The file, a pattern of files, or a set of scikit-learn's.
    """
    refuse(settings, ("dim", "samples", "experiments", "data", "split"), "come from data_file")
    if settings.deal is None:
        refuse(settings, ("devices",), "are those of data_file unless deal says how to deal anew")
    if settings.model not in MODELS.names:
        raise InvalidSetting(
            f"data_file is for the models {', '.join(MODELS.names)}; got {settings.model!r}"
        )
    found = read(
        source,
        target=settings.target,
        device_column=settings.device_column,
        standardise=settings.standardise,
    )
    if settings.deal is not None:
        found = found.split(settings.devices, settings.deal, settings.seed)
    return found


def model_of(settings: Settings, found: FederatedData) -> Model:
    """A registered model on given examples.

    Parameters
    ----------
    settings
        Checked settings.
    found
        The examples.
    """
    made: Model = MODELS[settings.model].maker(
        found.to_linear() if settings.model == "linear" else found
    )
    made.made_from_data = made.made_from_data or found.data_dependent
    return made
