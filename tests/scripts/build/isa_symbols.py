#!/usr/bin/python3
"""Checks that no code of one instruction set can leak into the portable path.

A function that the linker may share between translation units (a weak symbol) and that was compiled with AVX flags
could be picked for a CPU without AVX. So libraries of one instruction set must define none, and the portable library
must contain no instruction of AVX at all.
"""

import argparse
import re
import subprocess
import sys

# Defined weak or unique symbols: V, v, W, w, u. (Undefined ones have no address.)
WEAK = re.compile(r"^[0-9a-f]+ [VvWwu] (.*)$")
# Only VEX and EVEX code has these: mnemonics that begin with v, instructions on mask registers, and the wide registers.
AVX = re.compile(r"^\s*[0-9a-f]+:\s+(v(?!err|erw|m(call|launch|resume|xo))[a-z0-9]+|k(mov|or|and|shift)[a-z]*)\s|%[yz]mm|%k[0-7]")


def lines_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def weak_symbols(library):
    return [m.group(1) for m in map(WEAK.match, lines_of("nm", "-C", library)) if m]


def avx_instructions(library):
    return [line.strip() for line in lines_of("objdump", "-d", "--no-show-raw-insn", library) if AVX.search(line)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("portable", help="library of the portable path")
    parser.add_argument("isa", nargs="+", help="libraries of one instruction set each")
    args = parser.parse_args()

    faults = [f"{args.portable}: {line}" for line in avx_instructions(args.portable)]
    for library in args.isa:
        faults += [f"{library}: weak symbol {name}" for name in weak_symbols(library)]
        if not avx_instructions(library):
            faults.append(f"{library}: no AVX instruction found; this check does not see what it should")
    for fault in faults[:20]:
        print(fault, file=sys.stderr)
    if faults:
        sys.exit(f"{len(faults)} leaks between instruction sets")
    print("no leaks")


if __name__ == "__main__":
    main()
