"""Times all-reduces through PyTorch, of gradlane and of the libraries that a training would use without it.

    python3 -m gradlane.torch.exchange_times --json     # on all ranks: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT

`gradlane plan --calibrate` runs it on each rank. Each library does what it does for a bucket of DDP: Gloo and NCCL sum
the bucket, or its copy in bfloat16 as PyTorch's bf16_compress_hook does, and gradlane's hook runs with each codec.
Gradients are normal, with a standard deviation of 0.01. With a GPU for each rank, buckets are on GPUs.

- seconds: from the call that starts the exchange until its future is completed, on the slowest rank; the median of
  repetitions. Codecs take turns, and a barrier precedes each repetition.
- busy: core-seconds of one rank's share of its machine, all processes and the kernel (/proc/stat). A barrier of Gloo,
  and the copy of the gradients to the bucket, which DDP makes as well, are in it, and what else runs there.
- background: cores of this machine that were busy while all ranks slept.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import statistics
import sys
import time
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.futures import Future

from .. import errors
from .hook import State, hook

_SIZES = {1 << 16: 1, 1 << 20: 1, 1 << 22: 2, 1 << 24: 4}  # bytes, and their shares of the time
_SECONDS = 24.0  # most time for all sizes, without start-up
_LONGEST_S = 1.5  # longest exchange that is measured
_ROUNDS = 3  # number of times that codecs take turns; each has at least one repetition in each
_REPETITIONS = 20  # most repetitions in each round
_BACKGROUND_S = 0.5  # time for which others' use of cores is measured
_WAIT = datetime.timedelta(seconds=60)  # limit of each operation, as of the daemons
# Codecs of gradlane, the most useful ones first: if time is short, the last ones are not measured. The daemons may
# allow no strategy that can run some of them.
_CODECS = ["raw", "fixed:adaptive", "fixed:10", "bf16", "signsgd", "topk:1%+fixed:10", "dgc:1%", "terngrad", "onebit",
           "qsgd:4", "int8"]


class Bucket:
    """A DDP bucket with one parameter, as hooks see it."""

    def __init__(self, numel: int, device: torch.device) -> None:
        self._parameters = [torch.empty(numel, device=device)]
        self._buffer = torch.zeros(numel, device=device)

    def buffer(self) -> torch.Tensor:
        """Returns the gradients, shape (numel,), float32."""
        return self._buffer

    def parameters(self) -> list[torch.Tensor]:
        """Returns the one parameter."""
        return self._parameters

    def index(self) -> int:
        """Returns the position among the buckets of a step."""
        return 0

    def is_last(self) -> bool:
        """Returns whether the step has no bucket after this one."""
        return True


class Method:
    """One library with one codec, and what was measured of it. `exchange` is a hook of DDP; gradlane's has a State as
    its first argument."""

    def __init__(self, library: str, codec: str, exchange: Callable[..., Future[Any]]) -> None:
        self.library, self.codec, self.exchange = library, codec, exchange
        self.points: list[dict[str, float]] = []
        self.pace = 0.0  # s per byte of the latest size, with the barrier; 0: nothing was measured yet

    def document(self) -> dict[str, Any]:
        """Returns library, codec and points, as they are printed."""
        return {"library": self.library, "codec": self.codec, "points": self.points}


class Ring:
    """The ranks that measure, and this rank's machine. Its process group is the default one, of Gloo."""

    def __init__(self) -> None:
        dist.init_process_group("gloo", timeout=_WAIT)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read()
        boots: list[Any] = [None] * self.world
        dist.all_gather_object(boots, boot)
        here = [rank for rank in range(self.world) if boots[rank] == boot]
        self.ranks_here = len(here)
        has_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= len(here)
        self.on_gpus = self.slowest([0.0 if has_gpu else 1.0]) == [0.0]
        self.device = torch.device("cuda", here.index(self.rank)) if self.on_gpus else torch.device("cpu")
        if self.on_gpus:
            torch.cuda.set_device(self.device)

    def cores(self) -> float:
        """Returns the number of cores of this machine for each of its ranks."""
        return len(os.sched_getaffinity(0)) / self.ranks_here

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Returns the maximum over the ranks, of each number."""
        every = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(every, op=dist.ReduceOp.MAX)
        return list(every.tolist())

    def mean(self, value: float) -> float:
        """Returns the mean over the ranks."""
        every = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(every)
        mean: float = every.item() / self.world
        return mean

    def background(self) -> float:
        """Returns how many cores of this machine work while its ranks sleep."""
        dist.barrier()
        before = busy_seconds()
        time.sleep(_BACKGROUND_S)
        background = (busy_seconds() - before) / _BACKGROUND_S
        dist.barrier()
        return background

    def synchronize(self) -> None:
        """Waits for this rank's GPU, if it has one."""
        if self.on_gpus:
            torch.cuda.synchronize()

    def methods(self) -> list[Method]:
        """Returns all methods that these ranks can run, the most important ones first."""
        found = []
        groups = [("gloo", dist.group.WORLD)]
        if self.on_gpus and dist.is_nccl_available():
            groups.append(("nccl", dist.new_group(backend="nccl", timeout=_WAIT)))
        for library, group in groups:
            found.append(Method(library, "fp32", functools.partial(_sum, group)))
        for codec in _CODECS:
            try:
                _state_of(codec)
            except errors.BadArgument:
                continue
            found.append(Method("gradlane", codec, hook))
        for library, group in groups:
            if self._sums_bf16(group):
                found.insert(2, Method(library, "bf16", functools.partial(default_hooks.bf16_compress_hook, group)))
        return found

    def _sums_bf16(self, group: Any) -> bool:
        try:
            dist.all_reduce(torch.zeros(1, dtype=torch.bfloat16, device=self.device), group=group)
        except RuntimeError:  # older versions of Gloo
            return False
        return True


