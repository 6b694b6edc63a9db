r"""The law of theta given a transcript, from a regression of the estimates of the gradient on
theta, and findings against it.

The curvature of the negative log posterior is known with an error, and the posterior's mean through
noise; ``docs/answer.md`` derives the law of theta that is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.findings import Finding, Light
from flmc.base.special import ndtr, ndtri
from flmc.evaluation.gradient_regression import GradientRegression, TranscriptRounds, eigen
from flmc.evaluation.transcript import Transcript
from flmc.models.affine import Coordinates
from flmc.planning import answer_law
from flmc.planning.answer_law import LEAST, Bounds, Evidence, informed_share, joint_degrees
from flmc.planning.step_size import Curvature

_SMALLEST = 1e-12
"""Smallest eigenvalue that a random curvature of the likelihood may have, as a share of its largest
one. Smaller ones, which are rounding errors where there is no curvature, are raised to it."""
_OFF = 0.25
"""Shift of the mean, in posterior standard deviations, beyond which an answer gets a warning."""
_LEVEL = 0.01
"""Probability with which an answer wrongly gets the warning that its gradient is not linear in
theta, although the posterior is normal."""
_HARDLY_ANY = 3.0
"""Degrees of freedom of a curvature, as the plan predicted them, below which a chain is nearly a
random walk: an answer is then doubted if its rounds seem to show some of that curvature."""
_BY_CHANCE = 2.0
"""Ratio of a curvature's degrees of freedom, as the rounds show them, to those that the plan
predicted, from which on the estimated curvature counts as too large by chance; it matters only
where the plan predicted too few to know the curvature well. In random settings, intervals of 90 %
of such answers held 74 to 87 %, those of all other answers 89 to 93 %."""
_LOST = 4.0
"""Ratio of a curvature's degrees of freedom, as the plan predicted them, to those that the rounds
show, from which on an answer that does not know the curvature is doubted: its chain is not where
the plan expects it."""
_STRONG = 0.25
"""Share of the prior in the posterior's curvature along a direction, from which on the prior may
hide how much of that curvature comes from the data."""
_TOLERATED = 0.1
"""Share by which a fitted curvature may lie beyond a public bound, its errors allowed for, before
the bound counts as contradicted: a saturated link takes some per cent of a curvature away."""
_MOST_NAMED = 3
"""Largest number of entries of theta that a finding names."""
_MOST_STEPS = 60
"""Largest number of Newton's steps in the computation of an interval's half width; 5 are usual."""
PriorGradient = Callable[[Array], Array]
"""A function that returns the gradient of the negative log prior at many values of theta: it takes
theta, (data set, point, dim), and returns an array of the same shape."""


@dataclass(frozen=True)
class ThetaLaw:
    r"""Law of theta given a transcript, for every data set. Mean and draws are in the sampler's
    coordinates, covariance, variances and intervals in the model's. Fields have units in which
    every entry of an estimate of the gradient has noise of variance 1 in a round of weight 1.

    The curvature of the negative log posterior is known with an error: it is :math:`H = \hat
    H^{1/2} W \hat H^{1/2}` with its estimate :math:`\hat H` and a Wishart matrix W, whose degrees
    of freedom differ between the eigenvectors of :math:`\hat H`, because a chain tells more about
    a steep direction than about a flat one. Given H, theta is normal.

    Attributes
    ----------
    fit
        Regression of the estimates of the gradient on theta, which gives :math:`\hat H`.
    values, directions
        Eigenvalues of :math:`\hat H`, (data set, dim), and its eigenvectors as columns, (data set,
        dim, dim).
    degrees
        Degrees of freedom of the curvature along each eigenvector, (data set, dim).
    precision
        Curvature of the negative log prior, (data set, dim, dim).
    pull
        Gradient of the negative log prior at the mean of theta over rounds, (data set, dim).
    rounds, start
        The rounds of the transcript, and the index of the first used round of every chain, (data
        set, chain).
    coordinates
        The sampler's coordinates; None where they are the model's.
    public
        What is publicly known of the posterior's curvature, in the sampler's units; None: nothing.
    """

    fit: GradientRegression
    values: Array
    directions: Array
    degrees: Array
    precision: Array
    pull: Array
    rounds: TranscriptRounds
    start: IntArray
    coordinates: Coordinates | None
    public: Curvature | None

    @classmethod
    def of(
        cls,
        seen: Transcript,
        prior: PriorGradient,
        coordinates: Coordinates | None,
        public: Curvature | None,
    ) -> ThetaLaw:
        """Law of theta from the transcript ``seen`` and the gradient of the negative log ``prior``
        in the sampler's ``coordinates``; ``public`` holds what is publicly known of the posterior's
        curvature. ``InvalidSetting`` where the rounds are too few."""
        rounds = TranscriptRounds.of(seen)
        fit, start = rounds.fit()
        values, directions = eigen(fit.curvature)
        precision, pull = _quadratic_prior(fit, values, directions, prior)
        # The likelihood is assumed to be log-concave: in no direction is the curvature of the
        # posterior smaller than that of the prior.
        floor, spread = (
            (directions * (each @ directions)).sum(axis=1) for each in (precision, fit.scatter)
        )
        values = np.maximum(values, floor + LEAST * values[:, -1:])
        degrees = 2 * np.square(values) * spread
        return cls(
            fit, values, directions, degrees, precision, pull, rounds, start, coordinates, public
        )

    @property
    def num_rounds(self) -> Array:
        """Number of rounds that are used, of all chains together, (data set)."""
        return np.asarray((self.rounds.seen.positions.shape[2] - 1 - self.start).sum(axis=1))

    @cached_property
    def floor(self) -> Array:
        """Curvature of the negative log prior along the eigenvectors of the fitted curvature, (data
        set, dim)."""
        return np.asarray((self.directions * (self.precision @ self.directions)).sum(axis=1))

    @property
    def mean(self) -> Array:
        """Mean of theta, (data set, dim), in the sampler's coordinates."""
        way = self._way_and_variance[0].mean(axis=2)
        sets, push, _ = self._coupled
        way[sets] = push.mean(axis=1)
        off = np.einsum("eij,ej->ei", self.directions, way)
        return np.asarray((self.fit.theta - off) / self.fit.unit)

    @property
    def _to_entries(self) -> Array:
        """Matrices, (data set, dim, dim), that turn deviations of theta along the eigenvectors of
        the fitted curvature into deviations in the model's coordinates."""
        to_theta = self.directions / self.fit.unit[:, :, None]
        return to_theta if self.coordinates is None else self.coordinates.scale @ to_theta

    def half_widths(self, probability: float) -> Array:
        """Half the length of every entry's central interval of this ``probability``, (data set,
        dim). The curvature is known with an error, so theta's law is a mixture, with a component
        for each of ``NODES`` equally probable values of the curvature. Each component counts as
        normal about the mixture's mean, with its mean square distance from there as variance."""
        to_entries = self._to_entries
        found = np.square(to_entries) @ self._spreads
        sets, push, covariance = self._coupled
        rows = to_entries[sets]
        spreads = ((rows[:, None] @ covariance) * rows[:, None]).sum(axis=3)
        off = rows @ (push - push.mean(axis=1, keepdims=True)).mT
        found[sets] = spreads.mT + np.square(off)
        return _half_width(np.sqrt(found), probability)

    @cached_property
    def _spreads(self) -> Array:
        """Mean square of theta's distance from its mean along the eigenvectors of the fitted
        curvature, (data set, dim, node), given each of the equally probable values of the curvature
        (node). That a prior may couple the eigenvectors is left out of account."""
        way, variance = self._way_and_variance
        return np.asarray(variance + np.square(way - way.mean(axis=2, keepdims=True)))

    @cached_property
    def covariance(self) -> Array:
        """Covariance of theta, (data set, dim, dim), in the model's coordinates."""
        _, push, covariance = self._coupled
        off = push - push.mean(axis=1, keepdims=True)
        whole = covariance.mean(axis=1) + off.mT @ off / off.shape[1]
        return self._covariance_of(self._spreads.mean(axis=2), whole)

    @cached_property
    def variances(self) -> tuple[Array, Array, Array]:
        """Variance of every entry of theta, (data set, dim) each, under three laws, in this order:
        the exact posterior, if its curvature is the fitted one; theta given the transcript, whose
        noise widens the law, as if the fitted curvature were known to be true; theta given the
        transcript, with the error of the fitted curvature too, as the server states it."""
        sets, data, weight = self._coupled[0], self.values - self.floor, self.fit.weight
        along = 1.0 / (self.floor + informed_share(data, weight[:, None]) * data)
        whole = answer_law.coupled(self._prior_along[sets], self.values[sets], weight[sets])[1]
        laws = (
            self._covariance_of(1.0 / self.values),
            self._covariance_of(along, whole),
            self.covariance,
        )
        exact, known, stated = (np.linalg.diagonal(each).copy() for each in laws)
        return exact, known, stated

    def _covariance_of(self, variances: Array, coupled: Array | None = None) -> Array:
        """Covariances of theta in the model's coordinates, (data set, dim, dim), from the
        ``variances`` along the eigenvectors of the fitted curvature, (data set, dim), or from the
        covariances along these that ``coupled`` (set, dim, dim) has for data sets whose prior
        couples them."""
        to_entries = self._to_entries
        found = np.asarray((to_entries * variances[:, None]) @ to_entries.mT)
        if coupled is not None:
            rows = to_entries[self._coupled[0]]
            found[self._coupled[0]] = rows @ coupled @ rows.mT
        return found

    @cached_property
    def _prior_along(self) -> Array:
        """Curvature of the negative log prior in the coordinates of the eigenvectors of the fitted
        curvature, (data set, dim, dim)."""
        return np.asarray(self.directions.mT @ self.precision @ self.directions)

    @cached_property
    def _coupled(self) -> tuple[IntArray, Array, Array]:
        """Numbers of the data sets whose prior couples the eigenvectors of the fitted curvature, so
        that these cannot be treated one by one, (set). For each data set and each equally probable
        value of the curvature (node), along the eigenvectors: theta's mean over rounds less the
        mean of its law, (set, node, dim), and the covariance of its law, (set, node, dim, dim)."""
        prior, data, weight = self._prior_along, self._curvatures, self.fit.weight
        sets = np.flatnonzero(answer_law.couples(prior, data.min(axis=2), weight))
        pull, gradient = (each[sets][:, None, :, None] for each in self._prior_and_gradient)
        likely = (data[sets] + self.floor[sets][..., None]).mT
        share, covariance = answer_law.coupled(prior[sets][:, None], likely, weight[sets][:, None])
        push = covariance @ (pull + share @ (gradient - pull))
        return sets, push[..., 0], covariance

    @cached_property
    def _curvatures(self) -> Array:
        """Equally probable values (node) of the likelihood's curvature along the eigenvectors of
        the fitted curvature, (data set, dim, node)."""
        evidence = Evidence(*self._prior_and_gradient)
        return answer_law.curvatures(
            self.values, self.floor, self.degrees, self.fit.weight, evidence, self._public_bounds
        )

    @cached_property
    def _public_bounds(self) -> Bounds | None:
        """What is publicly known of the posterior's curvature along the eigenvectors of the fitted
        one, (data set, dim) each; None: nothing."""
        if self.public is None:
            return None
        # A curvature of 1 in the sampler's units, in units of the regression.
        one = np.square(self.directions / self.fit.unit[:, :, None]).sum(axis=1)
        return Bounds.of(self.public, one)

    @cached_property
    def _prior_and_gradient(self) -> tuple[Array, Array]:
        """Gradient of the negative log prior at the mean of theta over rounds, and mean of the
        estimates of the gradient, along the eigenvectors of the fitted curvature, (data set, dim)
        each."""
        pull, gradient = (
            np.einsum("eij,ei->ej", self.directions, each)
            for each in (self.pull, self.fit.gradient)
        )
        return pull, gradient

    @cached_property
    def _way_and_variance(self) -> tuple[Array, Array]:
        """Theta's mean over rounds less the mean of its law, and the variance of its law, both
        along the eigenvectors of the fitted curvature, given each of the equally probable values of
        the curvature (node), (data set, dim, node) each."""
        data, weight = self._curvatures, self.fit.weight[:, None, None]
        pull, gradient = (each[..., None] for each in self._prior_and_gradient)
        gain = informed_share(data, weight)
        variance = answer_law.variances(data, self.floor, self.fit.weight)
        return (pull + gain * (gradient - pull)) * variance, variance

    def draw(self, e: int, num_draws: int, rng: np.random.Generator) -> Array:
        """Independent draws of theta of the data set with index ``e``, (draw, dim); each has its
        own random curvature, because the curvature is known with an error only. In every entry the
        draws are a little wider than the intervals (4 % for 20 entries and 600 rounds), because
        regions of many entries together would otherwise hold too little."""
        fit, dim = self.fit, self.values.shape[1]
        # Bartlett's decomposition of a Wishart matrix: directions in order of falling degrees of
        # freedom. Directions of which little is known come last, with laws of their own. In a
        # positive definite matrix, entries beside a small one on the diagonal are small, too: hence
        # the clip below.
        known = answer_law.walk_power(self.degrees[e]) == 0
        order = np.lexsort((-self.degrees[e], np.logical_not(known)))
        degrees = self.degrees[e][order]
        joint = joint_degrees(degrees)
        factor = np.zeros((num_draws, dim, dim))
        for i, direction in enumerate(order):
            factor[:, i, :i] = rng.standard_normal((num_draws, i)) / np.sqrt(joint[i, :i])
            if known[direction]:
                mean = max(1.0 - (1.0 / joint[i, :i]).sum(), 0.1)
                shape = mean**2 * degrees[i] / 2
                factor[:, i, i] = np.sqrt(rng.gamma(shape, mean / shape, num_draws))
            else:
                nodes = self._curvatures[e, direction] + self.floor[e, direction]
                own = np.sqrt(rng.choice(nodes, num_draws) / self.values[e, direction])
                factor[:, i, :i] = np.clip(factor[:, i, :i], -own[:, None], own[:, None])
                factor[:, i, i] = own
        root = (self.directions[e][:, order] * np.sqrt(self.values[e][order])) @ factor
        curvature = self._bounded(root @ root.mT, e)
        values, directions = np.linalg.eigh(curvature - self.precision[e])
        values = np.maximum(values, _SMALLEST * values[:, -1:])
        gain = informed_share(values, fit.weight[e])
        known_part = (directions * gain[:, None]) @ directions.mT
        data = (directions * (gain * values)[:, None]) @ directions.mT
        precision = self.precision[e] + data
        way = self.pull[e] + known_part @ (fit.gradient[e] - self.pull[e])
        noise = rng.standard_normal((num_draws, dim, 1))
        spread = np.linalg.solve(np.linalg.cholesky(precision).mT, noise)
        off = (np.linalg.solve(precision, way[..., None]) - spread)[..., 0]
        return np.asarray((fit.theta[e] - off) / fit.unit[e])

    def _bounded(self, curvature: Array, e: int) -> Array:
        """Matrices of the posterior's ``curvature``, (draw, dim, dim), of the data set ``e``, with
        their eigenvalues in the sampler's units moved to the nearest ones that the public bounds
        allow: the bounds hold along every direction, not only along the eigenvectors of the
        estimate."""
        if self.public is None:
            return curvature
        unit = self.fit.unit[e]
        values, directions = np.linalg.eigh(curvature * unit[:, None] * unit)
        values = answer_law.within(self.public, values)
        whole = (directions * values[:, None]) @ directions.mT
        return np.asarray(whole / unit[:, None] / unit)

    def findings(
        self,
        data_set: int,
        of_gradients: Sequence[Finding],
        planned_degrees: float,
        names: Sequence[str],
    ) -> list[Finding]:
        """Findings against the law of one data set: the findings ``of_gradients``, but for a shift
        of the mean of at most a quarter of the law's own standard deviations; a curvature that the
        rounds do not tell, or tell better than the ``planned_degrees`` of freedom explain; a prior
        that hides what the data say; and gradients that are not linear in theta. ``names`` are
        those of theta's entries."""
        ratio = self._spreads[data_set].mean(axis=1) * self.values[data_set]
        least = _OFF * max(1.0, float(np.sqrt(ratio.min())))
        speak = [
            each
            for each in of_gradients
            if each.code != "mean-shift" or not each.numbers.get("mean_shift", np.inf) <= least
        ]
        curvature = self._judge_curvature(data_set, planned_degrees, names)
        against = [*self._judge_bounds(data_set), *self._judge_prior(data_set)]
        return [*speak, *curvature, *against, *self._judge_bend(data_set)]

    def _judge_curvature(
        self, data_set: int, planned: float, names: Sequence[str]
    ) -> list[Finding]:
        """List with a finding where the rounds do not tell the curvature of some direction, so that
        the answer of this data set is mostly the prior there; or where they seem to tell it, but
        only by chance, because the plan predicted fewer degrees of freedom (``planned``); else
        empty. ``names`` are those of theta's entries."""
        own = answer_law.own_degrees(self.degrees[data_set])
        least = max(0.0, float(own.min()))
        if planned < _HARDLY_ANY:
            known = answer_law.WELL_KNOWN - answer_law.FADING
        else:
            known = max(answer_law.WELL_KNOWN, _BY_CHANCE * planned)
        if planned < answer_law.WELL_KNOWN and least >= known and not self._bounded_below:
            short = "the rounds tell a curvature better than they should"
            text = (
                f"{short}: by {least:.2g} degrees of freedom, and the plan expects {planned:.2g};"
                " estimates that are too large by chance look so, and intervals are then too"
                " narrow; plan more rounds, a larger step, or a public_convexity"
            )
            return [Finding("curvature-by-chance", "warning", text, short, {"df": least})]
        if least >= answer_law.WELL_KNOWN:
            return []
        loads = np.square(self._to_entries[data_set]) * self._spreads[data_set].mean(axis=1)
        share = loads[:, own < answer_law.WELL_KNOWN].sum(axis=1) / loads.sum(axis=1)
        largest = np.argsort(-share)[:_MOST_NAMED]
        concerned = ", ".join(
            f"{100 * share[i]:.0f} % of {names[i]}" for i in largest if share[i] >= share.max() / 2
        )
        short = "the rounds do not tell the curvature in some direction"
        text = (
            f"{short} ({least:.2g} degrees of freedom, {answer_law.WELL_KNOWN:g} are needed), which"
            f" makes up {concerned}: what is stated there is partly or mostly the prior, and"
            " regions of several entries together may hold less often than they say; plan more"
            " rounds, a larger step, coordinates in which the posterior is round, or a"
            " public_convexity"
        )
        # Where the plan expects far more degrees of freedom, the answer may be wrong: gradients are
        # clipped, or the chain is far from the mode.
        lost = np.isfinite(planned) and planned >= max(answer_law.WELL_KNOWN, _LOST * least)
        light: Light = "sampling" if lost else "use"
        return [Finding("curvature-unknown", "warning", text, short, {"df": least}, light)]

    @property
    def _bounded_below(self) -> bool:
        """Whether a smallest curvature of the posterior is publicly known."""
        return self.public is not None and (self.public.convexity or 0.0) > 0

    def _judge_bounds(self, data_set: int) -> list[Finding]:
        """List with a finding where the rounds contradict the public bounds of the curvature, to
        which mean, intervals and draws keep all the same; else empty."""
        if self._public_bounds is None:
            return []
        values, degrees = self.values[data_set], self.degrees[data_set]
        dim = len(values)
        # Standard error of the curvature along an eigenvector. The eigenvector is the estimate's
        # own: noise spreads the eigenvalues of equal curvatures over sqrt(2 dim) standard errors on
        # both sides (the edge of a random symmetric matrix).
        error = values * np.sqrt(2 / degrees)
        slack = (float(ndtri(np.array([1 - _LEVEL / (2 * dim)]))[0]) + np.sqrt(2 * dim)) * error
        # An autoregression's curvature is too large by (dim + 2)(1 - q)/(n q), at most this share,
        # and a saturated link takes away some per cent.
        bias = values * 2 * (dim + 3) / degrees
        # A convexity that is not public has the bound 0, below which no curvature lies.
        least, low = self._public_bounds.least[data_set], np.full(dim, np.inf)
        np.divide((values + slack) * (1 + _TOLERATED), least, out=low, where=least > 0)
        high = (values - slack - bias) * (1 - _TOLERATED) / self._public_bounds.most[data_set]
        for name, factor, holds in (
            ("public_convexity", float(low.min()), bool((low >= 1).all())),
            ("public_smoothness", float(high.max()), bool((high <= 1).all())),
        ):
            if not holds:
                short = f"the rounds contradict the {name}"
                text = (
                    f"{short}: a curvature that they show is, all errors allowed for, {factor:.2g}"
                    f" times that bound; mean and intervals keep to the bound, and are wrong if it"
                    f" is; plan with another {name}, or without one"
                )
                return [Finding("bounds-contradicted", "warning", text, short, {"share": factor})]
        return []

    def _judge_prior(self, data_set: int) -> list[Finding]:
        """List with a finding where the prior is nearly as precise as the data or more, and the
        rounds tell the curvature of both together with an error of half of the data's own or more;
        else empty."""
        if self._bounded_below:
            return []
        values, prior = self.values[data_set], self.floor[data_set]
        degrees = np.maximum(answer_law.own_degrees(self.degrees[data_set]), 1.0)
        error = values * np.sqrt(2 / degrees)
        strong = prior > _STRONG * values
        if not (strong & (error > 0.5 * (values - prior))).any():
            return []
        largest = float((prior[strong] / values[strong]).max())
        short = "the prior hides how much the data say"
        text = (
            f"{short}: it makes up {100 * largest:.0f} % of the curvature in some direction, and"
            " the rounds tell the rest with an error of half of it or more; intervals may be too"
            " narrow; plan more rounds, a larger step, or a public_convexity"
        )
        return [Finding("strong-prior", "warning", text, short, {"share": largest})]

    @cached_property
    def _bends(self) -> tuple[Array, Array]:
        """Slopes that reveal gradients that are not linear in theta, and their standard errors,
        (data set, dim) each; :meth:`TranscriptRounds.bends` defines them."""
        return self.rounds.bends(self.start, self.fit)

    def _judge_bend(self, data_set: int) -> list[Finding]:
        """List with a finding where gradients are not linear in theta, so that the mean of this
        data set may be off; else empty."""
        slope, error = (each[data_set] for each in self._bends)
        # A two-sided test of each slope at the level _LEVEL / dim: Bonferroni's correction for as
        # many slopes as theta has entries.
        limit = float(ndtri(np.array([1 - _LEVEL / (2 * len(slope))]))[0])
        shift = float((np.abs(slope) - limit * error).max())
        if not shift > _OFF:
            return []
        short = "the gradient is not linear in theta: the posterior is not normal"
        text = (
            f"{short}, and the answer's mean may be off by {shift:.2g} posterior sd or more;"
            " use the draws of a chain at temperature 1, or a smaller step"
        )
        return [Finding("not-quadratic", "warning", text, short, {"shift": shift})]


