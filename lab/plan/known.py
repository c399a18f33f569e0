"""known.py - tables that `gradlane plan` is built with, from results

Each function takes the samples of one experiment ({key: [values of each run]}) and returns the text of a file in
tools/plan/known/: initializers of the structs in tools/plan/known.h. `python3 -m lab.results.pages` checks and writes
the files.
"""

import json
import statistics

from lab.steps import setups, tables
from lab.study import methods
from lab.study import tables as study_tables


def line(*fields):
    """Returns an initializer in a line of its own: texts, numbers, booleans, and lists of these."""
    def text(field):
        if isinstance(field, (list, tuple)):
            return "{" + ", ".join(text(each) for each in field) + "}"
        return f"{field:.4g}" if isinstance(field, float) else json.dumps(field)

    return text(fields) + ",\n"


def rings(samples):
    """Returns KnownRings from the experiment `calibrations`: the last run of each ring."""
    lines = []
    for key in setups.RINGS:
        found = samples[key][-1]["json"] if key in samples else {"exchanges": []}
        if not found["exchanges"]:
            continue
        # the slowest figures of all links, as the planner has it
        latency = max(link["latency_us"] for link in found["links"]) * 1e-6
        bandwidth = min(link["gbps"] for link in found["links"]) * 1e9 / 8
        nodes = 1 + max(link["to"] for link in found["links"])
        exchanges = [[each["library"], each["codec"],
                      [[int(point["bytes"]), point["us"] * 1e-6, point["busy_us"] * 1e-6] for point in each["points"]]]
                     for each in found["exchanges"]]
        lines.append(line(found["port"], float(found["cores"]), [nodes, [0, 1, latency, bandwidth], exchanges]))
    return "".join(lines).replace('{{"', '{\n {"').replace(', {"', ',\n {"')


def errors(samples):
    """Returns StepErrors from the experiment `steps`: those of held-out steps."""
    lines = []
    for kind in tables.KINDS:
        for nodes in setups.NODES:
            off = tables.errors(tables.points(samples, kind, chosen=lambda cell, nodes=nodes: cell.nodes == nodes))
            if off:
                lines.append(line(kind == "calibrated", tables.CORES / nodes, statistics.median(off),
                                  tables.quantile(off, 0.9), len(off)))
    return "".join(lines)


# Models of the experiment `accuracy`, and what they are called here.
KINDS = {"digits": "mlp", "conv": "conv", "gpt": "gpt"}


def accuracy_rows():
    """Returns {method of `accuracy`: row of a plan}: each codec without a warm-up, as a new user has it; votes with the
    learning rate that they need."""
    found = {"Gloo, bf16": "gloo bf16"}
    for method in (*methods.GENERAL, *methods.GPT, *(own for own, *_ in methods.HIPRESS.values())):
        usual = not (method.warmup or method.ramp or method.feedback) and method.momentum == methods.plan.MOMENTUM
        if method.kind == "gradlane" and usual and method.codec not in found.values():
            found[method.name] = method.codec
    return found


def effects(samples):
    """Returns CodecEffects from the experiment `accuracy`."""
    lines = []
    for model, kind in KINDS.items():
        for name, row in accuracy_rows().items():
            found = study_tables.effect(samples, model, name)
            if found is None:
                continue
            reached = [epochs / base for epochs, base in zip(found["epochs"], found["base_epochs"]) if epochs]
            relative = statistics.fmean(reached) if reached else 0.0
            lines.append(line(kind, row, relative, found["difference"], len(reached), found["seeds"]))
    return "".join(lines)


# Paths relative to the root, and the experiment whose samples make each.
FILES = {
    "tools/plan/known/rings.inc": ("calibrations", rings),
    "tools/plan/known/errors.inc": ("steps", errors),
    "tools/plan/known/effects.inc": ("accuracy", effects),
}
