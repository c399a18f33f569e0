#!/usr/bin/python3
"""Checks that a change of comments changes nothing else: compares the code of two versions without its comments.

    dev/same_code.py                  # the working tree with HEAD
    dev/same_code.py COMMIT           # the working tree with COMMIT
    dev/same_code.py COMMIT COMMIT    # two commits
    dev/same_code.py --messages ...   # strings may differ, too

C and C++ are compared as tokens, Python as syntax trees without docstrings, shell scripts, Meson, Lua and YAML files as
lines without comments. Markdown is not compared. Prints each file whose code differs; the exit status is 1 if there is
one. It does not see files that git does not track.
"""

import argparse
import ast
import pathlib
import re
import subprocess
import sys

from list_messages import ROOT, TOKEN

COMPILED = (".cc", ".h", ".c")
# The beginning of a comment. In a shell script and in YAML it follows a space or begins the line.
COMMENT = {".sh": r"(?:^|(?<=\s))#(?!!)", ".yaml": r"(?:^|(?<=\s))#", ".yml": r"(?:^|(?<=\s))#", ".toml": r"^\s*#",
           ".build": r"#", ".lua": r"--", ".options": r"#", ".txt": r"^\s*#"}
QUOTED = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\''


def tokens(text, strings):
    """Returns C or C++ without comments and white space. If `strings` is false, strings are all the same, and strings
    side by side are one. Ends of lines count in preprocessor directives."""
    found, in_directive = [], False
    for token in TOKEN.finditer(text):
        if token["space"] and "\n" in token[0]:
            if in_directive and not (found and found[-1] == "\\"):
                found.append("\n")
                in_directive = False
        elif token["string"] or token["raw"]:
            if strings:
                found.append(token[0])
            elif found[-1:] != ['""']:
                found.append('""')
        elif not token["space"] and not token["comment"]:
            in_directive |= token[0] == "#"
            found.append(token[0])
    return found


def tree(text, strings):
    """Returns the syntax tree of a Python file without docstrings, with or without what is in strings. Raises
    SyntaxError."""
    parsed = ast.parse(text)
    for node in ast.walk(parsed):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node) is not None:
                # A class or function may consist of its docstring alone, or of it and `pass`.
                node.body = [each for each in node.body[1:] if not isinstance(each, ast.Pass)]
    if not strings:
        formats = {id(node.format_spec) for node in ast.walk(parsed) if isinstance(node, ast.FormattedValue)}
        kept = {id(part) for node in ast.walk(parsed) if id(node) in formats for part in ast.walk(node)}
        for node in ast.walk(parsed):
            if isinstance(node, ast.JoinedStr) and id(node) not in formats:
                node.values = [each for each in node.values if not isinstance(each, ast.Constant)]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in kept:
                node.value = ""
    return ast.dump(parsed)


def lines(text, comment):
    """Returns the lines without comments, which `comment` opens outside quotes, and without empty lines."""
    part = re.compile(rf"({QUOTED})|\s*(?:{comment}).*")
    kept = [part.sub(lambda match: match[1] or "", line).rstrip() for line in text.splitlines()]
    return [line for line in kept if line]


def code_of(name, text, strings=True):
    """Returns the code of a file, which a change of comments must leave unchanged; None if the file is not compared."""
    kind = pathlib.PurePath(name).suffix
    first = text.split("\n", 1)[0]
    if kind == ".md":
        return None
    if kind in COMPILED:
        return tokens(text, strings)
    if kind == ".py" or first.startswith("#!") and "python" in first:
        return tree(text, strings)
    if kind in COMMENT:
        return lines(text, COMMENT[kind])
    return lines(text, COMMENT[".sh"]) if first.startswith("#!") and "sh" in first else text


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True, errors="replace").stdout


def version(commit, name):
    """Returns a file of a commit, or of the working tree if `commit` is empty."""
    return git("show", f"{commit}:{name}") if commit else (ROOT / name).read_text(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?", default="HEAD", metavar="COMMIT")
    parser.add_argument("new", nargs="?", default="", metavar="COMMIT")
    parser.add_argument("--messages", action="store_true", help="strings of C, C++ and Python may differ")
    args = parser.parse_args()
    names = git("diff", "-z", "--no-renames", "--name-only", args.old, *filter(None, [args.new])).split("\0")[:-1]
    differing = []
    for name in names:
        try:
            same = (code_of(name, version(args.old, name), not args.messages) ==
                    code_of(name, version(args.new, name), not args.messages))
        except (subprocess.CalledProcessError, FileNotFoundError, SyntaxError):
            same = False  # not in both versions, or not to be parsed
        if not same:
            differing.append(name)
    for name in differing:
        print(f"the code differs: {name}")
    print(f"{len(names)} files changed, the code of {len(differing)} differs")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
