"""plan.py - what is trained how, and in which order (the study's command and its trainers; needs no PyTorch)"""

import dataclasses
import datetime

WORKER_AGGREGATOR = "worker-aggregator"
GLOO = "Gloo"
DEFAULT = "fixed:10"
PATIENCE = datetime.timedelta(seconds=60)  # of a trainer, with others
SEEDS, EPOCHS, LINK_RATE = 5, 15, "1gbit"  # of the page, if nothing else is asked for
SYSTEMS_SEEDS = 3  # of the page of the paper's systems
QUIET = 0.3  # cores that may be busy with other work before a study is not worth much


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to average gradients. kind: gloo, aggregator, fp16 or gradlane; the rest is gradlane's."""

    name: str
    kind: str
    codec: str = ""
    feedback: bool = False
    strategy: str = ""  # the ring


def _gradlane(codec, feedback=False, strategy=""):
    name = (strategy + " " if strategy else "") + codec + (" + feedback" if feedback else "")
    return Method(name, "gradlane", codec, feedback, strategy)


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
    _gradlane("fixed:auto"),
    _gradlane("inceptionn:10"),
    _gradlane("inceptionn:10,truncate"),
    _gradlane("raw", strategy="aggregator:0"),
    _gradlane("fixed:10/raw", strategy="aggregator:0"),
]
BY_NAME = {method.name: method for method in METHODS}
# What the INCEPTIONN paper compares, by its names: a worker-aggregator, with compression on the way up, and rings.
SYSTEMS = {"WA": "aggregator:0 raw", "WA+C": "aggregator:0 fixed:10/raw", "ring": "raw", "ring+C": "fixed:10"}

MODELS = {
    "digits": "64-500-500-500-500-10, 789,010 parameters",
    "conv": "convolutional, 283,786 parameters",
}
# The convolutional net is there to see whether another kind of network does the same: fewer methods will do.
CONV_METHODS = [
    WORKER_AGGREGATOR, GLOO, "Gloo, fp16 hook", "raw", "fixed:10", "fixed:8 + feedback", "fixed:5 + feedback",
    "fixed:auto", "inceptionn:10",
]
QUICK_METHODS = {
    "digits": [WORKER_AGGREGATOR, GLOO, "fixed:10", "fixed:8 + feedback"],
    "conv": [GLOO, "fixed:10", SYSTEMS["WA"], SYSTEMS["WA+C"]],
}

# Seconds a training takes on two cores at 1 Gb/s, all included: for the first guess of how long it will take.
GUESS = {"aggregator": 18, "gloo": 11, "fp16": 16, "gradlane": 7}
START_UP = 15


def selected(model, quick, only, systems):
    """Names of the model's methods. Those that all others are compared with are there if any is."""
    if systems:
        return [GLOO, *SYSTEMS.values()]
    ring = [name for name, method in BY_NAME.items() if not method.strategy]
    names = QUICK_METHODS[model] if quick else CONV_METHODS if model == "conv" else ring
    if only:
        wanted = {WORKER_AGGREGATOR, GLOO, *only}
        names = [name for name in BY_NAME if name in wanted]
    return names


def strategies_of(trainings):
    """What daemons must allow for them; the first is that of methods that name none."""
    named = {BY_NAME[training["method"]].strategy for training in trainings}
    return ["ring", *sorted(named - {""})]


def jobs(models, seeds, quick, only, systems):
    """A list of trainings for each seed. The order of methods is turned on from seed to seed, so that none is always
    the first, or behind the same one."""
    result = []
    for turn, seed in enumerate(seeds):
        trainings = []
        for model in models:
            names = selected(model, quick, only, systems)
            at = turn * 7 % len(names)
            trainings += [{"model": model, "seed": seed, "method": name} for name in names[at:] + names[:at]]
        result.append(trainings)
    return result


def key(training):
    return training["model"], training["seed"], training["method"]
