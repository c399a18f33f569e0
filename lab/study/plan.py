"""plan.py - models, methods and order of the trainings (the study's command and its trainers; needs no PyTorch)"""

import dataclasses
import datetime

WORKER_AGGREGATOR = "worker-aggregator"
GLOO = "Gloo"
DEFAULT = "fixed:10"
PATIENCE = datetime.timedelta(seconds=60)  # time limit of a trainer's collectives
SEEDS, EPOCHS, LINK_RATE = 5, 15, "1gbit"  # defaults, and values of the page
FEWER_SEEDS = 3  # least number of seeds for the pages of the modes systems, observation and race
MOST_IN_JOB = 12  # trainings; a job that fails or is ended loses no more than these
QUIET = 0.3  # cores that may be busy with other work; above that, times are not reliable


# The values that go through a codec. With BOTH, gradients and weights go through it separately.
GRADIENTS, WEIGHTS, BOTH = "gradients", "weights", "both"
# INCEPTIONN's baseline "trunc:B" keeps the upper B bits of each float and sets the others to 0. It is no codec of
# gradlane: hooks.py does it.
TRUNC = "trunc"


@dataclasses.dataclass(frozen=True)
class Method:
    """A method to average gradients. kind: gloo, aggregator, fp16, bf16, powersgd, fsdp (FSDP2, on Gloo without a
    codec) or gradlane. The other fields are settings for gradlane and for the training."""

    name: str
    kind: str
    codec: str = ""
    feedback: bool = False
    strategy: str = ""  # "" is the ring
    links: bool = False  # ranks first agree on a scale, for which nodes need links to all others
    rate: float = 1.0  # factor of the learning rate; codecs of signs, which are all of one size, need a small one
    what: str = GRADIENTS  # values that go through the codec; all others are exact
    rank: int = 0  # rank of PowerSGD's factors
    momentum: bool = True  # whether the optimizer has momentum; False: the codec has its own
    ramp: tuple = ()  # (codec, epochs) that are used before `codec`
    cut: int = 0  # number of upper bits of each float that are sent; 0: floats are not cut
    halves: bool = False  # FSDP2 computes and communicates in bfloat16
    parameters: str = ""  # "bf16": FSDP2's parameters go through gradlane; "": exactly, by the job's own backend


def _gradlane(codec, feedback=False, strategy="", **more):
    name = (strategy + " " if strategy else "") + codec + (" + feedback" if feedback else "")
    return Method(name, "gradlane", codec, feedback, strategy, **more)


def of_what(codec, what):
    name = codec if what == GRADIENTS else f"{what}: {codec}"
    word, _, number = codec.partition(":")
    if word == TRUNC:
        return Method(name, "gradlane", "raw", what=what, cut=int(number))
    return Method(name, "gradlane", codec, what=what)


# Accuracies are compared with Gloo's, times with those of the worker-aggregator.
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

# The codecs of the papers, each used as in its paper: with feedback where the paper keeps residuals. An average of
# votes is +-1/4 on four nodes. With a factor of 2^-8, a step changes weights about as much as early gradients do.
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
    # Lin et al. do the same: only the codec has momentum, and the share that is sent falls over the first four epochs.
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
# Methods whose accuracy and time the papers' codecs are compared with.
PAPERS_BESIDE = [WORKER_AGGREGATOR, GLOO, "Gloo, fp16 hook", "raw", "fixed:10", "fixed:8 + feedback"]

# INCEPTIONN's founding observation: gradients tolerate a loss of precision that weights do not.
OBSERVED = ["trunc:10", "trunc:16", "trunc:22", "inceptionn:10", "inceptionn:6", "fixed:10", "fixed:6"]
OBSERVATION = [of_what(codec, what) for codec in OBSERVED for what in (GRADIENTS, WEIGHTS, BOTH)]

# INCEPTIONN's bounds, with the codec that keeps them and with the code of the paper to the letter.
BOUNDS = [_gradlane(f"inceptionn:{bits}{variant}") for bits in (6, 8, 10) for variant in ("", ",literal")]

FOLLOWING = [_gradlane("fixed:adaptive", True), _gradlane("fixed:adaptive:5", True)]
FSDP, FSDP_HALVES = "FSDP2 on Gloo", "FSDP2 on Gloo, bf16"
SHARDED = [
    Method(FSDP, "fsdp"),
    Method(FSDP_HALVES, "fsdp", halves=True),
    Method("FSDP2, fixed:adaptive + feedback, bf16 parameters", "fsdp", "fixed:adaptive", True, parameters="bf16"),
]

# A method may be in several of these lists.
BY_NAME = {method.name: method for method in [*METHODS, *FOLLOWING, *PAPERS, *OBSERVATION, *BOUNDS, *SHARDED]}
# The systems that the INCEPTIONN paper compares, by its names: a worker-aggregator, a worker-aggregator that gets
# compressed gradients, a ring, and a ring with compression.
SYSTEMS = {"WA": "aggregator:0 raw", "WA+C": "aggregator:0 fixed:10/raw", "ring": "raw", "ring+C": "fixed:10"}

