#!/usr/bin/python3
"""Measures gradlane on links of a known rate: raw, compressed, and with packet loss, compared with TCP. Needs root.

Four nodes are in network namespaces on a bridge. Each link has tbf shapers of 1 Gb/s both ways and MTU 1500: `gradlane
run --link veth --rate 1gbit -n 4 -- gradlane perf`. iperf3 runs over links of the same shape. For loss, nftables drops
packets at random in the bridge. docs/measuring.md explains the figures.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # imports are written from the root
from lab.net.spaces import Space, Spaces, as_gradlane_run, bits_per_second, run  # noqa: E402

PATIENCE = 300
ETHERNET = 14
IP_UDP = 28
LINK_HEADER = 44
RUN_HEADER = 20
GRANULE = 128
ACK_EVERY = 4
DATA = "gauss-0.01"
TARGETS = {"raw_share": 0.9, "shrink_of_ratio": 0.9, "kept_at_loss": 0.75}


def ceiling(mtu):
    """Returns the payload as a share of the bytes that tbf counts. For "best", acknowledgements travel on data packets.
    For "worst", every fourth data packet is followed by a packet with an acknowledgement alone."""
    payload = (mtu - IP_UDP - LINK_HEADER - RUN_HEADER) // GRANULE * GRANULE
    frame = ETHERNET + IP_UDP + LINK_HEADER + RUN_HEADER + payload
    bare = ETHERNET + IP_UDP + LINK_HEADER
    return {"payload": payload, "frame": frame, "best": payload / frame,
            "worst": payload / (frame + bare / ACK_EVERY)}


# ---- Loss


def start_loss(switch, per_10000):
    """Makes the bridge drop per_10000 of 10000 packets at random from now on. Counters count forwarded and dropped
    packets."""
    switch.rules("table bridge loss { chain forward {\n"
           "type filter hook forward priority 0; policy accept;\n"
           f"counter\nnumgen random mod 10000 < {per_10000} counter drop\n}}\n}}\n")


def count_loss(switch):
    listing = json.loads(switch.run("nft", "-j", "list", "table", "bridge", "loss"))
    counts = [part["counter"]["packets"] for item in listing["nftables"] if "rule" in item
              for part in item["rule"]["expr"] if "counter" in part]
    return counts[1] / max(1, counts[0])


# ---- gradlane

# Each trainer waits until the links are ready, and keeps the ring up until the loss has been counted.
TRAINER = """touch ready.$RANK
until test -e begin; do sleep 0.02; done
"$@" || exit
touch done.$RANK
until test -e end; do sleep 0.02; done"""


def wait_for(process, folder, name, count):
    deadline = time.monotonic() + PATIENCE
    while len(list(folder.glob(f"{name}.*"))) < count:
        if process.poll() is not None:
            raise RuntimeError(f"gradlane run ended with status {process.returncode}: {process.stderr.read()}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"gradlane perf took longer than {PATIENCE} s")
        time.sleep(0.02)


def measure_ring(args, codecs, loss):
    """Runs `gradlane perf` on a ring that it starts. Returns rows by codec, and the share of packets that was dropped.
    Raises RuntimeError."""
    perf = [args.gradlane, "perf", "--json", "-b", args.size, "-e", args.size, "-n", args.iterations, "-w", 2,
            "--codec", ",".join(codecs), "--data", DATA]
    command = [args.gradlane, "run", "--link", "veth", "--rate", args.rate, "--mtu", args.mtu, "-n", args.nodes,
               "--no-prefix", "--", "sh", "-c", TRAINER, "sh", *perf]
    lost = 0
    with tempfile.TemporaryDirectory(prefix="gradlane-bench-") as name:
        folder = pathlib.Path(name)
        process = subprocess.Popen([str(word) for word in command], cwd=folder, stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            wait_for(process, folder, "ready", args.nodes)
            switch = Space(f"gradlane-{process.pid}-sw")
            if loss:
                start_loss(switch, loss)
            (folder / "begin").touch()
            wait_for(process, folder, "done", args.nodes)
            if loss:
                lost = count_loss(switch)
            (folder / "end").touch()
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=30)
    if process.returncode != 0:
        raise RuntimeError(f"gradlane run ended with status {process.returncode}: {err}")
    rows = {row["codec"]: row for row in json.loads(out)["rows"]}
    if any(row["wrong"] for row in rows.values()):
        raise RuntimeError(f"wrong results: {rows}")
    return rows, lost


def codec_ratio(args):
    """Returns the codec's ratio for the data itself, before any sum."""
    rows = json.loads(run(args.gradlane, "bench", "codec", "--quick", "--json", "--codec", args.codec, "--data", DATA,
                          "--op", "encode", "--block", ceiling(args.mtu)["payload"]))["rows"]
    return rows[0]["ratio"]


