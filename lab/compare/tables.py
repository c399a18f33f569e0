# tables.py - results as markdown

from lab.compare import figures
from lab.compare import plan

RATES = {"1gbit": "1 Gb/s", "5gbit": "5 Gb/s", "full": "cables of no rate", "none": "unshaped"}


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def place_name(nodes, rate, mtu):
    return f"{nodes} nodes, {RATES[rate]}" + ("" if rate == "none" else f", MTU {mtu}")


def places(results):
    """Returns nodes, rate and MTU, with the rows of each, in the order of the plan."""
    found = {}
    for row in results["rows"]:
        found.setdefault((row["nodes"], row["rate"], row["mtu"]), []).append(row)
    return sorted(found.items(), key=lambda item: (-item[0][0], plan.RATES.index(item[0][1]), item[0][2]))


def tensors(rows):
    """Returns size and data of each point, with its rows by method."""
    found = {}
    for row in rows:
        found.setdefault((row["bytes"], row["data"]), {})[row["method"]] = row
    return sorted(found.items(), key=lambda item: (item[0][0], item[0][1] != "gauss"))


def tensor_name(size, data):
    return plan.size_text(size) + (" digits" if data == "digits" else "")


def algbw(row):
    return row["bytes"] / row["median"] / 1e9


def busbw(row):
    return algbw(row) * 2 * (row["nodes"] - 1) / row["nodes"]


def number(value):
    """Formats a number with three significant digits."""
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    if value >= 1:
        return f"{value:.2f}"
    return f"{value:.3f}" if value >= 0.1 else f"{value:.3g}"


def against(rows, row, method):
    return rows[method]["median"] / row["median"] if method in rows else None


def gloo(rows):
    """Returns the name of the faster Gloo method; None if there is none."""
    return min((name for name in plan.GLOOS if name in rows), key=lambda name: rows[name]["median"], default=None)


def best_other(rows):
    """Returns the row of the fastest method that is not gradlane's."""
    return min((row for name, row in rows.items() if name not in (*plan.OURS, plan.BASELINE)), key=lambda row: row["median"],
               default=None)


def losses(rows, row):
    """Returns the names of methods that are faster than this method of gradlane's: Gloo, the best other one, or both.
    """
    if row["method"] not in plan.OURS:
        return []
    best = best_other(rows)
    slower = [other for other in (rows.get(gloo(rows)), best) if other and row["median"] > other["median"]]
    return list(dict.fromkeys(other["method"] for other in slower))


def speed_cell(rows, row):
    ratio = against(rows, row, gloo(rows))
    if ratio is None:
        return "-"
    text = f"{ratio:.2f}"
    lost = losses(rows, row)
    if gloo(rows) in lost:
        return f"**{text}** (slower)"
    return text + (" *" if lost else "")


def overview(rows):
    """Returns a table of speed-ups against Gloo, with a line per method and a column per tensor."""
    points = tensors(rows)
    lines = []
    for method in plan.METHODS:
        if any(method in found for _, found in points):
            cells = [speed_cell(found, found[method]) if method in found else "-" for _, found in points]
            lines.append([plan.LABELS[method], *cells])
    times = [number(found[gloo(found)]["median"] * 1e3) if gloo(found) else "-" for _, found in points]
    lines.append(["Gloo's time, ms", *times])
    return table(["faster than Gloo by", *(tensor_name(*point) for point, _ in points)], lines)


def detail(rows):
    lines = []
    for (size, data), found in tensors(rows):
        for method in plan.METHODS:
            if method not in found:
                continue
            row = found[method]
            best = best_other(found)
            times = [number(row[key] * 1e3) for key in ("median", "min", "max")]
            lines.append([
                tensor_name(size, data), plan.LABELS[method], times[0], f"{times[1]} to {times[2]}",
                number(algbw(row)), number(busbw(row)), speed_cell(found, row),
                f"{best['median'] / row['median']:.2f}" if best and method in plan.OURS else "",
                number(row["cpu_per_gb"]),
            ])
    return table(["tensor", "method", "time, ms", "min to max", "algbw, GB/s", "busbw, GB/s", "against Gloo",
                  "against the best other", "CPU s / GB"], lines)


