"""plan.py - what is trained how, and in which order (the study's command and its trainers; needs no PyTorch)"""

import dataclasses
import datetime

WORKER_AGGREGATOR = "worker-aggregator"
GLOO = "Gloo"
DEFAULT = "fixed:10"
PATIENCE = datetime.timedelta(seconds=60)  # of a trainer, with others
SEEDS, EPOCHS, LINK_RATE = 5, 15, "1gbit"  # of the page, if nothing else is asked for
FEWER_SEEDS = 3  # of the pages of the paper's systems and of its observation
MOST_IN_JOB = 12  # trainings: what fails, or is ended, takes no more with it
QUIET = 0.3  # cores that may be busy with other work before a study is not worth much


# What goes through a codec. (Of both, each by itself.)
GRADIENTS, WEIGHTS, BOTH = "gradients", "weights", "both"
# INCEPTIONN's baseline, "trunc:B": the upper B bits of each float, all else is 0. No codec of gradlane: hooks.py cuts.
TRUNC = "trunc"


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to average gradients. kind: gloo, aggregator, fp16, bf16, powersgd, fsdp (FSDP2, on Gloo without a codec) or
    gradlane; the rest is gradlane's."""

    name: str
    kind: str
    codec: str = ""
    feedback: bool = False
    strategy: str = ""  # the ring
    links: bool = False  # ranks agree on a scale first, for which nodes need links to all others
    rate: float = 1.0  # of learning, times that of the study: signs are all of one size
    what: str = GRADIENTS  # goes through the codec; all else is exact
    rank: int = 0  # of PowerSGD's factors
    momentum: bool = True  # of the optimizer; False: the codec has its own
    ramp: tuple = ()  # (codec, epochs) before it
    cut: int = 0  # bits of each float that travel, the upper ones; 0: all, or what the codec says
    halves: bool = False  # FSDP2 computes, and exchanges all it has, in bfloat16
    parameters: str = ""  # FSDP2's: "bf16" through gradlane; by the job's own backend, exactly


def _gradlane(codec, feedback=False, strategy="", **more):
    name = (strategy + " " if strategy else "") + codec + (" + feedback" if feedback else "")
    return Method(name, "gradlane", codec, feedback, strategy, **more)


def of_what(codec, what):
    name = codec if what == GRADIENTS else f"{what}: {codec}"
    word, _, number = codec.partition(":")
    if word == TRUNC:
        return Method(name, "gradlane", "raw", what=what, cut=int(number))
    return Method(name, "gradlane", codec, what=what)


# Gloo is what the others' accuracy is compared with, the worker-aggregator what their time is.
METHODS = [
    Method(WORKER_AGGREGATOR, "aggregator"),
    Method(GLOO, "gloo"),
    Method("Gloo, fp16 hook", "fp16"),
    _gradlane("raw"),
    _gradlane("bf16"),
    _gradlane("fixed:10"),
    _gradlane("fixed:10", True),
    _gradlane("fixed:8"),
    _gradlane("fixed:8", True),
    _gradlane("fixed:6"),
    _gradlane("fixed:6", True),
    _gradlane("fixed:5", True),
    _gradlane("fixed:adaptive"),
    _gradlane("inceptionn:10"),
    _gradlane("inceptionn:10,truncate"),
    _gradlane("raw", strategy="aggregator:0"),
    _gradlane("fixed:10/raw", strategy="aggregator:0"),
]
GENERAL = [method.name for method in METHODS]

