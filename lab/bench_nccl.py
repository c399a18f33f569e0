#!/usr/bin/python3
"""Compares all-reduces of CUDA tensors on one GPU: NCCL over sockets, gradlane's plug-in for NCCL, Gloo, and PyTorch's
backend gradlane. It needs root.

    python3 lab/bench_nccl.py [--sizes 4K,1M,100M] [--rate 1gbit] [--plug-in PATH] [--python PYTHON] [--json]

Two ranks share the GPU. Each has a network namespace of its own, and another NCCL_HOSTID, so they are two nodes to
NCCL. `gradlane run --link udp --inside` makes the namespaces and starts the daemons. The last row has
GRADLANE_GPU_CODEC=1. The script ends if NCCL's log does not say that the plug-in sums. `time` is the median of the calls, from the call
until the slowest rank's stream has run it. `wrong` counts elements that differ from the sum of the two inputs in
float32, by fixed:10 those that differ by more than 2^-10 for each rank.

With --cpu, tensors are on the CPU, and Gloo takes the place of NCCL, so that the script can be tried without a GPU. It
has not run without --cpu yet.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Backend of PyTorch, and variables of the environment.
ROWS = {"sockets": ("nccl", {"NCCL_NET": "Socket"}),
        "plug-in, raw": ("nccl", {"GRADLANE_NCCL_CODEC": "raw"}),
        "plug-in, fixed:10": ("nccl", {"GRADLANE_NCCL_CODEC": "fixed:10"}),
        "Gloo": ("gloo", {}),
        "backend, raw": ("gradlane", {"GRADLANE_CODEC": "raw"}),
        "backend, fixed:10": ("gradlane", {"GRADLANE_CODEC": "fixed:10"}),
        "GPU codec, fixed:10": ("gradlane", {"GRADLANE_CODEC": "fixed:10", "GRADLANE_GPU_CODEC": "1"})}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
WARM_UP, LEAST_CALLS, MOST_CALLS, SECONDS = 3, 5, 200, 2.0
BOUND = 2 * 2.0**-10  # fixed:10: error of the sum of two ranks
PATIENCE_S = 900


# ---- A rank


def run_rank():
    """Prints, on rank 0, a line of JSON for each size."""
    import torch  # the parent needs no PyTorch
    import torch.distributed as dist
    spec = json.loads(os.environ["BENCH_NCCL"])
    device = torch.device("cpu" if spec["cpu"] else "cuda:0")
    backend = "gloo" if spec["cpu"] and spec["backend"] == "nccl" else spec["backend"]
    if backend == "gradlane":
        sys.path.insert(0, str(ROOT / "client/python"))
        import gradlane.torch  # noqa: F401
    dist.init_process_group(backend)
    rank, world = dist.get_rank(), dist.get_world_size()

    def finish():
        if device.type == "cuda":
            torch.cuda.synchronize()

    for size in spec["sizes"]:
        inputs = [torch.rand(size // 4, generator=torch.Generator().manual_seed(it)) - 0.5 for it in range(world)]
        own, expected = inputs[rank].to(device), sum(inputs).to(device)
        result, seconds = own.clone(), []  # seconds are those of the slowest rank, so all ranks make as many calls
        while len(seconds) < WARM_UP + LEAST_CALLS or len(seconds) < MOST_CALLS and sum(seconds) < SECONDS:
            result.copy_(own)
            dist.barrier()
            finish()
            begin = time.perf_counter()
            dist.all_reduce(result)
            finish()
            slowest = torch.tensor([time.perf_counter() - begin], device=device, dtype=torch.float64)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            seconds.append(float(slowest))
        if backend == "gradlane" and os.environ.get("GRADLANE_GPU_CODEC") == "1" and size >= 1 << 20 and not spec["cpu"]:
            if not any(gradlane.torch.Engine.existing()._workspaces.values()):
                sys.exit("bench_nccl.py: the GPU does not encode: the warnings above say why")
        wrong = torch.tensor([int((~((result - expected).abs() <= spec["bound"])).sum())], device=device)  # NaN is wrong
        dist.all_reduce(wrong, op=dist.ReduceOp.MAX)
        if rank == 0:
            print(json.dumps({"bytes": size, "seconds": statistics.median(seconds[WARM_UP:]), "wrong": int(wrong)}),
                  flush=True)
    dist.destroy_process_group()


# ---- The parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", metavar="LIST", default="4K,1M,100M", help="bytes, with K or M (4K,1M,100M)")
    parser.add_argument("--rate", metavar="RATE", help="rate of the links, as of `gradlane run`; without it: unlimited")
    parser.add_argument("--plug-in", metavar="PATH", type=pathlib.Path,
                        default=ROOT / "build/client/nccl/libnccl-net-gradlane.so", help="(that of build/)")
    parser.add_argument("--gradlane", metavar="PATH", type=pathlib.Path, default=ROOT / "build/tools/gradlane",
                        help="(that of build/)")
    parser.add_argument("--python", metavar="PATH", default=sys.executable, help="a Python with PyTorch (this one)")
    parser.add_argument("--cpu", action="store_true", help="use Gloo instead of NCCL, to try this script")
    parser.add_argument("--json", action="store_true", help="print all values as JSON")
    args = parser.parse_args()
    sizes = [read_size(text, parser) for text in args.sizes.split(",")]
    for path in (args.plug_in, args.gradlane):
        if not path.exists():
            parser.error(f"{path} does not exist: build it, or name another one")
    rows = {name: measure(name, backend, variables, sizes, args) for name, (backend, variables) in ROWS.items()}
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'':>19} {'size':>10} {'time':>12} {'sockets':>9} {'wrong':>7}")
    for name, found in rows.items():
        for row, base in zip(found, rows["sockets"]):
            print(f"{name:>19} {row['bytes']:>10} {1e3 * row['seconds']:>9.3f} ms {base['seconds'] / row['seconds']:>7.2f} x "
                  f"{row['wrong']:>7}")


def read_size(text, parser):
    found = re.fullmatch(r"([0-9]+)([KM]?)", text)
    size = int(found[1]) * UNITS[found[2]] if found else 0
    if size < 4 or size % 4:
        parser.error(f"--sizes: {text} is not a size of whole floats, such as 4K")
    return size


def measure(name, backend, variables, sizes, args):
    """Returns the rows of one method. Ends the program if its ranks fail."""
    print(f"bench_nccl.py: {name}", file=sys.stderr, flush=True)
    logs = tempfile.TemporaryDirectory(prefix="bench-nccl-")  # removed at the end
    variables = {"GRADLANE_LIBRARY": str(args.gradlane.parents[1] / "client/libgradlane.so"), "NCCL_DEBUG": "WARN",
                 **variables}
    is_plug_in = name.startswith("plug-in")
    if is_plug_in:
        variables |= {"NCCL_NET_PLUGIN": str(args.plug_in), "NCCL_TUNER_PLUGIN": str(args.plug_in),
                      "NCCL_COLLNET_ENABLE": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{logs.name}/%h.%p"}
    spec = {"sizes": sizes, "cpu": args.cpu, "backend": backend, "bound": BOUND if "fixed" in name else 0.0}
    # Each rank is a node of its own to NCCL.
    rank = ["sh", "-c", 'NCCL_HOSTID=node$RANK exec "$@"', "sh", args.python, __file__, "--rank"]
    command = [args.gradlane, "run", "-n", "2", "--link", "udp", "--inside", "--no-prefix",
               *(["--rate", args.rate] if args.rate else []), "--", *rank]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, env={
        **os.environ, **variables, "BENCH_NCCL": json.dumps(spec)})
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(found) != len(sizes):
        sys.exit(f"bench_nccl.py: {name}: the ranks have failed with status {done.returncode}:\n{done.stdout}")
    texts = [path.read_text(errors="replace") for path in sorted(pathlib.Path(logs.name).iterdir())]
    if is_plug_in and not args.cpu and sum("sums by gradlane's daemon, as rank" in text for text in texts) != 2:
        sys.exit(f"bench_nccl.py: {name}: NCCL has not summed by the plug-in; its log:\n" + "\n".join(texts))
    return found


if __name__ == "__main__":
    run_rank() if sys.argv[1:] == ["--rank"] else main()
