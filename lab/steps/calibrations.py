"""calibrations.py - experiment `calibrations`: what `gradlane plan --calibrate` finds on the rings of `steps`

The planner predicts with them, and its figures without a calibration are made of them (lab/plan/known.py).
"""

import json
import pathlib
import tempfile

from lab.results import jobs
from lab.results.experiment import EXCHANGE, Batch, Experiment
from lab.steps import setups

SECONDS, PATIENCE = 75, 400
RUNS = 2  # of each ring, so that figures that differ from run to run are given as ranges


def batches(samples):
    """Returns a batch for each run that is missing, the first runs of all rings first."""
    waiting = [(run, ring) for ring in setups.RINGS for run in range(len(samples.get(ring, [])), RUNS)]
    return [Batch((ring,), SECONDS, ring) for _, ring in sorted(waiting, key=lambda each: each[0])]


def measure(batch, context):
    nodes, _, rate = batch.argument.partition(" nodes, ")
    with tempfile.TemporaryDirectory(prefix="gradlane-lab-") as folder:
        file = pathlib.Path(folder, "calibration.yaml")
        command = [context.gradlane, "run", "-n", nodes, "--link", "udp", "--inside", "--rate", rate, "--no-prefix", "--",
                   context.gradlane, "plan", "--calibrate", "--python", context.python, "--json", "-o", file]
        lines = [line for line in jobs.output(context, command, PATIENCE).splitlines() if line.startswith("{")]
        yield (batch.argument, {"yaml": file.read_text(), "json": json.loads(lines[-1])},
               f"gradlane run -n {nodes} --link udp --inside --rate {rate} -- gradlane plan --calibrate")


EXPERIMENT = Experiment(
    name="calibrations",
    title="calibrations of rings on this machine",
    sources=(*EXCHANGE, "client/python/gradlane/torch/exchange_times.py", "tools/calibrate/**", "lab/steps/calibrations.py"),
    batches=batches,
    measure=measure,
)
