#!/usr/bin/python3
"""Checks that built programs and libraries have the compiler's and the linker's protection. usage: hardening_test.py
FILE...

The linker makes them position-independent, and read-only what it has resolved at the start. The compiler puts canaries
on stacks, and calls of libc that check the size of their buffers.
"""

import pathlib
import re
import subprocess
import sys


def readelf(option, path):
    return subprocess.run(["readelf", "--wide", option, path], check=True, capture_output=True, text=True).stdout


def missing(path):
    """Returns what the file lacks."""
    headers, dynamic = readelf("--program-headers", path), readelf("--dynamic", path)
    functions = set(re.findall(r" UND ([^@\s]+)", readelf("--dyn-syms", path)))
    is_library = ".so" in pathlib.Path(path).name
    there = {
        "position-independent": "Elf file type is DYN" in headers and (is_library or re.search(r"FLAGS_1.*\bPIE\b", dynamic)),
        "RELRO": "GNU_RELRO" in headers,
        "BIND_NOW": re.search(r"FLAGS.*\b(BIND_NOW|NOW)\b", dynamic),
        "a stack that is not executable": re.search(r"GNU_STACK\s.*\sRW\s", headers),
        "stack canaries": "__stack_chk_fail" in functions,
        # The library has few calls that could be checked, so it may have none.
        "_FORTIFY_SOURCE": is_library or any(re.fullmatch(r"__\w+_chk", name) for name in functions - {"__stack_chk_fail"}),
    }
    return [name for name, found in there.items() if not found]


def main():
    paths = sys.argv[1:]
    assert paths, "no files"
    faults = [f"{path} lacks {', '.join(lacks)}" for path in paths if (lacks := missing(path))]
    assert not faults, "; ".join(faults)
    print(f"{len(paths)} files are hardened")
    return 0


if __name__ == "__main__":
    sys.exit(main())
