"""experiment.py - experiment `steps`: steps of trainings, predicted and then measured

Each sample is a cell (nodes, rate, model, batch): the profile, the predictions of `gradlane plan`, which are stored
before anything is trained, and the ms of each step by each method. A cell whose methods are close is measured three
times.
"""

import json
import pathlib
import subprocess

from lab.results import jobs
from lab.results.experiment import EXCHANGE, Batch, Experiment
from lab.results.store import Store
from lab.steps import calibrations, setups, tables

START_UP = 15


def wanted(cell, runs):
    """Returns the methods of the next run of a cell; none if it has enough."""
    if not runs:
        return [method.name for method in setups.METHODS]
    if len(runs) >= setups.RUNS:
        return []
    base = tables.mean_ms(runs[0], setups.GLOO)
    close = [name for name in setups.COMPARED if abs(tables.mean_ms(runs[0], name) / base - 1) < setups.CLOSE]
    return [setups.GLOO, *close] if close else []


def batches(samples):
    """Returns a batch for each run that is missing. First all cells whose results may serve to choose constants."""
    found = []
    for cell in sorted(setups.CELLS, key=lambda cell: (cell.held_out, len(samples.get(cell.key, [])))):
        runs = samples.get(cell.key, [])
        names = wanted(cell, runs)
        at = len(runs) * 3 % max(1, len(names))  # the order of methods rotates
        if names:
            found.append(Batch((cell.key,), START_UP + setups.SECONDS * len(names), (cell, names[at:] + names[:at])))
    return found


def predictions(cell, context, calibration, profile, folder):
    """Returns {method: ms} for the step of each method, with the calibration of the ring and without. Raises
    RuntimeError if the calibration is of another machine: `lab/reproduce.sh --again --only calibrations` makes new ones.
    """
    file, model = folder / "calibration.yaml", folder / "profile.json"
    file.write_text(calibration)
    model.write_text(json.dumps(profile))
    codecs = [method.codec for method in setups.METHODS if method.codec not in ("", "raw")]
    found = {}
    for kind, options in (("calibrated", ["--calibration", file]),
                          ("usual", ["--calibration", "none", "--gbps", cell.gbps, "--port", "udp", "--cores",
                                     2 / cell.nodes])):
        # The usual figures have no codec in two steps.
        known = [codec for codec in codecs if kind == "calibrated" or "+" not in codec]
        command = [context.gradlane, "plan", "--json", "--model", model, "--nodes", cell.nodes, *options, "--codecs", *known]
        said = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, check=False)
        if said.returncode != 0:
            raise RuntimeError(f"prediction: {said.stderr}")
        document = json.loads(said.stdout)
        found[kind] = {row["codec"]: round(row["step_ms"], 3) for row in document["rows"]}
        found[kind + " verdict"] = document["advice"]
    return found


def measure(batch, context):
    cell, names = batch.argument
    calibration = Store(calibrations.EXPERIMENT).values()[cell.ring][-1]["yaml"]
    options = ["-n", cell.nodes, "--link", "udp", "--inside", "--rate", cell.rate]
    spec = {"cell": cell.key, "methods": names, "seconds": setups.SECONDS}
    values = {"held_out": cell.held_out, "ms": {}}
    for line in jobs.results(context, options, "lab.steps.train", spec):
        if "profile" in line:
            folder = pathlib.Path(line["folder"])
            values["profile"] = line["profile"]
            values["predicted"] = predictions(cell, context, calibration, line["profile"], folder)
            (folder / "go").touch()
        else:
            values["ms"][line["method"]] = line["ms"]
    missing = set(names) - set(values["ms"])
    if missing:
        raise RuntimeError(f"{cell.key}: no result of {', '.join(sorted(missing))}")
    yield cell.key, values, " ".join(str(word) for word in ["gradlane run", *options, "-- python -m lab.steps.train"])


EXPERIMENT = Experiment(
    name="steps",
    title="steps of trainings, predicted and measured",
    sources=(*EXCHANGE, "lab/steps/setups.py", "lab/steps/train.py", "lab/study/gpt.py"),
    batches=batches,
    measure=measure,
    figures=tables.FIGURES,
    plots=tables.PLOTS,
)
