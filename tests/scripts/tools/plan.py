"""Runs `gradlane plan`, and checks tables, JSON, pictures, and messages about options, profiles and calibrations."""

import datetime
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
from random import Random

from tests.scripts.fixtures.paths import ROOT
from tests.scripts.fixtures.waiting import PATIENCE

HEATMAP = ROOT / "lab" / "plan" / "heatmap.py"
PROFILE = {"name": "net", "batch": 8, "backward_ms": 10,
           "layers": [{"name": f"layer{i}", "elements": 1000000, "backward_ms": 1} for i in range(10)]}
MAX_COLUMNS = 124
CALIBRATION = """
calibration: 1
made: {made}
host: '{host}'
cpu: '{cpu}'
isa: {isa}
program: '{program}'
port: udp
start_us: 20
lanes: 2
contention: 1.2
lambda: 1.05
memory_gbytes_per_s: 20
packets: {{send_ns: 2000, receive_ns: 2000, call_ns: 5000, per_call: 20, reduce_ns: 400, gather_ns: 300, payload: 1408,
  overhead: 130}}
links: [{{from: 0, to: 1, latency_us: 40, gbps: 2.5}}, {{from: 1, to: 0, latency_us: 50, gbps: 2.4}}]
codecs:
  - {{codec: raw, encode_ns: 0.1, merge_ns: 0.2, decode_ns: 0.1, look_ns: 0, packet_ns: 0, bytes: 4, doubling: 0,
     density: 0, results: 0}}
  - {{codec: 'fixed:12', encode_ns: 0.2, merge_ns: 0.3, decode_ns: 0.2, look_ns: 0, packet_ns: 300, bytes: 1,
     doubling: 0.07, density: 0, results: 0}}
"""

# Arguments, and words that the error must have.
# The same as measured through PyTorch: for each library and codec the time of Gloo's fp32 and its share of a core.
EXCHANGES = {("gloo", "fp32"): (1, 0.4), ("gloo", "bf16"): (0.6, 0.5), ("gradlane", "raw"): (0.9, 0.5),
             ("gradlane", "fixed:adaptive"): (0.25, 0.8), ("gradlane", "topk:1%+fixed:10"): (0.2, 0.9)}

ERRORS = [
    ([], ["--model", "resnet50", "profile"]),
    (["--model", "lenet"], ["lenet", "resnet50"]),
    (["--model", "resnet50", "--nodes", "1000"], ["--nodes", "1000", "256"]),
    (["--model", "resnet50", "--codecs", "fixed:99"], ["fixed:99"]),
    (["--model", "resnet50", "--calibration", "none", "--codecs", "fixed:12"], ["fixed:12", "without a calibration"]),
    (["--model", "resnet50", "--what-if", "speed=1"], ["speed=1", "gbps="]),
    (["--model", "resnet50", "--strategy", "rings:4", "--what-if", "nodes=6"], ["--strategy", "6 nodes"]),
    (["--model", "resnet50", "--strategy", "ring", "--codecs", "terngrad"], ["terngrad", "direct"]),
    (["--model", "resnet50", "--strategy", "rings:3"], ["--strategy", "rings:3"]),
    (["--model", "resnet50", "--calibration", "/nowhere/c.yaml"], ["/nowhere/c.yaml"]),
    (["--model", "resnet50", "--cores", "0"], ["--cores", "0", "65536"]),
    (["--calibrate", "--cores", "2"], ["--cores", "--calibrate"]),
    (["--paper", "--model", "resnet50"], ["--paper", "--model"]),
    (["--paper", "--nodes", "8"], ["--paper", "--nodes"]),
    (["--paper", "--gbps", "8"], ["--paper", "--gbps"]),
    (["--paper", "--batch", "8"], ["--paper", "--batch"]),
    (["--paper", "--compute-ms", "8"], ["--paper", "--compute-ms"]),
    (["--paper", "--codecs", "bf16"], ["--paper", "--codecs"]),
    (["--paper", "--port", "udp"], ["--paper", "--port"]),
    (["--calibrate", "--model", "resnet50"], ["--model", "--calibrate"]),
    (["--calibrate", "--paper"], ["--paper", "--calibrate"]),
    (["--model", "resnet50", "--alone"], ["--alone", "--calibrate"]),
    (["--model", "resnet50", "-o", "x"], ["-o", "--calibrate"]),
    (["--calibrate", "--alone", "--rank", "0"], ["--alone", "--rank"]),
    (["--calibrate", "--alone", "--nodes", "a,b"], ["--alone", "--nodes"]),
    (["--model", "resnet50", "--python", "x"], ["--python", "--calibrate"]),
    (["--calibrate", "--alone", "--admin", "x"], ["--alone", "--admin"]),
    (["--model", "resnet50", "--admin", "x"], ["--admin", "--calibrate"]),
    (["--calibrate", "--alone", "--port", "tcp"], ["--port", "tcp", "udp"]),
    (["--calibrate", "--rank", "-1"], ["--rank", "-1", "255"]),
    (["--calibrate", "--socket", "/nowhere/node0.sock"], ["/nowhere/node0.sock"]),
    (["--calibrate", "--alone", "-o", "/proc/nowhere/c.yaml"], ["/proc/nowhere/c.yaml", "cannot be written"]),
    (["--calibrate", "--alone", "-o", "/tmp"], ["-o /tmp", "folder"]),
    (["--calibrate", "--alone", "-o", "/tmp/nowhere/c.yaml"], ["-o /tmp/nowhere/c.yaml", "no folder /tmp/nowhere"]),
]


