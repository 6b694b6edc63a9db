"""Sentences of the report that do not depend on what was measured."""

FIGURES_IN_WORDS = (
    "Left: mean squared error in the paper's axes; the dotted line is trace(Sigma), the error of"
    " exact posterior samples: below it a sampler has collapsed. Right: variance of the samples"
    " over the posterior's, 1 is right. Shaded: one standard error. Variances far above 1 at low"
    " SNR or small epsilon under `calibrated` belong to chains that have not arrived after 200"
    " rounds of burn-in: their steps are as small as the noise demands."
)

REASON = (
    "The likely reason. At the printed digital step the random bits alone make the samples eta K/(2"
    " kappa) = {floor:.3g} times as wide in variance as the posterior, at any SNR and without any"
    " privacy; with the Langevin limit as printed it is {literal:.3g} times. The analog scheme at"
    " its printed step is limited by Langevin noise to the right width, once power and privacy"
    " allow it. So digital can have the smaller error only where privacy holds analog back by more"
    " than that factor, and at epsilon = 5 it does not. The MSE rewards the narrower cloud; it does"
    " not ask whether the cloud is the posterior. Under `calibrated` both errors are near"
    " trace(Sigma) once power and privacy allow the step; which of them is the smaller there is"
    " decided by the discretisation error of its step, a few per cent, not by the channel."
)

BEYOND_IN_WORDS = (
    "At equal SNR, equal effective step and equal rounds, else the slower sampler looks more"
    " private. Epsilon of a round at delta 0.01 by the scheme's own criterion; of the run at delta"
    " 1e-5, always tight. The exact worst-case pair allows {decibels:.1f} dB more transmit power"
    " than the paper's bound at epsilon = 5. What is true: calibration is what brings the samples"
    " to the posterior; at equal effective step neither calibrated scheme is more private"
    " throughout, and digital's advantages are its bounded loss and its one-bit radio."
)

SEARCH_IN_WORDS = (
    "Every combination of: {choices}. Steps are factors of the printed ones; 'paper, 1' puts 1 in"
    " place of K - 1 in the loss. The privacy limit stays on: without it nothing depends on"
    " epsilon, and half of the claims are void. {experiments} experiments with common random"
    " numbers; errors interpolated over {points} gains. Only claims that hold are counted, not"
    " those that so few experiments leave undecided."
)

INTERVALS = (
    "Ratios are of mean errors over the same experiments, with 99 % intervals from their paired"
    " differences; verdicts are computed from them, `undecided` where an interval leaves both open."
    " A saturation point counts as the claimed one within one step of the grid. The rule for"
    " 'larger a' was chosen after a preview of 50 experiments: the first rule, that the best a"
    " never falls with epsilon, failed under `unlimited` there; the present one asks for less."
)
