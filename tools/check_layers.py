#!/usr/bin/python3
"""Checks include directions between folders, and style that a script can see (docs/design.md, "Folders")."""

import argparse
import pathlib
import re
import sys

# Folder: folders it may include from. tools and tests may include anything.
MAY_INCLUDE = {
    "compress": {"compress"},
    "collectives": {"collectives", "compress"},
    "config": {"config", "collectives", "compress"},
    "client": {"client"},
    "dataplane": {"dataplane", "collectives", "compress", "config", "client"},
}

# System headers that belong to some folders only.
SYSTEM_ONLY_IN = [
    (re.compile(r"rte_"), ("dataplane/",)),
    (re.compile(r"yaml-cpp/"), ("config/",)),
    (re.compile(r"(immintrin|x86intrin)\.h"), ("compress/avx",)),
    (re.compile(r"CLI/"), ("tools/",)),
    (re.compile(r"gtest/|gmock/"), ("tests/",)),
    (re.compile(r"(spdlog|fmt)/"), ("tools/", "tests/", "dataplane/", "config/")),
]

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
SOURCES = (".h", ".cc", ".c")
MAX_LINES = 400


def check_includes(path, lines):
    folder = path.parts[0]
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        own, system = match.groups()
        where = f"{path}:{number}"
        if own:
            target = own.split("/")[0]
            if "/" not in own:
                yield f'{where}: "{own}" must be written from the root of the repository'
            elif folder in MAY_INCLUDE and target not in MAY_INCLUDE[folder]:
                yield f"{where}: {folder} must not include from {target}"
        else:
            for pattern, folders in SYSTEM_ONLY_IN:
                if pattern.match(system) and not str(path).startswith(folders):
                    yield f"{where}: <{system}> is for {', '.join(folders)} only"


def check_style(path, text, lines):
    if not lines or not lines[0].startswith(f"// {path.name} - "):
        yield f"{path}:1: the first line must be '// {path.name} - what it is (who runs it)'"
    if path.suffix == ".h" and "#pragma once" not in text:
        yield f"{path}: no #pragma once"
    if not text.isascii():
        yield f"{path}: not ASCII"
    if len(lines) > MAX_LINES:
        yield f"{path}: {len(lines)} lines, more than {MAX_LINES}: split it by step"


def sources(root):
    for path in sorted(root.rglob("*")):
        if path.suffix in SOURCES and not path.relative_to(root).parts[0].startswith(("build", ".")):
            yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent, type=pathlib.Path)
    parser.add_argument("--list", action="store_true", help="print the source files and check nothing")
    args = parser.parse_args()
    faults = []
    for path in sources(args.root):
        relative = path.relative_to(args.root)
        if args.list:
            print(relative)
            continue
        text = path.read_text()
        lines = text.splitlines()
        faults += check_includes(relative, lines)
        faults += check_style(relative, text, lines)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
