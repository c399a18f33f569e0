"""tables.py - tables of the experiment `accuracy`"""

import math
import statistics

from lab.results.texts import slug
from lab.study import methods

TARGET_BELOW = 0.5  # points below the final accuracy of fp32 with the same seed
TARGET_ABOVE = 0.01  # share above the final loss of fp32 with the same seed


def by_loss(model):
    return model not in methods.DIGITS


def runs_of(samples, model, name):
    """Returns {seed: result} of the trainings of a method."""
    found = {}
    for key, runs in samples.items():
        of, seed, method = key.split("/", 2)
        if (of, method) == (model, name):
            found[int(seed)] = runs[-1]
    return dict(sorted(found.items()))


def curve(model, run):
    return run["loss" if by_loss(model) else "accuracy"]


def difference(model, run, base):
    """Returns the difference of final accuracy to `base` in points; the difference of final loss in %."""
    own, other = curve(model, run)[-1], curve(model, base)[-1]
    return 100 * (own / other - 1) if by_loss(model) else own - other


def is_met(model, value):
    """Whether a difference() is within the target."""
    return value <= 100 * TARGET_ABOVE if by_loss(model) else value >= -TARGET_BELOW


def epochs_to(model, run, base):
    """Returns the first epoch in which the training is as good as the last one of `base`, less the target's margin;
    None if there is none."""
    last = curve(model, base)[-1]
    for epoch, value in enumerate(curve(model, run), 1):
        if value <= (1 + TARGET_ABOVE) * last if by_loss(model) else value >= last - TARGET_BELOW:
            return epoch
    return None


def effect(samples, model, name, seeds=None):
    """Returns what a method does to trainings of a model, over the seeds that Gloo has, too; None if there are none:

    - seeds: their number
    - final: accuracy in %, or loss: the mean
    - difference, error: mean and standard error of difference() from fp32 with the same seed
    - met: whether the mean difference is within the target
    - epochs: how many epochs the method needs to the target, in each seed; None where it was not reached
    - base_epochs: the same of fp32
    - identical: whether all ranks had the same weights
    """
    base = runs_of(samples, model, methods.GLOO)
    runs = {seed: run for seed, run in runs_of(samples, model, name).items() if seed in base and seed in (seeds or base)}
    if not runs:
        return None
    differences = [difference(model, run, base[seed]) for seed, run in runs.items()]
    mean = statistics.fmean(differences)
    return {
        "seeds": len(runs),
        "final": statistics.fmean(curve(model, run)[-1] for run in runs.values()),
        "difference": mean,
        "error": statistics.stdev(differences) / len(runs) ** 0.5 if len(runs) > 1 else None,
        "met": is_met(model, mean),
        "epochs": [epochs_to(model, run, base[seed]) for seed, run in runs.items()],
        "base_epochs": [epochs_to(model, base[seed], base[seed]) for seed in runs],
        "identical": all(run["identical"] for run in runs.values()),
    }


# ---- Tables


def final(model, value):
    return f"{value:.3f}" if by_loss(model) else f"{value:.2f} %"


def with_error(model, value, error):
    unit = " %" if by_loss(model) else ""
    return f"{value:+.2f}{unit}" + ("" if error is None else f" ± {error:.2f}")


def cells(samples, model, name, seeds=None):
    """Returns cells of a table: final value, difference, epochs; [] if the method was not measured."""
    found = effect(samples, model, name, seeds)
    if found is None:
        return []
    reached = [epoch for epoch in found["epochs"] if epoch]
    epochs = f"{statistics.fmean(reached):.1f}" if len(reached) == found["seeds"] else f"{len(reached)} of {found['seeds']} seeds"
    shown = with_error(model, found["difference"], found["error"])
    return [final(model, found["final"]), shown if found["met"] else f"**{shown}**", epochs,
            "" if found["identical"] else "**replicas differ**"]


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def effect_cell(found):
    """Returns "-0.42 ± 0.14 (11.5)" from cells(): the difference from Gloo, and the epochs to the target."""
    if not found:
        return ""
    return f"{found[1]} ({found[2]})" + (f" {found[3]}" if found[3] else "")


