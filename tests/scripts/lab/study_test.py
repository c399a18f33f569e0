#!/usr/bin/python3
"""Runs the short form of the training study and checks its report: tables, pictures, identical replicas.

study_test.py GRADLANE: needs root, ip, tc, PyTorch and Matplotlib; without them it is skipped (exit status 77).
"""

import argparse
import copy
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest.mock

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.paths import ROOT
from lab.study import job, plan, report, summary, systems
from lab.study import main as command

SKIPPED = 77
STUDY = ROOT / "lab" / "study.sh"
PARTS = ["torch", "matplotlib"]
EXPECTED = {
    "digits": ["worker-aggregator", "Gloo", "fixed:10", "fixed:8 + feedback"],
    "conv": ["Gloo", "fixed:10", "aggregator:0 raw", "aggregator:0 fixed:10/raw"],
}
PNG = b"\x89PNG\r\n"


def missing():
    """Returns which requirement is missing here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    for program in ("ip", "tc"):
        if not shutil.which(program):
            return f"there is no {program}"
    look = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"
    if subprocess.run([sys.executable, "-c", look, *PARTS], capture_output=True).returncode != 0:
        return f"{sys.executable} lacks one of {', '.join(PARTS)}; tools/setup.sh --all installs them"
    return None


def study(*options, status=0, timeout=60):
    result = subprocess.run([str(STUDY), *map(str, options)], capture_output=True, text=True, timeout=timeout)
    assert result.returncode == status, (options, result.returncode, result.stdout, result.stderr)
    return result


def check_command_line():
    assert "--seeds" in study("--help").stdout
    for options, text in (
        (["--only", "fixed:10,nonsense"], "'nonsense'"),
        (["--models", "vgg"], "'vgg'"),
        (["--seeds", "0"], "from 1 to 99"),
        (["--quick", "--write-docs"], "leave out"),
        (["--seeds", "4", "--write-docs"], "leave out"),
        (["--epochs", "14", "--write-docs"], "leave out"),
        (["--link-rate", "2gbit", "--write-docs"], "leave out"),
        (["--systems", "--seeds", "2", "--write-docs"], "leave out"),
        (["--systems", "--only", "raw"], "leave out --only"),
        (["--systems", "--papers"], "choose one"),
        (["--papers", "--seeds", "3", "--write-docs"], "leave out"),
        (["--observation", "--record", "/tmp"], "leave out --observation"),
        (["--report", "--minutes", "3"], "leave out --minutes"),
        (["--minutes", "0"], "from 1 to"),
    ):
        assert text in study(*options, status=2).stderr, options


def check_record(folder):
    """Checks --record, which writes each rank's gradients to NumPy files, without daemons."""
    import numpy

    for options, text in (
        (["--record", folder, "--only", "raw"], "leave out --only"),
        (["--record", folder, "--resume"], "leave out --resume"),
        (["--sample", "4096"], "--sample is for --record"),
        (["--record", folder, "--sample", "12"], "from 32 to"),
    ):
        assert text in study(*options, status=2).stderr, options
    said = study("--record", folder, "--models", "conv", "--epochs", "1", "--sample", "4200").stderr
    assert "4192 of 283786 floats" in said, said
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
    with tempfile.NamedTemporaryFile() as file:
        assert "can be written to" in study("--record", file.name, status=1).stderr


