"""mlsys.py - the model of MLSys 2022 beside what was published, by `gradlane plan --paper`; nothing is timed"""

import json
import subprocess

from lab.results.experiment import Batch, Experiment

GROUPS = ("ResNet-50, batch 64", "ResNet-101, batch 64", "batch 16 and 32, BERT-base")
VERDICTS = ("gains", "unclear", "loses")


def group_of(setup):
    if setup["published"]:
        return GROUPS[0]
    return GROUPS[1] if setup["model"] == "resnet101" and setup["batch"] == 64 else GROUPS[2]


def counts_of(setups):
    """Returns {Gb/s: {group: [set-ups that gain, that are unclear, that lose]}}."""
    found = {}
    for setup in setups:
        groups = found.setdefault(f"{setup['gbps']:g}", {group: [0, 0, 0] for group in GROUPS})
        groups[group_of(setup)][VERDICTS.index(setup["verdict"])] += 1
    return found


def batches(samples):
    return [] if "model" in samples else [Batch(("model",), 1)]


def measure(_, context):
    command = [str(context.gradlane), "plan", "--paper", "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    values = {"tolerance": said["tolerance"], "numbers": said["numbers"], "counts": counts_of(said["setups"])}
    yield "model", values, "gradlane plan --paper --json"


def numbers(samples):
    if "model" not in samples:
        return "-"
    values = samples["model"][-1]
    lines = ["| batch 64, 10 Gb/s | published | model | off by | |", "|---|---:|---:|---:|---|"]
    for each in values["numbers"]:
        low, high = f"{each['least']:.3g}", f"{each['most']:.3g}"
        met = "met" if each["error"] <= values["tolerance"] else "**missed**"
        lines.append(f"| {each['what']} | {each['published']:g} {each['unit']} | {low}{' to ' + high if high != low else ''} "
                     f"{each['unit']} | {100 * each['error']:.0f} % | {met} |")
    return "\n".join(lines)


def met(samples):
    """Returns "1 of 3": how many published numbers the model meets."""
    if "model" not in samples:
        return "-"
    values = samples["model"][-1]
    errors = [each["error"] for each in values["numbers"]]
    return f"{sum(error <= values['tolerance'] for error in errors)} of {len(errors)}"


def counts(samples):
    if "model" not in samples:
        return "-"
    values = samples["model"][-1]["counts"]
    lines = ["| Gb/s | " + " | ".join(GROUPS) + " |", "|---:" * (len(GROUPS) + 1) + "|"]
    for rate, groups in values.items():
        cells = (f"{groups[each][0]} + {groups[each][1]} of {sum(groups[each])}" for each in GROUPS)
        lines.append(f"| {rate} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


EXPERIMENT = Experiment(
    name="mlsys",
    title="the model of MLSys 2022 beside what was published",
    sources=("collectives/cost/mlsys.*", "collectives/cost/models.cc", "tools/plan/paper.cc", "lab/papers/mlsys.py"),
    batches=batches,
    measure=measure,
    figures={"numbers": numbers, "met": met, "counts": counts},
    timed=False,
)
