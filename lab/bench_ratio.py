"""bench_ratio.py - bytes of packets that codecs save, by `gradlane bench ratio`; the simulator counts, nothing is timed
"""

import json
import subprocess

from lab.results.experiment import ROOT, Batch, Experiment

RECORDINGS = tuple(f"{net}-{when}" for net in ("digits", "conv", "gpt") for when in ("early", "middle", "late"))
DATA = ("gauss-0.01", "laplace-1e-3", *RECORDINGS)


def batches(samples):
    return [Batch((data,), 20, data) for data in DATA if data not in samples]


def measure(batch, context):
    data = batch.argument
    path = f"tools/bench/recordings/{data}.npy" if data in RECORDINGS else data
    command = [str(context.gradlane), "bench", "ratio", "--data", path, "--json"]
    said = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    settings = {name: said[name] for name in ("nodes", "floats", "warmup", "exchanges")}
    rows = [[row["codec"], row["strategy"], row["raw_bytes"], row["bytes"], row["non_zero"]] for row in said["rows"]]
    yield data, {**settings, "rows": rows}, " ".join(["gradlane", *command[1:]])


def short(value):
    return f"{value:.3g}" if value < 99.95 else f"{value:.0f}"


def table(samples):
    measured = [data for data in DATA if data in samples]
    lines = ["| codec | strategy | " + " | ".join(measured) + " |", "|---" * (len(measured) + 2) + "|"]
    cells = {}
    for data in measured:
        for codec, strategy, raw, bytes_, non_zero in samples[data][-1]["rows"]:
            share = f"{100 * non_zero:.2g}" if non_zero < 0.0995 else f"{100 * non_zero:.0f}"
            cells.setdefault((codec, strategy), {})[data] = f"{short(raw / bytes_)} ({share} %)"
    for (codec, strategy), row in cells.items():
        lines.append(f"| `{codec}` | {strategy} | " + " | ".join(row.get(data, "-") for data in measured) + " |")
    return "\n".join(lines)


def settings_text(samples):
    if not samples:
        return "-"
    one = next(iter(samples.values()))[-1]
    return f"{one['nodes']} nodes, {one['floats']} floats each, MTU 1500, exchanges: {one['exchanges']} after {one['warmup']}"


def range_of(codec):
    """Returns a figure: the least and the greatest ratio of this codec over all recordings."""
    def text(samples):
        ratios = [row[2] / row[3] for data in RECORDINGS if data in samples for row in samples[data][-1]["rows"]
                  if row[0] == codec]
        if not ratios:
            return "-"
        low, high = short(min(ratios)), short(max(ratios))
        return low if low == high else f"{low} to {high}"

    return text


EXPERIMENT = Experiment(
    name="ratios",
    title="bytes of packets that codecs save",
    sources=("compress/**", "collectives/**", "sim/**", "tools/sim/ratio.cc", "tools/sim/gradients.*", "tools/bench/settle.*",
             "tools/bench/recordings/*.npy", "lab/bench_ratio.py"),
    batches=batches,
    measure=measure,
    figures={"table": table, "settings": settings_text, "bf16": range_of("bf16"), "fixed": range_of("fixed:10"),
             "signsgd": range_of("signsgd"), "topk": range_of("topk:1%+fixed:10"), "dgc": range_of("dgc:0.1%")},
    timed=False,
)
