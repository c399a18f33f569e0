#!/usr/bin/python3
"""pages.py - fills the marked spans of README.md and docs/ with results, and makes plots and source files of them

    python3 -m lab.results.pages            # checks that all of them are up to date; needs no matplotlib
    python3 -m lab.results.pages --write    # writes them

A span is `<!-- result EXPERIMENT.FIGURE -->text<!-- end -->`. Each experiment has the figure `about`: where its samples
come from. A short figure from stale samples has "(stale)" behind it. The check also fails when a page has a measured
number outside a span: see MEASURED.
"""

import argparse
import hashlib
import json
import re
import struct
import sys
import textwrap
import zlib

from lab.plan import known
from lab.results.experiment import ROOT, experiments
from lab.results.front import FRONT, GLANCE
from lab.results.store import Combined, Store
from lab.results.summaries import CODEC_SPEEDS, RATIOS

COMBINATIONS = (FRONT, GLANCE, RATIOS, CODEC_SPEEDS)
SPAN = re.compile(r"<!-- result ([\w.-]+) -->((?:(?!<!-- result ).)*?)<!-- end -->", re.DOTALL)
KEYWORD = b"gradlane-data"

# A number that somebody has measured. Time limits and sizes of links look different, or stand in another context.
MEASURED = re.compile(
    r"\b(?!0x\b)\d[\d.,]*(?: to \d[\d.,]*)? ?(?:"
    r"x\b(?! \d)|times (?:as|faster|slower|fewer|smaller|less|Gloo|longer)|GB/s|ns (?:a|an|per) |"
    r"(?:ms|us|ns|s|%) (?:beside|against|instead of|less|more|longer|faster|slower|in the median))")


def figure_text(store, name):
    """Returns the text of a span. Raises KeyError for unknown figures."""
    if name == "about":
        about = textwrap.fill(store.about(), 120, break_long_words=False, break_on_hyphens=False)
        return f"\n{about}\n"
    text = store.experiment.figures[name](store.values())
    if "\n" in text:
        return f"\n{text.strip()}\n"
    return text + " (stale)" if store.stale() and text != "not measured" else text


def filled(text, stores):
    """Returns a page with all spans filled. Raises KeyError: "page names an unknown result"."""
    def fill(match):
        before, after = text[: match.start()], text[match.end() :]
        if before[before.rfind("\n") + 1 :].startswith("    "):
            return match[0]  # an example in a block of code
        experiment, _, figure = match[1].partition(".")
        if experiment not in stores or (figure != "about" and figure not in stores[experiment].experiment.figures):
            raise KeyError(match[1])
        found = figure_text(stores[experiment], figure)
        # Markdown shows a line that begins with a comment as it is. So a paragraph has lines of its own.
        if "\n" not in found and before.endswith("\n") and after.startswith("\n"):
            found = f"\n{found}\n"
        return f"<!-- result {match[1]} -->{found}<!-- end -->"

    return SPAN.sub(fill, text)


def changed_span(text, fresh):
    """Returns the line and the mark of the first span that differs."""
    for old, new in zip(SPAN.finditer(text), SPAN.finditer(fresh)):
        if old[2] != new[2]:
            return text.count("\n", 0, old.start()) + 1, old[1]
    return 1, "a span"


def broken_marks(text):
    """Yields (line number, fault) of marks that do not work."""
    for match in SPAN.finditer(text):
        if text[: match.start()].endswith("\n") and not text[match.end() :].startswith("\n"):
            yield (text.count("\n", 0, match.start()) + 1,
                   "a line of prose begins with a span, so Markdown shows it as it is; put a word before it")
    blank = SPAN.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in re.finditer(r"<!--\s*(?:result|end)\b", blank):
        yield blank.count("\n", 0, match.start()) + 1, "a mark of a span stands alone, is misspelt, or is not on one line"


# ---- Plots