def run(gradlane, *arguments, status=0, **variables):
    variables = {"XDG_CONFIG_HOME": "/nowhere", **variables}  # hides the user's own calibration
    if not {"--calibrate", "--calibration", "--paper"} & set(arguments) and variables["XDG_CONFIG_HOME"] == "/nowhere":
        arguments = (*arguments, "--calibration", "none")
    result = subprocess.run([gradlane, "plan", *arguments], capture_output=True, text=True, timeout=PATIENCE,
                            env={**os.environ, **variables})
    assert result.returncode == status, (arguments, result)
    if "--json" not in arguments:
        assert all(len(line) <= MAX_COLUMNS for line in result.stdout.splitlines()), result.stdout
    return result


def check_tables(gradlane):
    text = run(gradlane, "--model", "resnet50", "--gbps", "1", "--calibration", "none").stdout
    for word in ("ideal", "raw", "fixed:10", "best", "bytes must shrink", "compress with", "link", "\n- predicted by"):
        assert word in text, (word, text)
    assert "profile your model with gradlane.torch.profile" in text and "assumed: --nodes" in text, text
    assert "(codec: auto:2^-10" in run(gradlane, "--model", "RESNET50", "--gbps", "1", "--codecs", "fixed:10").stdout
    assert "there is nothing to send" in run(gradlane, "--model", "resnet50", "--nodes", "1").stdout
    assert "cells gain" in run(gradlane, "--model", "vgg16", "--what-if", "nodes=4..64", "gbps=0.1..400").stdout
    assert "sync-SGD, ResNet-101" in run(gradlane, "--paper").stdout
    paper = json.loads(run(gradlane, "--paper", "--json").stdout)
    assert {each["verdict"] for each in paper["setups"]} == {"gains", "unclear", "loses"}, paper


def check_json(gradlane, folder):
    profile = folder / "profile.json"
    profile.write_text(json.dumps(PROFILE))
    plan = json.loads(run(gradlane, "--model", str(profile), "--json").stdout)
    assert plan["elements"] == 10000000 and plan["batch"] == 8 and abs(plan["compute_ms"] - 15) < 1e-6, plan
    rows = {row["codec"]: row for row in plan["rows"]}
    assert plan["baseline"] == "ideal" and rows["ideal"]["speedup"] == 1, rows
    assert rows["raw"]["speedup"] < 1 and rows["best"]["speedup"] >= rows["fixed:10"]["speedup"] * 0.99, rows
    for row in plan["rows"]:
        assert row["limit"] in ("latency", "link", "codec", "packets", "memory") or row["measured"], row
        assert abs(row["step_ms"] - row["exposed_ms"] - plan["compute_ms"]) < 1e-6, row
    card = json.loads(run(gradlane, "--model", str(profile), "--port", "card", "--json").stdout)
    assert not any(row["measured"] for row in card["rows"]) and "gloo" not in [row["codec"] for row in card["rows"]], card
    assert "scaled from the profile's batch of 8" in run(gradlane, "--model", str(profile), "--batch", "16").stdout
    profile.write_text(json.dumps({**PROFILE, "layers": [{"name": "a"}]}))
    error = run(gradlane, "--model", str(profile), status=2).stderr
    assert "layers[0].elements" in error and str(profile) in error, error


