"""Output of reliability: results of the fault matrix as lines, JSON and a table."""

import dataclasses
import re

from tests.scripts.reliability.rows import HANG_BOUND_S
from tests.scripts.reliability.stage import Limits


@dataclasses.dataclass
class Result:
    """Result of one run of a row."""

    link: str
    row: object
    victim: int
    seen: object
    problem: str

    def slowest(self):
        return max(self.seen.times.values(), default=None)

    def line(self):
        head = f"{self.link:5} {self.row.name:12} node {self.victim}: "
        if self.problem:
            return f"{head}NOT AS PROMISED: {self.problem}"
        if self.row.pause:
            return f"{head}no error, a pause of {milliseconds(self.seen.pause)}"
        texts = "; ".join(sorted(set(self.seen.texts.values())))
        return (f"{head}errors after at most {milliseconds(self.slowest())} ({texts}), "
                f"right again {milliseconds(self.seen.recovered)} after the repair, at try {self.seen.tries}")

    def fields(self):
        return {"link": self.link, "row": self.row.name, "fault": self.row.fault, "victim": self.victim,
                "texts": self.seen.texts, "seconds": self.seen.times, "last": self.seen.last, "own": self.seen.own,
                "bound": None if self.row.pause else Limits.bound(), "pause": self.seen.pause,
                "recovered": self.seen.recovered, "ok": not self.problem, "problem": self.problem}


def milliseconds(seconds):
    return "-" if seconds is None else f"{1000 * seconds:.0f} ms"


def kinds_of_text(results):
    """Returns the error texts, with letters for numbers of ranks and without paths. The most frequent text is first."""
    counts = {}
    for result in results:
        for text in result.seen.texts.values():
            general = re.sub(r"\brank \d+", "rank N", re.sub(r" at /\S+| \(pid \d+\)", "", text))
            counts[general] = counts.get(general, 0) + 1
    return sorted(counts, key=counts.get, reverse=True)


def table_row(row, link, results):
    """Returns the table row for all runs of one row of the matrix on one link."""
    good = sum(not result.problem for result in results)
    slowest = max((result.slowest() for result in results if result.slowest() is not None), default=None)
    recovered = max((result.seen.recovered for result in results if result.seen.recovered is not None), default=None)
    if row.pause:
        pause = max((result.seen.pause for result in results if result.seen.pause is not None), default=None)
        saw, after, recovered = "no error", f"a pause of {milliseconds(pause)}", None
    else:
        saw = "<br>".join(f"\"{text}\"" for text in kinds_of_text(results)) or "-"
        after = milliseconds(slowest) + (f" of {milliseconds(Limits.bound())}" if Limits.bound() else "")
        own = max((result.seen.own for result in results if result.seen.own is not None), default=None)
        after += f"; its own trainer {milliseconds(own)} of {HANG_BOUND_S * 1000:.0f}" if own is not None else ""
    verdict = "as promised" if good == len(results) else "**not as promised**"
    return (f"| {row.fault} | {link} | {saw} | {after} | {milliseconds(recovered)} | "
            f"{good} of {len(results)}: {verdict} |")


def table(results):
    lines = ["| fault | link | what trainers saw | after at most | right again after at most | verdict |",
             "|---|---|---|---|---|---|"]
    rows = {}
    for result in results:
        rows.setdefault((result.row.name, result.link), []).append(result)
    order = list({result.row.name: None for result in results})
    for (name, link), group in sorted(rows.items(), key=lambda item: (order.index(item[0][0]), item[0][1])):
        lines.append(table_row(group[0].row, link, group))
    return "\n".join(lines)
