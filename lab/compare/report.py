# report.py - tables and plots of results, to a folder and to the documentation

import shutil

from lab.compare import figures
from lab.compare import plan
from lab.compare import plots
from lab.compare import tables

HEAD = """# gradlane compared with Gloo and Open MPI: the results

`lab/compare.sh --write-docs` writes this page. [benchmarks.md](../benchmarks.md) says what is compared, how it
is measured, and how to read it.
"""
NAMES = ("busbw-4", "busbw-2", "time", "cpu")


def write(results, folder):
    """Writes report.md and PNGs. Returns the text."""
    for name in NAMES:
        (folder / f"{name}.png").unlink(missing_ok=True)
    made = plots.all_plots(results, folder)
    text = tables.whole(results, lambda name: f"{name}.png" if name in made else None)
    (folder / "report.md").write_text(text)
    return text


def unfit(results):
    """Returns the reasons why the documentation should not have these results; [] if it should."""
    wanted = {(job.nodes, job.rate, job.mtu, point.size, point.data, method)
              for job in plan.jobs(False, plan.MTU, {}) for point in job.points for method in point.methods}
    rows = results["rows"]
    missing = len(wanted - {figures.Rows.key(row) for row in rows})
    wrong = sum(1 for row in rows if row["wrong"] or not row["same_on_all_ranks"])
    fewest = min((len(row["samples"]) for row in rows), default=0)
    found = [
        (results["quick"], "the results are of --quick"),
        (results["mtu"] != plan.MTU, f"the results are with MTU {results['mtu']}, not {plan.MTU}"),
        (missing, f"{missing} of {len(wanted)} results are missing"),
        (wrong, f"{wrong} results are wrong"),
        (results.get("failed"), "a job failed"),
        (fewest < plan.FULL.least, f"some points have only {fewest} samples, fewer than {plan.FULL.least}"),
    ]
    return [text for bad, text in found if bad]


def write_docs(results, folder, docs):
    """Writes the report to docs/results/compare.md, and plots to docs/images/compare-*.png."""
    images, page = docs / "images", docs / "results" / "compare.md"
    images.mkdir(exist_ok=True)
    page.parent.mkdir(exist_ok=True)
    made = [name for name in NAMES if (folder / f"{name}.png").exists()]
    for name in made:
        shutil.copyfile(folder / f"{name}.png", images / f"compare-{name}.png")
    text = tables.whole(results, lambda name: f"../images/compare-{name}.png" if name in made else None)
    page.write_text(f"{HEAD}\n{text}")
