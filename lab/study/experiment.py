"""experiment.py - experiment `accuracy`: what each way to average gradients does to trainings

Each sample is a training (model, seed, method) on four ranks of this machine: accuracy and loss after each epoch. They
do not depend on the network or on the load of the machine.
"""

from lab.results import jobs
from lab.results.experiment import CODECS, Batch, Experiment
from lab.study import methods, plan, tables

START_UP = 10
SECONDS = {"digits": 6, "conv": 6, "gpt": 30, "gpt5m": 40}  # of a training on two cores
LONGEST_JOB = 300  # seconds
OPTIONS = ["-n", plan.NODES, "--strategies", "ring,direct"]


def batches(samples):
    """Returns jobs for the trainings that are missing. Trainings of a job have one model and one seed."""
    jobs_of, last = [], None
    for model, seed, method in methods.trainings():
        if methods.key(model, seed, method) in samples:
            continue
        if last != (model, seed) or len(jobs_of[-1][2]) * SECONDS[model] >= LONGEST_JOB:
            jobs_of.append((model, seed, []))
        last = model, seed
        jobs_of[-1][2].append(method)
    return [Batch(tuple(methods.key(model, seed, name) for name in names), START_UP + len(names) * SECONDS[model],
                  (model, seed, names)) for model, seed, names in jobs_of]


def measure(batch, context):
    model, seed, names = batch.argument
    command = " ".join(str(word) for word in ["gradlane run", *OPTIONS, "-- python -m lab.study.train"])
    spec = {"model": model, "seed": seed, "methods": names, "epochs": plan.EPOCHS}
    for line in jobs.results(context, OPTIONS, "lab.study.train", spec):
        yield methods.key(model, seed, line.pop("method")), line, command


EXPERIMENT = Experiment(
    name="accuracy",
    title="accuracy and loss of trainings by method",
    # methods.py is not listed, so that a new method leaves the samples of others as they are.
    sources=(*CODECS, *(f"lab/study/{name}.py" for name in ("train", "hooks", "plain_hooks", "models", "gpt", "plan"))),
    batches=batches,
    measure=measure,
    figures=tables.FIGURES,
    timed=False,
)
