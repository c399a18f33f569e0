"""experiment.py - what an experiment is, and the list of all experiments (needs no PyTorch and no matplotlib)"""

import dataclasses
import importlib
import pathlib
from typing import Any, Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Modules of the experiments, in the order in which lab/reproduce.sh runs them. Each has an EXPERIMENT.
MODULES = (
    "lab.bench_ratio",
    "lab.simulated",
    "lab.bench_scale",
    "lab.papers.mlsys",
    "lab.papers.scaling",
    "lab.papers.scaling_simulated",
    "lab.papers.ablation",
    "lab.papers.codec_speed",
    "lab.inceptionn.gradients",
    "lab.steps.calibrations",
    "lab.steps.experiment",
    "lab.packets",
    "lab.shares",
    "lab.exchanges.experiment",
    "lab.inceptionn.systems",
    "lab.study.experiment",
    "lab.accelerator",
)

# Sources that several experiments list.
CODECS = ("compress/**",)
EXCHANGE = (*CODECS, "base/**", "collectives/*.h", "collectives/*.cc",
            *(f"collectives/{name}/**" for name in ("exchange", "link", "strategy")),
            *(f"dataplane/{name}/**" for name in ("device", "frame", "kernel", "lane", "node", "poll", "trainer", "udp")),
            "client/library/**", "client/python/gradlane/torch/native/**", "client/python/gradlane/adaptive.py",
            *(f"client/python/gradlane/torch/{name}.py" for name in ("backend", "bucket_state", "codec", "codec_schedule",
                                                                     "engine", "hook", "operations", "staging", "tasks",
                                                                     "work")),
            "tools/run/net.cc")  # the links of `gradlane run`


@dataclasses.dataclass(frozen=True)
class Batch:
    """Samples that are measured together, by one job."""

    keys: tuple  # of the samples, which are texts
    seconds: float  # estimate
    argument: Any = None  # for Experiment.measure


@dataclasses.dataclass(frozen=True)
class Plot:
    """A PNG file. `data(samples)` returns what is drawn, as JSON; `draw(data, path, metadata)` writes the file by
    matplotlib. The file has a hash of the data, so that a plot that is out of date is found without drawing it."""

    data: Callable
    draw: Callable


@dataclasses.dataclass(frozen=True)
class Experiment:
    """`samples`, in all functions: {key: [values, ...]}, the values of each run in the order of the runs."""

    name: str
    title: str
    # Patterns of files relative to the root. When their code changes, samples are stale.
    sources: tuple
    # batches(samples) returns the batches that are still to be measured. `samples` has only those that are not stale.
    batches: Callable
    # measure(batch, context) yields (key, values, command). `context` is a reproduce.Context.
    measure: Callable
    # figures[name](samples) returns Markdown for a span. It does not depend on anything but the samples.
    figures: dict = dataclasses.field(default_factory=dict)
    # plots[path](...): paths are relative to the root
    plots: dict = dataclasses.field(default_factory=dict)
    # Whether a busy machine changes the samples. If so, samples that were measured under load are discarded.
    timed: bool = True


@dataclasses.dataclass(frozen=True)
class Combination:
    """Figures and plots that need the samples of several experiments. Their functions get {experiment: samples}."""

    name: str
    of: tuple  # names of experiments
    figures: dict = dataclasses.field(default_factory=dict)
    plots: dict = dataclasses.field(default_factory=dict)


def experiments():
    """Returns all experiments by name."""
    found = [importlib.import_module(module).EXPERIMENT for module in MODULES]
    return {each.name: each for each in found}