def check_quick(gradlane, folder):
    """Runs a complete quick study and returns the content of results.json."""
    printed = study("--quick", "--json", "--gradlane", gradlane, "--out", folder, timeout=200).stdout
    result = json.loads((folder / "results.json").read_text())
    assert json.loads(printed) == result
    assert not result["failures"] and not result["missing"] and not result["different"], result
    for model, methods in EXPECTED.items():
        rows = {row["method"]: row for row in result["models"][model]["rows"]}
        assert list(rows) == methods, rows
        for row in rows.values():
            assert row["identical"] and row["epoch_ms"] > 0 and row["operations_ms"] > 0, row
            assert row["accuracy"]["mean"] > 60, row  # guessing gives 10
        # The number of bytes on the links does not depend on the machine's speed.
        plain = 1.5 * 4 * result["models"][model]["parameters"]  # bytes that each node of a ring of four sends
        assert plain < rows["Gloo"]["step_bytes"] < 1.2 * plain, rows["Gloo"]
        assert rows["fixed:10"]["bytes_gloo"] > 3, rows["fixed:10"]
    digits = {row["method"]: row for row in result["models"]["digits"]["rows"]}
    # Rank 0 sends the average to at least two of the others. In the ring, a node sends 1.5 times the gradients.
    assert digits["worker-aggregator"]["step_bytes"] > digits["Gloo"]["step_bytes"], digits
    # With an aggregator, each byte is sent to the aggregator once, and back once. Compressed gradients take a fifth of
    # the bytes on the way to it.
    conv = {row["method"]: row for row in result["models"]["conv"]["rows"]}
    assert plain < conv["aggregator:0 raw"]["step_bytes"] < 1.3 * plain, conv
    assert 1.3 < conv["aggregator:0 raw"]["step_bytes"] / conv["aggregator:0 fixed:10/raw"]["step_bytes"] < 2.1, conv
    assert len((folder / "trainings.jsonl").read_text().splitlines()) == len(result["trainings"]) == 8
    assert "WA+C" in (folder / "tables.md").read_text()
    for name in ("study-accuracy-time.png", "study-epoch.png", "study-accuracy.png", "study-systems.png"):
        assert (folder / name).read_bytes().startswith(PNG), name
    assert "fixed:8 + feedback" in (folder / "tables.md").read_text()
    return result


def check_goes_on(gradlane, folder):
    """Checks --resume. Trainings in the file are not repeated, and a line that was cut off does not count."""
    file = folder / "trainings.jsonl"
    *kept, lost = file.read_text().splitlines(keepends=True)
    file.write_text("".join(kept) + lost[:-10])
    text = study("--report", "--out", folder).stdout
    assert "## " + plan.MODELS["digits"] in text and "Not complete: 1 trainings" in text, text
    result = study("--quick", "--resume", "--epochs", "3", "--gradlane", gradlane, "--out", folder, status=1)
    assert "has epochs 2, not 3" in result.stderr, result
    said = study("--quick", "--resume", "--gradlane", gradlane, "--out", folder, timeout=120).stderr
    assert "1 trainings in" in said, said
    *before, fresh = file.read_text().splitlines(keepends=True)
    assert before == kept, "lines that were there, with their times to the last digit, are not the same"
    assert plan.key(json.loads(fresh)) == plan.key(json.loads(lost)) and fresh != lost, (fresh, lost)
    result = json.loads((folder / "results.json").read_text())
    assert not result["missing"] and not result["failures"], result
    assert len(result["settings"]["idle_cores"]) == 2, result["settings"]  # one job in each of two runs


def check_page_stays(folder):
    """Checks that only a complete study gets into the documentation."""
    page = ROOT / "docs" / "results" / "study.md"
    before = page.read_bytes()
    own = {"quick": False, "only": None, "models": plan.models_of(None), "seeds": 3, "epochs": 15, "link_rate": "1gbit"}
    assert command.for_page(own | {"mode": plan.SYSTEMS_MODE}) and not command.for_page(own)
    assert not command.for_page(own | {"mode": plan.PAPERS_MODE})
    result = study("--report", "--write-docs", "--out", folder, status=1)
    assert "was not changed" in result.stderr, result
    assert page.read_bytes() == before
    whole = {"quick": False, "only": None, "models": plan.models_of(None), "seeds": 5, "epochs": 15, "link_rate": "1gbit"}
    assert command.for_page(whole) and command.for_page(whole | {"seeds": 6})
    for name, value in (("quick", True), ("only", ["raw"]), ("models", ["digits"]), ("seeds", 4), ("epochs", 16),
                        ("link_rate", "2gbit")):
        assert not command.for_page(whole | {name: value}), name


def check_environment():
    """Checks that trainers do not get environment variables that would misdirect them."""
    strange = {"GLOO_SOCKET_IFNAME": "eth9", "GRADLANE_SOCKET": "/a", "GRADLANED": "/b"}
    with unittest.mock.patch.dict(os.environ, strange):
        found = job.environment()
    assert [name for name in strange if name in found] == ["GRADLANED"] and "PATH" in found, found


