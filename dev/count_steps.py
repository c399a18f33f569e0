#!/usr/bin/python3
"""Counts the instructions that kernels of codecs take for each float on 64-bit ARM, and compares them.

QEMU runs repeat_op one instruction at a time and logs each one. A run with three repetitions and a run with one differ
by two repetitions; half of the difference is one repetition. Prints a table, and fails if a ratio is below --least.
"""

import argparse
import pathlib
import subprocess
import sys

CODECS = ["raw", "bf16", "fp16", "fixed:10", "fixed:14", "terngrad", "int8", "qsgd:4", "signsgd"]
OPERATIONS = ["encode", "hop", "decode", "decode_add"]
FLOATS = 4096


def instructions(qemu, program, *arguments):
    """Returns the number of instructions that a program executes. QEMU logs each to the shell's pipe; errors go to
    stderr."""
    command = [*qemu, "-singlestep", "-d", "exec,nochain", "-D", "/dev/fd/3", str(program), *map(str, arguments)]
    done = subprocess.run(["bash", "-c", 'set -o pipefail; "$@" 3>&1 >/dev/null | wc -l', "count", *command],
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"count_steps.py: {' '.join(command)} failed")
    return int(done.stdout)


def per_float(qemu, program, isa, codec, operation):
    once, thrice = (instructions(qemu, program, isa, codec, operation, FLOATS, times) for times in (1, 3))
    return (thrice - once) / 2 / FLOATS


def words(text):
    return text.split(",")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--codecs", type=words, default=CODECS, metavar="CODEC,...")
    parser.add_argument("--operations", type=words, default=OPERATIONS, metavar="OPERATION,...")
    parser.add_argument("--least", type=float, default=0, metavar="RATIO")
    parser.add_argument("--plain", type=pathlib.Path, required=True, metavar="FILE",
                        help="repeat_op, built with -fno-tree-vectorize; NEON is compared with its scalar kernels")
    parser.add_argument("program", type=pathlib.Path, help="repeat_op")
    parser.add_argument("qemu", nargs=argparse.REMAINDER,
                        help="command that runs 64-bit ARM programs, such as qemu-aarch64")
    args = parser.parse_args()
    print("| codec | operation | scalar | scalar, as built | NEON | ratio |\n|---|---|---|---|---|---|", flush=True)
    short = []
    for codec in args.codecs:
        for operation in args.operations:
            plain = per_float(args.qemu, args.plain, "scalar", codec, operation)
            built = per_float(args.qemu, args.program, "scalar", codec, operation)
            neon = per_float(args.qemu, args.program, "neon", codec, operation)
            ratio = plain / neon
            print(f"| `{codec}` | {operation} | {plain:.1f} | {built:.1f} | {neon:.2f} | {ratio:.1f} |", flush=True)
            if ratio < args.least:
                short.append(f"{codec} {operation} {ratio:.1f}")
    if short:
        sys.exit(f"count_steps.py: ratio below --least {args.least:g}: {', '.join(short)}")


if __name__ == "__main__":
    main()