def _quadratic_prior(
    fit: GradientRegression, values: Array, directions: Array, prior: PriorGradient
) -> tuple[Array, Array]:
    """Curvature of the negative log prior, (data set, dim, dim), and its gradient, (data set, dim),
    both at the mean of theta over rounds. The curvature is a central difference of ``prior`` over a
    posterior standard deviation of each entry; units are those of the regression ``fit``.
    ``values`` (data set, dim) and ``directions`` (data set, dim, dim) are eigenvalues and
    eigenvectors of the fitted curvature."""
    dim = values.shape[1]
    theta = fit.theta / fit.unit
    reach = np.sqrt((np.square(directions) @ (1.0 / values)[..., None])[..., 0]) / fit.unit
    steps = reach[:, :, None] * np.eye(dim)
    places = np.concatenate([theta[:, None] + steps, theta[:, None] - steps, theta[:, None]], 1)
    gradient = prior(places)
    hessian = (gradient[:, :dim] - gradient[:, dim:-1]) / (2 * reach[:, :, None])
    hessian = (hessian + hessian.mT) / (2 * fit.unit[:, :, None] * fit.unit[:, None])
    # A prior may have negative curvature in places, which is raised to 0. For independent entries
    # the curvature is diagonal, and no eigenvectors are needed.
    if np.count_nonzero(hessian) > np.count_nonzero(np.linalg.diagonal(hessian)):
        bent, own = np.linalg.eigh(hessian)
        hessian = (own * np.maximum(bent, 0.0)[:, None]) @ own.mT
    else:
        hessian = np.maximum(hessian, 0.0)
    return hessian, gradient[:, -1] / fit.unit


def _half_width(sd: Array, probability: float) -> Array:
    """Half the length of the central interval of a given ``probability``, (data set, dim), for an
    equal mixture of normal laws with mean 0 and the standard deviations ``sd`` (data set, dim,
    component of the mixture)."""
    # The probability is a concave function of the half length, so that Newton's steps from below
    # never pass the solution. It is a concave function of 1/sd, too: a normal law with the mean of
    # these has more of it, and its interval is below the solution.
    inverse = 1.0 / sd.reshape(-1, sd.shape[2])
    half = float(ndtri(np.array([(1 + probability) / 2]))[0]) / inverse.mean(axis=1)
    left = np.arange(len(half))  # numbers of the intervals that are not found yet
    for _ in range(_MOST_STEPS):
        scaled = half[left, None] * inverse[left]
        short = probability - (2 * ndtr(scaled) - 1).mean(axis=1)
        slope = (np.exp(-np.square(scaled) / 2) * inverse[left]).mean(axis=1) * np.sqrt(2 / np.pi)
        step = np.maximum(short / slope, 0.0)
        half[left] += step
        left = left[step > 1e-9 * half[left]]
        if not len(left):
            break
    return np.asarray(half.reshape(sd.shape[:2]))
