"""summaries.py - short tables of experiments whose own tables are part of their sources

A change of a file that an experiment lists as a source makes its samples stale. These tables are in no such list.
"""

import statistics

from lab import bench_ratio
from lab.papers import codec_speed
from lab.results.experiment import Combination
from lab.results.texts import range_text

MODELS = ("digits", "conv", "gpt")  # of recordings: each early, in the middle and late


def between(values, text):
    """Returns "3.11 to 5.4": the least and the greatest value."""
    ends = dict.fromkeys(text(end) for end in (min(values), max(values)))
    return " to ".join(ends)


def ratios_by_model(samples):
    """Returns a table of ratios: a row for each codec, the range over a model's recordings, and of the shares of values
    that are not 0."""
    found = {}
    for data, runs in samples["ratios"].items():
        for codec, strategy, raw, sent, nonzero in runs[-1]["rows"]:
            found.setdefault((codec, strategy), {})[data] = raw / sent, nonzero
    rows = ["| codec | algorithm | gauss-0.01 | " + " | ".join(MODELS) + " | values that are not 0, recordings |",
            "|---|---|---:|" + "---:|" * (len(MODELS) + 1)]
    for (codec, strategy), by_data in found.items():
        recorded = {model: [each for data, each in by_data.items() if data.startswith(model)] for model in MODELS}
        spans = [between([ratio for ratio, _ in each], bench_ratio.short) for each in recorded.values()]
        shares = between([100 * share for each in recorded.values() for _, share in each], lambda share: f"{share:.0f}" if share > 9.5 else f"{share:.2g}")
        rows.append(f"| `{codec}` | {strategy} | {bench_ratio.short(by_data['gauss-0.01'][0])} | {' | '.join(spans)} | "
                    f"{shares} % |")
    return "\n".join(rows)


def codec_speeds(samples):
    """Returns a table with a row for each codec and size: gradlane's speed, and how many times as fast as PyTorch it is;
    ranges over data and runs."""
    rows = ["| codec | tensor | encode, GB/s | times as fast as PyTorch | decode, GB/s | times as fast as PyTorch |",
            "|---|---|---:|---:|---:|---:|"]
    for codec in codec_speed.CODECS:
        sizes = dict.fromkeys(key.split("/")[1] for key in samples["codec-speed"] if key.split("/")[0] == codec)
        for size in sorted(sizes, key=lambda text: int(text.split()[0])):
            runs = [run for key, every in samples["codec-speed"].items() if key.split("/")[:2] == [codec, size]
                    for run in every]
            cells = []
            for operation in codec_speed.OPERATIONS:
                pairs = [codec_speed.speeds(run, operation) for run in runs]
                ratios = [ours / theirs for ours, theirs in pairs]
                bold = "**" if statistics.median(ratios) < 1 else ""
                cells += [range_text([ours for ours, _ in pairs], 1), f"{bold}{range_text(ratios, 2)}{bold}"]
            rows.append(f"| `{codec}` | {size} | {' | '.join(cells)} |")
    return "\n".join(rows)


RATIOS = Combination(name="ratio-summary", of=("ratios",), figures={"table": ratios_by_model})
CODEC_SPEEDS = Combination(name="codec-speed-summary", of=("codec-speed",), figures={"table": codec_speeds})