def lost(results):
    lines = []
    compared = False
    for place, rows in places(results):
        for (size, data), found in tensors(rows):
            compared = compared or (best_other(found) is not None and any(method in found for method in plan.OURS))
            for method in plan.OURS:
                for other in losses(found, found[method]) if method in found else ():
                    ratio = found[method]["median"] / found[other]["median"]
                    lines.append([place_name(*place), tensor_name(size, data), plan.LABELS[method], plan.LABELS[other],
                                  f"{ratio:.2f}"])
    if not compared:
        return "There is nothing to compare in these results."
    if not lines:
        return "Nowhere in these results."
    return table(["links", "tensor", "method", "slower than", "time / its time"], lines)


def met_table(results):
    lines = []
    missing = 0
    for each in figures.figures(results):
        if each["met"] is None:
            missing += 1
        else:
            lines.append([each["what"], each["wanted"], each["measured"], "met" if each["met"] else "**MISSED**"])
    text = table(["figure", "wanted", "measured", ""], lines) if lines else ""
    return text + (f"\n\n{missing} more were not measured in this run." if missing else "")


def machine(results):
    about = results["about"]
    mpis = sorted({value for key, value in about.items() if key.startswith("Open MPI")})
    digits = results["data"].get("digits")
    lines = [f"{about['cores']} cores of {about['cpu']}, Linux {about['kernel']}, PyTorch {about['torch']} with Gloo, "
             f"{about.get('other torch', 'no other PyTorch')}, {', '.join(mpis) or 'no Open MPI'}, Python {about['python']}."]
    if digits:
        lines.append(f"The digits gradients are those after step {digits['step']} of the demo's training with "
                     f"{digits['workers']} workers: {digits['parameters']} values of RMS {digits['rms']:.2g}, "
                     f"{digits['below_2^-10']:.0%} below 2^-10, repeated to fill the tensor.")
    idle = [job["idle_cores"] for job in results["jobs"] if "idle_cores" in job]
    if idle:
        lines.append(f"Before each job, while no measurement ran, {min(idle):.2f} to {max(idle):.2f} cores were busy.")
    if "seconds" in results:
        lines.append(f"The run took {results['seconds'] / 60:.0f} minutes.")
    lines += [f"Note: {note}." for note in results["notes"]]
    return " ".join(lines)


def warnings(results):
    """Returns paragraphs that warn of conditions in which all results are less reliable."""
    found = []
    if results["quick"]:
        found.append("**With `--quick`, which only shows that everything works: few samples, small tensors. Times and "
                     "figures mean nothing.**\n")
    idle = max((job.get("idle_cores", 0.0) for job in results["jobs"]), default=0.0)
    if idle > plan.QUIET:
        found.append(f"**WARNING: the machine was not quiet. Up to {idle:.1f} cores were busy with other work before "
                     "jobs began: do not rely on these times.**\n")
    return found


def whole(results, image):
    """Returns the complete report. image(name) returns a plot's address, or None."""
    parts = [*warnings(results), "## Machine\n", machine(results) + "\n", "## Figures\n", met_table(results) + "\n",
             "## Plots\n"]
    for name, text in (("busbw-4", "Bus bandwidth against size, 4 nodes"), ("busbw-2", "the same, 2 nodes"),
                       ("time", "Time against bandwidth of the links"), ("cpu", "CPU time")):
        if image(name):
            parts.append(f"![{text}]({image(name)})\n")
    parts += ["## Where gradlane is slower\n", lost(results) + "\n"]
    for place, rows in places(results):
        parts += [f"## {place_name(*place)}\n", overview(rows) + "\n", "<details><summary>all figures</summary>\n",
                  detail(rows) + "\n", "</details>\n"]
    return "\n".join(parts)
