"""accelerator.py - experiment `accelerator`: streams of floats between two hosts, each behind an accelerator

An ordinary program sends them by TCP (tools/demo/float_stream.py), over a wire with a token bucket, without a mark and
marked with ToS 0x28. Each float that arrives is checked against the codec's bound.
"""

import statistics
import tempfile

from lab.net import bumps
from lab.results.experiment import Batch, Experiment
from lab.results.texts import ratio_text, slug

MARKED = 0x28
DATA = "laplace-1e-3"
KINDS = {"alone": {"repack": False}, "repacked": {}, "repacked, superpackets": {"superpackets": True}}
STREAMS = {f"{rate}, {kind}": (rate, options) for rate in ("200mbit", "1gbit") for kind, options in KINDS.items()}
UNMARKED = "not marked"
FLOATS = 1 << 24  # 64 MiB over RATE, for the error bounds of the INCEPTIONN paper
RATE = "200mbit"
AMOUNTS = {UNMARKED: ("fixed:10", {}), **{
    f"{codec}{text}": (codec, {"repack": bool(text)}) for codec in (
        f"{kind}:{bits}" for bits in (6, 8, 10) for kind in ("inceptionn", "fixed")) for text in ("", ", repacked")}}
CODEC = "fixed:10"  # of streams
SECONDS = 4
RUNS = 3
NOTHING = "not measured"


def batches(samples):
    waiting = [(run, key) for key in (*STREAMS, *AMOUNTS) for run in range(len(samples.get(key, [])), RUNS)]
    return [Batch((key,), 12, (key, run)) for run, key in sorted(waiting, key=lambda each: each[0])]


def stream(net, codec, tos, **amount):
    bound = 2.0 ** -int(codec.partition(":")[2]) if tos else 0
    found = bumps.float_stream(net, tos=tos, bound=bound, data=DATA, **amount)
    if not found["right"]:
        raise RuntimeError(f"{codec}: the receiver got wrong floats: {found}")
    return {"mbps": round(found["goodput"] * 8e-6, 1), "seconds": round(found["seconds"], 4), "floats": found["floats"],
            "worst_error": found["worst_error"], "non_zero": found["non_zero"], **found["wire"]["to"]}


def streams(key, run, context):
    """Returns the values of one run of a key."""
    order = (("plain", 0), ("marked", MARKED))[:: 1 if run % 2 == 0 else -1]
    rate, codec, options = (RATE, *AMOUNTS[key]) if key in AMOUNTS else (STREAMS[key][0], CODEC, STREAMS[key][1])
    with tempfile.TemporaryDirectory(prefix="gradlane-lab-") as folder, bumps.Net(rate) as net, \
            bumps.Accelerators(net, context.gradlane.parent / "gradlaned", folder, codec, **options):
        # Marked packets pass uncompressed until the near accelerator knows of the far one.
        stream(net, codec, MARKED, floats=1 << 18)
        if key in AMOUNTS:
            return stream(net, codec, 0 if key == UNMARKED else MARKED, floats=FLOATS)
        return {name: stream(net, codec, tos, seconds=SECONDS) for name, tos in order}


def measure(batch, context):
    key, run = batch.argument
    try:
        values = streams(key, run, context)
    except bumps.Failed as error:
        raise RuntimeError(f"{key}: {error}") from error
    yield key, values, f"float_stream.py send: {key}"


def median(runs, *path):
    found = []
    for run in runs:
        for name in path:
            run = run[name]
        found.append(run)
    return statistics.median(found)


def gains(runs):
    return [run["marked"]["mbps"] / run["plain"]["mbps"] for run in runs]


def stream_table(samples):
    lines = ["| wire | marked packets | Mb/s of floats, not marked | marked | times as fast | floats per marked packet |",
             "|---|---|---:|---:|---:|---:|"]
    for key, (rate, _) in STREAMS.items():
        if key in samples:
            runs = samples[key]
            text = ratio_text(gains(runs))
            if statistics.median(gains(runs)) < 1:
                text = f"**{text}**"
            packed = median(runs, "marked", "floats") / median(runs, "marked", "packets")
            lines.append(f"| {rate} | {key.partition(', ')[2]} | {median(runs, 'plain', 'mbps'):.0f} | "
                         f"{median(runs, 'marked', 'mbps'):.0f} | {text} | {packed:.0f} |")
    return "\n".join(lines)


def bound_table(samples):
    lines = ["| | MB on the wire | packets | seconds | less time | largest error | floats that are not 0 |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for key in AMOUNTS:
        if key not in samples or UNMARKED not in samples:
            continue
        runs, plain = samples[key], median(samples[UNMARKED], "seconds")
        less = "" if key == UNMARKED else f"{100 * (1 - median(runs, 'seconds') / plain):.0f} %"
        lines.append(f"| {key if key == UNMARKED else f'`{key}`'.replace(', repacked`', '`, repacked')} | "
                     f"{median(runs, 'bytes') / 1e6:.1f} | {median(runs, 'packets'):.0f} | {median(runs, 'seconds'):.2f} | "
                     f"{less} | {max(run['worst_error'] for run in runs):.2g} | {non_zero(runs)} |")
    return "\n".join(lines)


def non_zero(runs):
    share = 100 * median(runs, "non_zero")
    return f"{share:.0f} %" if share >= 10 else f"{share:.2g} %"


def non_zero_of(samples):
    """Returns a figure: how many floats of a marked stream are not 0 at the receiver."""
    key = next(iter(STREAMS))
    return f"{100 * median(samples[key], 'marked', 'non_zero'):.0f} %" if key in samples else NOTHING


def gain_of(key):
    return lambda samples: ratio_text(gains(samples[key])) if key in samples else NOTHING


EXPERIMENT = Experiment(
    name="accelerator",
    title="streams of floats between hosts behind accelerators",
    sources=("compress/**", "base/**", "dataplane/**", "tools/demo/float_stream.py", "lab/net/bumps.py", "lab/net/spaces.py",
             "lab/accelerator.py"),
    batches=batches,
    measure=measure,
    figures={"streams": stream_table, "bounds": bound_table, "non-zero": non_zero_of, **{slug(f"gain {key}"): gain_of(key) for key in STREAMS}},
)