# ---- TCP


class TcpLinks:
    """Namespaces with kernel addresses 10.77.1.1 and up. Their links are like those of `gradlane run --link veth`."""

    def __init__(self, args):
        self.args = args
        self.spaces = Spaces()

    def __enter__(self):
        self.spaces.__enter__()
        try:
            self.spaces.add("sw").bridge("br0", self.args.mtu)
            for i in range(self.args.nodes):
                self.connect(i, self.spaces.add(f"n{i}"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.spaces.__exit__()

    def connect(self, i, space):
        switch = self.spaces["sw"]
        switch.veth(f"n{i}", space, "gl0", mtu=self.args.mtu, master="br0")
        space.ip("addr", "add", f"10.77.1.{i + 1}/24", "dev", "gl0")
        for end, interface in ((switch, f"n{i}"), (space, "gl0")):
            end.shape(interface, self.args.rate, **as_gradlane_run(self.args.rate, self.args.mtu))

    def measure(self):
        """Returns the bit/s that arrived at each node from the one before it, with all flows at once."""
        spaces = [self.spaces[f"n{i}"] for i in range(self.args.nodes)]
        programs = []
        try:
            for space in spaces:
                command = space.command("iperf3", "-s", "-1")
                programs.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(0.5)
            clients = []
            for i, space in enumerate(spaces):
                command = space.command("iperf3", "-J", "-O", "1", "-t", self.args.tcp_seconds, "-c",
                                        f"10.77.1.{(i + 1) % len(spaces) + 1}")
                clients.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            programs += clients
            results = [json.loads(client.communicate(timeout=PATIENCE)[0]) for client in clients]
            return [result["end"]["sum_received"]["bits_per_second"] for result in results]
        finally:
            for program in programs:
                if program.poll() is None:
                    program.kill()
                program.wait()


def measure_tcp(args):
    rates = {}
    with TcpLinks(args) as links:
        rates["clean"] = links.measure()
        start_loss(links.spaces["sw"], args.loss)
        rates["lossy"] = links.measure()
        rates["lost"] = count_loss(links.spaces["sw"])
    return rates


# ---- All of it


def measure(args):
    rate = bits_per_second(args.rate)
    bound = ceiling(args.mtu)
    result = {"rate": args.rate, "mtu": args.mtu, "nodes": args.nodes, "size": args.size, "data": DATA,
              "codec": args.codec, "codec_ratio": codec_ratio(args), "ceiling": bound, "rounds": []}
    for _ in range(args.repeat):
        clean, _ = measure_ring(args, ["raw", args.codec], 0)
        lossy, lost = measure_ring(args, ["raw", args.codec], args.loss)
        raw, coded = clean["raw"], clean[args.codec]
        shrink = raw["time_us"] / coded["time_us"]
        result["rounds"].append({
            "raw_busbw": raw["busbw"],
            "coded_busbw": coded["busbw"],
            "raw_share": raw["busbw"] * 8e9 / rate,
            "wire_shrink": coded["wire_ratio"] / raw["wire_ratio"],
            "shrink": shrink,
            "shrink_of_ratio": shrink / result["codec_ratio"],
            "kept_at_loss": raw["time_us"] / lossy["raw"]["time_us"],
            "coded_kept_at_loss": coded["time_us"] / lossy[args.codec]["time_us"],
            "lost": lost,
        })
    result["median"] = {key: statistics.median(each[key] for each in result["rounds"]) for key in result["rounds"][0]}
    if args.tcp:
        tcp = measure_tcp(args)
        result["tcp"] = {**tcp, "share": statistics.mean(tcp["clean"]) / rate,
                         "kept_at_loss": statistics.mean(tcp["lossy"]) / statistics.mean(tcp["clean"]),
                         "slowest_kept": min(tcp["lossy"]) / min(tcp["clean"])}
    result["met"] = {key: result["median"][key] >= target for key, target in TARGETS.items()}
    return result


def print_table(result, args):
    median, bound = result["median"], result["ceiling"]

    def spread(key, factor=100.0):
        values = [each[key] * factor for each in result["rounds"]]
        return f"{median[key] * factor:7.1f}   {min(values):.1f} to {max(values):.1f}"

    def verdict(key):
        return f"   {'met' if result['met'][key] else 'MISSED'}: at least {TARGETS[key]:.0%}"

    print(f"{args.nodes} nodes, {args.rate} each way, MTU {args.mtu}, {args.size}B of {DATA}, all-reduce; medians of "
          f"{args.repeat}, least to most")
    print(f"limit because of headers: {bound['payload']} of {bound['frame']} bytes are payload: "
          f"{bound['best']:.1%}; with an acknowledgement packet after every fourth packet: {bound['worst']:.1%}")
    print("raw")
    print(f"  busbw / rate, %           {spread('raw_share')}{verdict('raw_share')}")
    print(f"{args.codec} with ratio {result['codec_ratio']:.2f} (gradlane bench codec)")
    print(f"  bytes shrink by, x        {spread('wire_shrink', 1)}")
    print(f"  time shrinks by, x        {spread('shrink', 1)}")
    print(f"  of the codec's ratio, %   {spread('shrink_of_ratio')}{verdict('shrink_of_ratio')}")
    print(f"nftables drops {args.loss / 100:g} % in the bridge")
    print(f"  dropped, %                {spread('lost')}")
    print(f"  raw throughput kept, %    {spread('kept_at_loss')}{verdict('kept_at_loss')}")
    print(f"  {args.codec} kept, %{' ' * max(1, 17 - len(args.codec))}{spread('coded_kept_at_loss')}")
    if "tcp" not in result:
        return
    tcp = result["tcp"]
    print("TCP (iperf3, one flow on each link of the same ring, all at the same time)")
    print(f"  throughput / rate, %      {tcp['share'] * 100:7.1f}")
    print(f"  kept at {tcp['lost']:.1%} loss, %     {tcp['kept_at_loss'] * 100:7.1f}   the slowest flow, which a ring "
          f"waits for: {tcp['slowest_kept']:.1%}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    here = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--gradlane", default=here / "build" / "tools" / "gradlane", help="build/tools/gradlane")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rate", default="1gbit", help="rate of each link (1gbit); use a lower one on few cores")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--codec", default="fixed:10")
    parser.add_argument("--loss", type=int, default=100, help="dropped packets of each 10000 (100)")
    parser.add_argument("--short", action="store_true", help="smaller tensors, fewer rounds: less than half a minute")
    parser.add_argument("--no-tcp", dest="tcp", action="store_false", help="do not measure TCP with iperf3")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    args.size, args.iterations, args.repeat, args.tcp_seconds = ("4M", 5, 1, 3) if args.short else ("16M", 7, 3, 8)
    args.gradlane = pathlib.Path(args.gradlane).resolve()
    return args


def main():
    args = parse()
    tools = ["ip", "tc", "nft", *(["iperf3", "ethtool"] if args.tcp else [])]
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if os.getuid() != 0 or missing:
        print(f"bench_links.py: needs root{', and ' + ', '.join(missing) if missing else ''}; tools/setup.sh --all "
              "installs programs", file=sys.stderr)
        return 2
    result = measure(args)
    if args.json:
        print(json.dumps(result))
    else:
        print_table(result, args)
    return 0 if all(result["met"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
