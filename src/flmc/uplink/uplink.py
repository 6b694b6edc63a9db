r"""The contract of an uplink: what a device does to its gradient, and the radio it uses.

An uplink says what the planner needs: the peak of a symbol (power), the slope :math:`\kappa` (how a
small gradient is scaled), the mean and variance of a symbol given the gradient, the largest
variance that quantisation adds per device; what engines and the wire need: the format of a symbol,
and whether it is random; and what the accountant needs: the privacy event that its transmissions
imply."""

from __future__ import annotations

import dataclasses
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.clipping import clip, clip_norm
from flmc.base.documents import LATER
from flmc.base.errors import InvalidSetting, UnknownPrivacy
from flmc.privacy.event import Event
from flmc.privacy.neighbours import RELATIONS, relation_argument
from flmc.privacy.transmissions import Transmissions, count_gains
from flmc.uplink.channel import power_from_snr
from flmc.uplink.example_clipping import ExampleBounds
from flmc.uplink.fading import Fading
from flmc.uplink.fadings import ConstantFading, EstimatedFading, PairedFading
from flmc.uplink.link import Link
from flmc.uplink.noise import GAUSSIAN, NoiseLaw, is_normal
from flmc.uplink.symbol_format import VALUES, SymbolFormat

_BOUNDS_OF_EXAMPLES = ("local_gradients", "batch_gradients", "example_rule", "clips_examples")
"""Names of the methods and attributes that decide how gradients of single examples are bounded."""
WHAT_IS_SENT = ("symbols", "clipped", *_BOUNDS_OF_EXAMPLES, "noise_law")
"""Names of the methods and attributes of an uplink that decide what is transmitted and received. A
subclass that overrides one of them loses the privacy statement of its parent."""
_STATEMENT = (
    "privacy_event",
    "shared_event",
    "event_of_rounds",
    "shares_move",
    "largest_move",
    "example_bound",
    "example_part",
    "example_moves_like_device",
    "moves_like_device",
    "check_relation",
    "clips_norm",
    "peak",
    "power_limit",
    "shares_power",
    "known_fading",
    "hides_without_noise",
    "estimated",
    "transmits_like",
    "_clips_as_proven",
)
"""Names of the methods and attributes of an uplink from which its privacy statement follows: if a
user's class overrides one of them, the statement is the user's."""

_OF_RELATIONS = ("event_of_rounds", "privacy_event", "shared_event", "largest_move", "looseness")
"""Names of the methods that answer for a neighbouring relation. A user's class whose own one does
not take it answers for ``replace`` alone."""


_FACTS_OF_LINKS = (
    *("monotone", "odd", "log_concave", "jumps", "within_extremes", "accounts_moves"),
    *("extremes", "bounded_probability", "moved", "gaussian_rate"),
)
"""Names of the methods and attributes of a link from which a privacy statement follows.
``probability`` is not among them, because the accountant computes the extreme probabilities from
the user's function."""


def _definer(kind: type, name: str) -> type:
    """The class in the method resolution order of ``kind`` that defines the attribute ``name``."""
    return next(each for each in kind.__mro__ if name in vars(each))


def _first_own(kind: type, names: tuple[str, ...]) -> type | None:
    """The user's class nearest to ``kind`` that defines one of the attributes ``names``; None where
    all are flmc's own."""
    own = []
    for name in names:
        definer = _definer(kind, name)
        made = vars(definer)[name]
        made = made.fget if isinstance(made, property) else made
        # ``__init_subclass__`` may have put flmc's own method into the user's class, which does not
        # count as the user's.
        reset = str(getattr(made, "__module__", "")).partition(".")[0] == "flmc"
        if not _of_flmc(definer) and not reset:
            own.append(definer)
    return min(own, key=kind.__mro__.index) if own else None


def _of_flmc(kind: type) -> bool:
    """Whether a class comes with flmc, and not from a user."""
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


class _WithoutLink:
    """The link of a scheme that has none. The attribute stands outside the dataclass ``Uplink``,
    where it would become a setting of every scheme; a scheme with a link has a field of the same
    name."""

    link: Link | None = None


