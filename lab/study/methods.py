"""methods.py - methods of the experiment `accuracy`, and the seeds of each (needs no PyTorch)"""

import dataclasses
import re

from lab.study import plan

GLOO = "Gloo"
# The values that go through a codec; all others are exact.
GRADIENTS, WEIGHTS = "gradients", "weights"


@dataclasses.dataclass(frozen=True)
class Method:
    """A method to average gradients. kind: gloo, fp16, bf16, powersgd (hooks of PyTorch), trunc (keeps the upper `cut`
    bits of each float), gradlane (a codec), or plain (a hook of plain_hooks.py, which `codec` names)."""

    name: str
    kind: str
    codec: str = ""
    feedback: bool | None = None  # None: as gradlane.torch.State has it
    what: str = GRADIENTS
    rate: float = 1.0  # factor of the learning rate
    momentum: float = plan.MOMENTUM  # of SGD
    warmup: float = 0  # epochs of exact steps
    ramp: tuple = ()  # (codec, epochs) that are used before `codec`
    exact: str = ""  # pattern of the names of parameters that travel exactly
    cut: int = 0

    @property
    def small_momentum(self):
        """The momentum of SGD for parameters that are not compressed. DGC has one of its own for those that are."""
        if self.kind != "gradlane" or not self.codec.startswith("dgc"):
            return self.momentum
        own = re.search(r",m=([0-9.]+)", self.codec)
        return float(own.group(1)) if own else plan.MOMENTUM


def _named(codec, feedback=None, **more):
    """Returns a name that has all settings that are not usual."""
    words = [codec + (" + feedback" if feedback else "")]
    if more.get("warmup"):
        words.append(f"{more['warmup']:g} exact epochs")
    if more.get("ramp"):
        words.append("ramp " + ", ".join(f"{other.partition(':')[2]} x{epochs:g}" for other, epochs in more["ramp"]))
    words += [f"{name} {more[name]:g}" for name in ("rate", "momentum") if name in more]
    words += [f"{more['exact']} exact"] if more.get("exact") else []
    return (f"{WEIGHTS}: " if more.get("what") == WEIGHTS else "") + "; ".join(words)


def gradlane(codec, feedback=None, **more):
    return Method(_named(codec, feedback, **more), "gradlane", codec, feedback, **more)


def plain(words, **more):
    return Method("plain " + _named(words, **more), "plain", words, **more)


def trunc(bits, what=GRADIENTS):
    return Method(("" if what == GRADIENTS else f"{what}: ") + f"trunc:{bits}", "trunc", what=what, cut=bits)


FP32 = Method(GLOO, "gloo")
DIGITS = ("digits", "conv")  # models whose target is an accuracy; that of the others is a loss
SEEDS = (1, 2, 3)
# Settings are chosen by the first seeds, and then tried with fresh ones.
TUNING_SEEDS, FRESH_SEEDS = SEEDS[:2], (4, 5, 6)
# An average of votes is +-1/4 on four nodes. With a factor of 2^-8, a step changes weights about as much as early
# gradients do.
VOTE_RATE = 2.0**-8
DGC_RAMP = (("dgc:25%", 1), ("dgc:6.25%", 1), ("dgc:1.5625%", 1), ("dgc:0.4%", 1))


def sparse_ramp(codec, *parts):
    return tuple((f"{codec}:{rate}", epochs) for rate, epochs in parts)


