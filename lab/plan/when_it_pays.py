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
# codecs without signsgd and dgc, for which the model's times are far too low
DENSE = ("bf16", "fixed:10", "int8", "qsgd:4")
GRID = ("nodes=4,16,64", "gbps=0.1..400")
PICTURE_GRID = ("nodes=4..96", "gbps=0.1..400", "batch=16,64", "compute=1,4")
PORTS = (("card", 4), ("udp", 4))

HEAD = """# When it pays to compress, and when not

This command writes this page:

    lab/plan/when_it_pays.py build/tools/gradlane

The figures are calculated, not measured: with [the model of `gradlane plan`](plan.md#the-model), its figures without a
calibration, and computing as fast as on a V100. The figures of ports of kind `card` are estimates, because no card was
measured. Compressed sizes are those of independent floats of N(0, 0.01), not those of a training's gradients. Codecs
and packets run on four cores that do nothing else. Tensors are in the host's memory. The figures contain neither the
time of copying from a GPU (the paper's codecs run on the GPU itself) nor what a codec does to accuracy. For `direct`
with codecs of much less than a byte per element, the times of the model are known to be too low, by up to 78 %
([plan.md](plan.md#the-model)): `signsgd` and `dgc:1%` may take more than four times as long as calculated. Cells are
therefore counted twice: with all codecs, and without these two.

Each cell has the fastest codec, and how many times as fast a step is as with **plain**. Plain is an uncompressed
exchange that fills the links and uses no core. Without switches that add, no library is faster than that. Codecs are
`bf16`, `fixed:10`, `int8`, `qsgd:4`, `signsgd` and `dgc:1%`. Of those that save at least 3 % and are within 3 % of the
fastest, the first one counts. **If plain is in a cell, compression is slower, or saves less than 3 %**; the number is
then the speed-up of gradlane's best choice.
"""

PAPER = """## The set-ups of MLSys 2022

On the Utility of Gradient Compression (MLSys 2022) finds that 6 of more than 200 set-ups gain in data centres, and
that compression pays below about 8 Gb/s. The following table has the results of its model, with the published
constants, for ResNet-50, ResNet-101 and BERT-base, 4, 8, 16, 32, 64 and 96 workers, batches of 16, 32 and 64, and its
codecs (PowerSGD of rank 4, 8, 16, SignSGD, Top-k of 20, 10, 1 %):

```
{paper}
```

The paper does not list the set-ups that it counts, so our grid is another one, and these are not its 6. At 10 Gb/s,
more of our set-ups gain. Most of them have batches of 16 and 32. These compute for such a short time that even the
45 ms of PowerSGD are less than the time that they wait for links. With batches of 64, few set-ups gain at 10 Gb/s, and
almost none from 15 Gb/s on. The paper has times of encoding and decoding only for ResNet-50. For other models we assume
that these times grow with the number of elements, and that the time of backward follows from the multiply-adds. For
ResNet-101 on 96 GPUs at 10 Gb/s, sync-SGD takes 302 ms here (265 published), and SignSGD takes 685 ms by the paper's
formula (1042 published). The formula may lack the decoding of the votes of all other workers. Column `fitted` has a
term for it: for ResNet-50, 2.22 ms for each worker beyond four. The paper does not have this term; it was fitted to
that one point. It changes little: at 10 Gb/s 104 set-ups gain with it, 111 without.

By this model, gradlane's codecs gain in all set-ups up to 8 Gb/s. They run on cores that do not compute gradients, take
tenths of a nanosecond per element instead of nanoseconds, and encode each bucket while the next one is computed. The
limits: four cores of each host are used for this, and gradients must come to the host's memory. At 10 Gb/s one set-up
gains nothing. From there on some of the gains are below 5 %, at 30 Gb/s almost half of them. A set-up counts only if
sync-SGD is slower both with the paper's buckets and with those of DistributedDataParallel. Without `signsgd` and
`dgc:1%`, whose times may be too low in the model:

```
{paper_dense}
```

With UDP sockets instead of cards, and all six codecs:

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
                 "lab/plan/heatmap.py -o FILE.png` draws these pictures. The last part of each has the speed-up by "
                 "a\ncodec's time and ratio; red means slower than plain.\n")
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
