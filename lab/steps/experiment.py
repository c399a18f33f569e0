"""experiment.py - experiment `steps`: steps of trainings, predicted and then measured

A sample of key CELL (nodes, rate, model, batch) has the profile, the predictions of `gradlane plan`, and the ms of each
step by each method. A sample of key `predicted: CELL` is stored before that training begins; it has the profile and the
predictions, and what they were made of. A cell whose methods are close is measured three times.
"""

import json
import pathlib
import subprocess

from lab.results import jobs
from lab.results.experiment import EXCHANGE, Batch, Experiment
from lab.results.store import Store, sources_hash
from lab.steps import calibrations, setups, tables

START_UP = 15
PREDICTED = "predicted: "
PLANNER = ("tools/plan/**", "collectives/cost/**")  # its sources


def wanted(cell, runs):
    """Returns the methods of the next run of a cell; none if it has enough. `runs` are those that are there."""
    whole = next((run for run in runs if len(run["ms"]) == len(setups.METHODS)), None)
    if whole is None:
        return [method.name for method in setups.METHODS]
    if len(runs) >= setups.RUNS:
        return []
    base = tables.mean_ms(whole, setups.GLOO)
    close = [name for name in setups.COMPARED if abs(tables.mean_ms(whole, name) / base - 1) < setups.CLOSE]
    return [setups.GLOO, *close] if close else []


def batches(samples):
    """Returns a batch for each run that is missing: first runs, then repetitions. Cells whose results may serve to choose
    constants come before those that are held out."""
    found = []
    for cell in sorted(setups.CELLS, key=lambda cell: (len(samples.get(cell.key, [])), cell.held_out)):
        runs = samples.get(cell.key, [])
        names = wanted(cell, runs)
        at = (setups.CELLS.index(cell) + 3 * len(runs)) % max(1, len(names))  # the order of methods rotates
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
        command = [context.gradlane, "plan", "--json", "--model", model, "--nodes", cell.nodes, *options, "--codecs", *codecs]
        said = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, check=False)
        if said.returncode != 0:
            raise RuntimeError(f"prediction: {said.stderr}")
        document = json.loads(said.stdout)
        found[kind] = {row["codec"]: round(row["step_ms"], 3) for row in document["rows"]}
        found[kind + " verdict"] = document["advice"]
    return found


def calibration_of(ring):
    """Returns the newest sample of a ring's calibration. Raises RuntimeError if there is none of the present code."""
    store = Store(calibrations.EXPERIMENT)
    found = [sample for sample in store.samples if sample.key == ring and sample.hash == store.hash]
    if not found:
        raise RuntimeError(f"{ring} has no calibration of the present code: lab/reproduce.sh --only calibrations")
    return max(found, key=lambda sample: sample.when)


def measure(batch, context):
    cell, names = batch.argument
    calibration = calibration_of(cell.ring)
    options = ["-n", cell.nodes, "--link", "udp", "--inside", "--rate", cell.rate]
    spec = {"cell": cell.key, "methods": names, "seconds": setups.SECONDS}
    values = {"held_out": cell.held_out, "ms": {}}
    command = " ".join(str(word) for word in ["gradlane run", *options, "-- python -m lab.steps.train"])
    for line in jobs.results(context, options, "lab.steps.train", spec):
        if "profile" in line:
            folder = pathlib.Path(line["folder"])
            values["profile"] = line["profile"]
            values["predicted"] = predictions(cell, context, calibration.values["yaml"], line["profile"], folder)
            made_of = {"calibration": [calibration.when, calibration.hash], "planner": sources_hash(PLANNER)}
            yield PREDICTED + cell.key, {name: values[name] for name in ("profile", "predicted")} | made_of, command
            (folder / "go").touch()
        else:
            values["ms"][line["method"]] = line["ms"]
    missing = set(names) - set(values["ms"])
    if missing:
        raise RuntimeError(f"{cell.key}: no result of {', '.join(sorted(missing))}")
    yield cell.key, values, command


EXPERIMENT = Experiment(
    name="steps",
    title="steps of trainings, predicted and measured",
    sources=(*EXCHANGE, "lab/steps/setups.py", "lab/steps/train.py", "lab/study/gpt.py",
             "client/python/gradlane/torch/profiling.py"),
    batches=batches,
    measure=measure,
    figures=tables.FIGURES,
    plots=tables.PLOTS,
)