# The five algorithms of HiPress, untuned: the codec, and the plain hooks that must have the same curve. The scope of the
# first plain hook's scales and thresholds is that of the codec.
HIPRESS = {
    "onebit": [gradlane("onebit"), plain("onebit 256 bucket"), plain("onebit 256"), plain("onebit tensor")],
    "tbq": [gradlane("tbq:7"), plain("tbq 7")],
    "terngrad": [gradlane("terngrad"), plain("terngrad tensor 2^n"), plain("terngrad tensor")],
    "dgc": [gradlane("dgc:0.1%", momentum=0, ramp=DGC_RAMP), plain("dgc 0.1%", momentum=0, ramp=DGC_RAMP)],
    "graddrop": [gradlane("graddrop:0.1%"), plain("graddrop 0.1%")],
}
# Trials of settings. The first one is untuned.
TRIALS = {
    "onebit": [
        gradlane("onebit"),
        gradlane("onebit", warmup=1),
        gradlane("onebit", warmup=4),
        gradlane("onebit", exact="*bias"),
        gradlane("onebit", rate=0.5),
        gradlane("onebit", warmup=1, rate=0.5),
        gradlane("onebit", rate=4, momentum=0),
        gradlane("onebit", warmup=1, exact="*bias"),
        gradlane("onebit", rate=4, momentum=0, exact="*bias"),
        gradlane("onebit", rate=10, momentum=0),
    ],
    "tbq": [
        gradlane("tbq:7"),
        gradlane("tbq:6"),
        gradlane("tbq:5"),
        gradlane("tbq:4"),
        gradlane("tbq:5", warmup=1),
        gradlane("tbq:7", warmup=4),
        gradlane("tbq:7", rate=4, momentum=0),
        gradlane("tbq:6", rate=4, momentum=0),
        gradlane("tbq:5", rate=4, momentum=0),
        gradlane("tbq:4", rate=4, momentum=0),
    ],
    "terngrad": [
        gradlane("terngrad"),
        gradlane("terngrad", warmup=1),
        gradlane("terngrad:1.5"),
        gradlane("terngrad", rate=0.5),
    ],
    "dgc": [
        gradlane("dgc:0.1%", momentum=0, ramp=DGC_RAMP),
        gradlane("dgc:1%", momentum=0),
        gradlane("dgc:1%", momentum=0, ramp=sparse_ramp("dgc", ("25%", 1), ("6.25%", 1))),
        gradlane("dgc:0.1%", momentum=0, ramp=sparse_ramp("dgc", ("25%", 2), ("6.25%", 2), ("1.5625%", 2), ("0.4%", 2))),
        gradlane("dgc:1%", momentum=0, ramp=sparse_ramp("dgc", ("25%", 2), ("6.25%", 4))),
        gradlane("dgc:1%", rate=0.5, momentum=0),
        gradlane("dgc:1%,m=0.5", rate=2, momentum=0),
        gradlane("dgc:1%,m=0", rate=4, momentum=0),
        gradlane("dgc:4%", momentum=0),
        gradlane("dgc:1%,clip=0.5", momentum=0),
        gradlane("dgc:1%,m=0.5", rate=4, momentum=0),
        gradlane("dgc:4%,m=0.5", rate=2, momentum=0),
    ],
    "graddrop": [
        gradlane("graddrop:0.1%"),
        gradlane("graddrop:1%"),
        gradlane("graddrop:1%", ramp=sparse_ramp("graddrop", ("25%", 1), ("6.25%", 1))),
        gradlane("graddrop:0.1%", ramp=sparse_ramp("graddrop", ("25%", 1), ("6.25%", 1), ("1.5625%", 1), ("0.4%", 1))),
        gradlane("graddrop:1%", ramp=sparse_ramp("graddrop", ("25%", 2), ("6.25%", 4))),
        gradlane("graddrop:1%", rate=4, momentum=0),
        gradlane("graddrop:0.1%", rate=4, momentum=0),
        gradlane("graddrop:1%", rate=4, momentum=0, ramp=sparse_ramp("graddrop", ("25%", 1), ("6.25%", 1))),
        gradlane("graddrop:1%", rate=10, momentum=0),
    ],
}
# The trials that were chosen by TUNING_SEEDS, by the rule of tables.best_trial(), and fp32 with their settings.
CHOSEN = {
    "onebit": gradlane("onebit", rate=4, momentum=0),
    "tbq": gradlane("tbq:7", rate=4, momentum=0),
    "terngrad": gradlane("terngrad", warmup=1),
    "dgc": gradlane("dgc:1%", momentum=0, ramp=sparse_ramp("dgc", ("25%", 1), ("6.25%", 1))),
    "graddrop": gradlane("graddrop:1%", ramp=sparse_ramp("graddrop", ("25%", 2), ("6.25%", 4))),
}
CONTROLS = [Method(f"{GLOO}; rate {rate}; momentum 0", "gloo", rate=rate, momentum=0) for rate in (4, 10)]
# INCEPTIONN's bounds, by a code that keeps them and by the paper's code to the letter.
INCEPTIONN = [gradlane(f"inceptionn:{bits}{code}") for code in ("", ",literal") for bits in (10, 8, 6)]
GENERAL = [
    FP32,
    Method("Gloo, fp16", "fp16"),
    Method("Gloo, bf16", "bf16"),
    gradlane("raw"),
    gradlane("bf16"),
    gradlane("fixed:10"),
    gradlane("fixed:10", True),
    gradlane("fixed:8"),
    gradlane("fixed:8", True),
    gradlane("fixed:6"),
    gradlane("fixed:6", True),
    gradlane("fixed:5", True),
    gradlane("fixed:adaptive"),
    gradlane("fixed:adaptive:5"),
    gradlane("fixed:10,stochastic"),
    gradlane("fixed:rel=8", True),
    *INCEPTIONN,
    gradlane("signsgd", rate=VOTE_RATE),
    gradlane("signsgd,ternary", rate=VOTE_RATE),
    gradlane("signsgd,ef"),
    gradlane("topk:1%"),
    gradlane("topk:1%+fixed:10"),
    gradlane("mstopk:1%"),
    gradlane("qsgd:4"),
    gradlane("qsgd:2"),
    gradlane("int8"),
    gradlane("fp8"),
    Method("PowerSGD 4 on raw", "powersgd", "raw"),
    Method("PowerSGD 4 on fixed:10", "powersgd", "fixed:10"),
]
# INCEPTIONN's founding observation: gradients tolerate a loss of precision that weights do not.
OBSERVED = [trunc(16), trunc(10), *(gradlane(codec) for codec in ("inceptionn:10", "fixed:10", "fixed:6"))]
ON_WEIGHTS = [dataclasses.replace(each, name=f"{WEIGHTS}: {each.name}", what=WEIGHTS) for each in OBSERVED]
GPT5M = [FP32, *INCEPTIONN]
GPT = [
    FP32,
    Method("Gloo, bf16", "bf16"),
    gradlane("bf16"),
    gradlane("fixed:10"),
    gradlane("fixed:adaptive"),
    gradlane("fixed:adaptive:5"),
    gradlane("signsgd"),
    gradlane("onebit"),
    gradlane("topk:1%+fixed:10"),
    gradlane("topk:1%"),
    gradlane("topk:1%", ramp=sparse_ramp("topk", ("25%", 1), ("6.25%", 1))),
    gradlane("topk:1%", ramp=sparse_ramp("topk", ("25%", 2), ("6.25%", 4))),
    gradlane("topk:1%", warmup=1),
    gradlane("topk:1%", warmup=4),
    gradlane("onebit", warmup=4),
    gradlane("dgc:1%"),
    gradlane("dgc:1%", ramp=sparse_ramp("dgc", ("25%", 1), ("6.25%", 1))),
    gradlane("dgc:1%", ramp=sparse_ramp("dgc", ("25%", 2), ("6.25%", 4))),
]
BY_NAME = {method.name: method
           for methods in (GENERAL, *HIPRESS.values(), *TRIALS.values(), CONTROLS, OBSERVED, ON_WEIGHTS, GPT)
           for method in methods}


