#!/usr/bin/python3
"""Checks the plan and the tables of the experiment `accuracy`, and a recording of gradients.

study_test.py GRADLANE: needs PyTorch.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from tests.scripts.fixtures.paths import ROOT
from lab.results.store import Store
from lab.study import experiment, methods, plan, tables


def check_plan():
    """Checks that each method has one name, that all are planned once, and that all algorithms have few trials."""
    trainings = methods.trainings()
    assert len(set(trainings)) == len(trainings) and {name for _, _, name in trainings} == set(methods.BY_NAME)
    assert {model for model, _, _ in trainings} == set(plan.MODELS)
    for algorithm, tried in methods.TRIALS.items():
        assert tried[0] == methods.HIPRESS[algorithm][0] and len(tried) <= 12, algorithm
    assert all(method in methods.TRIALS[algorithm] for algorithm, method in methods.CHOSEN.items())
    samples = Store(experiment.EXPERIMENT).values()
    assert {name for _, name in (*tables.ADVICE, *tables.GPT_ADVICE)} <= set(methods.BY_NAME)
    assert {key.split("/", 2)[2] for key in samples} <= set(methods.BY_NAME), "samples of methods that no table shows"
    for algorithm, method in methods.CHOSEN.items():
        assert tables.best_trial(samples, algorithm) in (None, method), algorithm
    batches = experiment.batches({})
    assert sorted(key for batch in batches for key in batch.keys) == sorted(methods.key(*each) for each in trainings)
    done = batches[0].keys
    assert not set(done) & {key for batch in experiment.batches(dict.fromkeys(done, [{}])) for key in batch.keys}


def check_codecs(gradlane):
    """Checks that every codec exists, and has states if it is to have feedback."""
    for method in methods.BY_NAME.values():
        if method.kind not in ("gradlane", "powersgd"):
            continue
        for name in (method.codec, *(codec for codec, _ in method.ramp)):
            if name.startswith("fixed:adaptive"):
                continue
            said = subprocess.run([gradlane, "codecs", "--no-measure", "--json", "--codec", name], capture_output=True,
                                  text=True)
            assert said.returncode == 0, (method, said.stderr)
            assert json.loads(said.stdout)["codecs"][0]["states"] > 0 or not method.feedback, method


def run(last, hash="a", loss=1.0, first=0.0):
    return [{"accuracy": [first, last], "loss": [9.0, loss], "hash": hash, "identical": True}]


def check_tables():
    key = methods.key
    samples = {key("digits", 1, "Gloo"): run(98.0), key("digits", 2, "Gloo"): run(98.0), key("digits", 3, "Gloo"): run(97.0),
               key("digits", 1, "fixed:10"): run(97.6), key("digits", 2, "fixed:10"): run(97.4, first=97.6),
               key("digits", 9, "fixed:10"): run(10.0)}
    found = tables.effect(samples, "digits", "fixed:10")
    assert found["seeds"] == 2 and abs(found["difference"] + 0.5) < 1e-9 and found["met"], found
    assert abs(found["error"] - 0.1) < 1e-9 and found["epochs"] == [2, 1], found
    assert tables.effect(samples, "digits", "raw") is None
    text = tables.FIGURES["methods"](samples)
    assert "| `fixed:10` | -0.50 ± 0.10 (1.5) |  |  |" in text, text
    samples[key("digits", 2, "fixed:10")] = run(97.2)
    text = tables.FIGURES["methods"](samples)
    assert "| **-0.60 ± 0.20** (1 of 2 seeds) |" in text, text
    samples[key("digits", 2, "fixed:10")][0]["identical"] = False
    assert "replicas differ" in tables.FIGURES["methods"](samples)
    # Losses fall. Each seed has a target of its own.
    samples = {key("gpt", 1, "Gloo"): run(0, loss=2.0), key("gpt", 2, "Gloo"): run(0, loss=4.0),
               key("gpt", 1, "bf16"): run(0, loss=2.01), key("gpt", 2, "bf16"): run(0, loss=4.06)}
    found = tables.effect(samples, "gpt", "bf16")
    assert abs(found["difference"] - 1) < 1e-9 and found["met"] and found["epochs"] == [2, None], found
    # Plain hooks
    own, other = methods.HIPRESS["tbq"]
    samples = {key("conv", seed, method.name): run(98.0 + seed * (method == other), hash=str(seed * (method == other)))
               for seed in (0, 1) for method in (own, other)}
    text = tables.agreement(samples)
    assert "| 2 | 98.00 % | 98.50 % | +0.25 ± 15.91 | +0.0 ± 0.0 % | cannot say |" in text, text
    for seed in (0, 1):
        samples[key("conv", seed, other.name)] = run(98.0, hash="b", loss=1.0)
        samples[key("conv", seed, other.name)][0]["loss"][0] = 9.9
    assert tables.agreement(samples).endswith("| **no** |"), tables.agreement(samples)


def record(*options, status=0):
    done = subprocess.run([sys.executable, "-m", "lab.study.record", *map(str, options)], cwd=ROOT, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == status, done
    return done.stderr


def check_record(folder):
    """Checks the recording of each rank's gradients in NumPy files, without daemons."""
    import numpy

    assert "--sample at least 32" in record(folder, "--sample", 12, status=2)
    assert "4192 of 283786 floats" in record(folder, "--models", "conv", "--epochs", 1, "--sample", 4200)
    assert sorted(file.name for file in folder.iterdir()) == [f"conv-{step}.npy" for step in ("early", "late", "middle")]
    arrays = {step: numpy.load(folder / f"conv-{step}.npy") for step in ("early", "middle", "late")}
    for array in arrays.values():
        assert array.dtype == "<f4" and array.shape == (4, 4192) and array.flags.c_contiguous, array
        assert numpy.isfinite(array).all() and len({row.tobytes() for row in array}) == 4, array
    for name in ("conv-early", "gpt-late"):
        committed = numpy.load(ROOT / "tools" / "bench" / "recordings" / f"{name}.npy")
        assert committed.dtype == "<f4" and committed.shape == (4, 24576), committed
    # Networks learn, so their gradients get smaller.
    assert abs(arrays["late"]).mean() < abs(arrays["early"]).mean(), arrays


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    gradlane = parser.parse_args().gradlane
    check_plan()
    check_codecs(gradlane)
    check_tables()
    with tempfile.TemporaryDirectory() as folder:
        check_record(pathlib.Path(folder))
    print("the study is in order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
