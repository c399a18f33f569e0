"""report.py - the study's tables as markdown, and their page of the documentation (no PyTorch)"""

from lab.study import plan
from lab.study import summary
from lab.study import systems

PAPER_LESS = "70.9-80.7 %"
PAPER_FASTER = "2.2-3.1x"
NONE = "-"
TITLE = "# Training study\n"
PAGE_TITLE = """# The training study: the results

`lab/study.sh --write-docs` writes this page. [study.md](../study.md) says what is trained and measured, and what the
columns mean.
"""
PAPERS_TITLE = """# The codecs of the papers: the results

`lab/study.sh --papers --write-docs` writes this page. [study.md](../study.md#the-codecs-of-the-papers) says what they
are, and what the columns mean.
"""
OBSERVATION_TITLE = """# Codecs on gradients, on weights, on both: the results

`lab/study.sh --observation --write-docs` writes this page. [study.md](../study.md#gradients-and-weights) says what is
done. In brackets: difference from Gloo's fp32, in points.
"""
RACE_TITLE = """# Seconds to the same loss: the results

`lab/study.sh --race --write-docs` writes this page. [study.md](../study.md#seconds-to-the-same-loss) says what is
trained and measured, and what the columns mean.
"""
GPT = (f" The GPT: epochs of {plan.GPT_STEPS['gpt']} steps, {plan.GPT_BATCH} window of {plan.GPT_CONTEXT} characters per node "
       f"and step, AdamW with a rate that falls from {plan.GPT_RATE} in the same way.")
SHOWS = {
    "study-accuracy-time.png": "accuracy against seconds of training",
    "study-epoch.png": "epochs, split into compute and exchange",
    "study-accuracy.png": "final accuracy by method",
    systems.PICTURE: "steps of the paper's systems, split into computing, adding and exchanging",
}


def number(value, digits=1, unit=""):
    return NONE if value is None else f"{value:.{digits}f}{unit}"


