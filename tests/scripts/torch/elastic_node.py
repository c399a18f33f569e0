#!/usr/bin/python3
"""A node of elastic trainings for tests: imports PyTorch once, and forks a trainer for each line of its input.

A line is JSON: the environment of the trainer, and "output", the file that it writes. The node answers with the
trainer's PID. A trainer writes a line `step N` after each step, and `done STEPS HASH` at the end: the SHA-256 of
weights, buffers and the optimizer's state. Environment: MODEL (digits or gpt), STEPS, SHARDS, CODEC, PAUSE (seconds to
sleep after each shard), WRONG (1: the trainer computes other bits).
"""

import hashlib
import json
import os
import signal
import sys
import time
import traceback

import numpy
import torch

import gradlane.torch
from lab.study import gpt
from tools.demo import digits

torch.set_num_threads(1)
_WINDOWS = 2
_WIDTH = 32


def digits_model():
    return torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.BatchNorm1d(96), torch.nn.ReLU(),
                               torch.nn.Dropout(0.1), torch.nn.Linear(96, 10))


def digits_batch(step, shard):
    images, labels = map(torch.from_numpy, digits.read_digits())
    picked = numpy.random.default_rng([step, shard]).integers(len(images), size=16)
    return images[picked], labels[picked]


def gpt_batch(step, shard):
    text = gpt.text()
    starts = numpy.random.default_rng([step, shard]).integers(len(text) - gpt.CONTEXT, size=_WINDOWS)
    windows = torch.stack([text[start:start + gpt.CONTEXT + 1] for start in starts])
    return windows[:, :-1], windows[:, 1:].reshape(-1)


def train():
    """Runs a training, with the options in the environment."""
    is_gpt = os.environ["MODEL"] == "gpt"
    torch.manual_seed(1)
    model = gpt.Gpt(_WIDTH) if is_gpt else digits_model()
    batch = gpt_batch if is_gpt else digits_batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.9)
    optimizer.register_step_post_hook(lambda *_: scheduler.step())
    training = gradlane.torch.elastic(model, optimizer, shards=int(os.environ["SHARDS"]),
                                      codec=os.environ.get("CODEC"), state={"scheduler": scheduler})
    for step in training.steps(int(os.environ["STEPS"])):
        for shard in step:
            inputs, targets = batch(step.number, shard)
            loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets)
            (loss * (1.0001 if os.environ.get("WRONG") else 1)).backward()
            time.sleep(float(os.environ.get("PAUSE", "0")))
        print(f"step {training.step}", flush=True)
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    for parameter in model.parameters():
        digest.update(optimizer.state[parameter]["exp_avg_sq"].numpy().tobytes())
    print("left" if training.ended else f"done {training.step} {digest.hexdigest()}", flush=True)
    training.close()


def main():
    """Forks a trainer for each line of the standard input."""
    # Ended trainers are not kept as zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        environment = json.loads(line)
        child = os.fork()
        if child > 0:
            print(child, flush=True)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        output = os.open(environment.pop("output"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(environment)
        status = 1
        try:
            train()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)


if __name__ == "__main__":
    main()