def write_npy(file, rows):
    header = str({"descr": "<f4", "fortran_order": False, "shape": (len(rows), len(rows[0]))}).encode()
    floats = struct.pack(f"<{len(rows) * len(rows[0])}f", *(number for row in rows for number in row))
    file.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + floats)


def check_widths(gradlane, folder):
    """Checks a model of two layers, one with gradients 256 times as large as those of the other. Codecs whose step is a
    share of each layer's largest gradient waste bits."""
    recording, model = folder / "gradients.npy", folder / "layers.json"
    layers = {"name": "two", "batch": 1, "layers": [{"name": "small", "elements": 4096}, {"name": "large", "elements": 512}]}
    model.write_text(json.dumps(layers))
    random = Random(1)
    scales = [2.0**-10] * 4096 + [2.0**-2] * 512
    write_npy(recording, [[scale * random.gauss(0, 1) for scale in scales] for _ in range(2)])
    words = ("--widths", str(recording), "--model", str(model))
    report, = json.loads(run(gradlane, *words, "--codecs", "raw,fixed:12", "--json").stdout)
    assert report["recording"] == str(recording), report
    for row in report["widths"]:
        assert all(row[kind]["bits_each"] <= row[kind]["bits_all"] for kind in ("fixed", "feedback", "relative")), row
        # with 14 bits or more, one step for all layers is already best
        assert row["bits"] < 14 or row["fixed"]["saved"] < 0.01, row
        assert row["relative"]["saved"] > 0.2, row
    raw, fixed = report["codecs"]
    assert raw["layers"]["bits_all"] == 32 and raw["layers"]["vnmse"] == 0 and raw["layers"]["saved"] == 0, raw
    closed = next(row["fixed"] for row in report["widths"] if row["bits"] == 12)
    assert abs(closed["bits_all"] / fixed["layers"]["bits_all"] - 1) < 0.01, (closed, fixed)
    assert abs(closed["vnmse"] / fixed["layers"]["vnmse"] - 1) < 0.1, (closed, fixed)
    assert "fixed:adaptive" in run(gradlane, *words).stdout
    layers["layers"].pop()
    model.write_text(json.dumps(layers))
    for arguments, found in ((words, "4096 elements"), (words[:2], "--model"), ((*words, "--paper"), "--paper"),
                             (("--model", str(model)), "--compute-ms")):
        error = run(gradlane, *arguments, status=2).stderr
        assert found in error, (arguments, error)


