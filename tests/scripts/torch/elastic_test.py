#!/usr/bin/python3
"""Elastic restarts: a rank is killed at a random step, torchrun restarts all ranks, and they go on from a checkpoint.
The weights have the same bits as those of an undisturbed training.

elastic_test.py GRADLANED [unittest's arguments]
"""

import hashlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import unittest

from tests.scripts.fixtures.paths import PACKAGE, ROOT
from tests.scripts.torch.libuv import needs_torchrun

RANKS = 2
STEPS = 12
EVERY = 4  # steps per checkpoint
TIMES = int(os.environ.get("ELASTIC_TIMES", "5"))
PATIENCE = 300  # s


def train(folder):
    """Runs a rank, as torchrun starts it. Writes the hash of its weights."""
    import torch
    import torch.distributed as dist

    import gradlane.torch

    torch.set_num_threads(1)
    dist.init_process_group("gradlane")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(40, 80), torch.nn.Tanh(), torch.nn.Linear(80, 20))
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    state = gradlane.torch.State("fixed:10", error_feedback=True)
    ddp.register_comm_hook(state, gradlane.torch.hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    parts = {"model": model, "optimizer": optimizer, "hook": state}
    first = 0
    # Load the latest checkpoint that all ranks have.
    for step in range(STEPS, 0, -1):
        if all((folder / f"{step}-{other}.pt").exists() for other in range(dist.get_world_size())):
            saved = torch.load(folder / f"{step}-{rank}.pt", weights_only=False)
            for name, part in parts.items():
                part.load_state_dict(saved[name])
            first = step
            break
    dist.barrier()  # no rank writes a checkpoint while others still search for one
    for step in range(first, STEPS):
        if os.environ.get("DIES") == f"{rank} {step}" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        generator = torch.Generator().manual_seed(100 * step + rank)
        inputs = torch.randn(32, 40, generator=generator)
        optimizer.zero_grad()
        (ddp(inputs) - inputs[:, :20]).square().mean().backward()
        optimizer.step()
        if (step + 1) % EVERY == 0:
            file = folder / f"{step + 1}-{rank}.pt"
            torch.save({name: part.state_dict() for name, part in parts.items()}, file.with_suffix(".new"))
            file.with_suffix(".new").rename(file)
    digest = hashlib.sha256(b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters()))
    (folder / f"hash-{rank}").write_text(digest.hexdigest())
    dist.destroy_process_group()


@needs_torchrun
class Elastic(unittest.TestCase):
    gradlaned = ""

    def run_job(self, dies=""):
        """Returns the hash of the weights, which is the same on all ranks."""
        with tempfile.TemporaryDirectory() as name:
            environment = {**os.environ, "GRADLANED": self.gradlaned, "DIES": dies, "OMP_NUM_THREADS": "1",
                           "PYTHONPATH": f"{PACKAGE}:{ROOT}"}
            for variable in ("GRADLANE_SOCKET", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
                environment.pop(variable, None)
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={RANKS}",
                       "--max_restarts=1", __file__, "train", name]
            run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(run.returncode, 0, run.stderr[-4000:])
            hashes = {(pathlib.Path(name) / f"hash-{rank}").read_text() for rank in range(RANKS)}
            self.assertEqual(len(hashes), 1)
            return hashes.pop()[:16]

    def test_same_weights(self):
        expected = self.run_job()
        print(f"undisturbed: {expected}", flush=True)
        chance = random.Random(int(os.environ.get("ELASTIC_SEED", "1")))
        for _ in range(TIMES):
            rank, step = chance.randrange(RANKS), chance.randrange(STEPS)
            found = self.run_job(f"{rank} {step}")
            print(f"rank {rank} killed at step {step}: {found}", flush=True)
            self.assertEqual(found, expected)


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(pathlib.Path(sys.argv[2]))
    else:
        Elastic.gradlaned = str(pathlib.Path(sys.argv.pop(1)).resolve())
        unittest.main(verbosity=2)
