"""systems.py - the paper's four systems: a step's time, split into computing, adding and exchanging (no PyTorch)"""

import json
import subprocess

from lab.study import plan

RECORDED = "tools/bench/recordings"
BLOCK = 1408  # bytes of fp32, about as many as in a packet of MTU 1500
TITLE = """# The paper's four systems: the results

`lab/study.sh --systems --write-docs` writes this page. [study.md](../study.md#the-papers-four-systems) says what they
are, and how a step is split.
"""
PICTURE = "study-systems.png"
PAPER = "70.9-80.7 %"


def adding_speeds(gradlane, root):
    """Returns, by codec, the GB/s of fp32 at which this machine decodes and adds with its fastest instructions."""
    codecs = ("raw", "fixed:10")
    words = [gradlane, "bench", "codec", "--quick", "--json", "--op", "decode_add", "--block", BLOCK, "--data",
             root / RECORDED / "digits-middle.npy", *(word for codec in codecs for word in ("--codec", codec))]
    result = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True)
    rows = json.loads(result.stdout)["rows"]
    return {codec: max(row["gb_per_s"] for row in rows if row["codec"] == codec) for codec in codecs}


def added_tensors(method, nodes):
    """Returns how many tensors the busiest node adds: an aggregator adds the tensors of all other nodes, a node of a
    ring adds (nodes - 1) / nodes of a tensor."""
    return nodes - 1 if method.strategy else (nodes - 1) / nodes


def split(model, row, settings):
    """Returns the ms of a step, and of its parts: computing, adding, exchanging."""
    method = plan.BY_NAME[row["method"]]
    step, computing = row["epoch_ms"] / row["steps"], model["compute_ms"] / row["steps"]
    speed = settings["add_gbps"][method.codec.partition("/")[0]]
    adding = added_tensors(method, settings["nodes"]) * 4 * model["parameters"] / speed / 1e6
    computing, adding = min(computing, step), min(adding, max(0.0, step - computing))
    return {"step": step, "computing": computing, "adding": adding, "exchanging": step - computing - adding}


def rows_of(model, settings):
    """Returns name, row and split of the systems that were measured. Returns [] if WA, the first one, was not measured.
    """
    by_method = {row["method"]: row for row in model["rows"]}
    if plan.SYSTEMS["WA"] not in by_method or "add_gbps" not in settings:
        return []
    return [(name, by_method[method], split(model, by_method[method], settings))
            for name, method in plan.SYSTEMS.items() if method in by_method]


def cells(model, settings):
    """Returns heads and rows of the table; None if there are no systems."""
    found = rows_of(model, settings)
    if not found:
        return None
    base = found[0][2]
    lines = []
    for name, row, parts in found:
        less = 1 - parts["exchanging"] / base["exchanging"] if base["exchanging"] else 0.0
        lines.append([
            name, row["method"], f"{parts['step']:.2f}", f"{parts['computing']:.2f}", f"{parts['adding']:.3f}",
            f"{parts['exchanging']:.2f}", f"{100 * parts['exchanging'] / parts['step']:.0f} %",
            "-" if name == "WA" else f"{100 * less:.1f} %", f"{base['step'] / parts['step']:.2f}x",
            "-" if row["step_bytes"] is None else f"{row['step_bytes'] / 1e6:.2f}", f"{row['accuracy']['mean']:.2f} %",
        ])
    lines.append(["the paper", "ring+C against WA", *["-"] * 5, PAPER, "2.2-3.1x", "-", "-"])
    return ["system", "method", "step (ms)", "computing", "adding", "exchanging", "share",
            "less exchanging than WA", "faster than WA", "sent per node and step (MB)", "final accuracy"], lines


def about(settings):
    speeds = settings["add_gbps"]
    return (f"The time of adding is calculated: the data that the busiest node adds, at the speed of decoding and "
            f"adding that `gradlane bench codec` measures on this machine ({speeds['raw']:.1f} GB/s of raw, "
            f"{speeds['fixed:10']:.1f} of fixed:10). Exchanging is the rest of a step.\n")
