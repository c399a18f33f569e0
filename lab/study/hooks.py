"""hooks.py - the study's methods to average gradients, as communication hooks of DDP (the study's trainers)"""

import concurrent.futures
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from lab.study import plan


class Aggregator:
    """Worker-aggregator: rank 0 adds all gradients, and sends the average to all.

    Each direction has its own thread and process group. So ranks can send the next bucket to rank 0 while they receive
    an average, and the backward pass continues meanwhile. All ranks have the same order in both directions.
    """

    def __init__(self):
        self.up, self.down = (dist.new_group(timeout=plan.PATIENCE) for _ in range(2))
        self.up_thread, self.down_thread = (concurrent.futures.ThreadPoolExecutor(1) for _ in range(2))

    def hook(self, _, bucket):
        gradients, done = bucket.buffer(), torch.futures.Future()
        self.up_thread.submit(self._guarded, done, self._reduce, gradients, done)
        return done

    def close(self):
        self.up_thread.shutdown()
        self.down_thread.shutdown()
        dist.destroy_process_group(self.up)
        dist.destroy_process_group(self.down)

    def _guarded(self, done, function, *arguments):
        try:
            function(*arguments)
        except Exception as error:  # whatever it is, backward waits for this future
            done.set_exception(error)

    def _reduce(self, gradients, done):
        dist.reduce(gradients, 0, group=self.up)
        if dist.get_rank() == 0:
            gradients /= dist.get_world_size()
        self.down_thread.submit(self._guarded, done, self._broadcast, gradients, done)

    def _broadcast(self, gradients, done):
        dist.broadcast(gradients, 0, group=self.down)
        done.set_result(gradients)


class Recorder:
    """Wraps a hook, and adds up the time in which at least one of its operations was in flight."""

    def __init__(self, hook):
        self._hook = hook
        self._lock = threading.Lock()
        self._begun, self._times = 0, []

    def hook(self, state, bucket):
        begin = time.perf_counter()
        self._begun += 1
        future = self._hook(state, bucket)
        future.add_done_callback(lambda _: self._ended(begin))
        return future

    def _ended(self, begin):
        end = time.perf_counter()
        with self._lock:
            self._times.append((begin, end))

    def take(self):
        """Returns the seconds since the previous call in which operations were in flight. Raises RuntimeError if an
        operation does not end."""
        patience = time.monotonic() + 5
        while True:  # a callback may run some microseconds after the thread that the future woke
            with self._lock:
                if len(self._times) == self._begun:
                    break
            if time.monotonic() > patience:
                raise RuntimeError(f"{self._begun} exchanges began, but only {len(self._times)} ended")
            time.sleep(0.001)
        seconds, busy_until = 0.0, 0.0
        for begin, end in sorted(self._times):
            seconds += max(0.0, end - max(begin, busy_until))
            busy_until = max(busy_until, end)
        self._begun, self._times = 0, []
        return seconds


def power_sgd(method):
    """Returns state, hook and end function of PyTorch's PowerSGD hook. Its factors go through gradlane, which knows
    nothing of matrices."""
    import gradlane.torch
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    group = dist.new_group(backend="gradlane", timeout=plan.PATIENCE)
    gradlane.torch.use_codec(method.codec)
    # Steps before start_powerSGD_iter send gradients uncompressed, because DDP rebuilds its buckets after the first
    # step.
    state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=method.rank, start_powerSGD_iter=2)

    def close():
        gradlane.torch.use_codec("raw")
        dist.destroy_process_group(group)

    return state, powerSGD_hook.powerSGD_hook, close


def cut(tensor, bits):
    """Sets all but the upper `bits` bits of each float to 0, in place. A NaN may become an infinity."""
    tensor.view(torch.int32).bitwise_and_(-1 << (32 - bits))


class Cut:
    """INCEPTIONN's baseline. Nodes cut gradients before they send them to an aggregator, and cut the average that comes
    back. The sum of cut gradients is exact."""

    def __init__(self, bits):
        self._bits = bits

    def hook(self, state, bucket):
        import gradlane.torch

        cut(bucket.buffer(), self._bits)
        return gradlane.torch.hook(state, bucket).then(self._ended)

    def _ended(self, future):
        average = future.value()
        cut(average, self._bits)
        return average


class Weights:
    """Sends the weights of rank 0 through a codec after each step, as an aggregator that keeps the weights does. All
    ranks continue with the decoded weights. The other ranks send zeros."""

    def __init__(self, method, model):
        import gradlane.torch.engine

        self._parameters = [parameter.data for parameter in model.parameters()]
        self._codec, self._cut = method.codec, method.cut
        self._engine = gradlane.torch.engine.Engine.shared()

    def send(self):
        flat = torch.cat([parameter.reshape(-1) for parameter in self._parameters])
        if dist.get_rank() != 0:
            flat.zero_()
        elif self._cut:
            cut(flat, self._cut)
        self._engine.all_reduce(flat, codec=self._codec).wait()
        at = 0
        for parameter in self._parameters:
            parameter.copy_(flat[at : at + parameter.numel()].view_as(parameter))
            at += parameter.numel()

    def close(self):
        self._engine.release()


def hook_of(method, steps):
    """Returns state, hook, and a function to call in the end, for epochs of `steps` steps. The hook of Gloo does what
    DDP does without a hook."""
    if method.kind == "gloo":
        return None, default_hooks.allreduce_hook, lambda: None
    if method.kind == "fp16":
        return None, default_hooks.fp16_compress_hook, lambda: None
    if method.kind == "bf16":
        return None, default_hooks.bf16_compress_hook, lambda: None
    if method.kind == "aggregator":
        own = Aggregator()
        return None, own.hook, own.close
    import gradlane.torch  # imported here, because the other methods need neither it nor a daemon

    if method.kind == "powersgd":
        return power_sgd(method)
    if method.what == plan.WEIGHTS:
        return gradlane.torch.State(codec="raw"), gradlane.torch.hook, lambda: None
    if method.cut:
        return gradlane.torch.State(codec="raw"), Cut(method.cut).hook, lambda: None
    ramp = [(codec, epochs * steps) for codec, epochs in method.ramp]
    state = gradlane.torch.State(codec=method.codec, error_feedback=method.feedback, strategy=method.strategy or None,
                                 ramp=ramp)
    return state, gradlane.torch.hook, lambda: None
