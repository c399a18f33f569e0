#!/usr/bin/python3
"""Checks README.md and docs/: links and their anchors, files and folders that are named, length of lines and of pages.

Also checks that blocks of commands that are skipped say why (dev/run_pages.py), and that the tables of docs/nic.md have
all rows of lab/vm-test.sh and no others. --words prints the length of each page.
"""

import argparse
import fnmatch
import os
import pathlib
import re
import subprocess
import sys

import run_pages

FOLDERS = ("base", "client", "collectives", "compress", "config", "dataplane", "dev", "docs", "examples", "lab", "packaging", "sim", "tests",
           "tools")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# A path of a file, with or without its ending, or of a folder. BUILT matches those that need not exist: programs that
# are built, and placeholders in capitals.
PATH = re.compile(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})/[\w/.-]*\w)/?")
BUILT = re.compile(r"tests/\w+_test$|.*[A-Z]{4}")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"\w")
COMMENT = re.compile(r"<!--.*?-->")  # marks of results
MAX_LENGTH = 120

# Words between these marks are generated. The marks count for nothing.
GENERATED = re.compile(r"<!-- (?:result [\w.-]+|generated (?!end)[^>]*|gradlane codecs [^>]*: begin) -->.*?"
                       r"<!-- (?:end|generated end|gradlane codecs [^>]*: end) -->", re.DOTALL)
README_WORDS, WRITTEN_WORDS, GENERATED_WORDS = 600, 50_000, 15_000


def anchor(heading):
    """Returns the anchor of a heading without markup."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(text):
    """Yields the anchors of a page, which follow the # of a link, as GitHub makes them from headings."""
    for heading in re.findall(r"^#+ (.*)", FENCED.sub("", text), re.MULTILINE):
        yield anchor(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.replace("`", "").replace("*", "")))


def check_links(page, text):
    for target in LINK.findall(FENCED.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists():
            yield f"link {target}: there is no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            yield f"link {target}: {file.name} has no such heading"


def check_paths(root, text):
    for path in sorted(set(PATH.findall(text))):
        if not BUILT.match(path) and not (root / path).exists() and not any(root.glob(f"{path}.*")):
            yield f"names {path}, but there is no such file or folder"


def check_lengths(text):
    for line in COMMENT.sub("", FENCED.sub("", text)).splitlines():
        if len(line) > MAX_LENGTH and not line.startswith(("|", "    ")):
            yield f"a line has {len(line)} characters, which is too long: {line[:40]}..."


def words_of(text):
    """Returns the number of words. Marks of tables and lists, which have no letter and no digit, are none."""
    return sum(bool(WORD.search(each)) for each in COMMENT.sub("", text).split())


def count_words(text):
    """Returns the numbers of written and of generated words of a page."""
    generated = sum(words_of(part) for part in GENERATED.findall(text))
    return words_of(text) - generated, generated


def check_words(words):
    """Yields pages, or groups of pages, with too many words. `words` has the result of count_words() for each page."""
    for name, count, limit in (
        ("README.md", words["README.md"][0], README_WORDS),
        ("README.md and docs", sum(written for written, _ in words.values()), WRITTEN_WORDS),
        ("generated parts of README.md and docs", sum(generated for _, generated in words.values()), GENERATED_WORDS),
    ):
        if count > limit:
            yield f"{name}: {count} words, and at most {limit} are allowed; dev/check_docs.py --words lists all pages"


def print_words(words):
    print(f"{'written':>8} {'generated':>9}  page")
    for name, (written, generated) in sorted(words.items(), key=lambda row: -row[1][0]):
        print(f"{written:8} {generated:9}  {name}")
    print(f"{sum(row[0] for row in words.values()):8} {sum(row[1] for row in words.values()):9}  all")
    print(f"{WRITTEN_WORDS:8} {GENERATED_WORDS:9}  limit of all ({README_WORDS} of README.md)")


def check_rows(root):
    """Yields differences between the rows of lab/vm-test.sh and the tables of docs/nic.md whose last column is called
    `row`."""
    names = subprocess.run([sys.executable, "-P", "-m", "tests.vm", "--list"], capture_output=True, text=True, timeout=60,
                           check=True, env={**os.environ, "PYTHONPATH": str(root)}).stdout.split()
    patterns, in_table = set(), False
    for line in (root / "docs/nic.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else [""]
        in_table = bool(cells[-1]) and (in_table or cells[-1] == "row")
        if in_table:
            patterns |= set(re.findall(r"`([^`]+)`", cells[-1]))
    for pattern in sorted(patterns):
        if not fnmatch.filter(names, pattern):
            yield f"names row {pattern}, which lab/vm-test.sh does not have"
    for name in names:
        if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            yield f"no table has row {name} of lab/vm-test.sh"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent, type=pathlib.Path)
    parser.add_argument("--words", action="store_true", help="print the number of words of each page")
    args = parser.parse_args()
    root = args.root
    pages = {str(page.relative_to(root)): page for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]}
    words = {name: count_words(page.read_text()) for name, page in pages.items()}
    if args.words:
        print_words(words)
        return 0
    faults = list(check_words(words))
    for name, page in pages.items():
        text = page.read_text()
        written = page.parent.name == "results"  # scripts write it, with lines of any length
        found = [*check_links(page, text), *check_paths(root, text), *([] if written else check_lengths(text))]
        found += [f"line {block.line}: {block.fault}" for block in run_pages.blocks(text) if block.fault]
        faults += [f"{name}: {fault}" for fault in found]
    faults += [f"docs/nic.md: {fault}" for fault in check_rows(root)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
