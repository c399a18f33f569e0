#!/usr/bin/python3
"""Counts instructions per packet in the exchange and per float in codecs, and reports what has grown.

Counts come from valgrind (callgrind), so they depend on the code and the compiler, and not on the load of the machine.
Valgrind has no AVX-512: kernels are those of AVX2, or of NEON on ARM. dev/instructions.jsonl has a line for each commit
that was recorded. New counts are compared with its last line of the same compiler.

It builds nothing. Before it, run: ninja -C build tools/gradlane tests/compress/repeat_op
"""

import argparse
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORDS = ROOT / "dev/instructions.jsonl"
ISA = "neon" if platform.machine() == "aarch64" else "avx2"
HOPS = {"reduce": 1, "gather": 2}  # values of the enum Hop (tools/bench/hop.h)
EXCHANGE_CODECS = ("raw", "fixed:10")
CODECS = {
    ("raw", "bf16", "fp16", "fixed:10", "inceptionn:10", "terngrad", "signsgd", "topk:1%"): ("encode", "decode", "hop"),
    ("int8", "qsgd:4"): ("encode", "decode", "decode_add"),  # encoded blocks of these cannot be added, so they have no hop
}
FLOATS = 4096
GROWTH_LIMIT = 1.02


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout.strip()


def count(options, *command):
    """Runs a command in callgrind. Returns the number of instructions, and the standard output."""
    done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *options, *map(str, command)],
                          env={**os.environ, "GRADLANE_ISA": ISA}, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or found is None:
        sys.exit(f"instructions.py: {' '.join(map(str, command))}: {done.stderr[-1000:]}")
    return int(found[1]), done.stdout


def per_packet(build, hop, codec):
    """Returns the instructions of one packet's hop. take() in tools/bench/hop_figures.cc is what is counted."""
    total, said = count([f"--toggle-collect=*take<(gradlane::Hop){HOPS[hop]}>*"], build / "tools/gradlane", "bench",
                        "exchange", "--quick", "--json", "--codec", codec)
    row = next(row for row in json.loads(said)["rows"] if row["hop"] == hop)
    return total / (row["bursts"] * row["burst"])


def per_float(build, operation, codec):
    """Returns the instructions of an operation for each float: half of what three repetitions have more than one."""
    once, thrice = (count([], build / "tests/compress/repeat_op", ISA, codec, operation, FLOATS, times)[0]
                    for times in (1, 3))
    return (thrice - once) / 2 / FLOATS


def measure(build):
    counts = {}
    for codec in EXCHANGE_CODECS:
        for hop in HOPS:
            counts[f"packet, {hop}, {codec}"] = round(per_packet(build, hop, codec), 1)
    for codecs, operations in CODECS.items():
        for codec in codecs:
            for operation in operations:
                counts[f"float, {operation}, {codec}"] = round(per_float(build, operation, codec), 3)
    return counts


def compiler(program):
    """Returns the name that the compiler leaves in programs."""
    return re.search(rb"GCC: \(.*?\) [\d.]+|clang version [\d.]+", program.read_bytes())[0].decode()


def report(counts, before):
    """Prints all counts and, last, those that have grown since the record `before`, which may be None."""
    old = before["counts"] if before else {}
    print(f"{'instructions per':40} {'now':>9} {'before':>9} {'change':>7}")
    for name, now in counts.items():
        then = old.get(name)
        print(f"{name:40} {now:9g} " + (f"{then:9g} {100 * (now / then - 1):+6.1f}%" if then else f"{'new':>9}"))
    grown = [name for name, now in counts.items() if now > GROWTH_LIMIT * old.get(name, now)]
    print(f"grown by more than {100 * (GROWTH_LIMIT - 1):.0f} % since {before['commit']}: {'; '.join(grown) or 'nothing'}"
          if before else "dev/instructions.jsonl has no record of this compiler")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (build/)")
    parser.add_argument("--record", action="store_true", help="append the counts to dev/instructions.jsonl")
    args = parser.parse_args()
    line = {"commit": git("describe", "--always", "--dirty"), "date": git("log", "-1", "--format=%cs"),
            "compiler": compiler(args.build / "tools/gradlane"), "isa": ISA}
    records = [json.loads(each) for each in RECORDS.read_text().splitlines()]
    alike = [each for each in records if (each["compiler"], each["isa"]) == (line["compiler"], line["isa"])]
    counts = measure(args.build)
    report(counts, alike[-1] if alike else None)
    if args.record:
        with RECORDS.open("a") as file:
            file.write(json.dumps({**line, "counts": counts}) + "\n")


if __name__ == "__main__":
    main()