def effects_table(names, models, seeds=methods.SEEDS):
    """Returns a function that makes a table of methods: the difference from Gloo for each model, and in brackets the mean
    number of epochs to the target, or with how many seeds it was reached."""
    def make(samples):
        found = {name: [cells(samples, model, name, seeds) for model in models] for name in names}
        heads = [f"{model}, {'loss' if by_loss(model) else 'points'} (epochs)" for model in models]
        return table(["method", *heads], [[f"`{name}`", *map(effect_cell, each)] for name, each in found.items() if any(each)])

    return make


# Intervals of agreement() that are wider say nothing: points of accuracy, and % of a loss.
SEEN = (2, 10)
# Two-sided 99 % quantiles of Student's t distribution, by degrees of freedom.
T99 = {1: 63.66, 2: 9.92, 3: 5.84, 4: 4.60, 5: 4.03, 6: 3.71, 7: 3.50}


def interval(values):
    """Returns (mean, half of the 99 % confidence interval) of values that differ at random."""
    return statistics.fmean(values), T99[len(values) - 1] * statistics.stdev(values) / len(values) ** 0.5


def agreement(samples):
    """Returns a table of gradlane's codecs and the plain hooks of the same algorithm and scope: final accuracies, how far
    the whole curves and the losses after the first epoch are apart, and whether these differences can be random."""
    rows = []
    for own, other, *_ in methods.HIPRESS.values():
        for model in methods.DIGITS:
            ours = runs_of(samples, model, own.name)
            pairs = [(run, ours[seed]) for seed, run in runs_of(samples, model, other.name).items() if seed in ours]
            if len(pairs) < 2:
                continue
            apart = interval([statistics.fmean(run["accuracy"]) - statistics.fmean(mine["accuracy"]) for run, mine in pairs])
            first = interval([100 * math.log(run["loss"][0] / mine["loss"][0]) for run, mine in pairs])
            same = sum(run["hash"] == mine["hash"] for run, mine in pairs)
            differs = any(abs(mean) > half for mean, half in (apart, first))
            agree = ("same bits" if same == len(pairs) else "**no**" if differs
                     else "yes" if apart[1] <= SEEN[0] and first[1] <= SEEN[1] else "cannot say")
            rows.append([f"`{own.codec}`", model, str(len(pairs)),
                         final(model, statistics.fmean(mine["accuracy"][-1] for _, mine in pairs)),
                         final(model, statistics.fmean(run["accuracy"][-1] for run, _ in pairs)),
                         "{:+.2f} ± {:.2f}".format(*apart), "{:+.1f} ± {:.1f} %".format(*first), agree])
    return table(["codec", "model", "seeds", "final: gradlane", "final: plain", "mean of all epochs, points",
                  "loss after the first epoch", "agree"], rows)


def best_trial(samples, algorithm):
    """Returns the trial that is chosen for an algorithm: the one whose difference from Gloo, on the model on which it does
    worse, is the best; of equal ones the first. It must have all TUNING_SEEDS, and `dgc` a momentum, because it is
    GradDrop without. None if a trial is not complete."""
    tried = [method for method in methods.TRIALS[algorithm] if ",m=0" not in method.codec.replace(",m=0.", "")]
    found = {method: [effect(samples, model, method.name, methods.TUNING_SEEDS) for model in methods.DIGITS] for method in tried}
    if any(each is None or each["seeds"] < len(methods.TUNING_SEEDS) for both in found.values() for each in both):
        return None
    return max(tried, key=lambda method: min(each["difference"] for each in found[method]))


