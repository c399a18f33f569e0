#!/usr/bin/python3
"""Checks the prose of comments, docstrings and pages, and that replaced names do not come back.

    dev/check_prose.py                   # checks all files
    dev/check_prose.py --list PATH...    # prints all findings in these files or folders, also those that are allowed

A finding is a sentence that opens without a subject ("Of those that ...", "What is left ...") or one of the words in
ODD. Code may have none, pages at most ALLOWED. If a finding is a false alarm, reword the sentence. dev/names.txt lists
the names that were replaced.
"""

import argparse
import ast
import pathlib
import re
import subprocess
import sys

from list_messages import ROOT, TOKEN

# The number of findings that pages may have. It must only ever become smaller.
ALLOWED = 0

STRONG = ("Of", "What", "Whatever", "Who", "Whoever", "Whom", "Whose", "Those", "That", "How", "Why", "As", "So many", "Beside",
          "Else", "So as", "Which", "By whom", "To whom", "Than")
WEAK = ("Where", "Without", "Until", "Behind", "From", "By", "For", "In", "With", "To", "On", "At", "After", "The same")
STRONG_OPENING = re.compile(rf"(?:{'|'.join(STRONG)})\b")
WEAK_OPENING = re.compile(rf"(?:{'|'.join(WEAK)})\b")

# Words that the field does not use in this way, and the words to write.
ODD = {
    "afresh": "again", "anew": "again", "becomes of": "happens to", "by chance": "at random", "for ever": "forever",
    "goes round": "circulates", "hears of": "learns of", "henceforth": "from now on", "in vain": "without success",
    "is through with": "has finished", "kept to": "followed", "mend": "fix", "mended": "fixed", "mends": "fixes",
    "of metal": "physical", "owe": "residual", "owed": "residual", "owes": "residual", "puts off": "defers",
    "reckoned": "computed", "reckons": "computes", "shall": "must", "so many": "N", "told of": "informed of",
    "tells of": "reports", "thereof": "of it", "whereupon": "then", "whoever": "the rank that",
}
ODD_WORD = re.compile(rf"\b(?:{'|'.join(sorted(ODD, key=len, reverse=True))})\b", re.IGNORECASE)

SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(])")
MARKS = {".cc": "//", ".h": "//", ".c": "//", ".py": "#", ".sh": "#", ".build": "#", ".lua": "--", ".yaml": "#", ".yml": "#",
         ".toml": "#"}
TRAILING = {"//": re.compile(r"[;{},)]\s+//\s?(\w.*)$"), "#": re.compile(r"[^\s#'\"]\s{2}# (\w.*)$"),
            "--": re.compile(r"[^\s-]\s+-- (\w.*)$")}
HEADER = re.compile(r"^\S+\.\w+ - ")  # the beginning of a file: "name.h - "


def paragraphs(text):
    """Yields (line, text) of each paragraph of a Markdown page."""
    fenced, start, found = False, 0, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        plain = line.strip()
        if plain.startswith("```"):
            fenced = not fenced
        elif plain and not fenced and not line.startswith("    ") and plain[0] not in "#|<![":
            start = start or number
            found.append(re.sub(r"^(?:[-*]|\d+\.)\s+", "", plain))
            continue
        if found:
            yield start, " ".join(found)
        start, found = 0, []


def comments(text, mark):
    """Yields (line, text) of each block of comment lines and of each trailing comment of three words and more."""
    start, found = 0, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        plain = line.strip()
        if plain.startswith(mark) and not plain.startswith(("#!", "//   ", "#   ")) and "SPDX-" not in plain:
            body = plain.lstrip(mark[0]).strip()
            if body and not body.startswith("----"):
                start = start or number
                found.append(body)
                continue
        if found:
            yield start, " ".join(found)
        start, found = 0, []
        trailing = TRAILING[mark].search(line)
        if trailing and len(trailing[1].split()) > 2:
            yield number, trailing[1]


def docstrings(text):
    """Yields (line, text) of each docstring."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            doc = ast.get_docstring(node)
            if doc:
                yield getattr(node, "lineno", 1), " ".join(doc.split())


def prose(path, text):
    """Yields (line, text) of all prose of a file."""
    if path.suffix == ".md":
        yield from paragraphs(text)
    elif path.suffix in MARKS:
        yield from comments(text, MARKS[path.suffix])
    if path.suffix == ".py":
        yield from docstrings(text)


def is_fragment(sentence):
    """Returns whether a sentence seems to open without a subject. A weak opening counts in short sentences only."""
    if STRONG_OPENING.match(sentence):
        return not sentence.endswith("?")
    return bool(WEAK_OPENING.match(sentence)) and len(sentence.split()) < 15 and not set(",:") & set(sentence)


def findings(path, text):
    """Yields a line for each finding of a file."""
    for number, block in prose(path, text):
        for sentence in SENTENCE_END.split(HEADER.sub("", block)):
            if is_fragment(sentence):
                yield f"{path}:{number}: no subject: {sentence[:100]}"
            for word in ODD_WORD.findall(sentence):
                yield f"{path}:{number}: '{word}', write '{ODD[word.lower()]}': {sentence[:100]}"


def replaced_names():
    """Yields (old, new, paths) of dev/names.txt."""
    for line in (ROOT / "dev/names.txt").read_text().splitlines():
        old, new, *paths = line.split("#")[0].split() or ("", "")
        if old:
            yield old, new, tuple(paths)


def identifiers(path, text):
    """Returns the names that are identifiers of a file in C, C++ or Python."""
    if path.suffix != ".py":
        return {token["word"] for token in TOKEN.finditer(text) if token["word"]}
    found = set()
    for node in ast.walk(ast.parse(text)):
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            found |= set(str(getattr(node, field, None)).split("."))
    return found


def old_names(path, text, names):
    """Yields a line for each replaced name that is an identifier of a file, or code in a page."""
    if path.suffix == ".md":
        words = {word for code in re.findall(r"`([^`\n]*)`", text) for word in re.findall(r"[A-Za-z_]\w*", code)}
        names = [each for each in names if not each[2] and re.search(r"_|[a-z][A-Z]", each[0])]
    else:
        words = identifiers(path, text)
    for old, new, paths in names:
        if old in words and (not paths or str(path).startswith(paths)):
            yield f"{path}: '{old}' is called '{new}' (dev/names.txt)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", nargs="+", default=[], metavar="PATH", help="print all findings there")
    args = parser.parse_args()
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--", *args.list], capture_output=True, text=True,
                            check=True).stdout.split()
    names = list(replaced_names())
    wrong, of_pages = [], []
    for name in listed:
        path = pathlib.Path(name)
        if path.suffix not in (*MARKS, ".md") or "corpus" in path.parts or (ROOT / path).is_symlink() or not (ROOT / path).exists():
            continue
        text = (ROOT / path).read_text(errors="replace")
        (of_pages if path.suffix == ".md" else wrong).extend(findings(path, text))
        if path.suffix in (".c", ".cc", ".h", ".py", ".md"):
            wrong += old_names(path, text, names)
    if args.list:
        wrong += of_pages
    elif len(of_pages) > ALLOWED:
        wrong.append(f"pages have {len(of_pages)} findings, allowed: {ALLOWED}; see 'dev/check_prose.py --list docs'")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