@dataclass(frozen=True)
class Uplink(ExampleBounds, _WithoutLink, ABC):
    """What all uplinks share: clipping, the radio, and what planner, engines, wire and accountant
    ask of an uplink. The attribute ``link`` is None for a scheme without one."""

    scheme: ClassVar[str]
    """Name of the scheme in messages, documents and files."""
    randomised: ClassVar[bool] = False
    """Whether a symbol is random given the gradient: then ``symbols`` takes a uniform random number
    for each entry."""
    standard_symbols: ClassVar[bool] = False
    """True if a symbol is of one of the two standard kinds, which engines may compute in compiled
    code of their own: the clipped gradient itself or, with a link, a bit that is +1 with the link's
    probability. False for any other symbol."""
    published_step_size: ClassVar[float | None] = None
    """Step size for this scheme in section IV of the paper by Zhang, Liu and Simeone on quantised
    federated Langevin Monte Carlo; None: the paper states none."""
    noise_is_exact: ClassVar[bool] = False
    """Whether the estimate has, by definition, exactly the noise that Langevin sampling needs at
    any step size, as over the ideal uplink: then no gain can be given, and no privacy is stated."""

    clip: float = 30.0
    """Bound of a local gradient, which is clipped beyond it: of the magnitude of each entry, or of
    the norm (``clipping``)."""
    fading: Fading = field(default_factory=ConstantFading)
    """Law of the path gains h."""
    snr_db: float = 25.0
    """Largest signal-to-noise ratio in dB: transmit power limit over noise power, without the path
    gain."""
    noise_power: float = 1.0
    """Variance of the receiver's noise in each real entry."""
    example_clip: float | None = None
    """Largest magnitude c of an entry of a single example's gradient, before examples are summed;
    None: examples are not clipped."""
    example_shrink: float = 1.0
    """Factor rho in (0, 1] by which clipping examples shrinks the gradient's response, from public
    knowledge."""
    example_norm: float | None = field(default=None, kw_only=True, metadata=LATER)
    """Largest Euclidean norm C of a single example's gradient, before examples are summed; in place
    of ``example_clip``."""
    clipping: str = field(default="entry", kw_only=True, metadata=LATER)
    """What the clip bounds: each ``entry`` of a local gradient, or its Euclidean ``norm``."""
    modulation: str = field(default="real", kw_only=True, metadata=LATER)
    """How entries are sent: ``real``, one entry in a symbol (BPSK for bits), or ``complex``, two
    entries in a symbol (QPSK for bits), which share a path gain."""
    csi_error: float = field(default=0.0, kw_only=True, metadata=LATER)
    """Relative error of the estimates of the channel that devices invert, 0 for perfect ones."""
    average_snr_db: float | None = field(default=None, kw_only=True, metadata=LATER)
    """Largest SNR in dB of a device's mean power over all rounds; None: only ``snr_db`` limits each
    round."""
    batch_share: float = field(default=1.0, kw_only=True, metadata=LATER)
    """Share of its examples that a device uses in a round, drawn afresh, without replacement; 1:
    all of them."""
    noise_law: NoiseLaw = field(default=GAUSSIAN, kw_only=True, metadata=LATER)
    """Law of the receiver's noise. With another law than the normal one there is no privacy
    statement, unless a class that has this law as its default states one."""

    def __post_init__(self) -> None:
        checks.positive("clip", self.clip, extreme=1e15)
        checks.one_of("clipping", self.clipping, ("entry", "norm"))
        checks.one_of("modulation", self.modulation, ("real", "complex"))
        self.check_examples()
        checks.between("snr_db", self.snr_db, -300.0, 400.0)
        if self.average_snr_db is not None:
            checks.between("average_snr_db", self.average_snr_db, -300.0, 400.0)
        checks.positive("noise_power", self.noise_power)
        if not isinstance(self.noise_law, NoiseLaw):
            raise InvalidSetting(
                f"noise_law must be a flmc.NoiseLaw, got {self.noise_law!r}: pass an object, made"
                " from the class"
            )
        if not is_normal(self.noise_law):
            self.noise_law.check()
        if not isinstance(self.fading, Fading):
            raise InvalidSetting(
                "fading must be a flmc.Fading, for example ConstantFading(0.04); got"
                f" {self.fading!r}"
            )
        if self.estimated is not None and self.modulation == "complex":
            raise InvalidSetting(
                "csi_error needs real symbols: it would mix the two entries of a complex one"
            )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Reset ``standard_symbols`` and the privacy statement for a subclass that takes gradients,
        clips or transmits in its own way and does not state them anew; ``TypeError`` for one that
        states ``random_bits``, a name of earlier versions with two meanings, or ``noise_law`` as
        anything but a field."""
        super().__init_subclass__(**kwargs)
        if "noise_law" in vars(cls):
            # Without an annotation, or with that of a class variable, the inherited field would win
            # and every object would have normal noise.
            kind = inspect.get_annotations(cls).get("noise_law")
            if kind is None or "ClassVar" in str(kind):
                raise TypeError(
                    f"{cls.__name__}.noise_law must be a field of a dataclass: write noise_law:"
                    " NoiseLaw = ..., or pass noise_law to an object"
                )
        # ``standard_symbols`` holds only if nothing of what is sent differs from the class that
        # states it. All bases are asked: a mixin may bring other symbols.
        stated = _definer(cls, "standard_symbols")
        if any(getattr(cls, name) is not getattr(stated, name) for name in WHAT_IS_SENT):
            cls.standard_symbols = False
        # A privacy statement covers only what its own class, or a base of it, transmits: a subclass
        # that sends something else loses it.
        order = cls.__mro__.index
        sender = min((_definer(cls, name) for name in WHAT_IS_SENT), key=order)
        for name in ("privacy_event", "shared_event", "event_of_rounds"):
            if order(_definer(cls, name)) > order(sender):
                setattr(cls, name, vars(Uplink)[name])
        if "random_bits" in vars(cls):
            raise TypeError(
                f"{cls.__name__}.random_bits is no fact of an uplink any more: state randomised"
                " (symbols take random numbers) and symbol_format (bits, levels or values)"
            )

    @classmethod
    def setting_names(cls) -> tuple[str, ...]:
        """Names of the settings that the scheme takes, in the order of the dataclass's fields."""
        return tuple(each.name for each in dataclasses.fields(cls) if each.init)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The uplink that settings describe; the registry of schemes calls this.

        Parameters
        ----------
        settings
            Values by name, of which only those in ``setting_names`` count; a name that is missing
            takes its default.
        """
        return cls(**{name: settings[name] for name in cls.setting_names() if name in settings})

    @property
    def symbol_format(self) -> SymbolFormat:
        """What a symbol may be: any value up to the peak, unless a scheme says otherwise."""
        return VALUES

    @property
    def bit_variance(self) -> float:
        """Largest variance that the quantiser's randomness adds per device and entry; 0 without a
        quantiser."""
        return 0.0

    @property
    def known_fading(self) -> Fading:
        """Law of the path gains as devices know them: ``fading`` itself, its estimates, or for
        complex symbols a law with one path gain for both entries of a symbol."""
        return (
            PairedFading(self.fading)
            if self.modulation == "complex"
            else (self.estimated or self.fading)
        )

    @property
    def estimated(self) -> EstimatedFading | None:
        """Law of the estimated path gains; None: they are known exactly."""
        return EstimatedFading(self.fading, self.csi_error) if self.csi_error else None

    def symbols_per_round(self, dim: int) -> int:
        """Number of symbols that a device sends in a round: one for each entry with real
        modulation, one for each two entries with complex modulation.

        Parameters
        ----------
        dim
            Number of entries.
        """
        return -(-dim // 2) if self.modulation == "complex" else dim

    @property
    def clips_norm(self) -> bool:
        """Whether the clip bounds the norm of a local gradient."""
        return self.clipping == "norm"

    @property
    def shares_power(self) -> bool:
        """Whether the clip bounds the energy of all symbols of a round together, so that one entry
        may have all of it; False unless a scheme says otherwise."""
        return False

    def shares_move(self, neighbouring: str) -> bool:
        """Whether one bound limits how far all symbols of a round together can move between
        neighbouring data, so that the accountant counts rounds, not entries.

        Parameters
        ----------
        neighbouring
            What is replaced in neighbouring data: all data of a ``device``, or one ``example``.
        """
        return neighbouring == "example" and self.example_norm is not None

    def largest_move(self, dim: int, neighbouring: str, relation: str = "replace") -> float:
        """Largest norm of the difference of a round's symbols between neighbouring data. Unless a
        scheme says otherwise, every symbol may move from minus the peak to the peak.

        Parameters
        ----------
        dim
            Entries of a round.
        neighbouring
            What is replaced in neighbouring data: all data of a ``device``, or one ``example``.
        relation
            How the unit differs in neighbouring data, one of
            :data:`flmc.privacy.neighbours.RELATIONS`.
        """
        return 2.0 * self.peak * math.sqrt(dim)

    @property
    def power_limit(self) -> float:
        """Largest mean power of a device's symbols over the entries of a round, from the limit
        ``snr_db`` and the noise power."""
        return power_from_snr(self.snr_db, self.noise_power)

    @property
    @abstractmethod
    def peak(self) -> float:
        """Largest magnitude of a symbol before the transmit amplitude."""

    @property
    @abstractmethod
    def slope(self) -> float:
        """Factor by which the expected symbol scales a small gradient entry."""

    @abstractmethod
    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """Symbols that the devices transmit, before the transmit amplitude.

        Parameters
        ----------
        gradient
            Local gradients, (..., device, dim).
        uniform
            Random numbers drawn uniformly from [0, 1), in the shape of ``gradient`` or with more
            leading axes, for many trials of the same gradients; None for an uplink that is not
            ``randomised``.

        Returns
        -------
        Array
            Symbols, (..., device, dim).
        """

    def clipped(self, gradient: Array) -> Array:
        """Clipped gradients, as they are quantised or scaled: entries in [-clip, clip].

        Parameters
        ----------
        gradient
            Local gradients, (..., device, dim).
        """
        return clip(clip_norm(gradient, self.clip) if self.clips_norm else gradient, self.clip)

    def privacy_event(
        self,
        transmissions: Iterable[tuple[float, int]],
        neighbouring: str = "device",
        relation: str = "replace",
    ) -> Event:
        """Privacy event: what one device reveals in the worst case.

        Parameters
        ----------
        transmissions
            Gains, each with the number of entries that were sent with it.
        neighbouring
            Unit in which neighbouring data differ: all data of a ``device``, or one ``example``.
        relation
            How the unit differs in neighbouring data, one of
            :data:`flmc.privacy.neighbours.RELATIONS`.

        Raises
        ------
        UnknownPrivacy
            If nothing is proven for this uplink; the message says why.
        """
        raise UnknownPrivacy(
            f"no privacy guarantee is known for the {self.scheme} uplink ({type(self).__name__}):"
            f" its worst-case pair is not proven{self._changed()}; use digital or analog, or switch"
            " privacy off"
        )

    def looseness(self, neighbouring: str, relation: str = "replace") -> str | None:
        """Reason why the computed epsilon may be far above the smallest one that holds: the privacy
        event is that of symbols which reveal more than this uplink's symbols do. None where no
        reason is known, as here.

        Parameters
        ----------
        neighbouring
            Unit in which neighbouring data differ: all data of a ``device``, or one ``example``.
        relation
            How the unit differs in neighbouring data, one of
            :data:`flmc.privacy.neighbours.RELATIONS`.
        """
        return None

    def _changed(self) -> str:
        """End of an error message that names the user's class, and those of its methods and
        attributes that decide what is received; empty for the classes of flmc."""
        senders = {name: _definer(type(self), name) for name in WHAT_IS_SENT}
        own = {name: kind for name, kind in senders.items() if not _of_flmc(kind)}
        if not own:
            return ""
        kind = min(own.values(), key=type(self).__mro__.index)
        decide = "decides" if len(own) == 1 else "decide"
        return (
            f", because {' and '.join(own)} of {kind.__name__} {decide} what is received: a class"
            " that does so states its privacy_event itself"
        )

    @property
    def privacy_stated_by(self) -> str | None:
        """The user's class that makes the privacy statement, or a part of it, as
        ``module:Class``; None where every part is flmc's own."""
        kind = _first_own(type(self), _STATEMENT)
        if kind is None and self.link is not None:
            # Attributes of the link that are False are left out: they claim nothing.
            stated = (name for name in _FACTS_OF_LINKS if getattr(type(self.link), name))
            kind = _first_own(type(self.link), tuple(stated))
        if kind is None:
            return None
        return f"{kind.__module__}:{kind.__qualname__}"

    def event_of_rounds(
        self,
        gains: Array,
        dim: int,
        neighbouring: str = "device",
        times: int = 1,
        relation: str = "replace",
    ) -> Event:
        """Privacy event of whole rounds: what one device reveals in them in the worst case.

        Parameters
        ----------
        gains
            Gains of the rounds, (round, dim), or (round, 1) where all entries have the same.
        dim
            Entries of a round.
        neighbouring
            Unit in which neighbouring data differ: all data of a ``device``, or one ``example``.
        times
            How often all of these rounds were transmitted.
        relation
            How the unit differs in neighbouring data, one of
            :data:`flmc.privacy.neighbours.RELATIONS`.

        Returns
        -------
        Event
            Event whose transmissions are entries. Where one bound limits how far all symbols of a
            round together can move, its transmissions are rounds, each with its largest gain.

        Raises
        ------
        InvalidSetting
            If a gain is negative or ``dim`` is below 1.
        UnknownPrivacy
            If nothing is proven for this uplink; the message says why.
        """
        checks.at_least("dim", dim, 1)
        if np.min(gains) < 0:
            raise InvalidSetting(f"a gain must not be negative, got {np.min(gains):g}")
        self.check_noise_is_accounted()
        self.check_relation(neighbouring, relation)
        how = relation_argument(relation)
        if self.shares_move(neighbouring):
            # One bound limits how far neighbouring data move all entries together, and the whole
            # move may be in the entry with the largest gain.
            loudest = count_gains(np.max(gains, axis=1))
            rounds = tuple((gain, times * n) for gain, n in loudest)
            return self.shared_event(rounds, dim, neighbouring, **how)
        each = times * (dim if np.shape(gains)[1] == 1 else 1)
        sent = [(gain, each * count) for gain, count in count_gains(gains)]
        return self.privacy_event(sent, neighbouring, **how)

    def check_relation(self, neighbouring: str, relation: str) -> None:
        """Raise ``UnknownPrivacy`` if this uplink has no privacy statement for a relation.

        Parameters
        ----------
        neighbouring
            Unit in which neighbouring data differ: all data of a ``device``, or one ``example``.
        relation
            How the unit differs in neighbouring data, one of
            :data:`flmc.privacy.neighbours.RELATIONS`.
        """
        checks.one_of("relation", relation, RELATIONS)
        if relation == "replace":
            return
        for name in _OF_RELATIONS:
            if "relation" not in inspect.signature(getattr(self, name)).parameters:
                raise UnknownPrivacy(
                    f"{name} of {_definer(type(self), name).__name__} states nothing for relation"
                    f" {relation!r}: let it take relation, or use 'replace'"
                )
        if relation == "add_remove" and neighbouring == "example" and self.batched:
            raise UnknownPrivacy(
                "relation 'add_remove' of an example needs batch_share 1, got"
                f" {self.batch_share:g}: batches and their weights are made from the number of"
                " examples, which differs by one; use 'zero_out', which keeps it, or batch_share 1"
            )

    @property
    def hides_without_noise(self) -> bool:
        """Whether a privacy statement is proven for this uplink whatever the law of the noise, from
        the randomness of its symbols alone."""
        return False

    def check_noise_is_accounted(self) -> None:
        """Raise ``UnknownPrivacy`` if the noise law of this object is neither normal nor the
        default of its class, for which alone a class states privacy, unless its symbols hide the
        data without noise."""
        known = is_normal(self.noise_law) or self.noise_law == type(self).noise_law
        if known or self.hides_without_noise:
            return
        raise UnknownPrivacy(
            f"no privacy guarantee is known where noise_law is {type(self.noise_law).__name__}:"
            f" what {type(self).__name__} proves is for another noise; switch privacy off, or state"
            " privacy_event in a class with this law as its default"
        )

    def shared_event(
        self,
        rounds: Transmissions,
        dim: int,
        neighbouring: str = "example",
        relation: str = "replace",
    ) -> Event:
        """Privacy event of rounds in which a bounded norm limits how far all symbols together can
        move between neighbouring data.

        Parameters
        ----------
        rounds
            Gains, each with the number of rounds in which it was the largest gain of an entry.
        dim
            Entries of a round.
        neighbouring
            Unit in which neighbouring data differ.
        relation
            How the unit differs in neighbouring data, one of
            :data:`flmc.privacy.neighbours.RELATIONS`.

        Raises
        ------
        UnknownPrivacy
            If nothing is proven for this uplink, as here.
        """
        raise UnknownPrivacy(
            f"nothing is proven for example_norm over the {self.scheme} uplink"
            f" ({type(self).__name__}); use example_clip, digital or analog, or switch privacy off"
        )

    def transmits_like(self, kind: type[Uplink]) -> bool:
        """Whether local gradients, clipping and symbols are as in ``kind``, an uplink for which a
        proof exists.

        A subclass that takes gradients, clips, quantises or transmits in its own way has no proof,
        even if it inherits from ``kind``.

        Parameters
        ----------
        kind
            The class that the proof is about.

        Returns
        -------
        bool
            True if the receiver's noise is normal, and this class overrides neither ``symbols`` of
            ``kind`` nor any method or attribute that clips a device's gradient or takes and bounds
            gradients of examples.
        """
        return type(self).symbols is kind.symbols and self._clips_as_proven

    @property
    def _clips_as_proven(self) -> bool:
        """Whether this class inherits unchanged all methods that clip gradients of devices and take
        and bound gradients of examples, as every privacy proof assumes, and the receiver's noise is
        normal, as most proofs assume."""
        return self._bounds_as_proven and is_normal(self.noise_law)

    @property
    def _bounds_as_proven(self) -> bool:
        """Whether this class inherits unchanged all methods and attributes that bound gradients of
        single examples, and the clipping of a device's gradient."""
        own = type(self)
        usual = all(getattr(own, n) is getattr(ExampleBounds, n) for n in _BOUNDS_OF_EXAMPLES)
        return usual and own.clipped is Uplink.clipped

    @abstractmethod
    def mean_symbol(self, gradient: Array) -> Array:
        """Expected symbol given the gradient, clipping included.

        Parameters
        ----------
        gradient
            Gradient entries, in any shape.
        """

    def symbol_variance(self, gradient: Array) -> Array:
        """Variance of the symbol given the gradient; 0 for an uplink that is not ``randomised``.

        Parameters
        ----------
        gradient
            Gradient entries, in any shape.
        """
        return np.zeros_like(gradient)

    def level_probabilities(self, gradient: Array) -> Array | None:
        """Probabilities of the levels of ``symbol_format`` given the clipped gradient, for audits.

        Parameters
        ----------
        gradient
            Clipped gradient entries, in any shape.

        Returns
        -------
        Array or None
            Probabilities, with the levels in one more axis at the end; None for an uplink whose
            symbols are values.
        """
        return None


AnyUplink = TypeVar("AnyUplink", bound=Uplink)


def replace(uplink: AnyUplink, **changes: object) -> AnyUplink:
    """Copy of an uplink with some settings changed, and all of them checked anew.

    Parameters
    ----------
    uplink
        The uplink to copy.
    **changes
        New values by the name of the setting, such as ``clip=20.0``.

    Returns
    -------
    Uplink
        An uplink of the same class.

    Raises
    ------
    InvalidSetting
        If there is no such setting, or a value is out of its bounds.

    Examples
    --------
    >>> flmc.replace(flmc.Digital(), snr_db=30).snr_db
    30
    """
    # Fields that cannot be set, such as those of the ideal uplink, are refused here with the
    # package's own error.
    known = {f.name for f in dataclasses.fields(uplink) if f.init}
    unknown = sorted(set(changes) - known)
    if unknown:
        raise InvalidSetting(
            f"{type(uplink).__name__} has no setting {unknown[0]!r}; it has"
            f" {', '.join(sorted(known)) or 'none'}"
        )
    return dataclasses.replace(uplink, **changes)  # type: ignore[arg-type]  # checked by the class
