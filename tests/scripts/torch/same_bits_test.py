#!/usr/bin/python3
"""A training with `fixed:B` ends with weights of the same bits, however its gradients travel. DDP's bucket size,
strategy, MTU, number of lanes and packet loss make no difference.

same_bits_test.py GRADLANED [unittest's arguments]: prints the hashes.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.scripts.fixtures import rings
from tests.scripts.fixtures.paths import PACKAGE, ROOT
from tests.scripts.fixtures.ports import free_port

NODES = 3
STEPS = 24
PATIENCE = 300  # s
WAYS = {
    "ring, MTU 1500, one lane, buckets of 25 MiB": {},
    "buckets of 0.25 MiB, two lanes": {"bucket": 0.25, "lanes": 2},
    "direct, MTU 9000": {"strategies": "[direct]", "mtu": 9000},
    "1 % of packets lost, buckets of 1 MiB": {"faults": "{seed: 7, drop: 1%}", "bucket": 1},
}


def train(bucket):
    """Trains on the demo's digits, as a rank of the job. The network is the paper's, but narrower."""
    import torch

    import gradlane.torch
    from tools.demo.digits import read_digits

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gradlane")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(1)
    images, labels = (torch.from_numpy(array) for array in read_digits())
    layers = [torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 300), torch.nn.ReLU(),
              torch.nn.Linear(300, 10)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=bucket)
    model.register_comm_hook(gradlane.torch.State("fixed:10", error_feedback=True), gradlane.torch.hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        mine = slice((step * world + rank) * 16, (step * world + rank + 1) * 16)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[mine]), labels[mine])
        loss.backward()
        optimizer.step()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print(digest.hexdigest()[:16], f"{loss.item():.6f}")
    torch.distributed.destroy_process_group()


class SameBits(unittest.TestCase):
    gradlaned = ""

    def run_way(self, bucket=25, **settings):
        """Returns what each rank has printed."""
        with tempfile.TemporaryDirectory() as folder, rings.Ring("vhost", NODES, folder, self.gradlaned,
                                                                 **settings) as ring:
            ring.start()
            master = str(free_port())
            ranks = []
            for rank in range(NODES):
                environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(NODES), "MASTER_ADDR": "127.0.0.1",
                               "MASTER_PORT": master, "GRADLANE_SOCKET": str(ring.socket(rank)), "OMP_NUM_THREADS": "1",
                               "PYTHONPATH": f"{PACKAGE}:{ROOT}"}
                ranks.append(subprocess.Popen([sys.executable, __file__, "train", str(bucket)], env=environment,
                                              stdout=subprocess.PIPE, text=True))
            try:
                printed = [process.communicate(timeout=PATIENCE)[0] for process in ranks]
            finally:
                for process in ranks:
                    process.kill()
                    process.wait()
            self.assertEqual([process.returncode for process in ranks], [0] * NODES)
            return printed

    def test_digits(self):
        hashes = set()
        for name, settings in WAYS.items():
            printed = self.run_way(**settings)
            words = {line.split()[0] for line in printed}
            print(f"{name}: {', '.join(sorted(words))} (loss {printed[0].split()[1]})", flush=True)
            hashes |= words
        self.assertEqual(len(hashes), 1)


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(float(sys.argv[2]))
    else:
        SameBits.gradlaned = str(pathlib.Path(sys.argv.pop(1)).resolve())
        unittest.main(verbosity=2)
