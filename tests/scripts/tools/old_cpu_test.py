#!/usr/bin/python3
"""Tests programs on emulated CPUs below x86-64-v2. Each prints one line that says what is missing, and what to choose
instead.

old_cpu_test.py QEMU PROGRAM...
"""

import argparse
import pathlib
import subprocess
import sys

# CPU model, and features that it lacks besides SSE4.2 and POPCNT.
TOO_OLD = {
    "kvm64": ["SSSE3", "SSE4.1", "LAHF/SAHF"],
    "qemu64": ["SSSE3", "SSE4.1"],
    "Conroe": ["CMPXCHG16B", "SSE4.1"],
    "Penryn": [],
    "Nehalem,-ssse3": ["SSSE3"],
}
RECENT = ["Nehalem", "max"]


def run(qemu, model, *command):
    return subprocess.run([qemu, "-cpu", model, *command], capture_output=True, text=True, timeout=60)


def check_too_old(qemu, program):
    name = pathlib.Path(program).name
    for model, lacking in TOO_OLD.items():
        # The error is the same for any arguments, because nothing of the program has begun.
        for arguments in ([], ["--version"], ["--nonsense"]):
            result = run(qemu, model, program, *arguments)
            assert result.returncode == 2 and result.stdout == "", (model, arguments, result)
            line = result.stderr.removesuffix("\n")
            assert "\n" not in line and line.startswith(f"{name}: this CPU lacks "), (model, line)
            said = line.split("lacks ")[1].split(";")[0].split(", ")
            expected = lacking + ([] if model.startswith("Nehalem") else ["SSE4.2", "POPCNT"])
            assert sorted(said) == sorted(expected), (model, said)
            assert "QEMU: -cpu host" in line and "x86-64-v2" in line, line


def check_recent(qemu, program):
    name = pathlib.Path(program).name
    for model in RECENT:
        result = run(qemu, model, program, "--version")
        assert result.returncode == 0 and result.stdout.startswith(f"{name} ") and result.stderr == "", (model, result)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("qemu")
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()
    for program in args.programs:
        check_too_old(args.qemu, program)
        check_recent(args.qemu, program)
    print(f"{len(args.programs)} programs on {len(TOO_OLD)} CPUs that are too old, and {len(RECENT)} that are not")
    return 0


if __name__ == "__main__":
    sys.exit(main())