# docs/accuracy.md shows these methods, under these words.
ADVICE = [
    ("`onebit`", "onebit"),
    ("the same after 1 of 15 epochs without a codec", "onebit; 1 exact epochs"),
    ("the same after 4 of 15 epochs without a codec", "onebit; 4 exact epochs"),
    ("`onebit`, half the rate", "onebit; rate 0.5"),
    ("`onebit`, no momentum, 4 times the rate", "onebit; rate 4; momentum 0"),
    ("`tbq:7`", "tbq:7"),
    ("`tbq:7`, no momentum, 4 times the rate", "tbq:7; rate 4; momentum 0"),
    ("`graddrop:1%`", "graddrop:1%"),
    ("the same after 2 epochs of 25 % and 4 of 6.25 %", "graddrop:1%; ramp 25% x2, 6.25% x4"),
    ("`graddrop:1%`, no momentum, 4 times the rate", "graddrop:1%; rate 4; momentum 0"),
    ("`dgc:0.1%` after the paper's warm-up of 4 epochs",
     "dgc:0.1%; ramp 25% x1, 6.25% x1, 1.5625% x1, 0.4% x1; momentum 0"),
    ("`dgc:1%`", "dgc:1%; momentum 0"),
    ("`dgc:1%` after 2 epochs of 25 % and 4 of 6.25 %", "dgc:1%; ramp 25% x2, 6.25% x4; momentum 0"),
    ("`dgc:1%,m=0.5`, 4 times the rate", "dgc:1%,m=0.5; rate 4; momentum 0"),
    ("`terngrad`", "terngrad"),
    ("fp32, no momentum, 4 times the rate", f"{methods.GLOO}; rate 4; momentum 0"),
]
GPT_ADVICE = [
    ("`topk:1%`", "topk:1%"),
    ("the same after 1 epoch of 25 % and 1 of 6.25 %", "topk:1%; ramp 25% x1, 6.25% x1"),
    ("the same after 2 epochs of 25 % and 4 of 6.25 %", "topk:1%; ramp 25% x2, 6.25% x4"),
    ("the same after 1 epoch without a codec", "topk:1%; 1 exact epochs"),
    ("the same after 4 epochs without a codec", "topk:1%; 4 exact epochs"),
    ("`dgc:1%`", "dgc:1%"),
    ("the same after 2 epochs of 25 % and 4 of 6.25 %", "dgc:1%; ramp 25% x2, 6.25% x4"),
    ("`onebit`", "onebit"),
    ("the same after 4 epochs without a codec", "onebit; 4 exact epochs"),
]


def advice(models, rows):
    """Returns a function that makes a table of differences from Gloo."""
    def make(samples):
        found = [[words, *((cells(samples, model, name, methods.SEEDS) or ["", "not measured"])[1] for model in models)]
                 for words, name in rows]
        return table(["settings", *models], found)

    return make


def difference_of(model, name):
    """Returns a figure: the difference of a method from Gloo."""
    def text(samples):
        return (cells(samples, model, name, methods.SEEDS) or ["", "not measured"])[1]

    return text


def weights(samples):
    """Returns a table of codecs on gradients and on weights: difference from Gloo's final accuracy, in points."""
    rows = []
    for method, on_weights in zip(methods.OBSERVED, methods.ON_WEIGHTS):
        found = [cells(samples, model, each.name, methods.SEEDS)[1:2] for model in methods.DIGITS
                 for each in (method, on_weights)]
        if any(found):
            rows.append([f"`{method.name}`", *(cell for one in found for cell in (one or [""]))])
    return table(["codec", *(f"{model}, {what}" for model in methods.DIGITS for what in ("gradients", "weights"))], rows)


# Methods with their usual settings, in one table.
METHODS = [method.name for method in dict.fromkeys((*methods.GENERAL, *methods.GPT))
           if method not in methods.INCEPTIONN and not (method.warmup or method.ramp)]
FIGURES = {
    "methods": effects_table(METHODS, ("digits", "conv", "gpt")),
    "inceptionn": effects_table([method.name for method in methods.INCEPTIONN], ("digits", "conv", "gpt5m")),
    "agreement": agreement,
    "chosen": effects_table([method.name for method in (*methods.CHOSEN.values(), *methods.CONTROLS)], methods.DIGITS,
                            methods.FRESH_SEEDS),
    "weights": weights,
    "advice": advice(methods.DIGITS, ADVICE),
    "advice-gpt": advice(("gpt",), GPT_ADVICE),
    **{slug(f"{model} {name}"): difference_of(model, name) for model in methods.DIGITS for name in methods.BY_NAME},
}