def check_systems():
    """Checks that the parts of a training step (computing, adding, exchanging) add up to its time, for all times.
    Speed-ups of the other systems are relative to WA.
    """
    assert plan.selected("conv", False, None, plan.SYSTEMS_MODE) == [plan.GLOO, *plan.SYSTEMS.values()]
    assert not set(plan.selected("digits", False, None, None)) & {plan.SYSTEMS["WA"], plan.SYSTEMS["WA+C"]}
    assert plan.strategies_of([{"method": "raw"}]) == ["ring"]
    assert plan.strategies_of([{"method": "raw"}, {"method": plan.SYSTEMS["WA+C"]}]) == ["ring", "aggregator:0"]
    settings = {"nodes": 4, "add_gbps": {"raw": 4.0, "fixed:10": 2.0}}
    rows = [{"method": name, "steps": 10, "epoch_ms": step * 10, "step_bytes": 1e6, "accuracy": {"mean": 98.0}}
            for name, step in zip(plan.SYSTEMS.values(), (100.0, 60.0, 40.0, 25.0))]
    model = {"compute_ms": 200.0, "parameters": 1_000_000, "rows": rows}
    found = {name: parts for name, _, parts in systems.rows_of(model, settings)}
    assert list(found) == ["WA", "WA+C", "ring", "ring+C"], found
    for name, adding in (("WA", 3.0), ("WA+C", 6.0), ("ring", 0.75), ("ring+C", 1.5)):
        parts = found[name]
        assert parts["computing"] == 20 and abs(parts["adding"] - adding) < 1e-9, found
        assert abs(parts["computing"] + parts["adding"] + parts["exchanging"] - parts["step"]) < 1e-9, found
    _, lines = systems.cells(model, settings)
    assert lines[0][7] == "-" and lines[3][7:9] == ["95.5 %", "4.00x"], lines
    assert systems.rows_of({**model, "rows": rows[2:]}, settings) == [], "nothing to compare with"
    assert systems.split({**model, "compute_ms": 300.0}, rows[3], settings)["exchanging"] == 0


def check_modes():
    """Checks the plan of each mode. Each method has one name. Jobs are short, and together have all trainings. Daemons
    allow the strategies that methods need."""
    papers = plan.of_mode(plan.PAPERS_MODE, False)
    observed = plan.of_mode(plan.OBSERVATION_MODE, False)
    for names in (papers, observed):
        assert len(set(names)) == len(names) and set(names) <= set(plan.BY_NAME), names
    assert len(observed) == 1 + 3 * len(plan.OBSERVED) and plan.BY_NAME["both: trunc:16"].what == plan.BOTH, observed
    general = plan.selected("digits", False, None, None)
    assert not set(general) & {"signsgd", "weights: fixed:10"} and "inceptionn:10" in general, general
    # FSDP2 is only for the GPT, because it shards this model's blocks.
    assert plan.selected("conv", False, [plan.FSDP], plan.RACE_MODE) == [plan.WORKER_AGGREGATOR, plan.GLOO]
    assert plan.FSDP in plan.selected("gpt", False, [plan.FSDP], plan.RACE_MODE)
    for mode, quick in itertools.product((None, *plan.MODES), (False, True)):
        jobs = plan.jobs(list(plan.MODELS), [1, 2], quick, None, mode)
        assert all(0 < len(job) <= plan.MOST_IN_JOB and len({t["seed"] for t in job}) == 1 for job in jobs), jobs
        keys = [plan.key(training) for job in jobs for training in job]
        wanted = {(model, seed, name) for model in plan.MODELS for seed in (1, 2)
                  for name in plan.selected(model, quick, None, mode)}
        assert len(keys) == len(wanted) and set(keys) == wanted, (mode, keys)
    assert plan.strategies_of([{"method": "terngrad"}, {"method": "direct onebit + feedback"}]) == ["ring", "direct"]


def check_codecs(gradlane):
    """Checks that every codec of the plan exists, that its strategy supports it, and that codecs with feedback have
    states."""
    for method in plan.BY_NAME.values():
        if not method.codec or "auto" in method.codec:
            continue
        name = method.codec.partition("/")[0]
        said = subprocess.run([gradlane, "codecs", "--no-measure", "--json", "--codec", name], capture_output=True,
                              text=True)
        assert said.returncode == 0, (method, said.stderr)
        codec = json.loads(said.stdout)["codecs"][0]
        assert method.links == (codec["ways"] == "links"), (method, codec)
        assert (codec["ways"] != "owners") or method.strategy, (method, codec)
        assert codec["states"] > 0 or not method.feedback, (method, codec)