def data_hash(data):
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def png_texts(content):
    """Returns the tEXt chunks of a PNG file."""
    texts, at = {}, 8
    while at + 8 <= len(content):
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        if kind == b"tEXt":
            keyword, _, text = content[at + 8 : at + 8 + length].partition(b"\0")
            texts[keyword] = text.decode("latin-1")
        at += 12 + length
    return texts


def with_text(content, keyword, text):
    """Returns a PNG file with another tEXt chunk, behind its header."""
    body = b"tEXt" + keyword + b"\0" + text.encode()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return content[:33] + chunk + content[33:]


def stale_plots(stores):
    """Yields (path, plot, data) of plots that are not there, or were drawn from other data. Plots without samples are
    left out."""
    for store in stores.values():
        for name, plot in store.experiment.plots.items():
            if not store.samples:
                continue
            path = ROOT / name
            data = plot.data(store.values())
            there = png_texts(path.read_bytes()).get(KEYWORD) if path.exists() else None
            if there != data_hash(data):
                yield path, plot, data


def draw(path, plot, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    plot.draw(data, path)
    path.write_bytes(with_text(path.read_bytes(), KEYWORD, data_hash(data)))


# ---- Source files


def stale_files(stores, files=known.FILES):
    """Yields (path, text) of source files that samples would make differently."""
    for name, (experiment, make) in files.items():
        path, text = ROOT / name, make(stores[experiment].values())
        if not path.exists() or path.read_text() != text:
            yield path, text


# ---- Pages


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def loose_numbers(text):
    """Yields (line number, number) of measured numbers outside spans and outside code."""
    blank = SPAN.sub(lambda match: "\n" * match[0].count("\n"), text)
    blank = re.sub(r"^```.*?^```", lambda match: "\n" * match[0].count("\n"), blank, flags=re.DOTALL | re.MULTILINE)
    for number, line in enumerate(blank.splitlines(), 1):
        if line.startswith("    "):
            continue
        for match in MEASURED.finditer(line):
            yield number, match[0].strip()


def check_numbers():
    """Returns faults: measured numbers outside spans."""
    return [f"{page.relative_to(ROOT)}:{number}: '{found}' is a measured number outside a span"
            for page in pages() for number, found in loose_numbers(page.read_text())]


def main():
    parser = argparse.ArgumentParser(prog="python3 -m lab.results.pages", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write pages and plots")
    parser.add_argument("--list", action="store_true", help="print measured numbers outside spans on all pages")
    args = parser.parse_args()
    if args.list:
        for page in pages():
            for number, found in loose_numbers(page.read_text()):
                print(f"{page.relative_to(ROOT)}:{number}: {found}")
        return 0
    stores = {name: Store(experiment) for name, experiment in experiments().items()}
    stores |= {each.name: Combined(each, stores) for each in COMBINATIONS}
    faults = []
    for page in pages():
        text = page.read_text()
        name = page.relative_to(ROOT)
        try:
            fresh = filled(text, stores)
        except KeyError as error:
            faults.append(f"{name}: {error.args[0]} is not a result; lab/results/experiment.py lists experiments")
            continue
        broken = [f"{name}:{number}: {fault}" for number, fault in broken_marks(text)]
        faults += broken
        if fresh == text:
            continue
        if args.write and not broken:
            page.write_text(fresh)
            print(f"wrote {name}")
        else:
            number, mark = changed_span(text, fresh)
            faults.append(f"{name}:{number}: {mark} is not up to date; run python3 -m lab.results.pages --write")
    for path, text in stale_files(stores):
        if args.write:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
        else:
            faults.append(f"{path.relative_to(ROOT)}: is not up to date; run python3 -m lab.results.pages --write")
    for path, plot, data in stale_plots(stores):
        if args.write:
            draw(path, plot, data)
            print(f"drew {path.relative_to(ROOT)}")
        else:
            faults.append(f"{path.relative_to(ROOT)} was drawn from other data; run python3 -m lab.results.pages --write")
    faults += check_numbers()
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
