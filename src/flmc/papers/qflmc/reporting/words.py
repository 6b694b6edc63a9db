"""Sentences of the report that do not depend on what was measured."""

PAPER = (
    'The paper: Yunchuan Zhang, Dongzhu Liu and Osvaldo Simeone, "Leveraging Channel Noise for'
    ' Sampling and Privacy via Quantized Federated Langevin Monte Carlo".'
)

QUESTION = (
    "The paper lets devices send their gradients as random single bits (digital) or as they are"
    " (analog) over a noisy channel, whose noise both drives the sampler and hides the data. It"
    " says that digital has the smaller error at high SNR and under strict privacy. Here its"
    " three figures are measured again, and each sentence about them, a claim, is judged."
)

WHAT_A_READING_IS = (
    "A reading is one way to take the paper's text, which leaves room: which privacy formula,"
    " which noise limit, which step. Every figure is drawn under each of them:"
)

CONJECTURE = (
    "`by entry` is a conjecture about the authors' program: each of the m = 5 entries gets"
    " epsilon/m. Digital takes the largest A with Pr(|loss of one entry of the exact pair| >"
    " epsilon/m) <= delta, without the Langevin limit; analog takes the printed formula with the"
    " half, epsilon/m in T but m kept in the root, with the Langevin limit. It is not a sound"
    " privacy rule: delta is spent anew in every entry, so that only m delta is proven for a"
    " round, and analog pays for m twice. (Its gains in these figures are below what the exact"
    " pair allows.) Nothing in it was fitted to a number, but it was chosen: it was found after"
    " a search of 201 344 combinations of formulas (88 digital, 572 analog, 4 ways to switch the"
    " Langevin limit), none of which satisfies all claims. That search was made once and is not"
    " part of this program; the search below is. So the near numbers are a hint at what was"
    " computed, not a proof."
)

LANDMARKS_IN_WORDS = (
    "The first two are where the gain becomes the one without privacy, from the formulas."
    " Crossings are interpolated between the points of a figure, in the logarithm of the ratio"
    " of mean errors."
)

CONTRADICTION = (
    "With the printed privacy bound, two claims contradict each other at any step sizes. At"
    " epsilon = 5 the bound allows digital a gain that power reaches at {stops:.1f} dB. The"
    " bound does not depend on the SNR, and the Langevin limit does not either: from {stops:.1f}"
    " dB on digital's chain is the same at every SNR, and so is its error. Analog's gain never"
    " falls as the SNR grows, and a larger gain does nothing but divide the channel noise (while"
    " no gradient is clipped, the error is that of the noiseless chain plus a multiple of"
    " N_0/A^2; with clipping a larger gain has the smaller error too, as measured from a tenth"
    " to ten times the printed step). So if analog is better at 15 dB, it is better at 20 dB:"
    " 'analog has the smaller error below 17.5 dB' excludes 'digital has the smaller error above"
    " 17.5 dB', and digital cannot overtake analog anywhere above {stops:.1f} dB. This holds for"
    " power as printed; counted for the block of m entries, digital stops 7 dB later."
)

FIGURES_IN_WORDS = (
    "Left: mean squared error in the paper's axes; the dotted line is trace(Sigma), the error"
    " of exact posterior samples: below it a sampler has collapsed. Right: squared W2 distance"
    " from the Gaussian fitted to the 100 draws of one run to the posterior, which is large for"
    " a cloud that is too narrow as well; the dotted line is that of 100 independent exact"
    " draws, out of reach for a chain with memory. Broad and pale: without privacy. Shaded: one"
    " standard error. Errors far above the dotted line at low SNR or small epsilon under"
    " `calibrated` belong to chains that have not arrived after 200 rounds of burn-in: their"
    " steps are as small as the noise demands."
)

REASON = (
    "The likely reason. At the printed digital step the random bits alone make the samples eta"
    " K/(2 kappa) = {floor:.3g} times as wide in variance as the posterior, at any SNR and"
    " without any privacy; with the Langevin limit as printed it is {literal:.3g} times. The"
    " analog scheme at its printed step is limited by Langevin noise to the right width, once"
    " power and privacy allow it. So digital can have the smaller error only where privacy holds"
    " analog back by more than that factor. At epsilon = 5 it does so under `by entry` alone,"
    " where analog pays for m twice. The MSE rewards the narrower cloud; it does not ask whether"
    " the cloud is the posterior. Under `calibrated` both errors are near trace(Sigma) once"
    " power and privacy allow the step; which of them is the smaller there is decided by the"
    " discretisation error of its step, a few per cent, not by the channel."
)

BEYOND_IN_WORDS = (
    "At equal SNR, equal effective step and equal rounds, else the slower sampler looks more"
    " private. Epsilon of a round at delta 0.01 by the scheme's own criterion; of the run at"
    " delta 1e-5, always tight. The exact worst-case pair allows {decibels:.1f} dB more transmit"
    " power than the paper's bound at epsilon = 5. What is true: calibration is what brings the"
    " samples to the posterior; at equal effective step neither calibrated scheme is more"
    " private throughout, and digital's advantages are its bounded loss and its one-bit radio."
)

FEW_CHAINS = (
    " No squared W2 distance is given where a data set has fewer than 20 independent draws; the"
    " full study has enough chains everywhere."
)

SEARCH_IN_WORDS = (
    "Every combination of these is tried. The first of each list is what is printed, but for the"
    " half of T(x), which print leaves out. Steps are factors of the printed ones; 'paper, 1'"
    " puts 1 in place of K - 1 in the loss; 'by entry' is the conjecture's rule."
)

SEARCH_SETTINGS = (
    "The privacy limit stays on: without it nothing depends on epsilon, and half of the claims"
    " are void. {experiments} experiments with common random numbers; errors interpolated over"
    " {points} gains. Only claims that hold are counted, not those that so few experiments leave"
    " undecided."
)

INTERVALS = (
    "Ratios are of mean errors over the same experiments, with 99 % intervals from their paired"
    " differences; verdicts are computed from them, `undecided` where an interval leaves both"
    " open. A saturation point counts as the claimed one within one step of the grid. The rule"
    " for 'larger a' was chosen after a preview of 50 experiments: the first rule, that the best"
    " a never falls with epsilon, failed under `unlimited` there; the present one asks for less."
)
