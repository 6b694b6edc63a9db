"""The links, schemes, noise laws, fadings, schedulers, server updates, models, engines and papers
that flmc has built in, in one registry for each kind.

To add one, implement it and add its entry here: command-line options, help, messages, tables of the
documentation and contract tests include it without further changes."""

from __future__ import annotations

from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning.server_update import Langevin, MajorityVote, Momentum, ServerUpdate
from flmc.settings.registry import Entry, Parameter, Registry
from flmc.uplink.fading import Fading
from flmc.uplink.fadings import (
    ConstantFading,
    DistanceFading,
    GaussMarkovFading,
    JakesFading,
    NakagamiFading,
    RayleighFading,
    RicianFading,
    SelectiveFading,
    TappedDelayFading,
    TraceFile,
)
from flmc.uplink.link import Link
from flmc.uplink.links import Linear, Probit, Sigmoid, Sign
from flmc.uplink.noise import GaussianNoise, NoiseLaw
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.schedulers import (
    AllDevices,
    PredecessorDevices,
    RandomDevices,
    StrongestDevices,
    ThresholdDevices,
)
from flmc.uplink.schemes import Analog, Digital, Ideal
from flmc.uplink.uplink import Uplink

LINKS = Registry("link", Link)
LINKS.add(
    Entry(
        "sigmoid",
        Sigmoid,
        "logistic function, the paper's link",
        (Parameter("slope_parameter", 0.05, "a in 1/(1 + exp(-a g))"),),
    )
)
LINKS.add(
    Entry(
        "probit",
        Probit,
        "normal distribution function",
        (Parameter("slope_parameter", 0.03, "a in Phi(a g)"),),
    )
)
LINKS.add(
    Entry(
        "linear",
        Linear,
        "a straight line: unbiased up to its scale, also where devices differ, below the clip",
        (Parameter("ratio", 1.0, "mean bit at the clip, in (0, 1]"),),
    )
)
LINKS.add(Entry("sign", Sign, "the sign itself, without randomness; it has no slope"))

SCHEMES = Registry("scheme", Uplink, of_classes=True)
SCHEMES.add(Entry("digital", Digital, "one random bit an entry"))
SCHEMES.add(Entry("analog", Analog, "scaled values"))
SCHEMES.add(
    Entry(
        "ideal", Ideal, "exact gradients and exactly the noise that the sampler needs: a reference"
    )
)

NOISE_LAWS = Registry("noise_law", NoiseLaw)
NOISE_LAWS.add(Entry("gaussian", GaussianNoise, "normal, which alone is accounted for"))

FADINGS = Registry("fading", Fading)
_SCALE = Parameter("scale", 0.04, "root of E[h^2]")
FADINGS.add(
    Entry(
        "constant",
        ConstantFading,
        "the same path gain always; a number alone means this",
        (Parameter("gain", 0.04, "path gain h"),),
    )
)
FADINGS.add(
    Entry(
        "rayleigh",
        RayleighFading,
        "Rayleigh, independent over rounds and devices",
        (_SCALE,),
    )
)
FADINGS.add(
    Entry(
        "rician",
        RicianFading,
        "Rician: a path in sight beside reflected ones",
        (_SCALE, Parameter("factor", 4.0, "K, power in sight over that of the rest")),
    )
)
FADINGS.add(
    Entry(
        "nakagami",
        NakagamiFading,
        "Nakagami: h^2 has a gamma law",
        (_SCALE, Parameter("shape", 2.0, "m, at least 1/2; 1 is Rayleigh")),
    )
)
FADINGS.add(
    Entry(
        "markov",
        GaussMarkovFading,
        "Rayleigh, remembering the round before (Gauss-Markov)",
        (_SCALE, Parameter("correlation", 0.9, "from one round to the next, in [0, 1)")),
    )
)
FADINGS.add(
    Entry(
        "jakes",
        JakesFading,
        "Rayleigh of a moving device (Jakes' spectrum)",
        (_SCALE, Parameter("doppler", 0.05, "Doppler frequency times the time of a round")),
    )
)
FADINGS.add(
    Entry(
        "selective",
        SelectiveFading,
        "an entry per subcarrier, exponential power-delay profile",
        (_SCALE, Parameter("delay", 1.0, "decay of the profile, in samples")),
    )
)
FADINGS.add(
    Entry(
        "tdl",
        TappedDelayFading,
        "an entry per subcarrier, tabulated power-delay profile (TDL-A)",
        (
            _SCALE,
            Parameter("delay_spread", 300.0, "in nanoseconds"),
            Parameter("spacing", 15.0, "of subcarriers, in kHz"),
        ),
    )
)
FADINGS.add(
    Entry(
        "distance",
        DistanceFading,
        "devices dropped over a disc, log-distance law with shadowing, fixed for a run",
        (
            Parameter("distances", 5.0, "radius of the disc over the reference distance"),
            Parameter("gain", 0.2, "path gain at the reference distance"),
            Parameter("exponent", 3.0, "path-loss exponent"),
            Parameter("shadowing", 0.0, "standard deviation, in dB"),
        ),
    )
)
FADINGS.add(
    Entry(
        "trace",
        TraceFile,
        "path gains of every round from a .csv or .npz file",
        (Parameter("path", None, "the file", text=True),),
    )
)