MODELS = {
    "digits": "64-500-500-500-500-10, 789,010 parameters",
    "conv": "convolutional, 283,786 parameters",
    "gpt": "GPT of 2 blocks, 1,645,664 parameters",
    "gpt5m": "GPT of 2 wider blocks, 5,298,976 parameters",
}
# Settings of the GPTs: characters of a window, windows per node and step, first rate of AdamW; width, and steps of an
# "epoch".
GPT_CONTEXT, GPT_BATCH, GPT_RATE = 64, 1, 1e-3
GPT_WIDTHS, GPT_STEPS = {"gpt": 256, "gpt5m": 464}, {"gpt": 40, "gpt5m": 20}
BY_LOSS = tuple(GPT_WIDTHS)  # models whose target is a loss; the target of others is an accuracy
# The convolutional net only shows whether another kind of network behaves the same, so fewer methods are enough.
CONV_METHODS = [
    WORKER_AGGREGATOR, GLOO, "Gloo, fp16 hook", "raw", "fixed:10", "fixed:8 + feedback", "fixed:5 + feedback",
    "fixed:adaptive", "inceptionn:10",
]
# Modes: studies other than the one of all methods. Each is named like its option.
SYSTEMS_MODE, PAPERS_MODE, OBSERVATION_MODE, RACE_MODE = "systems", "papers", "observation", "race"
MODES = (SYSTEMS_MODE, PAPERS_MODE, OBSERVATION_MODE, RACE_MODE)
# Methods of the race: those that people use today, and those that could replace them.
BF16 = "Gloo, bf16"
_RACE = [GLOO, BF16, "raw", "bf16", "fixed:10", "fixed:8 + feedback", "fixed:6 + feedback", "fixed:adaptive + feedback"]
RACE = {
    "digits": [WORKER_AGGREGATOR, *_RACE],
    "conv": _RACE,
    "gpt": [GLOO, BF16, "bf16", "fixed:adaptive + feedback", "fixed:adaptive:5 + feedback",
            *(method.name for method in SHARDED)],
}
RACE["gpt5m"] = RACE["gpt"]
QUICK_RACE = {"digits": [GLOO, "fixed:8 + feedback"], "conv": [GLOO, BF16],
              **dict.fromkeys(GPT_WIDTHS, [GLOO, "fixed:adaptive + feedback"])}
QUICK_PAPERS = [GLOO, "Gloo, bf16", "direct qsgd:4 + feedback", "PowerSGD 4 on raw"]
QUICK_OBSERVATION = [GLOO, "trunc:16", "weights: trunc:16", "both: trunc:16"]

QUICK_METHODS = {
    "digits": [WORKER_AGGREGATOR, GLOO, "fixed:10", "fixed:8 + feedback"],
    "conv": [GLOO, "fixed:10", SYSTEMS["WA"], SYSTEMS["WA+C"]],
}

# Seconds that a training takes on two cores at 1 Gb/s, everything included. The first estimate of the time uses them.
GUESS = {"aggregator": 18, "gloo": 11, "fp16": 16, "bf16": 16, "powersgd": 12, "gradlane": 7, "fsdp": 15}
LONGER = {"gpt": 6, "gpt5m": 12}  # factors of GUESS for models
START_UP = 15


def models_of(mode):
    """Returns the models of a study. Only the race has a GPT, the smaller one."""
    return ["digits", "conv", "gpt"] if mode == RACE_MODE else ["digits", "conv"]


def link_of(mode):
    """Returns the value of gradlane run --link. The race uses udp, which needs no root; other studies use veth, so that
    each daemon has its own port."""
    return "udp" if mode == RACE_MODE else "veth"


def of_mode(mode, quick):
    """Returns the names of the methods of a study with a mode other than race."""
    if mode == SYSTEMS_MODE:
        return [GLOO, *SYSTEMS.values()]
    if mode == PAPERS_MODE:
        return QUICK_PAPERS if quick else PAPERS_BESIDE + [method.name for method in PAPERS]
    return QUICK_OBSERVATION if quick else [GLOO, *(method.name for method in OBSERVATION)]


def selected(model, quick, only, mode):
    """Returns the names of the model's methods. If `only` is given, the worker-aggregator and Gloo are added for
    comparison."""
    if only:
        wanted = {WORKER_AGGREGATOR, GLOO, *only}
        return [name for name, method in BY_NAME.items() if name in wanted and (method.kind != "fsdp" or model in GPT_WIDTHS)]
    if mode == RACE_MODE:
        return (QUICK_RACE if quick else RACE)[model]
    if mode:
        return of_mode(mode, quick)
    own = set(BY_NAME) - set(GENERAL)
    ring = [name for name, method in BY_NAME.items() if not method.strategy and name not in own]
    return QUICK_METHODS.get(model, [GLOO, DEFAULT]) if quick else CONV_METHODS if model == "conv" else ring


def strategies_of(trainings):
    """Returns the strategies that daemons must allow for the trainings. The first is for methods that name none."""
    methods = [BY_NAME[training["method"]] for training in trainings]
    named = {method.strategy for method in methods} | {"direct" for method in methods if method.links}
    return ["ring", *sorted(named - {""})]


def pieces(trainings):
    """Splits trainings into jobs of at most MOST_IN_JOB, with sizes as equal as possible."""
    count = -(-len(trainings) // MOST_IN_JOB)
    return [trainings[i * len(trainings) // count : (i + 1) * len(trainings) // count] for i in range(count)]


def jobs(models, seeds, quick, only, mode):
    """Returns lists of trainings of one seed. The order of methods rotates from seed to seed, so that no method is
    always the first, or always after the same method."""
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
