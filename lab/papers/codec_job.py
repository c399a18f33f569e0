"""codec_job.py - times a codec by gradlane and by PyTorch in turns, on one core; prints JSON

The JSON has GB/s of fp32, and of sparse codecs in PyTorch the share of elements that one encode sent.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy
import torch

from lab.papers import rivals

ROUNDS = 3
# Operations of `gradlane bench codec` that encoding has. terngrad has no residual.
ENCODING = {"onebit": ("encode_feedback",), "tbq:7": ("encode_feedback",), "terngrad": ("look", "encode"),
            "dgc:0.1%": ("look_feedback", "encode_feedback"), "graddrop:0.1%": ("look_feedback", "encode_feedback")}
SECONDS = 0.15  # of each PyTorch sample


def gradients_of(data, floats):
    """Returns gradients of the kind that `gradlane bench codec` has for this data: of recordings one rank's."""
    if data.endswith(".npy"):
        recorded = numpy.load(data)[0].astype(numpy.float32)
        return torch.from_numpy(numpy.resize(recorded, floats))
    return torch.from_numpy(numpy.random.default_rng(1).standard_normal(floats, dtype=numpy.float32)) * 0.01


def speed(floats, function, prepare=lambda: None):
    """Returns GB/s of fp32: the median of calls in SECONDS, at least three. `prepare` is not timed."""
    times, end = [], time.perf_counter() + SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        prepare()
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return round(4e-9 * floats / statistics.median(times), 3)


def gradlane_json(spec, *words):
    return json.loads(subprocess.run([spec["gradlane"], *words], check=True, capture_output=True, text=True).stdout)


def gradlane_speed(spec, isa):
    """Returns GB/s of encoding, with the pass that finds thresholds or scales, and of decoding."""
    passes = ENCODING[spec["codec"]]
    rows = gradlane_json(spec, "bench", "codec", "--json", "--codec", spec["codec"], "--isa", isa, "--block", str(spec["bytes"]),
                         "--data", spec["data"], "--op", *passes, "decode")["rows"]
    # A recording also has rows with the sum of all ranks.
    name = pathlib.Path(spec["data"]).stem if spec["data"].endswith(".npy") else spec["data"]
    found = {row["op"]: row["gb_per_s"] for row in rows if row["data"] == name}
    return {"encode": 1 / sum(1 / found[each] for each in passes), "decode": found["decode"]}


def main():
    spec = json.loads(sys.argv[1])
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    floats = spec["bytes"] // 4
    gradients = gradients_of(spec["data"], floats)
    rival = rivals.RIVALS[spec["codec"]](floats)
    found = {"gradlane": {"encode": [], "decode": []}, "torch": {"encode": [], "decode": []}}
    isa = gradlane_json(spec, "codecs", "--no-measure", "--json")["isa"]
    for _ in range(ROUNDS):
        for operation, value in gradlane_speed(spec, isa).items():
            found["gradlane"][operation].append(round(value, 3))
        rival.forget()
        encoded = rival.encode(gradients)
        rival.decode(encoded)
        found["torch"]["encode"].append(speed(floats, lambda: rival.encode(gradients), rival.forget))
        found["torch"]["decode"].append(speed(floats, lambda: rival.decode(encoded)))
        if isinstance(rival, rivals.Sparse):
            found["torch"]["sent"] = encoded[0].numel() / floats
    print(json.dumps(found))


if __name__ == "__main__":
    main()
