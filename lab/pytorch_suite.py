#!/usr/bin/env python3
"""Runs PyTorch's own tests of torch.distributed, with Gloo and with gradlane:

    gradlane run -n 3 -- python3 lab/pytorch_suite.py [--tests PATTERN] [--part I/N] [--results FILE] [--short]

The tests come with PyTorch, as torch.testing._internal.distributed.distributed_test. Gloo's tests are enabled. Each
runs with Gloo first, in as many processes as there are ranks. A test that Gloo passes then runs with gradlane, unless
EXPECTED says that it cannot pass. Prints how many of these pass, and why others do not. The exit status is 1 if a test
fails that is not in EXPECTED. If --short is given, the tests of SHORT run with gradlane alone. Rank 0 does all of this;
the other ranks only keep their daemons running.
"""

import argparse
import fnmatch
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import types
import unittest

# Patterns of tests that Gloo passes and gradlane cannot pass, and the reasons.
EXPECTED = {
    "test_monitored_barrier*": "monitored_barrier() works only with a backend that is called gloo",
    "test_ddp_logging_data_cpu": "DDP's log shows `custom` for all backends that are not PyTorch's own",
}
# Tests that make their model only if the backend is called gloo, mpi or nccl. Their backend gets a name that also
# equals "gloo" (Either).
BY_NAME = "test_accumulate_gradients_no_sync*"
# One short test of each kind of operation, and of what is built on operations. Gloo passes all of them in PyTorch 2.
SHORT = """
    test_get_backend test_destroy_group test_barrier_full_group test_barrier
    test_broadcast test_reduce_sum test_reduce_full_group_max
    test_all_reduce_sum_async test_all_reduce_sum_complex test_all_reduce_product test_all_reduce_full_group_min
    test_all_reduce_coalesced_sum test_sparse_all_reduce_sum test_all_gather_complex test_all_gather_coalesced_full_group
    test_gather test_gather_checks test_scatter test_scatter_object_list test_all_gather_object_default_pg
    test_isend test_send_recv_any_source test_batch_isend_irecv_gloo
    test_DistributedDataParallelCPU_grad_is_view test_accumulate_gradients_no_sync test_get_future
    test_static_graph_api_cpu
""".split()

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SECONDS = 100  # time limit of a test; some tests wait for timeouts


def main():
    options = parse()
    finished = pathlib.Path(tempfile.gettempdir()) / f"gradlane-suite-{os.environ['MASTER_PORT']}"
    if RANK > 0:
        while not finished.exists():
            time.sleep(0.2)
        return
    try:
        with tempfile.TemporaryDirectory(prefix="gradlane-suite-") as scratch:
            status = run_suite(options, scratch)
    finally:
        finished.touch()
        time.sleep(1)
        finished.unlink()
    sys.exit(status)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tests", default="*", help="run only tests with this pattern in their names")
    parser.add_argument("--part", default="1/1", help="I/N: run every N-th test, from the I-th")
    parser.add_argument("--results", help="file for results; tests that have a result in it are not repeated")
    parser.add_argument("--short", action="store_true", help="run a few important tests, without Gloo")
    return parser.parse_args()


def run_suite(options, scratch):
    suite = load(scratch)
    part, parts = map(int, options.part.split("/"))
    names = sorted(fnmatch.filter(unittest.TestLoader().getTestCaseNames(suite), f"*{options.tests}*"))[part - 1::parts]
    stored = pathlib.Path(options.results) if options.results else None
    results = json.loads(stored.read_text()) if stored and stored.exists() else {}
    if options.short:
        missing = set(SHORT) - set(names)
        assert not missing, f"PyTorch has no such tests: {missing}"
        names, results = SHORT, {"gloo": dict.fromkeys(SHORT, "ok")}
    for name in names:
        for backend in ("gloo", "gradlane"):
            said = results.setdefault(backend, {})
            if name in said or backend == "gradlane" and results["gloo"][name] != "ok":
                continue
            known = expected(name) if backend == "gradlane" else None
            said[name] = f"left out: {known}" if known else run_test(suite, name, backend)
            print(f"{backend:8} {name}: {said[name].splitlines()[-1]}", flush=True)
            if stored:
                stored.write_text(json.dumps(results, indent=1))
    return summarise(results, names, "" if options.short else " Gloo passes {}; of these")


def load(scratch):
    """Returns the class of tests, which runs a test in forked processes. Each process is a rank at a daemon."""
    os.environ.update(BACKEND="gloo", TEMP_DIR=scratch, OMP_NUM_THREADS="1",
                      DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(SECONDS))
    # The log level that is set below hides messages about tests that are left out.
    import logging

    try:
        import expecttest  # noqa: F401
    except ImportError:  # these two names are all that the tests need of it
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=True)
    import torch
    import torch.testing._internal.common_distributed as common
    from torch.testing._internal.distributed import distributed_test

    import gradlane.torch  # noqa: F401 - makes the backend known

    torch.set_num_threads(1)
    logging.getLogger(common.__name__).setLevel(logging.WARNING)
    common.TIMEOUT_OVERRIDE.clear()
    socket = os.environ.pop("GRADLANE_SOCKET")

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        module = distributed_test

        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank, *arguments, **options):
            os.environ.update(RANK=str(rank), GRADLANE_SOCKET=re.sub(r"n0\.sock$", f"n{rank}.sock", socket))
            super()._run(rank, *arguments, **options)

    return Suite


class Either(str):
    """A backend's name that also equals "gloo"."""

    def __eq__(self, other):
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def run_test(suite, name, backend):
    """Runs a test. Returns "ok", "skipped: ..." or the reason of the failure."""
    suite.module.BACKEND = Either(backend) if fnmatch.fnmatch(name, BY_NAME) else backend
    result = unittest.TestResult()
    sys.stdout.flush()
    silent, errors = io.StringIO(), sys.stderr
    sys.stderr = silent
    try:
        suite(name).run(result)
    finally:
        sys.stderr = errors
    for _, text in result.errors + result.failures:
        return why(text)
    return "ok" if not result.skipped else "skipped: " + result.skipped[0][1]


def why(text):
    """Returns the text of the latest exception of a rank."""
    lines = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception|Failed|BadArgument|Gone)\b.*:", line)]
    told = [line for line in lines if "exited with error code" not in line]
    return (told or lines or text.strip().splitlines() or ["failed"])[-1][:300]


def summarise(results, names, of_gloo):
    passes = [name for name in names if results["gloo"].get(name) == "ok"]
    fails = {name: results["gradlane"][name] for name in passes if results["gradlane"][name] != "ok"}
    print(f"\nOf {len(names)} tests{of_gloo.format(len(passes))} gradlane passes {len(passes) - len(fails)}.")
    for name, text in fails.items():
        print(f"  {name}: {text}")
    return 0 if all(map(expected, fails)) else 1


def expected(name):
    return next((reason for pattern, reason in EXPECTED.items() if fnmatch.fnmatch(name, pattern)), None)


if __name__ == "__main__":
    main()