def this_host(gradlane):
    """Returns the origin that a calibration made on this host has."""
    models = [line.split(": ", 1)[1] for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
              if line.startswith("model name") and ": " in line]
    codecs = subprocess.run([gradlane, "codecs", "--no-measure", "--json"], capture_output=True, text=True, check=True)
    version = subprocess.run([gradlane, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    return {"made": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "host": socket.gethostname(), "cpu": models[0] if models else "unknown",
            "isa": json.loads(codecs.stdout)["isa"], "program": version}


def check_calibrations(gradlane, folder):
    here = this_host(gradlane)
    file = folder / "calibration.yaml"
    arguments = ("--model", "resnet50", "--calibration", str(file))
    file.write_text(CALIBRATION.format(**here))
    plan = json.loads(run(gradlane, *arguments, "--json").stdout)
    assert plan["calibrated"] and abs(plan["gbps"] - 2.4) < 1e-9 and not plan["gbps_at_least"], plan
    file.write_text(CALIBRATION.format(**here).replace("gbps: 2.4", "gbps: 2.4, at_least: true"))
    assert "links may be faster" in run(gradlane, *arguments).stdout
    assert "links may be faster" not in run(gradlane, *arguments, "--gbps", "2").stdout
    file.write_text(CALIBRATION.format(**here))
    assert [row["codec"] for row in plan["rows"]][:2] == ["ideal", "raw"], plan
    assert "fixed:12" in run(gradlane, *arguments, "--codecs", "fixed:12").stdout
    for wrong, words in (({"host": "elsewhere"}, ["elsewhere", "--calibrate"]),
                         ({"isa": "abacus"}, ["abacus"]), ({"program": "0"}, ["gradlane '0'"]),
                         ({"made": "2020-01-01T00:00:00Z"}, ["2020-01-01", "days"]),
                         ({"made": "yesterday"}, [":3:", "made", "yesterday"])):
        file.write_text(CALIBRATION.format(**{**here, **wrong}))
        error = run(gradlane, *arguments, status=2).stderr
        assert all(word in error for word in [str(file), *words]), (wrong, error)


def check_measured(gradlane, folder):
    """Checks a calibration with all-reduces that were measured through PyTorch: Gloo is the baseline."""
    text = CALIBRATION.format(**this_host(gradlane)) + "cores: 1\nexchanges:\n"
    for (library, codec), (factor, share) in EXCHANGES.items():
        points = [f"{{bytes: {1 << 20}, us: {2e4 * factor}, busy_us: {2e4 * factor * share}}}",
                  f"{{bytes: {1 << 26}, us: {1e6 * factor}, busy_us: {1e6 * factor * share}}}"]
        text += f"  - {{library: {library}, codec: '{codec}', points: [{', '.join(points)}]}}\n"
    file, profile = folder / "measured.yaml", folder / "profile.json"
    file.write_text(text)
    profile.write_text(json.dumps(PROFILE))
    arguments = ("--model", str(profile), "--calibration", str(file))
    plan = json.loads(run(gradlane, *arguments, "--json").stdout)
    assert [row["codec"] for row in plan["rows"]] == ["ideal", "gloo", "raw", "gloo bf16", "fixed:adaptive",
                                                      "topk:1%+fixed:10", "best"], plan
    assert plan["baseline"] == "gloo" and plan["cores"] == 1, plan
    for row in plan["rows"]:
        assert row["measured"] == (row["codec"] != "ideal"), row
        assert row["limit"] if row["codec"] in ("ideal", "raw", "best") else row["limit"] is None, row
        assert abs(row["step_ms"] - row["exposed_ms"] - plan["compute_ms"]) < 1e-6, row
    table = run(gradlane, *arguments, "--codecs", "topk:1%+fixed:10").stdout
    assert "baseline" in table and "x as fast as with Gloo (" in table and "fixed:adaptive" not in table, table
    assert "gloo, as measured" in run(gradlane, *arguments, "--what-if", "nodes=2,4").stdout
    grid = json.loads(run(gradlane, *arguments, "--what-if", "gbps=2,4", "--json").stdout)
    assert grid["baseline"] == "gloo" and len(grid["cells"]) == 2, grid


def check_default(gradlane, folder):
    """Without --calibration, the user's own file comes before the machine's. A file of another host is reported and not
    used."""
    file = folder / "gradlane" / "calibration.yaml"
    file.parent.mkdir()
    here = this_host(gradlane)
    file.write_text(CALIBRATION.format(**here))

    def plan(*arguments):
        return json.loads(run(gradlane, "--model", "resnet50", "--json", *arguments, XDG_CONFIG_HOME=str(folder)).stdout)

    found = plan()
    assert found["calibrated"] and found["nodes"] == 2 and found["calibration_ignored"] is None, found
    assert not plan("--calibration", "none")["calibrated"] and not plan("--port", "card")["calibrated"]
    file.write_text(CALIBRATION.format(**{**here, "host": "elsewhere"}))
    left = plan()
    assert not left["calibrated"] and left["nodes"] == 4 and "elsewhere" in left["calibration_ignored"], left
    text = run(gradlane, "--model", "resnet50", XDG_CONFIG_HOME=str(folder)).stdout
    assert "1 core per node: no calibration can be used\n" in text, text
    assert "elsewhere" in text and "gradlane plan --calibrate" in text, text


def check_calibrating(gradlane, folder):
    """Calibrates this host alone. The file can be read again, and says what was not measured."""
    file = folder / "new" / "made.yaml"
    file.parent.mkdir()
    lanes = min(2, len(os.sched_getaffinity(0)))
    made = json.loads(run(gradlane, "--calibrate", "--alone", "--lanes", str(lanes), "-o", str(file), "--json").stdout)
    assert made["file"] == str(file) and not made["ring"] and not made["links"] and made["lanes"] == lanes, made
    assert [codec["codec"] for codec in made["codecs"]][0] == "raw" and len(made["codecs"]) > 10, made
    assert all(codec["encode_ns"] > 0 and codec["decode_ns"] > 0 for codec in made["codecs"]), made
    assert made["memory_gbytes_per_s"] > 0, made
    error = subprocess.run(["taskset", "-c", str(min(os.sched_getaffinity(0))), gradlane, "plan", "--calibrate", "--alone",
                            "--lanes", "2", "-o", str(file)], capture_output=True, text=True, timeout=PATIENCE)
    assert error.returncode == 2 and "--lanes 2: this process may use 1 CPU" in error.stderr, error
    assert list(file.parent.iterdir()) == [file], list(file.parent.iterdir())
    plan = json.loads(run(gradlane, "--model", "resnet50", "--calibration", str(file), "--json").stdout)
    assert plan["calibrated"] and plan["nodes"] == 4 and plan["gbps"] == 10, plan
    text = run(gradlane, "--model", "resnet50", "--calibration", str(file)).stdout
    assert "codecs calibrated" in text and "links: 4 nodes and 10 Gb/s assumed: --nodes, --gbps" in text, text


def check_daemons(gradlane, folder):
    """Checks that a calibration file with links is not replaced if there is no daemon, or only the socket of a daemon
    that has died."""
    file = folder / "links.yaml"
    file.write_text(CALIBRATION.format(**this_host(gradlane)))
    before = file.read_text()
    runtime = folder / "runtime"
    (runtime / "gradlane").mkdir(parents=True)
    places = {"XDG_RUNTIME_DIR": str(runtime), "GRADLANE_SOCKET": ""}
    words = ("--calibrate", "-o", str(file))
    other_daemons = any(pathlib.Path(each).exists() for each in ("/run/gradlane", f"/tmp/gradlane-{os.geteuid()}"))
    if not other_daemons:
        error = run(gradlane, *words, status=2, **places).stderr
        assert str(file) in error and "has links" in error and "--alone" in error, error
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(runtime / "gradlane" / "node0.sock"))
    error = run(gradlane, *words, status=2, **places).stderr
    assert "--alone" in error and (other_daemons or "no daemon listens" in error), error
    assert file.read_text() == before


def grid_of(gradlane):
    return run(gradlane, "--model", "resnet50", "--what-if", "nodes=4,8", "gbps=1,10,100", "batch=32,64", "--json").stdout


def check_grid(gradlane):
    cells = json.loads(grid_of(gradlane))["cells"]
    assert len(cells) == 12 and all(cell["step_ms"]["raw"] >= cell["alone_ms"] for cell in cells), cells


def check_pictures(gradlane, folder):
    grid = grid_of(gradlane)
    for name, magic in (("grid.png", b"\x89PNG"), ("grid.svg", b"<?xml")):
        subprocess.run([sys.executable, HEATMAP, "-o", folder / name], input=grid, text=True, check=True, timeout=PATIENCE)
        assert (folder / name).read_bytes().startswith(magic), name
    plan = run(gradlane, "--model", "resnet50", "--json").stdout
    for name, text, word in (("no.png", "no", "is not JSON"), ("no.png", "[1]", "has no cells"), ("no.png", plan, "has no cells"),
                             ("no.xyz", grid, ".png or .svg"), ("no/no.png", grid, f"no folder {folder / 'no'}")):
        broken = subprocess.run([sys.executable, HEATMAP, "-o", folder / name], input=text, text=True, capture_output=True)
        assert broken.returncode == 1 and word in broken.stderr and len(broken.stderr.splitlines()) == 1, broken


def check(gradlane):
    check_tables(gradlane)
    for arguments, words in ERRORS:
        error = run(gradlane, *arguments, status=2).stderr
        assert all(word in error for word in words), (arguments, error)
    with tempfile.TemporaryDirectory() as folder:
        check_json(gradlane, pathlib.Path(folder))
        check_widths(gradlane, pathlib.Path(folder))
        check_calibrations(gradlane, pathlib.Path(folder))
        check_measured(gradlane, pathlib.Path(folder))
        check_default(gradlane, pathlib.Path(folder))
        check_calibrating(gradlane, pathlib.Path(folder))
        check_daemons(gradlane, pathlib.Path(folder))
    check_grid(gradlane)


def check_more(gradlane):
    """Runs checks that take long, or need Matplotlib."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "text.yaml")
        text = run(gradlane, "--calibrate", "--alone", "-o", str(file)).stdout
        assert text.splitlines()[-1].endswith(f"gradlane plan --model resnet50 --calibration {file}"), text
        check_pictures(gradlane, pathlib.Path(folder))
