"""simulated.py - experiment `simulated`: all-reduces by `gradlane sim`; the simulator counts virtual time, so that each
run has the same result"""

import json
import re
import subprocess

from lab.results.experiment import CODECS, Batch, Experiment
from lab.results.texts import size_text, time_text

BOTH = "--codec raw fixed:10"
STRATEGIES = (f"--nodes 4,16,64 --size 4K {BOTH} --strategy ring,direct",
              f"--nodes 16,64 --size 64K {BOTH} --strategy ring,direct,rings:8",
              f"--nodes 64 --size 1M {BOTH} --strategy ring,direct,rings:8",
              f"--nodes 16 --size 16M {BOTH} --strategy ring,direct",
              f"--nodes 16 --size 16M {BOTH} --strategy ring,direct --loss 1%")
LOSSES = tuple(f"--nodes 4,16,64 --size 16M {BOTH} --loss {loss}" for loss in ("0", "0.1%", "1%"))
PAPER = ("--nodes 4,8,16 --size 16M --codec raw --strategy ring,direct,aggregator:0 --play aggregators:4 "
         "rings-aggregator:4",)
KEPT = ("nodes", "bytes", "strategy", "codec", "seconds", "wa_seconds", "star_seconds", "wrong", "failure")
NOTHING = "not measured"


def batches(samples):
    return [Batch((options,), 40, options) for options in (*STRATEGIES, *LOSSES, *PAPER) if options not in samples]


def measure(batch, context):
    command = [str(context.gradlane), "sim", *batch.argument.split(), "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout)
    bad = [row for row in said["rows"] if row["wrong"] or row["failure"]]
    if bad:
        raise RuntimeError(f"gradlane sim {batch.argument}: wrong results: {bad}")
    rows = [{name: row[name] for name in KEPT} for row in said["rows"]]
    yield batch.argument, rows, f"gradlane sim {batch.argument}"


def rows_of(samples, several):
    """Yields (loss, row) of several keys, in their order."""
    for options in several:
        loss = re.search(r"--loss (\S+)", options)
        for row in samples.get(options, [[]])[-1]:
            yield loss[1] if loss else "0", row


def table(heads, cells):
    """Returns a table from cells {(first, second, ...): {head: text}}."""
    if not cells:
        return NOTHING
    columns = list(dict.fromkeys(head for row in cells.values() for head in row))
    lines = ["| " + " | ".join([*heads, *columns]) + " |", "|---" * len(heads) + "|---:" * len(columns) + "|"]
    for firsts, row in cells.items():
        lines.append("| " + " | ".join([*firsts, *(row.get(column, "") for column in columns)]) + " |")
    return "\n".join(lines)


def seconds_text(seconds):
    return time_text(1e6 * seconds)


def strategies(samples):
    """Returns a table of times by strategy. Times that are longer than the ring's are bold."""
    cells, ring = {}, {}
    for loss, row in rows_of(samples, STRATEGIES):
        firsts = (str(row["nodes"]), size_text(row["bytes"]), "" if loss == "0" else loss, f"`{row['codec']}`")
        ring.setdefault(firsts, row["seconds"])
        text = seconds_text(row["seconds"])
        cells.setdefault(firsts, {})[f"`{row['strategy']}`"] = f"**{text}**" if row["seconds"] > ring[firsts] else text
    return table(("ranks", "size", "loss", "codec"), cells)


def losses(samples):
    """Returns a table of times of a ring by loss of packets."""
    cells = {}
    for loss, row in rows_of(samples, LOSSES):
        head = "no loss" if loss == "0" else loss
        cells.setdefault((str(row["nodes"]), f"`{row['codec']}`"), {})[head] = seconds_text(row["seconds"])
    return table(("ranks", "codec"), cells)


def paper(samples):
    """Returns a table of the systems of the INCEPTIONN paper, beside its formula."""
    cells = {}
    for _, row in rows_of(samples, PAPER):
        cells.setdefault((str(row["nodes"]),), {})[f"`{row['strategy']}`"] = seconds_text(row["seconds"])
        if row["star_seconds"]:
            cells[str(row["nodes"]),]["2 (p - 1) n beta, with headers"] = seconds_text(row["star_seconds"])
    for _, row in rows_of(samples, PAPER):
        cells[str(row["nodes"]),]["(p + log p) n beta"] = seconds_text(row["wa_seconds"])
    return table(("ranks",), cells)


def time_of(nodes, size, codec, strategy):
    """Returns a figure: the time of one row without loss."""
    def text(samples):
        found = [row["seconds"] for loss, row in rows_of(samples, STRATEGIES) if loss == "0" and
                 (row["nodes"], row["bytes"], row["codec"], row["strategy"]) == (nodes, size, codec, strategy)]
        return seconds_text(found[0]) if found else NOTHING

    return text


EXPERIMENT = Experiment(
    name="simulated",
    title="all-reduces on simulated networks",
    sources=(*CODECS, *(f"collectives/{name}/**" for name in ("exchange", "link", "strategy")), "sim/**", "tools/sim/**",
             "lab/simulated.py"),
    batches=batches,
    measure=measure,
    figures={"strategies": strategies, "losses": losses, "paper": paper,
             **{f"{strategy}-{nodes}-ranks-{name}": time_of(nodes, size, "raw", strategy) for strategy in ("ring", "direct")
                for nodes, name, size in ((16, "64-KiB", 1 << 16), (64, "4-KiB", 1 << 12), (16, "16-MiB", 1 << 24))}},
    timed=False,
)
