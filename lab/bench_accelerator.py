#!/usr/bin/python3
"""Measures accelerator mode: two hosts in network namespaces, each behind a gradlaned that is its NIC. Needs root.

There are four parts:

- a stream of float32 over TCP by an ordinary program (float_stream.py) at ToS 0 and 0x28, over wires with a tbf
- traffic that passes untouched, compared with dpdk-testpmd --forward-mode=io on the same ports
- ping
- bytes, packets and time for the error bounds of the INCEPTIONN paper

docs/accelerator.md explains the figures. They mean little if the machine does something else at the same time.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # imports are written from the root
from lab.net import bumps as rig  # noqa: E402

MARKED = 0x28
SEGMENT = 1448  # bytes of a TCP segment with time stamps at MTU 1500
DATA = "laplace-1e-3"
PARTS = ["streams", "passing", "latency", "bounds"]
TARGETS = {"plain_gain": 3.0, "repacked_of_ratio": 0.8, "passing": 0.9, "ping_us": 60.0}


def say(text):
    print(f"bench_accelerator.py: {text}", file=sys.stderr, flush=True)


def codec_ratio(args, codec):
    """Returns the ratio of the codec alone, for one segment's floats."""
    text = rig.run(args.gradlane, "bench", "codec", "--quick", "--json", "--codec", codec, "--data", DATA, "--op",
                   "encode", "--block", SEGMENT)
    return json.loads(text)["rows"][0]["ratio"]


def bound_of(codec, tos):
    return 2.0 ** -int(codec.partition(":")[2]) if tos == MARKED else 0


def stream(net, bump, tos, **amount):
    """Runs a float stream. Returns its result, to which it adds the CPU seconds of each process per GB of floats.
    Raises BenchError."""
    codec = getattr(bump, "codec", "raw:0")
    before = bump.cpu_seconds()
    result = rig.float_stream(net, tos=tos, bound=bound_of(codec, tos), data=DATA, **amount)
    cpu = [after - before for before, after in zip(before, bump.cpu_seconds(), strict=True)]
    if not result["right"]:
        raise rig.BenchError(f"the receiver got wrong data: {result}")
    giga = result["bytes"] / 1e9
    result["cpu_per_gb"] = {"sender": result["sender_cpu_seconds"] / giga, "near": cpu[0] / giga, "far": cpu[1] / giga,
                            "receiver": result["cpu_seconds"] / giga, "machine": result["machine_cpu_seconds"] / giga}
    result["wire_ratio"] = result["bytes"] / result["wire"]["to"]["bytes"]
    result["floats_per_packet"] = result["floats"] / result["wire"]["to"]["packets"]
    return result


