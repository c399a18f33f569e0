# scalability.py - times of exchanges on more and more nodes, real and simulated (lab/scalability.sh starts it;
# docs/benchmarks.md)

import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time

from lab.compare.busy import busy_cores
from lab.compare.ways import AGGREGATOR, DIRECT, GBPS, MIB, RING, RTT

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MTU = 1500
STRATEGIES, CODECS = (AGGREGATOR, RING, DIRECT), ("raw", "fixed:10")
DATA = "gauss-0.01"
REAL_NODES, SIMULATED_NODES = (4, 6, 8), (4, 6, 8, 16, 32, 64)
ITERATIONS, WARMUP = 3, 1  # operations of each strategy and codec in each round
PATIENCE = 600  # s; time limit of one job


class Failed(Exception):
    """A command that failed or gave wrong results."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def about():
    with open("/proc/cpuinfo") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return {"cpu": models[0] if models else "unknown", "cores": os.cpu_count(), "kernel": platform.release()}


def real_command(settings, nodes):
    run = [settings["gradlane"], "run", "-n", nodes, "--no-prefix", "--link", "veth", "--rate", settings["rate"],
           "--mtu", settings["mtu"], "--strategies", ",".join((RING, *(s for s in STRATEGIES if s != RING)))]
    perf = [settings["gradlane"], "perf", "--json", "--data", DATA, "--strategy", ",".join(STRATEGIES), "--codec",
            ",".join(CODECS), "-b", settings["bytes"], "-e", settings["bytes"], "-n", settings["iterations"], "-w",
            WARMUP]
    return [str(word) for word in (*run, "--", *perf)]


def simulation_command(settings, nodes):
    words = [settings["gradlane"], "sim", "--json", "--nodes", nodes, "--strategy", ",".join(STRATEGIES), "--codec",
             *CODECS, "--size", settings["simulated_bytes"], "--gbps", GBPS, "--rtt", RTT, "--mtu", settings["mtu"],
             "--data", DATA]
    return [str(word) for word in words]


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("GRADLANE_")}


def rows_of(command):
    """Runs a command. Returns the rows of the JSON that it prints. Raises Failed."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    except BaseException:
        process.send_signal(signal.SIGTERM)  # it then removes the namespaces that it has made
        process.wait()
        raise
    if process.returncode != 0:
        raise Failed(f"'{' '.join(command)}' ended with status {process.returncode}")
    rows = json.loads(out)["rows"]
    wrong = [row for row in rows if row["wrong"]]
    if wrong:
        raise Failed(f"wrong results: {wrong}")
    return rows


def round_on(results, nodes):
    """Runs each strategy with each codec on this number of nodes, one after the other. Adds the times to the results.
    """
    results["busy_cores"].append(busy_cores())
    for row in rows_of(real_command(results["settings"], nodes)):
        way = nodes, row["strategy"], row["codec"]
        kept = next((kept for kept in results["real"] if (kept["nodes"], kept["strategy"], kept["codec"]) == way), None)
        if kept is None:
            kept = {"nodes": nodes, "strategy": row["strategy"], "codec": row["codec"], "seconds": []}
            results["real"].append(kept)
        kept["seconds"].append(row["time_us"] / 1e6)


def measure(results, save):
    """Runs all rounds and simulations. Each round has all numbers of nodes, so that other work on the machine disturbs
    all numbers alike."""
    settings = results["settings"]
    for number in range(settings["rounds"]):
        for nodes in settings["real_nodes"]:
            say(f"round {number + 1} of {settings['rounds']}: {nodes} nodes at {settings['rate']}")
            round_on(results, nodes)
            save()
    for nodes in settings["simulated_nodes"]:
        say(f"simulating {nodes} nodes")
        results["simulated"] += [
            {name: row[name] for name in ("nodes", "strategy", "codec", "seconds", "wa_seconds", "star_seconds")}
            for row in rows_of(simulation_command(settings, nodes))]
        save()


def parse():
    parser = argparse.ArgumentParser(prog="lab/scalability.sh", allow_abbrev=False, description=(
        "Times all-reduce by gradlane's aggregator, ring and direct exchange on 4, 6 and 8 nodes, in namespaces on "
        "links with a rate, and simulates them on up to 64 nodes. Writes results.json, a table and a plot. Needs root "
        "and about 6 minutes. docs/benchmarks.md explains the rest."))
    parser.add_argument("--out", type=pathlib.Path, default="scalability-results", metavar="DIR",
                        help="folder for results.json, scalability.md and scalability.png (%(default)s)")
    parser.add_argument("--rate", default="100mbit", help="rate of the real links, so low that cores do not limit the "
                        "times (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds; the best counts (%(default)s)")
    parser.add_argument("--quick", action="store_true",
                        help="only check that it works: one round, small tensors, 8 nodes at most")
    parser.add_argument("--render", action="store_true",
                        help="measure nothing; make table and plot of DIR/results.json")
    parser.add_argument("--write-docs", action="store_true",
                        help="write the table to docs/results/scalability.md, and the plot to docs/images")
    parser.add_argument("--gradlane", type=pathlib.Path, default=ROOT / "build" / "tools" / "gradlane",
                        help="build/tools/gradlane")
    args = parser.parse_args()
    if not 1 <= args.rounds <= 100:
        parser.error(f"--rounds {args.rounds}: must be from 1 to 100")
    if args.write_docs and (args.quick or args.rounds < 3):
        parser.error("--write-docs: the page needs full tensors and 3 rounds or more; leave out --quick and --rounds")
    if not args.render and os.geteuid() != 0:
        parser.error("network namespaces need root; use sudo")
    if not args.render and not args.gradlane.exists():
        parser.error(f"{args.gradlane} is missing; run 'meson setup build && ninja -C build'")
    return args


def settings_of(args):
    return {
        "gradlane": str(args.gradlane.resolve()), "rate": args.rate, "mtu": MTU, "quick": args.quick,
        "rounds": 1 if args.quick else args.rounds, "iterations": 1 if args.quick else ITERATIONS,
        "bytes": MIB // 4 if args.quick else 2 * MIB, "simulated_bytes": MIB // 4 if args.quick else 8 * MIB,
        "real_nodes": [4] if args.quick else list(REAL_NODES),
        "simulated_nodes": [4, 8] if args.quick else list(SIMULATED_NODES),
    }


def interrupt(*_):
    raise KeyboardInterrupt


def run(args, path):
    """Measures and returns the exit status. After each job, the file gets all results that there are."""
    results = {"about": about(), "settings": settings_of(args), "busy_cores": [], "real": [], "simulated": []}

    def save():
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(results, indent=1) + "\n")
        fresh.rename(path)

    begin = time.monotonic()
    try:
        measure(results, save)
        results["minutes"] = (time.monotonic() - begin) / 60
        save()
    except (Failed, subprocess.TimeoutExpired) as failure:
        say(f"lab/scalability.sh: {failure}")
        return 1
    except KeyboardInterrupt:
        say("lab/scalability.sh: interrupted")
        return 130
    return 0


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "results.json"
    signal.signal(signal.SIGTERM, interrupt)
    code = 0 if args.render else run(args, path)
    if code:
        return code
    from lab.compare import scalability_page as page  # imported here, because it imports Matplotlib, which is slow

    results = json.loads(path.read_text())
    print(page.write(results, args.out))
    if args.write_docs:
        if results["settings"]["quick"] or "minutes" not in results:
            say("lab/scalability.sh: docs/results/scalability.md was not changed: the run was --quick or incomplete")
            return 1
        page.write_docs(results, ROOT / "docs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
