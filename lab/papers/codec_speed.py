"""codec_speed.py - experiment `codec-speed`: HiPress' five codecs by gradlane and by PyTorch, on the same core

Each sample is a codec, a tensor's size and data: GB/s of fp32 by gradlane and by PyTorch, in turns. Encoding adds the
residual (terngrad has none), finds thresholds or scales, packs codes to bytes and keeps what is left; decoding writes
all elements. rivals.py has PyTorch's side, and docs/results/hipress.md says how the two differ.
"""

import json
import statistics
import subprocess

from lab.results.experiment import CODECS as SOURCES
from lab.results.experiment import ROOT, Batch, Experiment

CODECS = ("onebit", "tbq:7", "terngrad", "dgc:0.1%", "graddrop:0.1%")
SIZES = {"1 MiB": 1 << 20, "16 MiB": 16 << 20, "64 MiB": 64 << 20}
DATA = {"gauss-0.01": "gauss-0.01", "gpt-middle": "tools/bench/recordings/gpt-middle.npy"}
RUNS = 3
# PyTorch's arrays are in huge pages, as gradlane's are, and stay mapped.
HUGE_PAGES = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=1073741824"
OPERATIONS = ("encode", "decode")


def batches(samples):
    keys = [f"{codec}/{size}/{data}" for codec in CODECS for size in SIZES for data in DATA]
    missing = sorted(((len(samples.get(key, [])), key) for key in keys), key=lambda each: each[0])
    # The first run of a codec compiles PyTorch's code.
    return [Batch((key,), 25, key) for runs, key in missing if runs < RUNS]


def measure(batch, context):
    codec, size, data = batch.argument.split("/")
    spec = {"codec": codec, "bytes": SIZES[size], "data": DATA[data], "gradlane": str(context.gradlane)}
    command = [context.python, "-m", "lab.papers.codec_job", json.dumps(spec)]
    environment = context.environment() | {"GLIBC_TUNABLES": HUGE_PAGES}
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if said.returncode != 0:
        raise RuntimeError(f"{batch.argument}: {said.stderr[-2000:]}")
    yield batch.argument, json.loads(said.stdout), f"python -m lab.papers.codec_job '{json.dumps(spec | {'gradlane': 'gradlane'})}'"


# ---- Figures


def speeds(run, operation):
    """Returns the GB/s of (gradlane, PyTorch) in a run."""
    return tuple(statistics.median(run[side][operation]) for side in ("gradlane", "torch"))


def span(numbers, form):
    """Returns "12.3" or "11.2 to 14.0", the latter if runs differ by more than 15 %."""
    low, high = min(numbers), max(numbers)
    return form(statistics.median(numbers)) if high <= 1.15 * low else f"{form(low)} to {form(high)}"


def table(samples):
    lines = ["| codec | tensor | data | encode: gradlane | PyTorch | times as fast | decode: gradlane | PyTorch | times as fast |",
             "|---|---|---|" + "---:|" * 6]
    for key, runs in sorted(samples.items(), key=lambda each: (CODECS.index(each[0].split("/")[0]), each[0].split("/")[1:])):
        cells = []
        for operation in OPERATIONS:
            pairs = [speeds(run, operation) for run in runs]
            cells += [span([ours for ours, _ in pairs], lambda x: f"{x:.3g}"), span([theirs for _, theirs in pairs], lambda x: f"{x:.3g}"),
                      span([ours / theirs for ours, theirs in pairs], lambda x: f"{x:.2g}")]
        codec, size, data = key.split("/")
        lines.append(f"| `{codec}` | {size} | {data} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


EXPERIMENT = Experiment(
    name="codec-speed",
    title="HiPress' codecs by gradlane and by PyTorch",
    sources=(*SOURCES, "tools/bench/*.cc", "tools/bench/*.h", "sim/data.*", "lab/papers/codec_speed.py", "lab/papers/codec_job.py", "lab/papers/rivals.py"),
    batches=batches,
    measure=measure,
    figures={"table": table},
)
