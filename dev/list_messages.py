#!/usr/bin/python3
"""Prints the messages of the product: errors, warnings, lines of logs, help, as `file:line: text`.

    dev/list_messages.py [PATH...]    # of all files, or of these and those in these folders

A message is a string of three words and more in C, C++ or Python that is no comment or docstring. Adjacent strings
count as one. Read the list from top to bottom as an operator: a message says what happened, where, and what to do next.
"""

import argparse
import ast
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOKEN = re.compile(r'(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<raw>R"\((?P<body>.*?)\)")|(?P<string>"(?:\\.|[^"\\\n])*")'
                   r"|(?P<word>\d[\w.']*|[A-Za-z_]\w*)|(?P<char>'(?:\\.|[^'\\\n])+')|(?P<space>\s+)|(?P<other>.)", re.DOTALL)


def compiled(text):
    """Yields (line, string) of C or C++; strings side by side are one."""
    line, start, parts = 1, 0, []
    for token in TOKEN.finditer(text):
        if token["string"] or token["raw"]:
            start = start or line
            parts.append(token["body"] if token["raw"] else token["string"][1:-1])
        elif parts and not token["space"] and not token["comment"]:
            yield start, "".join(parts)
            start, parts = 0, []
        line += token[0].count("\n")


def python(text):
    """Yields (line, string) of Python; the fields of an f-string are `{}`."""
    parsed = ast.parse(text)
    docs = {id(node.body[0].value) for node in ast.walk(parsed)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and ast.get_docstring(node) is not None}
    inside = {id(part) for node in ast.walk(parsed) if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node}
    for node in ast.walk(parsed):
        if id(node) in docs or id(node) in inside:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH")
    args = parser.parse_args()
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--", *args.paths], capture_output=True, text=True,
                            check=True).stdout.split()
    for name in listed:
        path = ROOT / name
        if name.startswith(("tests/", "sim/")) or path.is_symlink() or path.suffix not in (".cc", ".h", ".c", ".py"):
            continue
        for line, text in (python if path.suffix == ".py" else compiled)(path.read_text(errors="replace")):
            if len(re.findall(r"[A-Za-z]{2,}", text)) >= 3 and " " in text.strip():
                print(f"{name}:{line}: {' '.join(text.split())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
