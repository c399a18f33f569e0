"""experiment.py - experiment `exchanges`: all-reduces of gradients on one machine, in shared memory

Each sample is one run of a number of ranks and a size: the microseconds of each repetition, by method.
"""

import json

from lab.exchanges import setups, tables
from lab.results import jobs
from lab.results.experiment import EXCHANGE, Batch, Experiment

SECONDS = 1.2  # for each method
START_UP = 8
PATIENCE = 60  # seconds, for Open MPI
RUNS = 3  # of each key, so that figures that differ from run to run are given as ranges
PYTHON = "/usr/bin/python3"  # has Debian's mpi4py


def batches(samples):
    """Returns a batch for each run that is missing, the first runs of all keys first."""
    waiting = [(run, key) for key in setups.KEYS for run in range(len(samples.get(key, [])), RUNS)]
    return [Batch((key,), START_UP + SECONDS * len(setups.METHODS), (key, run)) for run, key in sorted(
        waiting, key=lambda each: each[0])]


def mpirun(ranks, size):
    """Returns the words of an mpirun that measures in shared memory. A process that waits must let others run: there
    may be more of them than cores."""
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
            "--mca", "pml", "ob1", "--mca", "btl", "vader,self", "-n", str(ranks), PYTHON, "-m", "lab.exchanges.mpi_rank",
            str(size), str(SECONDS)]


def measure(batch, context):
    key, run = batch.argument
    ranks, size = setups.KEYS[key]
    methods = [method for method in setups.METHODS if method != setups.OPEN_MPI]
    at = 3 * run % len(methods)  # the order of methods rotates
    methods = methods[at:] + methods[:at]
    values = {setups.OPEN_MPI: json.loads(jobs.output(context, mpirun(ranks, size), PATIENCE))}
    spec = {"bytes": size, "seconds": SECONDS, "methods": methods}
    for line in jobs.results(context, ["-n", ranks], "lab.exchanges.torch_rank", spec):
        values[line["method"]] = line["us"]
    missing = set(setups.METHODS) - set(values)
    if missing:
        raise RuntimeError(f"{key}: no result of {', '.join(sorted(missing))}")
    yield key, values, f"gradlane run -n {ranks} -- python -m lab.exchanges.torch_rank; mpirun -n {ranks} ..."


EXPERIMENT = Experiment(
    name="exchanges",
    title="all-reduces on one machine, by gradlane, Gloo and Open MPI",
    sources=(*EXCHANGE, *(f"lab/exchanges/{name}.py" for name in ("experiment", "setups", "torch_rank", "mpi_rank"))),
    batches=batches,
    measure=measure,
    figures=tables.FIGURES,
    plots=tables.PLOTS,
)