def _state_of(codec: str) -> State:
    """Returns the state with which trainings use the codec: sparse codecs have error feedback, as fixed:adaptive."""
    return State(codec, error_feedback=True) if codec.startswith(("topk", "dgc")) else State(codec)


def _sum(group: Any, bucket: Any) -> Future[Any]:
    """Starts what DDP does without a hook. DDP divides by the number of ranks where it copies gradients anyway."""
    future: Future[Any] = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
    return future


def busy_seconds() -> float:
    """Returns the core-seconds since the start of this machine in which its cores did something."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class Trial:
    """Exchanges of one size by one method."""

    def __init__(self, ring: Ring, method: Method, gradients: torch.Tensor) -> None:
        self.method = method
        self._ring, self._gradients, self._bucket = ring, gradients, Bucket(gradients.numel(), ring.device)
        self._state = [_state_of(method.codec)] if method.library == "gradlane" else []
        self._times: list[float] = []  # s of each exchange on this rank
        self._busy = self._wall = 0.0  # s of all exchanges: cores of the machine, and time with barriers

    def warm_up(self) -> float:
        """Runs an exchange; two, if they are short or if the first one is not compressed. Returns the seconds that the
        last one has taken, with its barrier."""
        short = self.method.pace * self._bucket.buffer().nbytes < 0.1
        for _ in range(2 if short or self.method.codec == "fixed:adaptive" else 1):
            began = time.monotonic()
            self._exchange()
            took = time.monotonic() - began
        return self._ring.slowest([took])[0]

    def run(self, repetitions: int) -> None:
        """Runs exchanges one after the other, between two barriers."""
        dist.barrier()
        busy, began = busy_seconds(), time.monotonic()
        self._times += [self._exchange() for _ in range(repetitions)]
        dist.barrier()
        self._busy += busy_seconds() - busy
        self._wall += time.monotonic() - began

    def finish(self) -> None:
        """Adds the point of this size to the method."""
        times = self._ring.slowest(self._times)
        nbytes = self._bucket.buffer().nbytes
        self.method.pace = self._ring.slowest([self._wall])[0] / len(times) / nbytes
        busy = self._ring.mean(self._busy / len(times) / self._ring.ranks_here)
        self.method.points.append({"bytes": nbytes, "seconds": statistics.median(times), "busy": busy})

    def _exchange(self) -> float:
        self._bucket.buffer().copy_(self._gradients)
        self._ring.synchronize()
        dist.barrier()
        began = time.perf_counter()
        self.method.exchange(*self._state, self._bucket).wait()
        self._ring.synchronize()
        return time.perf_counter() - began


def _affordable(methods: list[Method], size: int, seconds: float) -> list[Method]:
    """Returns the methods for which there is time, without those that would take too long each. The first ones come
    first."""
    found = []
    for method in methods:
        estimate = method.pace * size
        needed = estimate * (_ROUNDS + 1)
        if estimate <= _LONGEST_S and needed <= seconds:
            seconds -= needed
            found.append(method)
    return found


def measure(seconds: float = _SECONDS) -> dict[str, Any]:
    """Measures all libraries, codecs and sizes, on all ranks at once; they need about that many seconds.

    Returns the same on all ranks, but `cores` and `background`. Raises NoDaemon, and RuntimeError if another rank has
    ended.
    """
    ring = Ring()
    generator = torch.Generator().manual_seed(ring.rank)
    methods = ring.methods()
    background = ring.background()
    began = time.monotonic()
    for number, size in enumerate(_SIZES):
        left = ring.slowest([began + seconds - time.monotonic()])[0]
        # a method that has missed a size has no larger ones
        chosen = _affordable([method for method in methods if len(method.points) == number], size, left)
        gradients = torch.empty(size // 4).normal_(0, 0.01, generator=generator).to(ring.device)
        trials = [Trial(ring, method, gradients) for method in chosen]
        took = [trial.warm_up() for trial in trials]
        share = left * _SIZES[size] / sum(list(_SIZES.values())[number:]) / max(len(chosen), 1) / _ROUNDS
        for _ in range(_ROUNDS):
            for trial, each in zip(trials, took):
                trial.run(max(1, min(_REPETITIONS, int(share / each))))
        for trial in trials:
            trial.finish()
    return {"ranks": ring.world, "device": ring.device.type, "torch": torch.__version__, "cores": ring.cores(),
            "background": background,
            "exchanges": [method.document() for method in methods if method.points]}


def _text(found: dict[str, Any]) -> str:
    lines = [f"{'library':<9} {'codec':<17} {'bytes':>9} {'us':>9} {'us busy':>9}"]
    for each in found["exchanges"]:
        for point in each["points"]:
            lines.append(f"{each['library']:<9} {each['codec']:<17} {point['bytes']:>9} {1e6 * point['seconds']:>9.0f} "
                         f"{1e6 * point['busy']:>9.0f}")
    return "\n".join(lines)


def main() -> int:
    """Runs the command line on one rank. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m gradlane.torch.exchange_times",
                                     description="Times all-reduces of PyTorch by gradlane, Gloo and NCCL.")
    parser.add_argument("--json", action="store_true", help="print one line of JSON, on each rank")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help=f"time for all sizes ({_SECONDS:g})")
    options = parser.parse_args()
    # Gloo prints to standard output. Only the result belongs there.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(1)  # as torchrun does
    try:
        found = measure(options.seconds)
    except (errors.Error, RuntimeError, ValueError, OSError) as error:
        print(f"gradlane: rank {os.environ.get('RANK', '?')}: {error}", file=sys.stderr)
        return 1
    if options.json or dist.get_rank() == 0:
        print(json.dumps(found) if options.json else _text(found), file=output, flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