def check_observation(gradlane, folder):
    """Runs a quick --observation study, in which gradients, weights or both go through a codec."""
    study("--observation", "--quick", "--models", "digits", "--gradlane", gradlane, "--out", folder, timeout=120)
    result = json.loads((folder / "results.json").read_text())
    rows = {row["method"]: row for row in result["models"]["digits"]["rows"]}
    assert list(rows) == [name for name in plan.BY_NAME if name in plan.QUICK_OBSERVATION], rows.keys()
    assert not result["missing"] and not result["different"], result
    gradients, weights, both = (rows[name]["step_bytes"] for name in plan.QUICK_OBSERVATION[1:])
    # Runs with weights send gradients, too, so they send about twice as many bytes. The ratios are not exact, because
    # zeros take fewer bytes and the runs have different numbers of them.
    assert 1.8 < weights / gradients < 2.2 and 0.99 < weights / both < 1.01, (gradients, weights, both)
    page = report.page_of(plan.OBSERVATION_MODE, result, [])
    line = next(line for line in page.splitlines() if line.startswith("| trunc:16"))
    assert page.startswith(report.OBSERVATION_TITLE) and line.count("%") == 3, page
    assert "on weights only" in (folder / "tables.md").read_text()


def check_papers(gradlane, folder):
    """Runs a quick --papers study. Then checks that a study ends when its --minutes are over."""
    options = ["--papers", "--quick", "--models", "digits", "--gradlane", gradlane, "--out", folder]
    study(*options, timeout=120)
    result = json.loads((folder / "results.json").read_text())
    rows = {row["method"]: row for row in result["models"]["digits"]["rows"]}
    assert set(rows) == set(plan.QUICK_PAPERS) and not result["missing"] and not result["different"], result
    assert all(row["accuracy"]["mean"] > 50 for row in rows.values()), rows
    sent = {name: rows[name]["bytes_gloo"] for name in rows}
    assert 1.8 < sent["Gloo, bf16"] < 2.2 and sent["direct qsgd:4 + feedback"] > 5, sent
    assert sent["PowerSGD 4 on raw"] > 5, sent
    page = report.page_of(plan.PAPERS_MODE, result, ["study-epoch.png"])
    assert (page.startswith(report.PAPERS_TITLE) and "## Less accurate or slower than Gloo" in page
            and ".png" not in page), page
    # Each reading of the clock is 61 s after the one before, so the minute is over before a training begins.
    (folder / "trainings.jsonl").write_text("")
    with unittest.mock.patch.object(command.time, "monotonic", side_effect=range(0, 10**9, 61)):
        with unittest.mock.patch.object(sys, "argv", ["study", *map(str, options), "--resume", "--minutes", "1"]):
            args = command.parse_arguments()
            _, trainings, failures = command.train(args, folder)
    assert not trainings and not failures, (trainings, failures)


def check_race(gradlane, folder):
    """Runs a quick --race study over udp, with the Python that --python names. Checks its table and its figures."""
    study("--race", "--quick", "--models", "digits", "--python", sys.executable, "--gradlane", gradlane, "--out", folder,
          timeout=120)
    result = json.loads((folder / "results.json").read_text())
    assert not result["missing"] and not result["different"] and not result["failures"], result
    assert result["settings"]["python"] == sys.executable and plan.link_of(result["settings"]["mode"]) == "udp", result
    rows = {row["method"]: row for row in result["models"]["digits"]["rows"]}
    assert list(rows) == plan.QUICK_RACE["digits"] and all(row["loss"]["mean"] < 2 for row in rows.values()), rows
    assert rows["fixed:8 + feedback"]["bytes_gloo"] > 4, rows
    page = report.page_of(plan.RACE_MODE, result, ["study-epoch.png"])
    assert page.startswith(report.RACE_TITLE) and "final loss" in page and ".png" not in page, page
    told = study("--quick", "--resume", "--models", "digits", "--gradlane", gradlane, "--out", folder, status=1).stderr
    assert "has mode race, not None" in told, told
    told = study("--python", "/bin/false", "--gradlane", gradlane, "--out", folder / "no", status=1).stderr
    assert "/bin/false has no PyTorch" in told and "setup.sh --all" in told, told


