#!/usr/bin/env python3
"""Times all-reduces of PyTorch tensors through gradlane and Gloo, in turns, in one job that starts its own daemons:

    torchrun --standalone --nproc_per_node 4 lab/bench_torch.py

Prints medians over iterations of the slowest rank, for ordinary tensors and for tensors in memory that is shared with
the daemon. With --cuda, it also times tensors on a GPU, and a step that computes there during its exchange. With
--perf, it also prints the times of `gradlane perf` with the same daemons, before and after:

    gradlane run -n 2 -- python3 lab/bench_torch.py --sizes 4K,64K,1M --perf
"""

import argparse
import gc
import json
import statistics
import subprocess
import time

import torch
import torch.distributed as dist

import gradlane.torch

UNITS = {"K": 1 << 10, "M": 1 << 20}


def size_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def slowest(seconds, group):
    every = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(every, op=dist.ReduceOp.MAX, group=group)
    return statistics.median(every.tolist())


def settle(tensor):
    if tensor.is_cuda:
        torch.cuda.synchronize()


def timed(tensor, group, times):
    """Returns the seconds per all-reduce of each batch. A barrier precedes each batch. Ranks leave the barrier at
    different times, so a batch of small tensors has ten all-reduces in a row."""
    batch = 10 if tensor.nbytes <= 1 << 20 else 1
    took = []
    for number in range(times + 2):
        tensor.fill_(1.0)
        settle(tensor)
        dist.barrier(group=group)
        began = time.perf_counter()
        for _ in range(batch):
            dist.all_reduce(tensor, group=group)
        settle(tensor)
        if number > 1:
            took.append((time.perf_counter() - began) / batch)
    assert tensor[0] == dist.get_world_size() ** batch, "a wrong sum"
    return took


def step(buckets, products, group):
    """Runs a small backward pass: `products` of matrices before each bucket, then the start of the bucket's exchange.
    Returns the seconds in all, and the seconds until the last exchange was started."""
    began = time.perf_counter()
    works = []
    for bucket in buckets:
        for _ in range(products):
            MATRIX[0] @ MATRIX[0]
        if group is not None:
            works.append(dist.all_reduce(bucket, group=group, async_op=True))
    called = time.perf_counter()
    for work in works:
        work.wait()
    torch.cuda.synchronize()
    return time.perf_counter() - began, called - began


def perf(sizes):
    """Returns the microseconds of each size, by a trainer without PyTorch. All ranks must call it."""
    times = {}
    for text in sizes:
        said = subprocess.run(["gradlane", "perf", "-b", text, "-e", text, "-n", "300", "-w", "50", "--codec", "raw",
                               "--no-check", "--json"], check=True, capture_output=True, text=True).stdout
        if said.strip():  # only rank 0 prints
            times[text] = json.loads(said)["rows"][0]["time_us"]
    return times


MATRIX = []


def overlap(gloo, rounds):
    """Returns the milliseconds of a step, and of the calls that start its exchanges. Measures computing alone, the
    exchange alone, and both."""
    MATRIX.append(torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16))
    buckets = [torch.ones(25 << 18, device="cuda") for _ in range(8)]
    found = {}
    for _ in range(rounds + 1):
        for name, group in (("gradlane", dist.group.WORLD), ("gloo", gloo)):
            for what, products, over in (("computing", 6, None), ("exchange", 0, group), ("both", 6, group)):
                dist.barrier(group=gloo)
                took, called = step(buckets, products, over)
                found.setdefault(f"{name} {what}", []).append(took * 1e3)
                found.setdefault(f"{name} {what}: calls", []).append(called * 1e3)
    return {name: statistics.median(each[1:]) for name, each in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="4K,64K,1M,16M,64M", help="sizes in bytes, separated by commas")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; prints the median of all (3)")
    parser.add_argument("--cuda", action="store_true", help="also measure tensors on a GPU; all ranks may share one")
    parser.add_argument("--perf", action="store_true", help="also run `gradlane perf` with the same daemons")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sizes = args.sizes.split(",")
    before = perf(sizes) if args.perf else {}
    dist.init_process_group("gradlane")
    gloo = dist.new_group(backend="gloo")
    first = dist.get_rank() == 0
    if first and not args.json:
        print(f"{dist.get_world_size()} ranks, PyTorch {torch.__version__}, float32, us")
        print(f"{'size':>6} {'ordinary':>10} {'shared':>10} {'Gloo':>10} {'Gloo/ordinary':>14}"
              + (f" {'CUDA':>10} {'Gloo, CUDA':>10}" if args.cuda else ""))
    for text in sizes:
        numel = size_of(text) // 4
        ordinary, shared = torch.ones(numel), gradlane.torch.zeros(numel, dtype=torch.float32)
        ways = {"ordinary": (ordinary, dist.group.WORLD), "shared": (shared, dist.group.WORLD), "gloo": (ordinary, gloo)}
        if args.cuda:
            far = torch.ones(numel, device="cuda")
            ways |= {"cuda": (far, dist.group.WORLD), "gloo, cuda": (far, gloo)}
        times = 200 if numel <= 1 << 14 else 20 if numel <= 1 << 20 else 5
        found = {name: [] for name in ways}
        for _ in range(args.rounds):
            for name, (tensor, group) in ways.items():
                found[name].append(slowest(timed(tensor, group, times), gloo) * 1e6)
        medians = {name: statistics.median(each) for name, each in found.items()}
        if first and args.json:
            print(json.dumps({"size": text, "ranks": dist.get_world_size(), **medians}), flush=True)
        elif first:
            print(f"{text:>6} {medians['ordinary']:>10.0f} {medians['shared']:>10.0f} {medians['gloo']:>10.0f} "
                  f"{medians['gloo'] / medians['ordinary']:>14.2f}"
                  + (f" {medians['cuda']:>10.0f} {medians['gloo, cuda']:>10.0f}" if args.cuda else ""), flush=True)
    if args.cuda:
        found = overlap(gloo, args.rounds)
        if first and args.json:
            print(json.dumps({"steps of 8 buckets of 25 MiB, ms": found}), flush=True)
        elif first:
            print("a step of 8 buckets of 25 MiB, ms")
            for name, ms in found.items():
                print(f"{name:>26} {ms:>10.1f}")
    ways.clear()  # its groups keep the process group alive
    dist.destroy_process_group()
    gc.collect()
    after = perf(sizes) if args.perf else {}
    for text in before if first else ():
        row = {"size": text, "perf before": before[text], "perf after": after[text]}
        print(json.dumps(row) if args.json else f"{text:>6} perf: {before[text]:.0f} before, {after[text]:.0f} after",
              flush=True)


if __name__ == "__main__":
    main()
