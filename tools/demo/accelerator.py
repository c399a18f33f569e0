#!/usr/bin/python3
"""Sends the same floats over TCP three times: unmarked, marked, and marked with packets put together on the wire.

accelerator_demo.sh calls it after the build. It starts two hosts by `gradlane run --link accelerator`, and runs itself
again on each of them. There it starts float_stream.py, which knows nothing of gradlane. Needs root.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
STREAM = [sys.executable, "-B", str(HERE / "float_stream.py")]
PORT = 5000
PATIENCE = 120
WAYS = [("ToS 0", 0, "off"), ("ToS 0x28", 0x28, "off"), ("ToS 0x28, repacked", 0x28, "on")]


# ---- On the hosts


def wire_port(field):
    """Returns a figure of the wire port of this host's accelerator."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(os.environ["GRADLANE_ADMIN"])
        client.sendall(b"stats\n")
        with client.makefile() as answer:
            return json.loads(answer.read())["ports"]["wire"][field]


def wait_for(folder, name):
    deadline = time.monotonic() + PATIENCE
    while not (folder / name).exists():
        if time.monotonic() > deadline:
            sys.exit(f"tools/demo/accelerator.py: the other host was not ready within {PATIENCE} s: no '{name}' from it")
        time.sleep(0.02)


def be_receiver(args, folder):
    bound = 2.0 ** -int(args.codec.partition(":")[2]) if args.tos else 0
    command = [*STREAM, "receive", "--once", "--port", str(PORT), "--data", args.data, "--bound", str(bound), "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as receiver:
        if "listening" not in receiver.stderr.readline():
            sys.exit("tools/demo/accelerator.py: float_stream.py receive failed")
        (folder / "listening").touch()
        receiver.stderr.read()
    return receiver.returncode


def be_sender(args, folder):
    wait_for(folder, "listening")
    time.sleep(0.3)  # the daemon's figures are at most 100 ms old
    before = {field: wire_port(field) for field in ("sent", "sent_bytes")}
    address = os.environ["GRADLANE_PEERS"].split(",")[1]
    command = [*STREAM, "send", address, "--port", str(PORT), "--tos", str(args.tos), "--floats", str(args.floats),
               "--data", args.data, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        return done.returncode or 1
    time.sleep(0.3)
    result = json.loads(done.stdout)
    result["packets"], result["wire_bytes"] = (wire_port(field) - before[field] for field in ("sent", "sent_bytes"))
    (folder / "result").write_text(json.dumps(result))
    return done.returncode


# ---- Outside


def measure(args, tos, repack):
    with tempfile.TemporaryDirectory(prefix="gradlane-demo-") as folder:
        command = [args.gradlane, "run", "--link", "accelerator", "-n", "2", "--rate", args.rate, "--codec", args.codec,
                   "--repack", repack, "--no-prefix", "--", sys.executable, "-B", __file__, "--host", folder, "--tos",
                   str(tos), "--floats", str(args.floats), "--data", args.data, "--codec", args.codec]
        done = subprocess.run(command, check=False)
        result = pathlib.Path(folder, "result")
        if not result.exists():
            sys.exit(f"tools/demo/accelerator.py: 'gradlane run' ended with status {done.returncode}; see above")
        return json.loads(result.read_text())


def print_table(args, rows):
    base = rows[0]
    print(f"{args.floats} floats ({args.data}, {args.floats * 4e-6:.0f} MB) over TCP, a wire of {args.rate}, "
          f"{args.codec}")
    print(f"  {'':20} {'time':>8} {'':>6} {'Mb/s':>6} {'MB on the wire':>15} {'':>6} {'packets':>9} {'':>6}   "
          "worst error")
    for row in rows:
        less = [f"{base[key] / row[key]:.1f}x" for key in ("seconds", "wire_bytes", "packets")]
        print(f"  {row['name']:20} {row['seconds']:6.2f} s {less[0]:>6} {row['goodput'] * 8e-6:6.0f} "
              f"{row['wire_bytes'] / 1e6:15.1f} {less[1]:>6} {row['packets']:9} {less[2]:>6}   {row['worst_error']:.6f}"
              f"{'' if row['right'] else '   NOT RIGHT'}")
    saved = 1 - rows[-1]["seconds"] / base["seconds"]
    print(f"Time reduced by {saved:.1%}. The INCEPTIONN paper reduces communication time of trainings by 70.9 to 80.7 %,\n"
          "and does not change the number of packets.")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradlane", default=HERE.parents[1] / "build" / "tools" / "gradlane")
    parser.add_argument("--floats", type=int, default=1 << 25, help="floats per transfer (2^25)")
    parser.add_argument("--rate", default="200mbit", help="rate of the wire (200mbit)")
    parser.add_argument("--codec", default="fixed:10", help="fixed:B or inceptionn:B (fixed:10)")
    parser.add_argument("--data", default="laplace-1e-3", help="see float_stream.py --help (laplace-1e-3)")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON to it")
    # folder to share with the other host; set if this runs on a host
    parser.add_argument("--host", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--tos", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    args = parse()
    if args.host:
        return (be_sender if os.environ["RANK"] == "0" else be_receiver)(args, args.host)
    if os.getuid() != 0:
        print("tools/demo/accelerator.py: network namespaces need root", file=sys.stderr)
        return 2
    rows = []
    for name, tos, repack in WAYS:
        print(f"-- {name}", flush=True)
        rows.append({"name": name, **measure(args, tos, repack)})
    print()
    print_table(args, rows)
    if args.json:
        document = {"rate": args.rate, "codec": args.codec, "data": args.data, "floats": args.floats, "rows": rows}
        pathlib.Path(args.json).write_text(json.dumps(document) + "\n")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
