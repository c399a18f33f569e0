#!/usr/bin/python3
"""when_it_pays.py GRADLANE - writes docs/when-it-pays.md and its pictures from the output of `gradlane plan`."""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lab.plan import heatmap  # noqa: E402
from lab.compare.style import plt  # noqa: E402

PAGE = ROOT / "docs" / "when-it-pays.md"
PICTURES = ROOT / "docs" / "results"
MODELS = ("resnet50", "vgg19", "bert-base", "gpt2")
DENSE = ("bf16", "fixed:10", "int8", "qsgd:4")  # codecs for which the model's times are not known to be far too low
GRID = ("nodes=4,16,64", "gbps=0.1..400")
PICTURE_GRID = ("nodes=4..96", "gbps=0.1..400", "batch=16,64", "compute=1,4")
PORTS = (("card", 4), ("udp", 4))

HEAD = """# When it pays to compress, and when not

Written, all of it, by

    lab/plan/when_it_pays.py build/tools/gradlane

What is here is reckoned, not measured: with [the model of `gradlane plan`](plan.md#the-model) and the figures that it
has without a calibration, computing as on a V100. Of ports of kind `card` no figures were ever measured; they are an
estimate. How small codecs make gradients is that of independent floats of N(0, 0.01), not of a training's. Codecs and
packets run on four cores of their own. Tensors are in the host's memory: what copying from a GPU takes is in none of
these, the paper's codecs run on the GPU itself, and whatever a codec does to accuracy is left out,
too. For `direct` with codecs of much less than a byte per element the model is known to be too low, by up to 78 %
([plan.md](plan.md#the-model)): `signsgd` and `dgc:1%` may take more than four times what is reckoned with. Cells are
therefore counted twice: with all codecs, and without these two.

Each cell has the fastest codec, and how many times as fast a step is as with **plain**: an exchange that fills the
links, uncompressed, and costs no core at all: without switches that add, no library is faster than that. Codecs are
`bf16`, `fixed:10`, `int8`, `qsgd:4`, `signsgd` and `dgc:1%`; of those that bring 3 % and are within 3 % of the fastest
the first one counts.
**Where plain is in a cell, compressing loses, or brings less than 3 %**, and the number is what gradlane's best gets
there.
"""

PAPER = """## The set-ups of MLSys 2022

On the Utility of Gradient Compression (MLSys 2022) finds that 6 of more than 200 set-ups gain in data centres, and
that compressing pays below about 8 Gb/s. Its model, with the constants that were published, gives for ResNet-50,
ResNet-101 and BERT-base, 4, 8, 16, 32, 64, 96 workers, batches of 16, 32, 64 and its codecs (PowerSGD of rank 4, 8,
16, SignSGD, Top-k of 20, 10, 1 %):

```
{paper}
```

Which set-ups the paper counts it does not list, so our grid is another one, and these are not its 6: at 10 Gb/s more
of ours gain, most of them with batches of 16 and 32, which compute for so short a time that even 45 ms of PowerSGD are
less than what they wait for. With batches of 64 gains are few at 10 Gb/s and next to none from 15 Gb/s on. Of the
constants, encoding and decoding were published for ResNet-50 alone; that of other models is taken to grow with their
elements, and backward of other models follows from their multiply-adds. For ResNet-101 on 96 GPUs at 10 Gb/s sync-SGD
takes 302 ms here (265 published), and SignSGD 685 by the paper's formula, where it published 1042. What may be missing
is decoding the votes of all others: column `fitted` has a term for it, 2.22 ms of ResNet-50 for each worker beyond
four, which the paper does not have and which was fitted to that one point. It changes little: at 10 Gb/s 104 set-ups
gain with it, 111 without.

gradlane's codecs gain in all of them up to 8 Gb/s by this model, because they take cores that do not compute
gradients, tenths of a nanosecond per element instead of nanoseconds, and each bucket while the next one is computed.
That is the claim, and its limits: four cores of each host are spent on it, gradients must come to the host's memory,
at 10 Gb/s one of them gains nothing, and from there on some of the gains are below 5 %, at 30 Gb/s almost half of
them. For a set-up to count, sync-SGD has to be slower both in the paper's buckets and in those of
DistributedDataParallel. Without `signsgd` and `dgc:1%`, which the model may be too kind to:

```
{paper_dense}
```

With UDP sockets in the place of cards, all six:

```
{paper_udp}
```
"""


def ask(gradlane, *words):
    return subprocess.run([gradlane, "plan", "--calibration", "none", *words], check=True, capture_output=True, text=True).stdout


def grid_of(gradlane, model, port, lanes, ranges):
    return json.loads(ask(gradlane, "--model", model, "--port", port, "--lanes", str(lanes), "--json", "--what-if", *ranges))


def table(grid):
    cells = grid["cells"]
    rates = sorted({each["gbps"] for each in cells})
    lines = ["| nodes | " + " | ".join(f"{rate:g}" for rate in rates) + " |", "|---" * (len(rates) + 1) + "|"]
    for nodes in sorted({each["nodes"] for each in cells}):
        found = {each["gbps"]: each for each in cells if each["nodes"] == nodes}
        row = (f"{found[rate]['winner'] or '**plain**'} {found[rate]['speedup']:.2f}" for rate in rates)
        lines.append(f"| {nodes:g} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def counts(paper):
    """Returns the table of the output of `gradlane plan --paper`, without the lines above it."""
    return paper[paper.index(" Gb/s |"):].rstrip()


def write(gradlane):
    parts = [HEAD]
    for port, lanes in PORTS:
        parts.append(f"## Ports of kind {port}\n\nColumns: Gb/s of each link.\n")
        for model in MODELS:
            grid = grid_of(gradlane, model, port, lanes, GRID)
            cells = grid["cells"]
            lost = sum(not each["winner"] for each in cells)
            batch, alone = cells[0]["batch"], cells[0]["alone_ms"]
            dense = grid_of(gradlane, model, port, lanes, (*GRID, "--codecs", *DENSE))["cells"]
            lost_dense = sum(not each["winner"] for each in dense)
            parts.append(f"**{model}**, batch {batch:g}, {alone:.0f} ms a step without an exchange; plain wins {lost} of "
                         f"{len(cells)} cells, {lost_dense} without `signsgd` and `dgc:1%`:\n\n{table(grid)}\n")
    parts.append("## Batches, faster computing, and what encoding may take\n\n"
                 f"`gradlane plan --port card --lanes 4 --json --what-if {' '.join(PICTURE_GRID)} --model MODEL |\n"
                 "lab/plan/heatmap.py -o FILE.png`. The last picture of each: what a codec would bring that takes so long "
                 "and\nmakes bytes so much smaller; red loses.\n")
    PICTURES.mkdir(exist_ok=True)
    for model in ("resnet50", "bert-base"):
        figure = heatmap.draw(grid_of(gradlane, model, *PORTS[0], PICTURE_GRID))
        figure.savefig(PICTURES / f"when-it-pays-{model}.png", dpi=80)
        plt.close(figure)
        parts.append(f"![{model}](results/when-it-pays-{model}.png)\n")
    parts.append(PAPER.format(paper=ask(gradlane, "--paper", "--port", "card", "--lanes", "4").strip(),
                              paper_dense=counts(ask(gradlane, "--paper", "--port", "card", "--lanes", "4", "--codecs",
                                                     *DENSE)),
                              paper_udp=ask(gradlane, "--paper", "--port", "udp", "--lanes", "4").strip()))
    PAGE.write_text("\n".join(parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane", help="the program")
    write(parser.parse_args().gradlane)


if __name__ == "__main__":
    main()
