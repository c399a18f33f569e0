"""Trains while nodes die, leave and join. It prints the same hash of weights, whatever happens and on any number of
nodes.

The store:   python3 -m gradlane.torch.elastic.serve_store 0.0.0.0:29400
Each node:   GRADLANE_STORE=tcp://HOST:29400 GRADLANE_NODE_COUNT=2 python3 elastic.py
             (the same command on two nodes, and later on others; HOST is where the store runs)

Kill a node with kill -9, stop it with Ctrl-C, start another one.
"""

import hashlib

import torch

import gradlane.torch

SHARDS = 8


def batch(step, shard):
    """Returns the data of a shard, the same on each node."""
    random = torch.Generator().manual_seed(step * SHARDS + shard)
    inputs = torch.randn(64, 64, generator=random)
    return inputs, inputs[:, :8].tanh().sum(dim=1, keepdim=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    training = gradlane.torch.elastic(model, optimizer, shards=SHARDS)
    for step in training.steps(500):
        for shard in step:
            inputs, targets = batch(step.number, shard)
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
        if training.step % 100 == 0:
            print(f"step {training.step}", flush=True)
    if not training.ended:
        weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
        print(f"weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    main()
