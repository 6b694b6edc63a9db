r"""The local cost of a device: its own data, and its share of the prior.

.. math:: f_k(\theta) = -\ln p(D_k \mid \theta) - \frac1K \ln p(\theta)

A model of one device's data has the whole prior, so :math:`(1 - 1/K)` of the prior's gradient
is subtracted from its gradient.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.columns import Missing
from flmc.data.reading import read
from flmc.models.batches import draw_batch, sizes_of
from flmc.models.log_density import LogDensityModel
from flmc.models.model import Model
from flmc.privacy.safe_noise.entropy import Entropy
from flmc.settings.registered import MODELS
from flmc.uplink.report import SUFFIX, scale_of, with_report
from flmc.uplink.uplink import Uplink

LocalGradient = Callable[[Array], Array]
"""Function from theta (dim) to the gradient of the local cost (dim), before clipping. For a model
with local parameters it is a :class:`LocalMoves`."""

_log = logging.getLogger("flmc.deploy.device")


def read_model(
    name: str,
    source: Path,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    standardise: Mapping[str, tuple[float, float]] | None = None,
    missing: Missing = "refuse",
) -> Model:
    """The registered model ``name`` on the data of one device in the file ``source``, or the user's
    own model (``package.module:object``), which has one device and includes only its share of the
    prior.

    The options are those of :func:`flmc.data.reading.read`. Where data have classes or categories,
    all of them should be listed, because some may occur on other devices only. Raises
    ``InvalidSetting`` for a model or data of several devices.
    """
    name = name.removesuffix(SUFFIX)
    if name not in MODELS.names:
        own: Model = MODELS.build(name)
        if own.num_devices != 1:
            raise InvalidSetting(f"a device's own model has one device, got {own.num_devices}")
        # The user may write a log prior that is already one device's share of it. But flmc itself
        # adds the log Jacobian of the supports, and must know how many devices share that.
        mapped = own.layout is not None and not own.layout.free
        if mapped and isinstance(own, LogDensityModel) and own.prior_devices == 1:
            raise InvalidSetting(
                "a device's own model with supports must say how many devices share its prior: give"
                " prior_devices, the number of the federation's devices, and the whole log prior"
            )
        return own
    data = read(
        source,
        target=target,
        features=features,
        classes=classes,
        categories=categories,
        standardise=dict(standardise) if standardise else None,
        missing=missing,
        allow_constant=True,
    )
    if data.dropped:
        # The number of left-out examples is written to the device's own log only: nobody else may
        # learn how many examples the device uses.
        _log.warning(
            "examples with missing values were left out",
            extra={"event": "missing-dropped", "detail": f"{sum(data.dropped)}"},
        )
    if data.num_devices != 1:
        raise InvalidSetting(f"{str(source)!r} must hold the data of one device")
    model: Model = MODELS[name].maker(data.to_linear() if name == "linear" else data)
    return model


def local_gradient(
    model: Model,
    uplink: Uplink,
    num_devices: int,
    *,
    shares_prior: bool = True,
    dim: int | None = None,
    reports: bool = False,
) -> LocalGradient:
    """The function that computes the gradient of a device's local cost, (dim) to (dim), with
    examples bounded as the uplink asks, and NaN where the model fails. ``shares_prior`` says that
    the model has the whole prior, of which 1/``num_devices`` is kept. Where the uplink asks for
    batches, every call draws a new one; a repeated answer comes from the journal, without a second
    call. With ``reports``, theta and the gradient have one more entry at the end, the device's
    report of what clipping and the link take away. Raises ``InvalidSetting`` unless the model has
    ``dim`` entries (None: any; a report counts as an entry), single examples where the uplink
    bounds them, and gradients of some of its examples if there are batches."""
    # Checked before the run: a gradient that fails in a round becomes zeros, and the run goes on.
    if uplink.clips_examples and isinstance(model, LogDensityModel) and model.no_examples:
        raise InvalidSetting(model.no_examples)
    if reports:
        scale_of(uplink)
        dim = None if dim is None else dim - 1
    if dim is not None and model.dim != dim:
        raise InvalidSetting(
            f"the plan is for {dim} entries, and the model of this device has {model.dim}: its"
            " columns are not those that the plan was made for"
        )
    rest = 1.0 - 1.0 / num_devices if shares_prior else 0.0
    of_round = _of_batches(model, uplink) if uplink.batched else _of_all(model, uplink)

    if model.num_local:
        if uplink.batched:
            raise InvalidSetting(
                "a model with local parameters uses all its examples: make the plan without"
                " batch_share"
            )
        if reports:
            raise InvalidSetting(
                "a model with local parameters sends no report: make the plan without one"
            )
        if not isinstance(model, LogDensityModel):
            raise InvalidSetting("local parameters need a model from log densities")
        return LocalMoves(model, rest)

    def gradient(theta: Array) -> Array:
        # The function never raises: an exception that depends on the data would reveal something
        # about them. NaN takes the place of a failed gradient, and clipping maps NaN to 0.
        whole = np.asarray(theta, dtype=np.float64)
        at = whole[None, None, : -1 if reports else None]
        try:
            with np.errstate(all="ignore"):
                local = of_round(at)[0, 0, 0]
                if rest:
                    local = local - rest * model.prior_share(at)[0, 0]
                if reports:
                    local = with_report(local[None], at[0, 0], uplink)[0]
        except Exception as error:  # a user's own model may raise any exception
            _log.error(
                "the gradient failed, zeros take its place",
                extra={"event": "gradient-failed", "detail": type(error).__name__},
            )
            return np.full(whole.shape, np.nan)
        return np.asarray(local, dtype=np.float64)

    return gradient


class LocalMoves:
    """The work of a device with local parameters in a round: it moves these parameters given theta,
    and computes the gradient that it sends. ``rest`` is the share of the model's prior that belongs
    to other devices, and is subtracted: 1 - 1/K with K devices, or 0."""

    def __init__(self, model: LogDensityModel, rest: float) -> None:
        self._model, self._rest = model, rest

    def __call__(self, theta: Array) -> Array:
        """The gradient, (dim), at ``theta`` (dim), computed after moving the local parameters from
        the model's start; the moved parameters are forgotten. It takes as long as a round, and is
        for measuring that time."""
        return self.moved(theta, (), np.random.default_rng(0))[0]

    def moved(
        self, theta: Array, own: tuple[float, ...], entropy: Entropy
    ) -> tuple[Array, tuple[float, ...]]:
        """The gradient (dim) that the device sends at ``theta`` (dim), and its local parameters
        after the round. ``own`` are those before the round, as free (unconstrained) numbers; empty:
        the model's start. If the model fails, the gradient is NaN, which clipping turns into zeros,
        and ``own`` is returned unchanged."""
        before = np.array(own)[None] if own else self._model.local_start()
        # The seed is 128 bits of the device's own entropy, as many as NumPy's generator uses.
        rng = np.random.default_rng(int.from_bytes(entropy.bytes(16), "little"))
        at = np.asarray(theta, dtype=np.float64)
        try:
            with np.errstate(all="ignore"):
                after, gradient = self._model.moved(at, before, rng)
                if self._rest:
                    gradient = gradient - self._rest * self._model.prior_share(at[None, None])[0]
        except Exception as error:  # a user's own model may raise any exception
            _log.error(
                "the gradient failed, zeros take its place",
                extra={"event": "gradient-failed", "detail": type(error).__name__},
            )
            return np.full(at.shape, np.nan), own
        kept = after[0] if np.isfinite(after).all() else before[0]
        return np.asarray(gradient[0], dtype=np.float64), tuple(map(float, kept))


def _of_all(model: Model, uplink: Uplink) -> LocalGradient:
    """Function from theta, (1, 1, dim), to the gradient of a device, (1, 1, 1, dim), over all
    examples in the device's ``model``, bounded as the ``uplink`` asks."""
    return lambda at: uplink.local_gradients(model, at)


def _of_batches(model: Model, uplink: Uplink) -> LocalGradient:
    """Function from theta, (1, 1, dim), to the gradient of a device, (1, 1, 1, dim), over a batch
    of the examples in its ``model``; every call draws a new batch. The operating system seeds the
    batches; the privacy statement does not rely on their being secret."""
    sizes, rng = sizes_of(model), np.random.default_rng()

    def gradient(at: Array) -> Array:
        batch = draw_batch(sizes, uplink.batch_share, [rng], (1, 1))
        return uplink.batch_gradients(model, at, batch)

    return gradient
