#!/usr/bin/python3
"""Trains the study's networks once, and writes gradients of each rank early, in the middle and late, as
FOLDER/MODEL-STEP.npy for `gradlane bench codec --data`.

Ranks take turns in this process. Each computes the gradients of its own part of a batch, and all get the mean, added in
fp32. DistributedDataParallel over Gloo does the same, but this needs no network.
"""

import argparse
import json
import pathlib
import sys

import numpy
import torch

from lab.study import models, plan

RANKS = 4
SEED = 1  # seed of first weights and of the order of images
STEPS = {"early": 0.05, "middle": 0.5, "late": 1.0}  # share of a training that is over at the step
RUN = 32  # floats; a sample consists of runs of this length, the group of codecs


def sample(gradients, floats):
    """Returns the columns that are kept: runs of RUN floats, spread evenly, so that each layer keeps its share of all.
    """
    parameters = gradients.shape[1]
    if floats >= parameters:
        return gradients
    runs = floats // RUN
    starts = numpy.arange(runs) * (parameters - RUN) // max(runs - 1, 1) // RUN * RUN
    return gradients[:, (starts[:, None] + numpy.arange(RUN)).ravel()]


def steps_of(total):
    return {max(1, round(share * total)): name for name, share in STEPS.items()}


def write_layers(file, name, model, batch):
    """Writes the layers, which are the columns of recordings, as a profile without measurements for `gradlane plan
    --widths`."""
    layers = [{"name": name, "elements": parameter.numel()} for name, parameter in model.named_parameters()]
    file.write_text(json.dumps({"name": name, "batch": batch, "layers": layers}, indent=1) + "\n")


def put(model, gradients):
    """Sets the model's gradients from a flat tensor."""
    at = 0
    for parameter in model.parameters():
        parameter.grad = gradients[at : at + parameter.numel()].view_as(parameter)
        at += parameter.numel()


class Recording:
    """A training like that of lab/study/train.py with Gloo."""

    def __init__(self, model, epochs):
        self.model, self.epochs = models.MAKE[model](), epochs
        models.initialize(self.model, SEED)
        self.shares = [models.share_of(model, rank, RANKS) for rank in range(RANKS)]
        self.rate = models.first_rate(model)
        self.optimizer = models.optimizer_of(model, self.model.parameters(), self.rate, plan.MOMENTUM, plan.MOMENTUM)

    def _gradients(self, inputs, wanted):
        self.optimizer.zero_grad(set_to_none=True)
        models.loss_of(self.model(inputs), wanted).backward()
        return torch.cat([parameter.grad.ravel() for parameter in self.model.parameters()])

    def _update(self, mean):
        put(self.model, mean)
        self.optimizer.step()

    def run(self):
        """Yields the name and the gradients (ranks, parameters) of the steps that are recorded."""
        wanted, step = steps_of(self.epochs * self.shares[0].steps), 0
        for epoch in range(self.epochs):
            for group in self.optimizer.param_groups:
                group["lr"] = models.rate_of(self.rate, epoch, self.epochs)
            for batches in zip(*(share.epoch(SEED, epoch) for share in self.shares)):
                step += 1
                gradients = torch.stack([self._gradients(*batch) for batch in batches])
                if step in wanted:
                    yield wanted[step], gradients.numpy()
                self._update(gradients.mean(0))


def record(folder, names, epochs, floats):
    """Writes MODEL-STEP.npy of each model and step: float32, a row for each rank, parameters in PyTorch's order. If
    gradients are not sampled, writes also MODEL.json, the layers."""
    for model in names:
        if not floats:
            write_layers(folder / f"{model}.json", model, models.MAKE[model](), models.batch_of(model))
        for step, gradients in Recording(model, epochs).run():
            file = folder / f"{model}-{step}.npy"
            kept = sample(gradients, floats) if floats else gradients
            numpy.save(file, numpy.ascontiguousarray(kept, dtype="<f4"))
            print(f"{file}: {kept.shape[0]} ranks, {kept.shape[1]} of {gradients.shape[1]} floats", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--models", nargs="+", choices=plan.MODELS, default=list(plan.MODELS))
    parser.add_argument("--epochs", type=int, default=plan.EPOCHS)
    parser.add_argument("--sample", metavar="FLOATS", type=int,
                        help=f"keep this many floats of each gradient, in runs of {RUN}, spread evenly (all)")
    args = parser.parse_args()
    if args.epochs < 1 or args.sample is not None and args.sample < RUN:
        parser.error(f"--epochs must be at least 1, and --sample at least {RUN}")
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    record(args.folder, args.models, args.epochs, args.sample)


if __name__ == "__main__":
    main()
