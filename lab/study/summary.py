"""summary.py - results of all trainings together: times, accuracies and the study's figures (no PyTorch)"""

import statistics

from lab.study import plan

TARGET_BELOW = 0.5  # points below the mean accuracy of fp32: "the same accuracy"
TARGET_ABOVE = 0.01  # share above the loss of fp32 with the same seed: "the same loss"
SPEED_UP = 2.5
WITHIN = 0.3
# Methods that the others are compared with, by the endings of fields, such as gloo in bytes_gloo.
BASES = {"aggregator": plan.WORKER_AGGREGATOR, "gloo": plan.GLOO, "bf16": plan.BF16, "fsdp": plan.FSDP}


def spread(values):
    values = list(values)
    return {
        "mean": statistics.fmean(values),
        "least": min(values),
        "most": max(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
    }


def reached(training, target):
    """Returns the first epoch with at least the target's accuracy, or at most its loss, and the seconds of training up
    to its end. Returns None if there is no such epoch."""
    by_loss = training["model"] in plan.BY_LOSS
    for epoch, value in enumerate(training["loss" if by_loss else "accuracy"], 1):
        if value <= target + 1e-9 if by_loss else value >= target - 1e-9:
            return epoch, sum(training["epoch_seconds"][:epoch])
    return None


def targets_of(model, trainings, seeds):
    """Returns the target of all methods, by seed: the final value of Gloo's fp32, less a margin for randomness. A loss
    depends on the seed's text more than on the method. So its target comes from the same seed; if Gloo has none, it is
    the mean."""
    if model in plan.BY_LOSS:
        losses = {training["seed"]: (1 + TARGET_ABOVE) * training["loss"][-1] for training in trainings}
        return dict.fromkeys(seeds, statistics.fmean(losses.values())) | losses
    return dict.fromkeys(seeds, statistics.fmean(training["accuracy"][-1] for training in trainings) - TARGET_BELOW)


def row_of(method, trainings, compute, targets):
    steps = trainings[0]["steps"]
    epochs = [seconds for training in trainings for seconds in training["epoch_seconds"]]
    operations = [seconds for training in trainings for seconds in training["operation_seconds"]]
    sent = [training["step_bytes"] for training in trainings if training["step_bytes"] is not None]
    of_seeds = {training["seed"]: reached(training, targets[training["seed"]]) for training in trainings}
    firsts = [first for first in of_seeds.values() if first]
    everywhere = len(firsts) == len(trainings)
    epoch = statistics.median(epochs)
    return {
        "method": method,
        "seeds": len(trainings),
        "epoch_ms": 1e3 * epoch,
        "exchange_ms": 1e3 * max(0.0, epoch - compute),
        "operations_ms": 1e3 * statistics.median(operations) if operations else None,
        "step_bytes": statistics.fmean(sent) if sent else None,
        "steps": steps,
        "seconds": spread(sum(training["epoch_seconds"]) for training in trainings),
        "accuracy": spread(training["accuracy"][-1] for training in trainings),
        "accuracies": [training["accuracy"][-1] for training in trainings],
        "loss": spread(training["loss"][-1] for training in trainings) if "loss" in trainings[0] else None,
        "reached": len(firsts),
        "epochs_to": spread(first[0] for first in firsts) if everywhere else None,
        "seconds_to": spread(first[1] for first in firsts) if everywhere else None,
        "seconds_of_seeds": {str(seed): first and first[1] for seed, first in of_seeds.items()},
        "identical": all(training["identical"] for training in trainings),
    }


def ratio(upper, lower):
    return upper / lower if upper is not None and lower else None


def sooner(row, base):
    """Returns how many times sooner `row` reaches the target than `base`, over the seeds that both were trained with.
    Returns None if a training misses the target."""
    own, others = row["seconds_of_seeds"], base["seconds_of_seeds"]
    pairs = [(others[seed], seconds) for seed, seconds in own.items() if seed in others]
    if not pairs or None in (seconds for pair in pairs for seconds in pair):
        return None
    return ratio(*map(sum, zip(*pairs)))


def compare(row, base, name):
    """Adds to the row its comparison with another method: speed-ups, and how much shorter the exchange is."""
    row[f"training_{name}"] = base["seconds"]["mean"] / row["seconds"]["mean"]
    row[f"to_accuracy_{name}"] = sooner(row, base)
    share = ratio(row["exchange_ms"], base["exchange_ms"])
    row[f"exchange_less_{name}"] = None if share is None else 1 - share
    row[f"bytes_{name}"] = ratio(base["step_bytes"], row["step_bytes"])
    row[f"accuracy_{name}"] = row["accuracy"]["mean"] - base["accuracy"]["mean"]


def curve(trainings):
    """Returns seconds and accuracy after each epoch, as means over the seeds."""
    seconds, accuracy, total = [], [], 0.0
    for epoch in range(len(trainings[0]["accuracy"])):
        total += statistics.fmean(training["epoch_seconds"][epoch] for training in trainings)
        seconds.append(total)
        accuracy.append(statistics.fmean(training["accuracy"][epoch] for training in trainings))
    return {"seconds": seconds, "accuracy": accuracy}


def of_model(model, trainings):
    """Returns the rows of all methods in the order of the plan; None without Gloo, which all are compared with."""
    by_method = {name: [t for t in trainings if t["method"] == name] for name in plan.BY_NAME}
    by_method = {name: sorted(found, key=lambda t: t["seed"]) for name, found in by_method.items() if found}
    if plan.GLOO not in by_method:
        return None
    targets = targets_of(model, by_method[plan.GLOO], {training["seed"] for training in trainings})
    # Computing takes the same time with all methods, so all measurements count together. Each training measures it
    # first, without exchange.
    compute = statistics.median(seconds for training in trainings for seconds in training["compute_seconds"])
    rows = [row_of(name, found, compute, targets) | {"curve": curve(found)} for name, found in by_method.items()]
    bases = {row["method"]: row for row in rows}
    for row in rows:
        for name, base in BASES.items():
            if base in bases:
                compare(row, bases[base], name)
    return {
        "model": model,
        "about": plan.MODELS[model],
        "parameters": trainings[0]["parameters"],
        "target": statistics.fmean(targets.values()),
        "compute_ms": 1e3 * compute,
        "rows": rows,
    }


def figure(what, wanted, value, met, unit):
    return {"what": what, "wanted": wanted, "value": value, "unit": unit, "met": met}


def figures(models):
    """Returns the figures that the study must show, and whether it does. They are about the classifier, the network of
    the paper."""
    digits = models.get("digits")
    rows = {row["method"]: row for row in digits["rows"]} if digits else {}
    result = []
    for name in (plan.DEFAULT, "fixed:8 + feedback", "fixed:adaptive"):
        row = rows.get(name)
        if row is None:
            continue
        faster = row.get("to_accuracy_aggregator")
        same = f"the same accuracy, {digits['target']:.2f} % (the mean of fp32 less {TARGET_BELOW} points)"
        what = f"{name}: to {same}, faster than the worker-aggregator by"
        result.append(figure(what, SPEED_UP, faster, faster is not None and faster >= SPEED_UP, "x"))
        below = row["accuracy_gloo"]
        what = f"{name}: final accuracy less that of fp32, seeds: {row['seeds']}"
        result.append(figure(what, -WITHIN, below, below >= -WITHIN, "points"))
    return result


# Targets of the race: the model, the kind of methods whose best counts, the method to compare with, the least speed-up.
WANTED = [
    ("digits", "gradlane", "aggregator", 6), ("digits", "gradlane", "gloo", 3), ("digits", "gradlane", "bf16", 1.6),
    ("gpt", "gradlane", "gloo", 2), ("gpt", "gradlane", "bf16", 1.3), ("gpt", "fsdp", "fsdp", 1.5),
]


def race_figures(models):
    """Returns how much sooner the best of gradlane's methods reaches the target than the methods that people use today.
    """
    result = []
    for model, kind, base, wanted in WANTED:
        rows = models[model]["rows"] if model in models else []
        ours = [row for row in rows if plan.BY_NAME[row["method"]].kind == kind and plan.BY_NAME[row["method"]].codec]
        found = [row for row in ours if row.get(f"to_accuracy_{base}")]
        if not ours:
            continue
        best = max(found, key=lambda row: row[f"to_accuracy_{base}"], default=None)
        value = best and best[f"to_accuracy_{base}"]
        what = f"{model}: to the target, {best['method'] if best else 'none'} is faster than {BASES[base]} by"
        result.append(figure(what, wanted, value, value is not None and value >= wanted, "x"))
    return result


def summarize(settings, trainings):
    models = {}
    for model in plan.MODELS:
        found = of_model(model, [training for training in trainings if training["model"] == model])
        if found:
            models[model] = found
    different = [plan.key(training) for training in trainings if not training["identical"]]
    made = race_figures if settings.get("mode") == plan.RACE_MODE else figures
    return {"settings": settings, "models": models, "figures": made(models), "different": different}