# The codecs of the papers, each as its paper has it: with feedback where that keeps what is left out. An average of
# votes is +-1/4 on four nodes; times 2^-8 a step changes weights about as much as early gradients do.
VOTE_RATE = 2.0**-8
PAPERS = [
    Method("Gloo, bf16", "bf16"),
    _gradlane("fixed:10,stochastic"),
    _gradlane("fixed:rel=8", True, links=True),
    _gradlane("terngrad", links=True),
    _gradlane("tbq:7", True),
    _gradlane("signsgd", rate=VOTE_RATE),
    _gradlane("signsgd,ternary", rate=VOTE_RATE),
    _gradlane("signsgd,ef", True, links=True),
    _gradlane("topk:1%", True),
    _gradlane("topk:1%+fixed:10", True),
    _gradlane("mstopk:1%", True),
    # As Lin et al. have it: no momentum but its own, and a rate that falls over the first four epochs.
    Method("dgc:0.1% after 4 epochs of more", "gradlane", "dgc:0.1%", True, momentum=False,
           ramp=(("dgc:25%", 1), ("dgc:6.25%", 1), ("dgc:1.5625%", 1), ("dgc:0.4%", 1))),
    _gradlane("graddrop:0.1%", True),
    _gradlane("onebit", True, "direct"),
    _gradlane("qsgd:4", True, "direct"),
    _gradlane("qsgd:2", True, "direct"),
    _gradlane("int8", True, "direct"),
    _gradlane("fp8", True, "direct"),
    Method("PowerSGD 4 on raw", "powersgd", "raw", rank=4),
    Method("PowerSGD 4 on fixed:10", "powersgd", "fixed:10", rank=4),
]
# Whose accuracy and time those are held against.
PAPERS_BESIDE = [WORKER_AGGREGATOR, GLOO, "Gloo, fp16 hook", "raw", "fixed:10", "fixed:8 + feedback"]

# INCEPTIONN's founding observation: gradients tolerate a loss of precision that weights do not.
OBSERVED = ["trunc:10", "trunc:16", "trunc:22", "inceptionn:10", "inceptionn:6", "fixed:10", "fixed:6"]
OBSERVATION = [of_what(codec, what) for codec in OBSERVED for what in (GRADIENTS, WEIGHTS, BOTH)]

FOLLOWING = [_gradlane("fixed:adaptive", True), _gradlane("fixed:adaptive:5", True)]
FSDP, FSDP_HALVES = "FSDP2 on Gloo", "FSDP2 on Gloo, bf16"
SHARDED = [
    Method(FSDP, "fsdp"),
    Method(FSDP_HALVES, "fsdp", halves=True),
    Method("FSDP2, fixed:adaptive + feedback, bf16 parameters", "fsdp", "fixed:adaptive", True, parameters="bf16"),
]

# The same method may be in several of them.
BY_NAME = {method.name: method for method in [*METHODS, *FOLLOWING, *PAPERS, *OBSERVATION, *SHARDED]}
# What the INCEPTIONN paper compares, by its names: a worker-aggregator, with compression on the way up, and rings.
SYSTEMS = {"WA": "aggregator:0 raw", "WA+C": "aggregator:0 fixed:10/raw", "ring": "raw", "ring+C": "fixed:10"}

MODELS = {
    "digits": "64-500-500-500-500-10, 789,010 parameters",
    "conv": "convolutional, 283,786 parameters",
    "gpt": "GPT of 2 blocks, 1,645,664 parameters",
}
# Of the GPT: characters of a window, windows per node and step, steps of an "epoch", first rate of AdamW.
GPT_CONTEXT, GPT_BATCH, GPT_STEPS, GPT_RATE = 64, 1, 40, 1e-3
BY_LOSS = ("gpt",)  # reach a loss; the others an accuracy
# The convolutional net is there to see whether another kind of network does the same: fewer methods will do.
CONV_METHODS = [
    WORKER_AGGREGATOR, GLOO, "Gloo, fp16 hook", "raw", "fixed:10", "fixed:8 + feedback", "fixed:5 + feedback",
    "fixed:adaptive", "inceptionn:10",
]
# Studies beside that of all methods, by what stands on the command line.
SYSTEMS_MODE, PAPERS_MODE, OBSERVATION_MODE, RACE_MODE = "systems", "papers", "observation", "race"
MODES = (SYSTEMS_MODE, PAPERS_MODE, OBSERVATION_MODE, RACE_MODE)
# What people have today, and what they would take instead.
BF16 = "Gloo, bf16"
_RACE = [GLOO, BF16, "raw", "bf16", "fixed:10", "fixed:8 + feedback", "fixed:6 + feedback", "fixed:adaptive + feedback"]
RACE = {
    "digits": [WORKER_AGGREGATOR, *_RACE],
    "conv": _RACE,
    "gpt": [GLOO, BF16, "bf16", "fixed:adaptive + feedback", "fixed:adaptive:5 + feedback",
            *(method.name for method in SHARDED)],
}
QUICK_RACE = {"digits": [GLOO, "fixed:8 + feedback"], "conv": [GLOO, BF16], "gpt": [GLOO, "fixed:adaptive + feedback"]}
QUICK_PAPERS = [GLOO, "Gloo, bf16", "direct qsgd:4 + feedback", "PowerSGD 4 on raw"]
QUICK_OBSERVATION = [GLOO, "trunc:16", "weights: trunc:16", "both: trunc:16"]