def check_loss():
    """Checks targets that are losses, which fall. The best of gradlane's methods is compared with each base."""
    def training(method, losses, seconds, seed=1):
        return {"model": "gpt", "seed": seed, "method": method, "steps": 1, "parameters": 1, "accuracy": [40.0] * 3,
                "loss": losses, "epoch_seconds": [seconds] * 3, "operation_seconds": [0.0], "step_bytes": None,
                "compute_seconds": [0.1], "identical": True, "hashes": []}

    trainings = [training(plan.GLOO, [3.0, 2.5, 2.0], 1.0), training(plan.BF16, [3.0, 2.5, 2.02], 0.75),
                 training("fixed:adaptive + feedback", [3.0, 2.019, 2.0], 0.5), training("bf16", [3.0, 2.5, 2.03], 0.1)]
    result = summary.summarize({"mode": plan.RACE_MODE}, trainings)
    model = result["models"]["gpt"]
    assert abs(model["target"] - 2.02) < 1e-9, model
    found = {row["method"]: row["seconds_to"] and row["seconds_to"]["mean"] for row in model["rows"]}
    assert found == {plan.GLOO: 3.0, plan.BF16: 2.25, "bf16": None, "fixed:adaptive + feedback": 1.0}, found
    assert [(one["value"], one["met"]) for one in result["figures"]] == [(3.0, True), (2.25, True)], result["figures"]
    # Each seed has a target of its own. Speed-ups use only the seeds that both methods have.
    trainings += [training(plan.GLOO, [3.0, 2.5, 2.2], 1.2, 2), training("fixed:adaptive + feedback", [3.0, 2.5, 2.21], 0.5, 2),
                  training(plan.GLOO, [3.0, 2.5, 2.1], 9.0, 3)]
    model = summary.summarize({"mode": plan.RACE_MODE}, trainings)["models"]["gpt"]
    rows = {row["method"]: row for row in model["rows"]}
    assert rows[plan.GLOO]["reached"] == 3 and rows["fixed:adaptive + feedback"]["reached"] == 2, rows
    assert abs(rows["fixed:adaptive + feedback"]["to_accuracy_gloo"] - (3 + 3.6) / (1 + 1.5)) < 1e-9, rows
    assert abs(rows["fixed:adaptive + feedback"]["to_accuracy_bf16"] - 2.25) < 1e-9, rows
    assert "1 of 1" not in report.race(model) and "0 of 1 seeds" in report.race(model), report.race(model)


def check_summary(result):
    """Checks that the report says so if replicas differ, accuracy is lost, or no time is saved."""
    page = report.page(result, [name for name in report.SHOWS if name != systems.PICTURE])
    own = report.systems_page(result, [systems.PICTURE])
    assert own.startswith(systems.TITLE) and "| WA+C " in own and own.count("](../images/") == 1, own
    assert page.startswith(report.PAGE_TITLE) and report.TITLE not in page and page.count("](../images/") == 3, page
    trainings = copy.deepcopy(result["trainings"])
    worse = next(t for t in trainings if t["model"] == "digits" and t["method"] == "fixed:10")
    worse["accuracy"] = [10.0] * len(worse["accuracy"])
    worse["identical"] = False
    again = summary.summarize(result["settings"], trainings)
    row = next(row for row in again["models"]["digits"]["rows"] if row["method"] == "fixed:10")
    assert row["reached"] == 0 and row["seconds_to"] is None and not row["identical"], row
    bad = [figure for figure in again["figures"] if figure["what"].startswith("fixed:10:")]
    assert len(bad) == 2 and not any(figure["met"] for figure in bad), bad
    assert again["different"] == [("digits", 1, "fixed:10")], again["different"]
    assert all(f"{again['models']['digits']['target']:.2f} %" in figure["what"] for figure in bad[:1]), bad
    for busy, warned in (([], False), ([0.1, 0.2], False), ([0.1, 0.4], True)):
        text = report.document(result | {"settings": result["settings"] | {"idle_cores": busy}})
        assert ("not quiet" in text) == warned, text
    old = {name: value for name, value in result["settings"].items() if name != "idle_cores"}
    assert "not quiet" not in report.document(result | {"settings": old})  # a study that did not record them
    tables = report.document(again | {"missing": []})
    assert "DIFFERENT" in tables and "0 of 1 seeds" in tables, tables


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    gradlane = parser.parse_args().gradlane
    reason = missing()
    if reason and networks.in_ci():
        print(f"{reason}; CI is set, where this must not be left out")
        return 1
    if reason:
        print(f"skipped: {reason}")
        return SKIPPED
    check_command_line()
    check_environment()
    check_systems()
    check_modes()
    check_codecs(gradlane)
    check_loss()
    with tempfile.TemporaryDirectory() as name:
        check_record(pathlib.Path(name))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        result = check_quick(gradlane, folder)
        check_goes_on(gradlane, folder)
        check_page_stays(folder)
    check_summary(result)
    for check in (check_observation, check_papers, check_race):
        with tempfile.TemporaryDirectory() as name:
            check(gradlane, pathlib.Path(name))
    print("the study is in order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
