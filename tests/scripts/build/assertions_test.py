#!/usr/bin/python3
"""Checks that the option `assertions` of a build folder holds for all of its C++: with the standard library's
assertions, or without.

Versions of meson differ in the options that they add, so the last option on each command line must be gradlane's.
"""

import argparse
import json
import pathlib
import shlex
import sys

MACRO = "_GLIBCXX_ASSERTIONS"


def last_word(command):
    """Returns True if the macro is defined in the end, False if it is not, None if no option names it."""
    words = [word for word in shlex.split(command) if word[:2] in ("-D", "-U") and word[2:].split("=")[0] == MACRO]
    return words[-1].startswith("-D") if words else None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("wanted", choices=["true", "false"], help="option `assertions` of the build folder")
    args = parser.parse_args()
    commands = json.loads((args.build / "compile_commands.json").read_text())
    sources = [entry for entry in commands if entry["file"].endswith((".cc", ".cpp"))]
    assert len(sources) > 50, f"only {len(sources)} C++ files in {args.build}: this test looks at the wrong place"
    wrong = [entry["file"] for entry in sources if last_word(entry["command"]) != (args.wanted == "true")]
    assert not wrong, f"{MACRO} is not {args.wanted} for {len(wrong)} of {len(sources)} files: {', '.join(wrong[:5])} ..."
    print(f"{MACRO} is {args.wanted} for {len(sources)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