SCHEDULERS = Registry("scheduling", Scheduler)
SCHEDULERS.add(Entry("all", AllDevices, "every device in every round"))
SCHEDULERS.add(
    Entry(
        "random",
        RandomDevices,
        "some devices, drawn anew for every round",
        (Parameter("count", None, "number of devices in a round"),),
    )
)
SCHEDULERS.add(
    Entry(
        "threshold",
        ThresholdDevices,
        "devices whose channel is strong enough (truncated channel inversion)",
        (Parameter("threshold", None, "least path gain"),),
    )
)
SCHEDULERS.add(
    Entry(
        "strongest",
        StrongestDevices,
        "the devices with the strongest channels of a round",
        (Parameter("count", None, "number of devices in a round"),),
    )
)
SCHEDULERS.add(
    Entry(
        "wflmc",
        PredecessorDevices,
        "the rule of the analog predecessor: noise against missing gradients",
        (Parameter("snr_db", None, "SNR that the rule counts on, in dB"),),
    )
)

UPDATES = Registry("update", ServerUpdate)
UPDATES.add(Entry("langevin", Langevin, "a step against the estimate, the sampler's own"))
UPDATES.add(
    Entry(
        "momentum",
        Momentum,
        "heavy-ball momentum",
        (Parameter("beta", 0.9, "share of the velocity that a round keeps"),),
    )
)
UPDATES.add(
    Entry("majority", MajorityVote, "a step against the signs of the estimate; no known law")
)

MODELS = Registry("model", Model)
MODELS.add(Entry("linear", LinearGaussian, "linear regression with known noise"))
# The entries below give classes by name, not as imported objects: JAX, Numba and the papers are
# imported only when they are used.
_REGRESSIONS = "flmc.models.regressions"
MODELS.add(
    Entry("logistic", f"{_REGRESSIONS}:logistic", "two classes, of data_file", classes="two")
)
MODELS.add(
    Entry("softmax", f"{_REGRESSIONS}:softmax", "several classes, of data_file", classes="several")
)
MODELS.add(Entry("poisson", f"{_REGRESSIONS}:poisson", "counts, of data_file"))
MODELS.add(
    Entry(
        "linear_unknown_noise",
        f"{_REGRESSIONS}:linear_unknown_noise",
        "linear regression that samples its noise, of data_file",
    )
)
MODELS.add(
    Entry(
        "mlp",
        "flmc.models.networks:mlp",
        "several classes by a network of 32 units, of data_file",
        classes="several",
    )
)

ENGINES = Registry("engine", "flmc.sampling.engine:Engine")
ENGINES.add(
    Entry("auto", "flmc.sampling.engine_choice:choose_engine", "the fastest that can run the plan")
)
ENGINES.add(
    Entry(
        "numba",
        "flmc.sampling.compiled.numba_engine:NumbaEngine",
        "compiled code, for quadratic models",
    )
)
ENGINES.add(
    Entry(
        "jax",
        "flmc.sampling.jax_engine:JaxEngine",
        "compiled by JAX, for models from log densities, of any size",
    )
)
ENGINES.add(
    Entry("numpy", "flmc.sampling.numpy_engine:NumpyEngine", "the definition, for any model")
)

PAPERS = Registry("paper", None)
PAPERS.add(
    Entry(
        "qflmc",
        "flmc.papers.qflmc.report:reproduce",
        "Zhang, Liu and Simeone: Leveraging Channel Noise for Sampling and Privacy via Quantized"
        " Federated Langevin Monte Carlo",
    )
)
PAPERS.add(
    Entry(
        "wflmc",
        "flmc.papers.wflmc.report:reproduce",
        "Liu and Simeone: wireless federated Langevin Monte Carlo with analog transmission",
    )
)

REGISTRIES = {
    "links": LINKS,
    "schemes": SCHEMES,
    "noise_laws": NOISE_LAWS,
    "fadings": FADINGS,
    "schedulers": SCHEDULERS,
    "updates": UPDATES,
    "models": MODELS,
    "engines": ENGINES,
    "papers": PAPERS,
}
"""All registries, by the plural of the word for an entry, such as ``links``."""
