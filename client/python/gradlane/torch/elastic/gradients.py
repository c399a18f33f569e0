"""Sums of gradients whose bits do not depend on the members: shards are rounded to integers before they are added.

A parameter's gradient g of one shard becomes round(g * 2^k). The exponent k is the same for all shards of a step. It
follows from the largest gradient of the parameter in the latest steps, over all shards. If the integers of a step are
then too large or too small, all shards of the step are computed again with other exponents.

Without a codec, the sums are int32, so the largest gradients keep about as many bits as float32 has. With codec
fixed:rel=B, the sums are float32, sent with codec fixed:1, whose lattice is the integers. They are at most 2^24 in
magnitude, so they are exact.
"""

from __future__ import annotations

import hashlib
import io
import math
import random
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import torch

from ... import _library, errors
from .ring import EpochRing
from .transfer import Receiver, Sender

_INT_BITS, _FLOAT_BITS = 30, 24  # sums in int32, and in float32, are at most 2 to this power
_HEADROOM = 6  # bits by which the largest gradient may exceed that of the latest steps
_SHRINK = 10  # bits by which it may be smaller
_CODED_SHRINK = 3  # the same with a codec
_FADE = 4  # number of steps after which a largest gradient counts for half
_MOST_BITS = 16  # limit of B
_LARGEST_EXPONENT = 126  # 2^k and 2^-k are normal float32 numbers
# These stand for the exponent of the largest gradient if there is no gradient, only zeros, or a NaN or Inf.
_NONE, _ZERO, _NOT_FINITE = -(1 << 21), -(1 << 20), 1 << 20
_PIECE = 64 << 20  # bytes of the state in one broadcast
_WAIT_S = 0.05  # time between two checks of the ring while a member waits for the state


class _Result(NamedTuple):
    """The result of a step. exponents, have_gradients: one for each parameter. integers: sums of gradients, and words
    of buffers."""

    exponents: list[int]
    have_gradients: list[bool]
    buffers_change: bool
    integers: torch.Tensor


