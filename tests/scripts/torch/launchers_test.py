#!/usr/bin/python3
"""Tests of gradlane.torch.init() and environment() under Open MPI's mpirun, and with the variables of Slurm's srun, set
by hand: launchers_test.py GRADLANED."""

import os
import re
import shutil
import subprocess
import sys
import unittest
import unittest.mock
import warnings

import gradlane
import gradlane.torch
from tests.scripts.torch import launch_test
from tests.scripts.torch.launch_test import PATIENCE, Case

SRUN = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "n[01-03,7],login2",
        "SLURM_JOB_NODELIST": "login2", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
          "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "844169217"}
SCRIPT = """
import os, torch, gradlane.torch
before = sorted(name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name in os.environ)
gradlane.torch.init()
tensor = torch.ones(5000)
torch.distributed.all_reduce(tensor)
rank, local = torch.distributed.get_rank(), int(os.environ["LOCAL_RANK"])
torch.distributed.destroy_process_group()
os.write(1, f"{before} {rank} {local} {tensor.unique().tolist()}\\n".encode())
"""


class Environment(unittest.TestCase):
    def told(self, variables, **more):
        with unittest.mock.patch.dict(os.environ, {**variables, **more}, clear=True):
            told = gradlane.torch.environment()
            self.assertEqual({name: os.environ[name] for name in told}, told)
            self.assertEqual(gradlane.torch.environment(), {}, "again")
        return told

    def test_srun(self):
        told = self.told(SRUN)
        port = told.pop("MASTER_PORT")
        self.assertEqual(told, {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "n01"})
        self.assertEqual(self.told(SRUN, SLURM_PROCID="0")["MASTER_PORT"], port)
        self.assertNotEqual(self.told(SRUN, SLURM_STEP_ID="1")["MASTER_PORT"], port)
        self.assertIn(int(port), range(20000, 32000))

    def test_first_hosts(self):
        for hosts, first in (("n[7,9]", "n7"), ("a1,b2", "a1"), ("r[0-1]n[03-04]", "r0n03"), ("gpu-x.y", "gpu-x.y"),
                             ("n[1-2]-ib,m", "n1-ib")):
            self.assertEqual(self.told(SRUN, SLURM_STEP_NODELIST=hosts)["MASTER_ADDR"], first)
        self.assertEqual(self.told(SRUN, SLURM_STEP_NUM_NODES="1")["MASTER_ADDR"], "127.0.0.1")
        with self.assertRaisesRegex(gradlane.BadArgument, "set MASTER_ADDR to rank 0's host"):
            self.told(SRUN, SLURM_STEP_NODELIST="", SLURM_JOB_NODELIST="")

    def test_what_is_set_stays(self):
        told = self.told(SRUN, MASTER_ADDR="10.0.0.1", MASTER_PORT="1", LOCAL_RANK="9")
        self.assertEqual(told, {"RANK": "3", "WORLD_SIZE": "4"})
        self.assertEqual(self.told(SRUN, RANK="0", WORLD_SIZE="1"), {}, "torchrun below srun")
        self.assertEqual(self.told({**SRUN, **MPIRUN})["WORLD_SIZE"], "2", "mpirun below sbatch or srun")

    def test_no_launcher(self):
        self.assertEqual(self.told({}), {})
        script = {name: SRUN[name] for name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_NODELIST")}
        self.assertEqual(self.told(script), {}, "the script of an sbatch, which is no rank")

    def test_unknown_jobs(self):
        """Without a job number from mpirun, all jobs would use the same MASTER_PORT. So there is a warning, unless
        MASTER_PORT is set."""
        unknown = {name: value for name, value in MPIRUN.items() if name != "PMIX_NAMESPACE"}
        with self.assertWarnsRegex(UserWarning, "mpirun has set none of PMIX_NAMESPACE, .* set MASTER_PORT to another"):
            self.told(unknown)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.told(unknown, MASTER_PORT="1")
            ports = {self.told(unknown, OMPI_MCA_ess_base_jobid=job)["MASTER_PORT"] for job in "12"}
        self.assertEqual(len(ports), 2)

    def test_who_says_where_ranks_meet(self):
        """A caller that passes `init_method` or `store` needs no address of rank 0 from mpirun."""
        far = {**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
        with unittest.mock.patch.dict(os.environ, far, clear=True), \
                unittest.mock.patch("torch.distributed.init_process_group") as init:
            for options in ({"init_method": "file:///x"}, {"store": "a store"}):
                gradlane.torch.init(rank=1, world_size=2, **options)
                init.assert_called_with("gradlane", rank=1, world_size=2, **options)
            for options in ({}, {"init_method": "env://"}):
                with self.assertRaisesRegex(gradlane.BadArgument, "several machines"):
                    gradlane.torch.init(**options)

    def test_mpirun_on_several_machines(self):
        with self.assertRaisesRegex(gradlane.BadArgument, "several machines.*mpirun -x MASTER_ADDR=HOST"):
            self.told(MPIRUN, OMPI_COMM_WORLD_LOCAL_SIZE="1")
        told = self.told(MPIRUN, OMPI_COMM_WORLD_LOCAL_SIZE="1", MASTER_ADDR="node-a")
        self.assertEqual((told["RANK"], told["WORLD_SIZE"], told["LOCAL_RANK"]), ("1", "2", "1"))


class Launched(Case):
    def setUp(self):
        super().setUp()
        self.script = self.folder / "train.py"
        self.script.write_text(SCRIPT)
        kept = re.compile("(?!RANK$|WORLD_SIZE$|LOCAL_RANK$|MASTER_|GRADLANE_SO|OMPI_|PMIX_|SLURM_)")
        self.clean = {name: value for name, value in os.environ.items() if kept.match(name)}
        self.clean.update(TMPDIR=str(self.folder), XDG_RUNTIME_DIR=str(self.folder / "run"), OMP_NUM_THREADS="1",
                          GRADLANED=launch_test.GRADLANED)

    def check(self, texts):
        self.assertEqual(sorted("".join(texts).splitlines()), ["[] 0 0 [2.0]", "[] 1 1 [2.0]"])
        launch_test.wait_for(lambda: not list(self.folder.glob("gradlane-job-*")), "the end of daemons")

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun: Debian's openmpi-bin is not installed")
    def test_mpirun(self):
        rights = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        done = subprocess.run(["mpirun", *rights, "--oversubscribe", "--bind-to", "none", "-n", "2", sys.executable,
                               str(self.script)], env=self.clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check([done.stdout])

    def test_srun(self):
        """Ranks have the variables that srun sets on one node."""
        ranks = [subprocess.Popen([sys.executable, str(self.script)], stdout=subprocess.PIPE, text=True, env={
            **self.clean, **SRUN, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_ID": str(os.getpid())}) for rank in range(2)]
        try:
            self.check([rank.communicate(timeout=PATIENCE)[0] for rank in ranks])
        finally:
            for rank in ranks:
                rank.kill()
                rank.communicate()


if __name__ == "__main__":
    launch_test.GRADLANED = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
