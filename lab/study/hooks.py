"""hooks.py - the experiment's methods to average gradients, as communication hooks of DDP (its trainers)"""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

import gradlane.torch
from lab.study import methods, plain_hooks, plan

POWER_SGD_RANK = 4


def power_sgd(method):
    """Returns state, hook and end function of PyTorch's PowerSGD hook. Its factors go through gradlane, which knows
    nothing of matrices."""
    group = dist.new_group(backend="gradlane", timeout=plan.PATIENCE)
    gradlane.torch.use_codec(method.codec)
    # Steps before start_powerSGD_iter send gradients uncompressed, because DDP rebuilds its buckets after the first
    # step.
    state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=POWER_SGD_RANK, start_powerSGD_iter=2)

    def close():
        gradlane.torch.use_codec("raw")
        dist.destroy_process_group(group)

    return state, powerSGD_hook.powerSGD_hook, close


def cut(tensor, bits):
    """Sets all but the upper `bits` bits of each float to 0, in place. A NaN may become an infinity."""
    tensor.view(torch.int32).bitwise_and_(-1 << (32 - bits))


def cutting(bits):
    """Returns the hook of INCEPTIONN's baseline: nodes cut gradients before they send them, and cut the average."""

    def hook(_, bucket):
        cut(bucket.buffer(), bits)
        return default_hooks.allreduce_hook(None, bucket).then(ended)

    def ended(future):
        average = future.value()
        cut(average, bits)
        return average

    return hook


class Weights:
    """Sends the weights of rank 0 through a codec after each step, as an aggregator that keeps the weights does. All
    ranks continue with the decoded weights. With gradlane, the other ranks send zeros."""

    def __init__(self, method, model):
        self._parameters = [parameter.data for parameter in model.parameters()]
        self._codec, self._cut = method.codec, method.cut

    def send(self):
        flat = torch.cat([parameter.reshape(-1) for parameter in self._parameters])
        if self._cut:
            cut(flat, self._cut)  # all ranks have the same weights
        else:
            if dist.get_rank() != 0:
                flat.zero_()
            gradlane.torch.Engine.existing().all_reduce(flat, codec=self._codec).wait()
        at = 0
        for parameter in self._parameters:
            parameter.copy_(flat[at : at + parameter.numel()].view_as(parameter))
            at += parameter.numel()


def hook_of(method, model, steps):
    """Returns state, hook, and a function to call in the end, for a model and epochs of `steps` steps."""
    nothing = lambda: None  # noqa: E731
    if method.kind == "gloo" or method.what == methods.WEIGHTS:
        return None, None, nothing
    if method.kind in ("fp16", "bf16"):
        hook = getattr(default_hooks, f"{method.kind}_compress_hook")
        return None, lambda state, bucket: hook(state, bucket), nothing  # DDP refuses the bf16 hook itself without CUDA
    if method.kind == "trunc":
        return None, cutting(method.cut), nothing
    if method.kind == "powersgd":
        return power_sgd(method)
    ramp = [(codec, round(epochs * steps)) for codec, epochs in method.ramp]
    if method.kind == "plain":
        ends = [(codec, sum(steps for _, steps in ramp[: at + 1])) for at, (codec, _) in enumerate(ramp)]
        return None, plain_hooks.hook_of(method.codec, ends), nothing
    state = gradlane.torch.State(codec=method.codec, error_feedback=method.feedback,
                                 warmup=round(method.warmup * steps), ramp=ramp,
                                 exact=[method.exact] if method.exact else [], model=model)
    return state, gradlane.torch.hook, nothing