def key(model, seed, method):
    return f"{model}/{seed}/{method}"


def trainings():
    """Returns (model, seed, name of the method) of all trainings, the most important ones first."""
    found = []
    for chosen, models, seeds in (
        ([method for methods in HIPRESS.values() for method in (FP32, *methods)], DIGITS, SEEDS),
        (GPT, ("gpt",), SEEDS[:1]),
        (GPT5M, ("gpt5m",), SEEDS[:1]),
        (INCEPTIONN, DIGITS, SEEDS),
        (GENERAL, DIGITS, SEEDS[:2]),
        ([method for methods in TRIALS.values() for method in methods] + CONTROLS, DIGITS, TUNING_SEEDS),
        ([FP32, *CONTROLS, *CHOSEN.values()], DIGITS, FRESH_SEEDS),
        ([method for methods in HIPRESS.values() for method in methods[:2]], DIGITS, FRESH_SEEDS),
        ([*OBSERVED, *ON_WEIGHTS], DIGITS, SEEDS[:2]),
        ([FP32, *(method for method in GPT if method.codec.startswith(("topk:1%", "dgc")))], ("gpt",), SEEDS[:2]),
        (GPT5M, ("gpt5m",), SEEDS[:2]),
    ):
        found += [(model, seed, method.name) for seed in seeds for model in models for method in chosen]
    return list(dict.fromkeys(found))