QUICK_METHODS = {
    "digits": [WORKER_AGGREGATOR, GLOO, "fixed:10", "fixed:8 + feedback"],
    "conv": [GLOO, "fixed:10", SYSTEMS["WA"], SYSTEMS["WA+C"]],
}

# Seconds a training takes on two cores at 1 Gb/s, all included: for the first guess of how long it will take.
GUESS = {"aggregator": 18, "gloo": 11, "fp16": 16, "bf16": 16, "powersgd": 12, "gradlane": 7, "fsdp": 15}
LONGER = {"gpt": 6}  # times
START_UP = 15


def models_of(mode):
    """The general study, and those of the papers, are of the networks that they were made with."""
    return [model for model in MODELS if mode == RACE_MODE or model != "gpt"]


def link_of(mode):
    """Of gradlane run --link. The general study has a port of its own for each daemon, the race what needs no root."""
    return "udp" if mode == RACE_MODE else "veth"


def of_mode(mode, quick):
    """Names of the methods of a study of its own."""
    if mode == SYSTEMS_MODE:
        return [GLOO, *SYSTEMS.values()]
    if mode == PAPERS_MODE:
        return QUICK_PAPERS if quick else PAPERS_BESIDE + [method.name for method in PAPERS]
    return QUICK_OBSERVATION if quick else [GLOO, *(method.name for method in OBSERVATION)]


def selected(model, quick, only, mode):
    """Names of the model's methods. Those that all others are compared with are there if any is."""
    if only:
        wanted = {WORKER_AGGREGATOR, GLOO, *only}
        return [name for name, method in BY_NAME.items() if name in wanted and (method.kind != "fsdp" or model == "gpt")]
    if mode == RACE_MODE:
        return (QUICK_RACE if quick else RACE)[model]
    if mode:
        return of_mode(mode, quick)
    own = set(BY_NAME) - set(GENERAL)
    ring = [name for name, method in BY_NAME.items() if not method.strategy and name not in own]
    return QUICK_METHODS.get(model, [GLOO, DEFAULT]) if quick else CONV_METHODS if model == "conv" else ring


def strategies_of(trainings):
    """What daemons must allow for them; the first is that of methods that name none."""
    methods = [BY_NAME[training["method"]] for training in trainings]
    named = {method.strategy for method in methods} | {"direct" for method in methods if method.links}
    return ["ring", *sorted(named - {""})]


def pieces(trainings):
    """Jobs of some of them each, as equal as can be."""
    count = -(-len(trainings) // MOST_IN_JOB)
    return [trainings[i * len(trainings) // count : (i + 1) * len(trainings) // count] for i in range(count)]


def jobs(models, seeds, quick, only, mode):
    """Lists of trainings of one seed. The order of methods is turned on from seed to seed, so that none is always the
    first, or behind the same one."""
    result = []
    for turn, seed in enumerate(seeds):
        trainings = []
        for model in models:
            names = selected(model, quick, only, mode)
            at = turn * 7 % len(names)
            trainings += [{"model": model, "seed": seed, "method": name} for name in names[at:] + names[:at]]
        result += pieces(trainings)
    return result


def key(training):
    return training["model"], training["seed"], training["method"]
