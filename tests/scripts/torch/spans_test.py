#!/usr/bin/python3
"""Tests of gradlane.torch.Spans. ranks.py runs them. GRADLANE in the environment: path of the program."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch
from tests.scripts.torch.ddp import RANK, WORLD

GRADLANE = os.environ["GRADLANE"]
ROUNDING = 1  # us


def folder_of_all():
    """Returns a new folder, the same on all ranks."""
    names = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(names)
    return pathlib.Path(names[0])


class SpansTest(unittest.TestCase):
    def test_are_in_the_trace(self):
        folder = folder_of_all()
        files = [str(folder / f"spans-{rank}.jsonl") for rank in range(WORLD)]
        torch.manual_seed(1)
        model = DistributedDataParallel(torch.nn.Linear(300, 200))
        over = torch.zeros(1)
        with gradlane.torch.Spans(files[RANK], RANK) as spans:
            model.register_comm_hook(gradlane.torch.State("raw"), spans.hook(gradlane.torch.hook))
            dist.barrier()  # now all files exist
            trace = self.start(folder, files) if RANK == 0 else None
            while not over:
                with spans.step():
                    with spans.span('say "forward"'):
                        loss = model(torch.ones(2, 300)).square().mean()
                    loss.backward()
                over.fill_(1 if trace and trace.poll() is not None else 0)
                dist.all_reduce(over)
        self.assertTrue(torch.isfinite(model.module.weight.grad).all())
        if RANK == 0:
            self.look_at(json.loads((folder / "ring.json").read_text()), trace)
            for file in [*files, folder / "ring.json"]:
                pathlib.Path(file).unlink()
            folder.rmdir()

    def start(self, folder, files):
        return subprocess.Popen([GRADLANE, "trace", "-s", "1", "-o", str(folder / "ring.json"), "--spans", *files],
                                stdout=subprocess.DEVNULL)

    def look_at(self, document, trace):
        self.assertEqual(trace.returncode, 0)
        for rank in range(WORLD):
            events = [event for event in document["traceEvents"] if event["pid"] == rank and event["ph"] == "X"]
            of = {kind: [event for event in events if event["args"].get("category") == kind]
                  for kind in ("step", "bucket", "trainer")}
            for kind, spans in of.items():
                self.assertGreater(len(spans), 2, kind)
            self.assertEqual(of["trainer"][0]["name"], 'say "forward"')
            self.assertRegex(of["bucket"][0]["name"], r"^bucket 0, \d+ bytes$")
            # Each operation is within its bucket, up to the clock error. (The trace records only some of many
            # operations.)
            sums = [event for event in events if event["cat"] == "operation" and event["args"]["bytes"] > 200_000
                    and not event["args"].get("not_over_at_its_end")]
            self.assertGreater(len(sums), 2)
            off = document["otherData"]["clock_error_us"] + ROUNDING
            for event in sums:
                around = [bucket for bucket in of["bucket"] if bucket["ts"] <= event["ts"] + off
                          and event["ts"] + event["dur"] <= bucket["ts"] + bucket["dur"] + off]
                self.assertEqual(len(around), 1, (event, off))

    def test_faults(self):
        with self.assertRaises(OSError):
            gradlane.torch.Spans("/nowhere/spans", 0)
        if RANK != 0:
            return
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("nothing\nof a span\n")
            file.flush()
            for path, words in ((file.name, "is not a span"), ("/nowhere/spans", "cannot read /nowhere/spans")):
                ended = subprocess.run([GRADLANE, "trace", "--spans", path], capture_output=True, text=True, check=False)
                self.assertEqual(ended.returncode, 2)
                self.assertIn(words, ended.stderr)