class Gradients:
    """The contributions of this process, and the state of the training.

    others: objects with state_dict() and load_state_dict(), by name. The state consists of these, the model, the
    optimizer and the exponents. bits: B of codec fixed:rel=B; None: no codec. seed: seed of random numbers.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, others: Mapping[str, Any], shards: int,
                 bits: int | None, seed: int) -> None:
        self._model, self._optimizer, self._others = model, optimizer, others
        self._shards, self._seed = shards, seed
        self._library = _library.load()
        self._parameters = self._optimized()
        names = {id(it): name for name, it in model.named_parameters()}
        self._names = [names.get(id(it), f"number {index}") for index, it in enumerate(self._parameters)]
        self._check_arguments()
        # The integers of a shard are at most 2^_limit. With the right exponent, the largest is about 2^_aim.
        self._coded = bits is not None
        self._limit = (_FLOAT_BITS if self._coded else _INT_BITS) - (shards - 1).bit_length()
        self._aim = self._limit - _HEADROOM
        self._shrink = _CODED_SHRINK if self._coded else _SHRINK
        if bits is not None:
            if not 1 <= bits <= min(self._aim, _MOST_BITS):
                raise errors.bad_argument(f"gradlane: elastic: codec fixed:rel={bits}: with {shards} shards, B must be "
                                          f"1 to {min(self._aim, _MOST_BITS)}")
            self._aim = bits
        self._exponents = self._next_exponents = [self._aim] * len(self._parameters)
        # Exponents of the largest gradients of the latest steps, times _FADE. They decrease by 1 in each step.
        self._peaks = self._next_peaks = [_ZERO] * len(self._parameters)
        sizes = [it.numel() for it in self._parameters]
        # Buffers, such as those of BatchNorm, get the values after shard 0. Their bytes follow the gradients. The
        # member that computes shard 0 contributes them, and all others contribute zeros.
        self._old_buffers: list[torch.Tensor] = []  # before the step
        self._buffers_change = False  # whether shard 0 changes them, over all members
        words = [-(-it.numel() * it.element_size() // 4) for it in self._buffers()]
        self._own = torch.zeros(sum(sizes) + sum(words), dtype=torch.int32)
        self._result = torch.zeros_like(self._own)
        self._sizes = sizes + words
        self._sums, self._words = self._split(self._own)
        self._count = sum(sizes)  # integers of gradients; words of buffers follow
        self._floats = torch.zeros(sum(sizes) if self._coded else 0, dtype=torch.float32)
        self._largest = [_NONE] * len(self._parameters)  # exponents of the largest gradients of the contributions
        self._changed = False  # whether the contributions have buffers that have changed
        self._have_gradients = [False] * len(self._parameters)  # over all members
        self._may_run = False  # whether the optimizer may run now
        self._hook = optimizer.register_step_pre_hook(self._check_step)
        self._sender: Sender | None = None
        # ---- While a state is on its way to this member
        self._receiver: Receiver | None = None
        self._arriving = torch.empty(0, dtype=torch.uint8)
        self._expected = 0  # hash of the state
        self._kept: list[tuple[int, _Result]] = []  # later steps and their results
        self._own_scales: tuple[list[int], list[int]] | None = None  # exponents and peaks of this member's own state
        described = [(name, tuple(it.shape), str(it.dtype)) for name, it in zip(self._names, self._parameters)]
        buffers = [(tuple(it.shape), str(it.dtype)) for it in self._buffers()]
        kind = repr((self._library.gradlane_version(), shards, bits, seed, type(optimizer).__name__, sorted(others),
                     described, buffers))
        self.kind = hashlib.blake2b(kind.encode(), digest_size=8).hexdigest()  # equal on all members

    # ---- One step

    def start_step(self) -> None:
        """Drops this process's contributions."""
        self._own.zero_()
        self._largest = [_NONE] * len(self._parameters)
        self._changed = False
        known = self._old_buffers or [None] * len(self._buffers())
        self._old_buffers = [old if old is not None and torch.equal(it, old) else it.detach().clone()
                             for it, old in zip(self._buffers(), known)]

    def start_shard(self, step: int, shard: int) -> None:
        """Sets gradients to None, buffers to those before the step, and random numbers to those of the shard."""
        self._optimizer.zero_grad(set_to_none=True)
        for parameter in self._parameters:
            parameter.grad = None
        self._restore_buffers()
        self._set_seed(step, str(shard))

    def add_shard(self, shard: int, counts: bool, hashed: bool) -> int:
        """Adds the gradients of a shard if they count. Returns a hash of their integers and of the tensors of model and
        optimizer, or 0 unless `hashed`."""
        hashes = [_hash(it.detach().cpu().contiguous()) for it in self._state_tensors()] if hashed else []
        for index, parameter in enumerate(self._parameters):
            if parameter.grad is not None and parameter.numel() > 0:
                hashes += [index, self._add_gradient(index, parameter.grad, counts, hashed) >> 1]  # below 2^63
        if shard == 0 and counts:
            for buffer, old, words in zip(self._buffers(), self._old_buffers, self._words):
                self._changed = self._changed or not torch.equal(buffer, old)
                _copy_bytes(buffer, words)
        self._restore_buffers()
        return _hash(torch.tensor(hashes)) if hashed else 0

    def _add_gradient(self, index: int, gradient: torch.Tensor, counts: bool, hashed: bool) -> int:
        """Adds the gradient of one parameter. Returns a hash of its integers, or 0."""
        if gradient.layout != torch.strided:
            raise errors.bad_argument(f"gradlane: elastic: the gradient of parameter {self._names[index]} is sparse")
        sums = self._sums[index]
        into = torch.zeros_like(sums) if hashed or not counts else sums
        floats = gradient.detach().to("cpu", torch.float32).contiguous()
        largest = self._library.gradlane_add_rounded(
            floats.data_ptr(), into.data_ptr(), sums.numel(), math.ldexp(1.0, self._exponents[index]))
        if counts:
            if into is not sums:
                sums.add_(into)
            self._largest[index] = max(self._largest[index], _exponent(largest))
        return int(self._library.gradlane_hash(into.data_ptr(), 4 * into.numel())) if hashed else 0

    def magnitudes(self) -> list[int]:
        """Returns the exponents of the largest gradients in this process's contributions, and whether they have buffers
        that have changed."""
        return [*self._largest, self._changed]

    def check(self, magnitudes: Sequence[Sequence[int]]) -> bool:
        """Returns whether the integers of all shards fit. If not, it changes the exponents. magnitudes: those of all
        members. Raises OperationFailed if a gradient is not finite."""
        *all_largest, changed = [max(column) for column in zip(*magnitudes)]
        self._buffers_change = bool(changed)
        bad = next((name for name, largest in zip(self._names, all_largest) if largest == _NOT_FINITE), None)
        if bad is not None:
            raise errors.error(errors.Code.FAILED, f"gradlane: elastic: the gradient of parameter {bad} has a NaN or "
                               "Inf")
        fits = all(self._fits(largest, exponent) for largest, exponent in zip(all_largest, self._exponents))
        self._next_peaks = [max(_FADE * largest, peak - 1 if fits else _ZERO)
                            for largest, peak in zip(all_largest, self._peaks)]
        self._next_exponents = [exponent if largest <= _ZERO else self._choose_exponent(-(-peak // _FADE))
                                for largest, exponent, peak in zip(all_largest, self._exponents, self._next_peaks)]
        if not fits:
            self._exponents, self._peaks = self._next_exponents, self._next_peaks
        self._have_gradients = [largest > _NONE for largest in all_largest]
        return fits

    def _fits(self, largest: int, exponent: int) -> bool:
        """Returns whether a parameter's integers are neither too large nor too small. largest: exponent of its largest
        gradient. exponent: the exponent k."""
        enough = largest + exponent >= self._aim - self._shrink or exponent == _LARGEST_EXPONENT
        return largest <= _ZERO or (largest + exponent <= self._limit and enough)

    def _choose_exponent(self, largest: int) -> int:
        return max(min(self._aim - largest, _LARGEST_EXPONENT), -_LARGEST_EXPONENT)

    def sum(self, ring: EpochRing) -> None:
        """Adds the contributions of all members."""
        begin, end = self._floats.numel(), self._result.numel() if self._buffers_change else self._count
        if begin > 0:
            self._floats.copy_(self._own[:begin])
            ring.sum(self._floats, "fixed:1")
            self._result[:begin].copy_(self._floats)
        if end > begin:
            self._result[begin:end].copy_(self._own[begin:end])
            ring.sum(self._result[begin:end])

    def apply(self, step: int) -> None:
        """Sets gradients to the mean of the shards, buffers to those of shard 0, and runs the optimizer."""
        self._apply(step, _Result(self._exponents, self._have_gradients, self._buffers_change, self._result))
        self._exponents, self._peaks = self._next_exponents, self._next_peaks

    def _apply(self, step: int, result: _Result) -> None:
        all_sums, all_words = self._split(result.integers)
        for parameter, sums, exponent, has_gradient in zip(
                self._parameters, all_sums, result.exponents, result.have_gradients):
            parameter.grad = None
            if has_gradient:
                mean = sums.to(torch.float32).mul_(math.ldexp(1.0, -exponent) / self._shards)
                parameter.grad = mean.view(parameter.shape).to(parameter.device, parameter.dtype)
        for buffer, words in zip(self._buffers(), all_words if result.buffers_change else ()):
            _set_bytes(buffer, words)
        if [id(it) for it in self._optimized()] != [id(it) for it in self._parameters]:
            raise errors.bad_argument("gradlane: elastic: the optimizer has other parameters than before")
        self._set_seed(step, "optimizer")
        self._may_run = True
        try:
            self._optimizer.step()
        finally:
            self._may_run = False

    def _check_step(self, *_: Any) -> None:
        if not self._may_run:
            raise errors.bad_argument("gradlane: elastic: do not call optimizer.step() before training.close(): the "
                                      "optimizer runs by itself at the end of each step")

    def close(self) -> None:
        """Gives the optimizer back to the caller."""
        self._hook.remove()

    def _split(self, integers: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Returns the integers of each parameter, and the words of each buffer."""
        pieces = list(integers.split(self._sizes))
        return pieces[:len(self._parameters)], pieces[len(self._parameters):]

    def _restore_buffers(self) -> None:
        for buffer, old in zip(self._buffers(), self._old_buffers):
            if (buffer.shape, buffer.dtype) != (old.shape, old.dtype):
                raise errors.bad_argument("gradlane: elastic: a buffer of the model has another shape or type now")
            if not torch.equal(buffer, old):
                buffer.detach().copy_(old)

    def _buffers(self) -> list[torch.Tensor]:
        """Returns the model's buffers. A module may replace them."""
        return [it for it in self._model.buffers() if it.numel() > 0]

    def _optimized(self) -> list[torch.Tensor]:
        return [it for group in self._optimizer.param_groups for it in group["params"]]

    def _set_seed(self, step: int, purpose: str) -> None:
        text = f"{self._seed} {step} {purpose}".encode()
        number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1
        torch.manual_seed(number)
        random.seed(number)

    def _check_arguments(self) -> None:
        """Raises BadArgument if such a training is not possible."""
        for name, it in self._others.items():
            if not hasattr(it, "state_dict") or not hasattr(it, "load_state_dict"):
                raise errors.bad_argument(f"gradlane: elastic: state[{name!r}] must have state_dict() and "
                                          "load_state_dict()")
        if isinstance(self._optimizer, torch.optim.LBFGS):
            raise errors.bad_argument("gradlane: elastic: LBFGS computes gradients by itself; use another optimizer")
        if not any(it.requires_grad for it in self._parameters):
            raise errors.bad_argument("gradlane: elastic: the optimizer has no parameters that need gradients")
        own = {id(it) for it in self._model.parameters()}
        if not any(id(it) in own for it in self._parameters):
            raise errors.bad_argument("gradlane: elastic: the optimizer has no parameters of the model")
        bad = next((name for name, it in zip(self._names, self._parameters) if not it.is_floating_point()), None)
        if bad is not None:
            raise errors.bad_argument(f"gradlane: elastic: parameter {bad} is not of a floating type")

    # ---- State

    def state_hash(self, step: int | None) -> int:
        """Returns a hash of one parameter, and of the learning rate. Each step has another parameter. None: of all."""
        rates = repr([group.get("lr") for group in self._optimizer.param_groups]).encode()
        tensors = self._state_tensors() if step is None else [self._parameters[step % len(self._parameters)]]
        hashes = torch.tensor([_hash(it.detach().cpu().contiguous()) for it in tensors])
        return _hash(hashes) ^ int.from_bytes(hashlib.blake2b(rates, digest_size=7).digest(), "little")

    def send_state(self, ring: EpochRing, source: int, takes: bool) -> None:
        """Sends the state of the member at position `source` to those whose `takes` is true."""
        data = torch.empty(0, dtype=torch.uint8)
        head = [0, 0]
        if ring.index == source:
            data = self._save_state()
            head = [data.numel(), _hash(data)]
        size, expected = ring.gather(head)[source]
        if ring.index != source:  # other members take part in the broadcasts with a buffer of one piece
            data = torch.empty(size if takes else min(size, _PIECE), dtype=torch.uint8)
        for first in range(0, size, _PIECE):
            length = min(size - first, _PIECE)
            at = first if takes or ring.index == source else 0
            ring.broadcast(data[at:at + length], source)
        if takes:
            self._load_state(data, expected)

    def start_transfers(self, ring: EpochRing, sources: Mapping[int, int]) -> None:
        """Starts to send states over TCP. sources: position of a member -> that of the one whose state it takes over.
        """
        head = [0, 0, 0, 0]
        takers = list(sources.values()).count(ring.index)
        if takers > 0:
            data = self._save_state()
            self._sender = Sender(ring.hosts[ring.index], memoryview(data.numpy()), takers)
            head = [self._sender.port, self._sender.token, data.numel(), _hash(data)]
        rows = ring.gather([*head, *self._exponents, *self._peaks])
        if ring.index in sources:
            source = sources[ring.index]
            port, token, size, self._expected, *scales = rows[source]
            self._own_scales = self._exponents, self._peaks
            self._exponents, self._peaks = scales[:len(self._parameters)], scales[len(self._parameters):]
            self._arriving = torch.empty(size, dtype=torch.uint8)
            self._receiver = Receiver(ring.hosts[source], port, token, memoryview(self._arriving.numpy()))

    def follow(self, step: int) -> None:
        """Keeps the result of sum() for the state that is on its way."""
        self._kept.append((step, _Result(
            self._exponents, self._have_gradients, self._buffers_change, self._result.clone())))
        self._exponents, self._peaks = self._next_exponents, self._next_peaks

    def catch_up(self, ring: EpochRing, wait: bool, begin: Callable[[int], None]) -> bool:
        """Does what Model says. It also waits if the results need more memory than the state."""
        receiver = self._receiver
        assert receiver is not None
        wait = wait or 4 * self._result.numel() * len(self._kept) > receiver.size
        while wait and not receiver.done.wait(_WAIT_S):
            ring.check()
        if not receiver.done.is_set():
            return False
        receiver.check()
        scales = self._exponents, self._peaks  # those of the newest step, not of the state
        self._load_state(self._arriving, self._expected)
        self._exponents, self._peaks = scales
        for step, result in self._kept:
            begin(step)
            self._apply(step, result)
        self._own_scales = None
        self.end_transfers()
        self.start_step()
        return True

    def end_transfers(self) -> None:
        """Ends all transfers, and drops what follow() has kept."""
        for it in (self._sender, self._receiver):
            if it is not None:
                it.close()
        self._sender = self._receiver = None
        self._kept, self._arriving = [], torch.empty(0, dtype=torch.uint8)
        if self._own_scales is not None:
            (self._exponents, self._peaks), self._own_scales = self._own_scales, None

    def _state_tensors(self) -> list[torch.Tensor]:
        """Returns the tensors of the model and of the optimizer that are not empty."""
        moments = [it for parameter in self._parameters for it in self._optimizer.state.get(parameter, {}).values()]
        tensors = {id(it): it for it in (*self._parameters, *self._model.parameters(), *self._old_buffers, *moments)}
        return [it for it in tensors.values() if isinstance(it, torch.Tensor) and it.numel() > 0]

    def _save_state(self) -> torch.Tensor:
        file = io.BytesIO()
        torch.save({
            "model": self._model.state_dict(), "optimizer": self._optimizer.state_dict(),
            "others": {name: it.state_dict() for name, it in self._others.items()}, "exponents": self._exponents,
            "peaks": self._peaks, "buffers": [it.detach() for it in self._buffers()],  # also those not in state_dict()
        }, file)
        return torch.frombuffer(file.getbuffer(), dtype=torch.uint8)

    def _load_state(self, data: torch.Tensor, expected: int) -> None:
        if _hash(data) != expected:
            raise errors.error(errors.Code.FAILED, "gradlane: elastic: the state of the training has arrived with "
                               "another hash")
        state = torch.load(io.BytesIO(data.numpy()), map_location="cpu", weights_only=True)  # type: ignore[arg-type]
        self._model.load_state_dict(state["model"])
        for buffer, value in zip(self._buffers(), state["buffers"]):
            buffer.detach().copy_(value)
        self._optimizer.load_state_dict(state["optimizer"])
        # load_state_dict() converts tensors to the types of the parameters, which may have fewer bits, but not numbers
        # of steps.
        for index, values in state["optimizer"]["state"].items():
            self._optimizer.state[self._parameters[index]].update({
                key: it.to(self._parameters[index].device) if it.dim() > 0 else it for key, it in values.items()
                if isinstance(it, torch.Tensor)})
        for name, it in self._others.items():
            it.load_state_dict(state["others"][name])
        self._exponents, self._peaks = state["exponents"], state["peaks"]


# ---- Private


def _exponent(largest: float) -> int:
    """Returns the least e with largest < 2^e."""
    if largest == 0:
        return _ZERO
    return math.frexp(largest)[1] if math.isfinite(largest) else _NOT_FINITE


def _copy_bytes(tensor: torch.Tensor, words: torch.Tensor) -> None:
    data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
    words.view(torch.uint8)[:data.numel()].copy_(data)


def _set_bytes(tensor: torch.Tensor, words: torch.Tensor) -> None:
    size = tensor.numel() * tensor.element_size()
    data = words.view(torch.uint8)[:size].clone().view(tensor.dtype).view(tensor.shape)
    tensor.detach().copy_(data)


def _hash(data: torch.Tensor) -> int:
    """Returns a hash of the bytes of a tensor, below 2^62."""
    return int(_library.load().gradlane_hash(data.data_ptr(), data.numel() * data.element_size())) >> 2
