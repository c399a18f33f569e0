# methods.py - the all-reduce methods that are compared, behind one interface (every rank of a job)

import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import gradlane.torch
from gradlane.adaptive import AdaptiveBound
from lab.compare import plan


class Method:
    """The tensors of a point, and an all-reduce of each, in place.

    point() sets size and data. fill() sets the tensors to their values before an operation. run() reduces all tensors
    and returns the seconds that this rank took. codec says what error the latest result may have.
    """

    average = False  # whether the result is the mean of the ranks, not their sum
    codec = "raw"

    def __init__(self, arena):
        self.arena = arena
        self.buffers = self.source = None

    def point(self, source, operations):
        self.source = source
        self.buffers = self.arena[: source.numel() * operations].view(operations, -1).unbind()

    def fill(self):
        for buffer in self.buffers:
            buffer.copy_(self.source)

    def run(self):
        start = time.perf_counter()
        for buffer in self.buffers:
            self.reduce(buffer)
        return time.perf_counter() - start

    def reduce(self, tensor):
        raise NotImplementedError

    def result(self):
        return self.buffers[-1].numpy()


class Gradlane(Method):
    """Reduces tensors in memory that is shared with the daemon. strategy: None is the daemon's first, the ring."""

    def __init__(self, arena, engine, codec, strategy=None):
        super().__init__(arena)
        self.engine, self.codec, self.strategy = engine, codec, strategy

    def reduce(self, tensor):
        self.engine.all_reduce(tensor, codec=self.codec, strategy=self.strategy).wait()


class Whole(Gradlane):
    """Reduces each tensor in one piece, as the paper's baseline and other programs do. An Engine cuts tensors into
    pieces, so an aggregator would send one piece back while it receives others."""

    def reduce(self, tensor):
        self.engine._context.all_reduce(tensor.numpy(), codec=self.codec, strategy=self.strategy)


class Adaptive(Gradlane):
    """Reduces with fixed:adaptive. The result of an operation decides on the bound of the next one. The time of an
    operation includes that decision."""

    def point(self, source, operations):
        super().point(source, operations)
        self.bound = AdaptiveBound()

    def reduce(self, tensor):
        self.codec = self.bound.codec()
        self.engine.all_reduce(tensor, codec=self.codec).wait()
        self.bound.update(tensor.numpy(), 1 / self.engine.world)


class Backend(Method):
    """Reduces by torch.distributed with backend "gradlane", in tensors that PyTorch has allocated."""

    def __init__(self, arena, group, codec):
        super().__init__(arena)
        self.group, self.codec = group, codec

    def run(self):
        with gradlane.torch.use_codec(self.codec):
            return super().run()

    def reduce(self, tensor):
        dist.all_reduce(tensor, group=self.group)


class Gloo(Method):
    def __init__(self, arena, group):
        super().__init__(arena)
        self.group = group

    def reduce(self, tensor):
        dist.all_reduce(tensor, group=self.group)


class Aggregator(Gloo):
    """Reduces on one node, which gets all gradients, adds them, and sends the sum back."""

    def reduce(self, tensor):
        dist.reduce(tensor, dst=0, group=self.group)
        dist.broadcast(tensor, src=0, group=self.group)


class Bucket:
    """The part of DistributedDataParallel's GradBucket that the fp16 hook needs."""

    def __init__(self, tensor):
        self.tensor = tensor

    def buffer(self):
        return self.tensor


class Fp16Hook(Gloo):
    """Reduces with PyTorch's own fp16 hook, on Gloo."""

    average = True
    codec = "fp16"

    def reduce(self, tensor):
        default_hooks.fp16_compress_hook(self.group, Bucket(tensor)).wait()


class Others:
    """A method that other processes run. Rank 0 tells them what to do; the other ranks sleep, and have None as
    `program`."""

    average = False
    codec = "raw"

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.digests = []

    def tell(self, do, **arguments):
        return self.program.tell(do, **arguments) if self.program else []

    def begin(self, name, numel, operations):
        self.numel = numel
        self.tell("point", folder=self.folder, name=name, numel=numel, operations=operations)

    def fill(self):
        self.tell("fill")

    def run(self):
        return max((answer["seconds"] for answer in self.tell("run")), default=0.0)

    def result(self):
        """Returns the result on rank 0, and sets `digests` to the digests of all ranks of the program."""
        path = f"{self.folder}/others-result.f32"
        self.digests = [answer["digest"] for answer in self.tell("result", path=path)]
        return torch.from_file(path, size=self.numel, dtype=torch.float32).numpy() if self.program else None


def make(names, engine, groups, folder, numel, start):
    """Returns the methods by name. Every arena has space for `numel` values. start(name) starts other processes on rank
    0."""
    shared = engine.zeros(numel)
    plain = torch.zeros(numel)
    found = {}
    for name in names:
        kind, _, detail = name.partition(" ")
        if kind == "mpi" or name == "gloo 2":
            found[name] = Others(start(name), folder)
        elif kind == "backend":
            found[name] = Backend(plain, groups["gradlane"], detail)
        elif detail == "fixed:adaptive":
            found[name] = Adaptive(shared, engine, detail)
        elif name in plan.STRATEGIES:
            found[name] = (Whole if name == plan.BASELINE else Gradlane)(shared, engine, detail, kind)
        elif kind in ("gradlane", "packets"):
            found[name] = Gradlane(shared, engine, detail)
        else:
            classes = {"gloo": Gloo, "gloo fp16": Fp16Hook, "aggregator": Aggregator}
            found[name] = classes[name](plain, groups["gloo"])
    return found
