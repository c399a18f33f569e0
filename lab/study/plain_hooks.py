"""plain_hooks.py - the five algorithms of HiPress as plain hooks of DDP over Gloo, without code of gradlane

They are written from the papers' definitions. The experiment `accuracy` compares gradlane's codecs with them: with the
same seeds, the curves must agree.
"""


import torch
import torch.distributed as dist

from lab.study.plan import SMALL


class PlainHook:
    """Averages contributions: encode() replaces each parameter's gradient, all ranks add the results, and decode()
    replaces the sum. With `whole_bucket`, these see the parameters of a bucket at once. States are kept by parameter, as
    DDP forms its buckets again after the first step."""

    whole_bucket = False

    def __init__(self, **settings):
        self.__dict__.update(settings)
        self.step = 0
        self._states = {}
        # Each training has draws of its own: train.py seeds PyTorch.
        self.random = torch.Generator().manual_seed(1000 * (torch.initial_seed() % 2**32) + dist.get_rank())

    def state(self, name, parameter):
        return self._states.setdefault((name, parameter), torch.zeros(parameter.numel()))

    def decode(self, total, parameters):
        return total

    def hook(self, _, bucket):
        flat, parameters = bucket.buffer(), bucket.parameters()
        if self.whole_bucket:
            groups, views = [parameters], [flat]
        else:
            groups = [[parameter] for parameter in parameters]
            views = flat.split([parameter.numel() for parameter in parameters])
        for view, group in zip(views, groups):
            view.copy_(self.encode(view, group))
        if bucket.is_last():
            self.step += 1

        def ended(_):
            for view, group in zip(views, groups):
                view.copy_(self.decode(view, group) / dist.get_world_size())
            return flat

        return dist.all_reduce(flat, async_op=True).get_future().then(ended)


class OneBit(PlainHook):
    """Seide et al., Interspeech 2014: a sign for each element, and the means of the negative and of the other elements
    of each run of `scope` elements; of the tensor if `scope` is 0, as HiPress has it. The sum is quantized again. Both
    quantizations have error feedback. All ranks quantize the same sum, as the owner does for them."""

    def _quantize(self, x):
        scope = self.scope or len(x)
        rows = torch.nn.functional.pad(x, (0, -len(x) % scope)).view(-1, scope)
        real = (torch.arange(rows.numel()) < len(x)).view(-1, scope)
        negative, positive = real & (rows < 0), real & (rows >= 0)
        low = (rows * negative).sum(1) / negative.sum(1).clamp(min=1)
        high = (rows * positive).sum(1) / positive.sum(1).clamp(min=1)
        return torch.where(negative, low[:, None], high[:, None]).view(-1)[: len(x)]

    def _feed(self, name, x, parameters):
        states = [self.state(name, parameter) for parameter in parameters]
        residual = torch.cat(states) + x
        sent = self._quantize(residual)
        for state, left in zip(states, (residual - sent).split([len(state) for state in states])):
            state.copy_(left)
        return sent

    def encode(self, gradient, parameters):
        return self._feed("own", gradient, parameters)

    def decode(self, total, parameters):
        return self._feed("sum", total, parameters)


class Tbq(PlainHook):
    """Strom, Interspeech 2015: where the residual has reached +-threshold, this much is sent and taken from it."""

    def encode(self, gradient, parameters):
        residual = self.state("own", *parameters)
        residual += gradient
        sent = self.threshold * residual.sign() * (residual.abs() >= self.threshold)
        residual -= sent
        return sent


class TernGrad(PlainHook):
    """Wen et al., NeurIPS 2017: -s, 0 or s at random, unbiased. Gradients are clipped to 2.5 standard deviations, and s
    is the largest magnitude of all ranks in the tensor; with `powers`, the next power of two, as gradlane has it. Tensors
    of fewer than `dense_below` elements are exact."""

    def encode(self, gradient, parameters):
        if len(gradient) < self.dense_below:
            return gradient
        limit = 2.5 * gradient.std(correction=0)
        clipped = gradient.clamp(-limit, limit)
        scale = clipped.abs().max().view(1)
        dist.all_reduce(scale, dist.ReduceOp.MAX)
        if scale == 0:
            return clipped
        if self.powers:
            scale = 2 ** scale.log2().ceil()
        draws = torch.rand(clipped.shape, generator=self.random)
        return scale * clipped.sign() * (draws * scale < clipped.abs())


class Sparse(PlainHook):
    """Sends the share `rate` of a tensor's elements, those of the largest magnitude, and keeps the rest. With a
    momentum it is DGC (Lin et al., ICLR 2018: momentum correction, and momentum factor masking), without one GradDrop
    (Aji and Heafield, EMNLP 2017). Tensors of fewer than `dense_below` elements are sent whole."""

    def encode(self, gradient, parameters):
        rate = next((rate for rate, end in self.ramp if self.step < end), self.rate)
        residual, velocity = (self.state(name, *parameters) for name in ("own", "velocity"))
        velocity.mul_(self.momentum).add_(gradient)
        residual += velocity
        if len(residual) < self.dense_below:
            chosen = torch.ones_like(residual, dtype=torch.bool)
        else:
            count = max(1, round(rate * len(residual)))
            chosen = torch.zeros_like(residual, dtype=torch.bool)
            chosen[residual.abs().topk(count).indices] = True
        sent = residual * chosen
        residual.masked_fill_(chosen, 0)
        velocity.masked_fill_(chosen & (len(residual) >= self.dense_below), 0)
        return sent


def hook_of(words, ramp):
    """Returns the hook of a name such as "onebit 256 bucket" or "dgc 1%". ramp: (codec, step after the last one), ..."""
    name, argument, *more = words.split()
    share = lambda text: float(text.rstrip("%")) / 100  # noqa: E731
    ramp = [(share(codec.partition(":")[2]), end) for codec, end in ramp]
    if name == "onebit":
        return OneBit(scope=0 if argument == "tensor" else int(argument), whole_bucket="bucket" in more).hook
    if name == "tbq":
        return Tbq(threshold=2.0 ** -int(argument)).hook
    if name == "terngrad":
        return TernGrad(powers="2^n" in more, dense_below=SMALL).hook
    return Sparse(rate=share(argument), ramp=ramp, momentum=0.9 * (name == "dgc"), dense_below=SMALL).hook