def warm(net, bump):
    """Sends a short stream, by which the near accelerator learns of the far one. Marked packets pass uncompressed
    before that."""
    rig.float_stream(net, tos=MARKED, bound=bound_of(bump.codec, MARKED), floats=1 << 18)


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder

    def accelerators(self, net, **options):
        return rig.Accelerators(net, self.args, self.folder, **{"codec": self.args.codec, **options})

    # ---- Streams

    def streams(self, rate):
        """Measures the goodput of a float stream at ToS 0 and marked, with and without repacking."""
        rounds = []
        for number in range(self.args.rounds):
            row = {}
            for repack in (False, True) if number % 2 == 0 else (True, False):
                name = "repacked" if repack else "plain"
                with rig.Net(rate) as net, self.accelerators(net, repack=repack) as bump:
                    warm(net, bump)
                    row[f"{name}_tos0"] = stream(net, bump, 0, seconds=self.args.seconds)
                    row[name] = stream(net, bump, MARKED, seconds=self.args.seconds)
            for name in ("plain", "repacked"):
                row[f"{name}_gain"] = row[name]["goodput"] / row[f"{name}_tos0"]["goodput"]
            say(f"streams at {rate}, round {number + 1}: " + ", ".join(
                f"{key} {row[key]['goodput'] * 8e-6:.0f} Mb/s" for key in row if isinstance(row[key], dict)))
            rounds.append(row)
        return rounds

    # ---- Superpackets

    def superpackets(self, rate):
        """Measures the goodput of a float stream with superpackets between kernel and accelerator, and without, in
        turns."""
        rounds = []
        for number in range(self.args.rounds):
            row = {}
            for on in (False, True) if number % 2 == 0 else (True, False):
                name = "superpackets" if on else "packets"
                with rig.Net(rate) as net, self.accelerators(net, superpackets=on) as bump:
                    warm(net, bump)
                    row[f"{name}_tos0"] = stream(net, bump, 0, seconds=self.args.seconds)
                    row[name] = stream(net, bump, MARKED, seconds=self.args.seconds)
            for mark in ("", "_tos0"):
                row[f"gain{mark}"] = row[f"superpackets{mark}"]["goodput"] / row[f"packets{mark}"]["goodput"]
            say(f"superpackets at {rate}, round {number + 1}: " + ", ".join(
                f"{key} {row[key]['goodput'] * 8e-6:.0f} Mb/s" for key in row if isinstance(row[key], dict)))
            rounds.append(row)
        return rounds

    # ---- Traffic that passes untouched

    def passing(self, rate):
        """Measures goodput at ToS 0, through accelerators and through testpmd."""
        rounds = []
        for number in range(self.args.rounds):
            row = {}
            with rig.Net(rate) as net:
                bumps = {"testpmd": lambda net=net: rig.Testpmd(net),
                         "adaptive": lambda net=net: self.accelerators(net),
                         "spin": lambda net=net: self.accelerators(net, idle="spin")}
                names = list(bumps) if number % 2 == 0 else list(reversed(bumps))
                for name in names:
                    with bumps[name]() as bump:
                        row[name] = stream(net, bump, 0, seconds=self.args.seconds)
                        row[f"{name}_iperf"] = rig.iperf(net, max(2, round(self.args.seconds)))
            for name in ("adaptive", "spin"):
                row[f"{name}_share"] = row[name]["goodput"] / row["testpmd"]["goodput"]
                row[f"{name}_iperf_share"] = row[f"{name}_iperf"] / row["testpmd_iperf"]
            say(f"passing at {rate}, round {number + 1}: " + ", ".join(
                f"{key} {row[key]['goodput'] * 8e-6:.0f} Mb/s" for key in bumps))
            rounds.append(row)
        return rounds

    def latency(self):
        """Measures the median of ping in us: through testpmd, through accelerators that spin, and through accelerators
        with the default setting (adaptive).

        Makes many short rounds. Other work on the machine disturbs single rounds, in which spinning processes wait for
        milliseconds.
        """
        rounds = []
        for number in range(3 * self.args.rounds):
            row = {}
            with rig.Net() as net:
                bumps = {"testpmd": lambda net=net: rig.Testpmd(net),
                         "spin": lambda net=net: self.accelerators(net, idle="spin"),
                         "adaptive": lambda net=net: self.accelerators(net)}
                for name in list(bumps) if number % 2 == 0 else list(reversed(bumps)):
                    with bumps[name]():
                        times = sorted(rig.ping(net, self.args.pings))
                        row[name] = statistics.median(times)
                        row[f"{name}_p90"] = times[len(times) * 9 // 10]
            row["more"] = row["spin"] - row["testpmd"]
            say(f"ping, round {number + 1}: " + ", ".join(f"{key} {value:.0f} us" for key, value in row.items()))
            rounds.append(row)
        return rounds

    # ---- The paper's bounds

    def bounds(self):
        """Measures bytes and packets on the wire, and time, of a fixed number of floats with each codec and error
        bound."""
        rows = []
        for bits in self.args.bits:
            for kind in ("inceptionn", "fixed"):
                for repack in (False, True):
                    rows.append({"codec": f"{kind}:{bits}", "repack": repack, "tos": MARKED})
        rows.insert(0, {"codec": self.args.codec, "repack": False, "tos": 0})
        for row in rows:
            row["rounds"] = []
        for number in range(self.args.rounds):
            for row in rows:
                with rig.Net(self.args.rate) as net:
                    with self.accelerators(net, codec=row["codec"], repack=row["repack"]) as bump:
                        warm(net, bump)
                        row["rounds"].append(stream(net, bump, row["tos"], floats=self.args.floats))
                last = row["rounds"][-1]
                name = f"{row['codec']}{' repacked' if row['repack'] else ''}" if row["tos"] else "ToS 0"
                say(f"{name}, round {number + 1}: {last['seconds']:.2f} s")
        return rows


# ---- All of it


def middle(rounds, *path):
    """Returns median, least and most of a figure over the rounds."""
    values = []
    for row in rounds:
        for key in path:
            row = row[key]
        values.append(row)
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def measure(args):
    result = {"data": DATA, "codec": args.codec, "ratio": codec_ratio(args, args.codec), "rounds": args.rounds,
              "seconds": args.seconds, "rate": args.rate, "streams": {}, "passing": {}}
    rates = [args.rate, *([] if args.quick else [args.fast])]
    with tempfile.TemporaryDirectory(prefix="gradlane-bench-") as folder:
        bench = Bench(args, folder)
        if "streams" in args.only:
            result["streams"] = {rate: bench.streams(rate) for rate in rates}
        if "passing" in args.only:
            result["passing"] = {rate or "none": bench.passing(rate) for rate in [*rates, None]}
        if "latency" in args.only:
            result["latency"] = bench.latency()
        if args.superpackets:
            result["superpackets"] = {rate or "none": bench.superpackets(rate) for rate in [*rates, None]}
        if "bounds" in args.only:
            result["bounds"] = bench.bounds()
            result["ratios"] = {row["codec"]: codec_ratio(args, row["codec"]) for row in result["bounds"] if row["tos"]}
    result["met"] = judge(result)
    return result


def judge(result):
    """Compares figures with their targets. Returns, by name, the measured value and whether it is good enough."""
    met = {}
    if result["streams"]:
        rounds = result["streams"][result["rate"]]
        plain = middle(rounds, "plain_gain")["median"]
        share = middle(rounds, "repacked_gain")["median"] / result["ratio"]
        met["plain_gain"] = {"value": plain, "met": plain >= TARGETS["plain_gain"]}
        met["repacked_of_ratio"] = {"value": share, "met": share >= TARGETS["repacked_of_ratio"]}
    for rate, rounds in result["passing"].items():
        share = middle(rounds, "adaptive_share")["median"]
        met[f"passing at {rate}"] = {"value": share, "met": share >= TARGETS["passing"]}
    if "latency" in result:
        more = middle(result["latency"], "more")["median"]
        met["ping_us"] = {"value": more, "met": more <= TARGETS["ping_us"]}
    return met


# ---- Tables


def cell(figure, factor=1.0, form=".0f"):
    return f"{figure['median'] * factor:{form}} ({figure['least'] * factor:{form}} to {figure['most'] * factor:{form}})"


def print_streams(result):
    for rate, rounds in result["streams"].items():
        print(f"\nfloat stream over TCP, {rate} each way, {DATA}, {result['codec']} with ratio "
              f"{result['ratio']:.2f}")
        print(f"  {'':28} {'Mb/s of floats':>22} {'x ToS 0':>20} {'floats/packet':>13}   CPU s per GB of floats: "
              "sender, near, far, receiver")
        for name, title in (("plain_tos0", "ToS 0"), ("plain", "0x28"), ("repacked_tos0", "ToS 0, with repacking on"),
                            ("repacked", "0x28, repacked")):
            gain = cell(middle(rounds, f"{name}_gain"), form=".2f") if name in ("plain", "repacked") else ""
            cpu = ", ".join(f"{middle(rounds, name, 'cpu_per_gb', who)['median']:.1f}"
                            for who in ("sender", "near", "far", "receiver"))
            print(f"  {title:28} {cell(middle(rounds, name, 'goodput'), 8e-6):>22} {gain:>20} "
                  f"{middle(rounds, name, 'floats_per_packet')['median']:13.0f}   {cpu}")


def print_superpackets(result):
    for rate, rounds in result["superpackets"].items():
        print(f"\nsuperpackets between kernel and accelerators, {rate if rate != 'none' else 'no rate limit'}, float "
              "stream, repacked")
        print(f"  {'':28} {'Mb/s of floats':>22} {'x without':>20}   CPU s per GB of floats: sender, near, far, receiver")
        for mark, title in (("_tos0", "ToS 0"), ("", "0x28")):
            for name in ("packets", "superpackets"):
                gain = cell(middle(rounds, f"gain{mark}"), form=".2f") if name == "superpackets" else ""
                cpu = ", ".join(f"{middle(rounds, name + mark, 'cpu_per_gb', who)['median']:.1f}"
                                for who in ("sender", "near", "far", "receiver"))
                print(f"  {title + ', ' + name:28} {cell(middle(rounds, name + mark, 'goodput'), 8e-6):>22} {gain:>20}   "
                      f"{cpu}")


def print_passing(result):
    for rate, rounds in result["passing"].items():
        print(f"\nToS 0, {rate if rate != 'none' else 'no rate limit'}: throughput of unchanged traffic, Mb/s")
        print(f"  {'':28} {'float stream':>22} {'x testpmd':>20} {'iperf3':>22} {'x testpmd':>20}")
        for name in ("testpmd", "adaptive", "spin"):
            title = "testpmd io" if name == "testpmd" else f"accelerator, {name}"
            shares = [cell(middle(rounds, f"{name}{what}_share"), form=".2f") if name != "testpmd" else ""
                      for what in ("", "_iperf")]
            print(f"  {title:28} {cell(middle(rounds, name, 'goodput'), 8e-6):>22} {shares[0]:>20} "
                  f"{cell(middle(rounds, f'{name}_iperf'), 1e-6):>22} {shares[1]:>20}")


def print_latency(result):
    rounds = result["latency"]
    print("\nping, median of each round in us (90th percentile)")
    for name in ("testpmd", "spin", "adaptive"):
        title = "testpmd io" if name == "testpmd" else f"accelerator, {name}"
        print(f"  {title:28} {cell(middle(rounds, name)):>22}   ({middle(rounds, f'{name}_p90')['median']:.0f})")
    print(f"  {'spin - testpmd':28} {cell(middle(rounds, 'more')):>22}")


def wire_figures(row):
    paths = {"bytes": ("wire", "to", "bytes"), "packets": ("wire", "to", "packets"), "seconds": ("seconds",)}
    return {key: middle(row["rounds"], *path)["median"] for key, path in paths.items()}


def print_bounds(result, args):
    rows = result["bounds"]
    base = wire_figures(rows[0])
    print(f"\n{args.floats} floats ({args.floats >> 18} MiB) over TCP at {args.rate}: traffic on the wire, and time")
    print(f"  {'':16} {'codec':>7} {'':9} {'MB':>7} {'less':>6} {'packets':>8} {'less':>6} {'time':>7} {'less':>6} "
          f"{'down by':>8}   worst error")
    for row in rows:
        now = wire_figures(row)
        down = f"{1 - now['seconds'] / base['seconds']:8.1%}"
        name = row["codec"] if row["tos"] else "ToS 0"
        ratio = f"{result['ratios'][row['codec']]:.2f}x" if row["tos"] else ""
        worst = max(each["worst_error"] for each in row["rounds"])
        print(f"  {name:16} {ratio:>7} {'repacked' if row['repack'] else '':9} {now['bytes'] / 1e6:7.1f} "
              f"{base['bytes'] / now['bytes']:5.1f}x {now['packets']:8.0f} {base['packets'] / now['packets']:5.1f}x "
              f"{now['seconds']:6.2f}s {base['seconds'] / now['seconds']:5.1f}x {down}   {worst:.2g}")
    print("  the paper, complete trainings on its hardware: communication takes 70.9 to 80.7 % less time")


def print_tables(result, args):
    print(f"medians of {args.rounds} rounds (least to most), streams of {args.seconds:g} s")
    if result["streams"]:
        print_streams(result)
    if "superpackets" in result:
        print_superpackets(result)
    if result["passing"]:
        print_passing(result)
    if "latency" in result:
        print_latency(result)
    if "bounds" in result:
        print_bounds(result, args)
    wanted = {"plain_gain": "goodput at 0x28 without repacking / at ToS 0: at least 3",
              "repacked_of_ratio": "(goodput at 0x28 with repacking / at ToS 0) / ratio of the codec: at least 0.8",
              "ping_us": "ping through accelerators that spin minus ping through testpmd: at most 60 us"}
    print()
    for name, each in result["met"].items():
        text = wanted.get(name, f"{name}, ToS 0: goodput through accelerators / through testpmd: at least 0.9")
        print(f"{'met   ' if each['met'] else 'MISSED'}  {each['value']:6.2f}   {text}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = pathlib.Path(__file__).resolve().parent.parent / "build" / "tools"
    parser.add_argument("--gradlane", default=build / "gradlane", help="build/tools/gradlane")
    parser.add_argument("--gradlaned", default=build / "gradlaned", help="build/tools/gradlaned")
    parser.add_argument("--codec", default="fixed:10", help="codec of the streams (fixed:10)")
    parser.add_argument("--rate", default="200mbit", help="rate of the wire (200mbit)")
    parser.add_argument("--fast", default="1gbit", help="second rate of the wire (1gbit)")
    parser.add_argument("--only", default=",".join(PARTS),
                        help=f"measure only these parts, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--superpackets", action="store_true", help="also measure with and without superpackets")
    parser.add_argument("--rounds", type=int, help="rounds of each measurement (3)")
    parser.add_argument("--seconds", type=float, help="seconds of each stream (5)")
    parser.add_argument("--quick", action="store_true", help="one round, short, one rate: about two minutes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.seconds = args.seconds or (2.0 if args.quick else 5.0)
    args.pings = 200
    args.floats = (1 << 22) if args.quick else (1 << 24)
    args.bits = [10] if args.quick else [6, 8, 10]
    args.only = [part for part in args.only.split(",") if part]
    if not set(args.only) <= set(PARTS):
        parser.error(f"--only {','.join(args.only)}: must be some of {', '.join(PARTS)}")
    args.gradlane, args.gradlaned = (pathlib.Path(path).resolve() for path in (args.gradlane, args.gradlaned))
    return args


def main():
    args = parse()
    tools = ["ip", "tc", "nft", "ethtool", "ping", "iperf3", "dpdk-testpmd", "taskset", "chrt"]
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if os.getuid() != 0 or missing or (os.cpu_count() or 1) < 2:
        say(f"needs root and two cores{', and ' + ', '.join(missing) if missing else ''}; tools/setup.sh --all "
            "installs programs")
        return 2
    start = time.monotonic()
    try:
        result = measure(args)
    except rig.BenchError as error:
        say(error)
        return 3
    say(f"took {time.monotonic() - start:.0f} s")
    if args.json:
        print(json.dumps(result))
    else:
        print_tables(result, args)
    return 0 if all(each["met"] for each in result["met"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