def table(heads, rows):
    """Returns a Markdown table. Columns are as wide as their widest cell, so that the source is readable, too."""
    cells = [heads, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def times(model):
    """Returns a table of the time of an epoch: computing, exchange, operations, bytes."""
    rows = []
    for row in model["rows"]:
        share = row["exchange_ms"] / row["epoch_ms"]
        sent = row["step_bytes"]
        rows.append([
            row["method"],
            number(row["epoch_ms"], 0),
            number(model["compute_ms"], 0),
            number(row["exchange_ms"], 0),
            f"{100 * share:.0f} %",
            number(row["operations_ms"], 0),
            number(sent and sent / 1e6, 2),
            number(row["bytes_gloo"], 1, "x"),
        ])
    heads = ["method", "epoch (ms)", "compute", "exchange", "share", "in operations", "sent per step (MB)",
             "fewer bytes than Gloo"]
    return table(heads, rows)


def speeds(model):
    """Returns a table of how much sooner a training ends."""
    rows = []
    for row in model["rows"]:
        less = row.get("exchange_less_aggregator")
        rows.append([
            row["method"],
            number(row["seconds"]["mean"], 1),
            f"{row['seconds']['least']:.1f}-{row['seconds']['most']:.1f}",
            number(row.get("training_aggregator"), 2, "x"),
            number(row["training_gloo"], 2, "x"),
            NONE if less is None or row["method"] == plan.WORKER_AGGREGATOR else f"{100 * less:.1f} %",
        ])
    rows.append(["the paper", NONE, NONE, PAPER_FASTER, NONE, PAPER_LESS])
    heads = ["method", "training (s)", "least-most", "against worker-aggregator", "against Gloo",
             "less exchange than worker-aggregator"]
    return table(heads, rows)


def accuracies(model):
    """Returns a table of accuracies, and of the time until the target is reached."""
    rows = []
    for row in model["rows"]:
        accuracy, all_reached = row["accuracy"], row["seconds_to"] is not None
        missed = f"{row['reached']} of {row['seeds']} seeds"
        rows.append([
            row["method"],
            number(row["epochs_to"]["mean"], 1) if all_reached else missed,
            number(row["seconds_to"]["mean"], 2) if all_reached else NONE,
            number(row.get("to_accuracy_aggregator"), 2, "x"),
            number(row["to_accuracy_gloo"], 2, "x"),
            number(accuracy["mean"], 2, " %"),
            f"{accuracy['least']:.2f}-{accuracy['most']:.2f}",
            number(accuracy["deviation"], 2),
            f"{row['accuracy_gloo']:+.2f}",
            "identical" if row["identical"] else "DIFFERENT",
        ])
    heads = ["method", f"epochs to {target(model)}", "seconds", "against worker-aggregator", "against Gloo",
             "final accuracy", "least-most", "deviation", "minus Gloo's", "replicas"]
    return table(heads, rows)


def target(model):
    return f"a loss of {model['target']:.3f} (mean)" if model["model"] in plan.BY_LOSS else f"{model['target']:.2f} %"


def about_target(model):
    if model["model"] in plan.BY_LOSS:
        return f"the final loss of Gloo, fp32, with the same seed, and {100 * summary.TARGET_ABOVE:.0f} % more"
    return f"the mean final accuracy of Gloo, fp32, less {summary.TARGET_BELOW} points"


def race(model):
    """Returns a table of the time at which each method reaches the target, compared with the methods that people use
    today."""
    rows = []
    for row in model["rows"]:
        there = row["seconds_to"]
        rows.append([
            row["method"], number(row["epoch_ms"] / row["steps"], 1),
            number(row["step_bytes"] and row["step_bytes"] / 1e6, 2),
            number(row["epochs_to"]["mean"], 1) if there else f"{row['reached']} of {row['seeds']} seeds",
            number(there and there["mean"], 2), f"{there['least']:.2f}-{there['most']:.2f}" if there else NONE,
            *(number(row.get(f"to_accuracy_{base}"), 2, "x") for base in summary.BASES),
            number(row["accuracy"]["mean"], 2, " %"), number(row["loss"]["mean"], 4),
            "identical" if row["identical"] else "DIFFERENT",
        ])
    heads = ["method", "step (ms)", "sent per step (MB)", f"epochs to {target(model)}", "seconds", "least-most",
             *(f"against {name}" for name in summary.BASES.values()), "final accuracy", "final loss", "replicas"]
    return table(heads, rows)


def race_page(result, _):
    """Returns docs/results/race.md: seconds to the same loss."""
    text = f"{RACE_TITLE}\n{head(result)}\n{figures(result)}"
    for model in result["models"].values():
        text += (f"\n## {model['about']}\n\n{race(model)}\nThe target is {about_target(model)}. Computing takes "
                 f"{model['compute_ms'] / model['rows'][0]['steps']:.1f} ms of a step.\n")
    return text


def figures(result):
    rows = []
    for figure in result["figures"]:
        value = NONE if figure["value"] is None else f"{figure['value']:.2f} {figure['unit']}"
        wanted = f"{figure['wanted']} {figure['unit']}"
        rows.append([figure["what"], wanted, value, "met" if figure["met"] else "NOT MET"])
    same = "none" if not result["different"] else str(len(result["different"]))
    rows.append(["trainings after which replicas differ", "none", same,
                 "NOT MET" if result["different"] else "met"])
    return table(["figure", "at least", "measured", ""], rows)


def idle(settings):
    """Returns the most cores that were busy before jobs; None for studies that did not measure it."""
    return max(settings.get("idle_cores", []), default=None)


def machine(result):
    """Returns a sentence or two about machine and settings."""
    about = result["settings"]
    busy = idle(about)
    loud = ""
    if busy is not None and busy > plan.QUIET:
        loud = (f"**WARNING: the machine was not quiet. Up to {busy:.1f} cores were busy with other work before jobs "
                "began: do not rely on these times.**\n\n")
    return loud + (
        f"{about['nodes']} nodes with {about['link_rate']} each way, on one machine with {about['cores']} cores; "
        f"PyTorch {about['torch']}. Epochs: {about['epochs']}, of {about['steps']} steps; images per node and step: "
        f"{about['batch']}; seeds: {about['seeds']}; SGD with momentum {about['momentum']} and a rate that falls from "
        f"{about['rate']} to 0 along a cosine."
        + (GPT if "gpt" in about["models"] else "")
        + ("" if busy is None else f" Before each job, {busy:.2f} cores were busy at most.") + "\n"
    )


def four_systems(result):
    """Returns a table for each model that has the systems; "" if none has."""
    text = ""
    for model in result["models"].values():
        found = systems.cells(model, result["settings"])
        if found:
            text += f"\n## The paper's systems: {model['about']}\n\n{table(*found)}"
    return f"{text}\n{systems.about(result['settings'])}" if text else ""


def head(result):
    """Returns the head of a page: machine, settings, and warnings about the results."""
    text = machine(result)
    if result["settings"]["quick"]:
        text += "\n**With --quick, which only shows that everything works: figures mean nothing.**\n"
    if result["missing"]:
        text += f"\nNot complete: {len(result['missing'])} trainings are missing, so means are of different seeds.\n"
    return text


def document(result):
    """Returns all tables, for a separate file."""
    text = f"{TITLE}\n{head(result)}\n{figures(result)}{four_systems(result)}"
    for model in result["models"].values():
        text += f"\n## {model['about']}\n"
        if result["settings"].get("mode") == plan.RACE_MODE:
            text += f"\n{race(model)}"
        text += f"\n{times(model)}\n{speeds(model)}\n{accuracies(model)}"
        observed = result["settings"].get("mode") == plan.OBSERVATION_MODE and observation(model)
        text += f"\n{observed}" if observed else ""
        text += f"\nThe target, {target(model)}, is {about_target(model)}.\n"
    return text


def observation(model):
    """Returns a table of codecs on gradients, on weights, on both, with a row for each codec; "" if there is none."""
    by_method = {row["method"]: row for row in model["rows"]}
    rows = []
    for codec in plan.OBSERVED:
        cells = []
        for what in (plan.GRADIENTS, plan.WEIGHTS, plan.BOTH):
            row = by_method.get(plan.of_what(codec, what).name)
            cells.append(NONE if row is None else f"{row['accuracy']['mean']:.2f} % ({row['accuracy_gloo']:+.2f})")
        if any(cell != NONE for cell in cells):
            rows.append([codec, *cells])
    if not rows:
        return ""
    return table(["codec", "on gradients only", "on weights only", "on both"], rows)


def losers(model):
    """Returns a table of methods whose final accuracy is below the target, or whose training is slower than Gloo's; ""
    if there is none."""
    rows = []
    for row in model["rows"]:
        below, slower = row["accuracy_gloo"], 1 / row["training_gloo"]
        if row["method"] != plan.GLOO and (below < -summary.TARGET_BELOW or slower > 1):
            rows.append([row["method"], f"{below:+.2f} points", f"{slower:.2f}x",
                         f"{row['reached']} of {row['seeds']} seeds"])
    return table(["method", "accuracy minus Gloo's", "time / Gloo's time", "reach the accuracy"], rows) if rows else ""


def papers_page(result, pictures):
    """Returns docs/results/papers.md: the codecs of the papers."""
    text = document(result).replace(TITLE, PAPERS_TITLE, 1)
    for model in result["models"].values():
        found = losers(model)
        text += f"\n## Less accurate or slower than Gloo: {model['about']}\n\n{found or 'None.'}"
    return text + plots_of(pictures)


def observation_page(result, pictures):
    """Returns docs/results/observation.md: gradients tolerate losses of precision that weights do not."""
    text = f"{OBSERVATION_TITLE}\n{head(result)}"
    for model in result["models"].values():
        text += f"\n## {model['about']}\n\n{observation(model)}\n{accuracies(model)}"
    return text


def plots_of(pictures):
    shown = "\n\n".join(f"![{SHOWS[name]}](../images/{name})" for name in pictures)
    marks = "Means over the seeds. A mark is an epoch, the grey line the accuracy to reach."
    return f"\n## Plots\n\n{marks}\n\n{shown}\n" if pictures else ""


def pictures_of(mode, pictures):
    """Returns those of the drawn pictures that the page of this mode shows. Pictures of most modes have the names of
    the main page's pictures, so only that page shows them."""
    if mode in (plan.PAPERS_MODE, plan.OBSERVATION_MODE, plan.RACE_MODE):
        return []
    return [name for name in pictures if (name == systems.PICTURE) == (mode == plan.SYSTEMS_MODE)]


def page_of(mode, result, pictures):
    """Returns the page of a study, with those of the drawn pictures that belong to it."""
    make = {plan.SYSTEMS_MODE: systems_page, plan.PAPERS_MODE: papers_page, plan.OBSERVATION_MODE: observation_page,
            plan.RACE_MODE: race_page}
    return make.get(mode, page)(result, pictures_of(mode, pictures))


def page(result, pictures):
    """Returns docs/results/study.md, with the pictures of these names."""
    text = document(result).replace(TITLE, PAGE_TITLE, 1)
    return text + plots_of(pictures)


def systems_page(result, pictures):
    """Returns docs/results/systems.md: the four systems, and the time of trainings with them."""
    text = f"{systems.TITLE}\n{head(result)}{four_systems(result)}"
    for model in result["models"].values():
        text += f"\n## Trainings: {model['about']}\n\n{speeds(model)}"
    shown = "\n\n".join(f"![{SHOWS[name]}](../images/{name})" for name in pictures)
    return f"{text}\n## Plot\n\n{shown}\n"
