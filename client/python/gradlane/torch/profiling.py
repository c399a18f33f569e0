"""What a step of a model computes, as `gradlane plan --model FILE` takes it."""

from __future__ import annotations

import json
import os
import statistics
import time
from typing import Any, Callable, Iterator, Mapping

import torch
import torch.distributed as dist

from .. import _arguments, errors

WARM_UPS = 2


def profile(model: torch.nn.Module, inputs: Any, *, loss: Callable[[Any], torch.Tensor] | None = None,
            batch: int | None = None, name: str | None = None, steps: int = 5,
            path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Measures forward and backward, and when the gradient of each parameter is there.

        gradlane.torch.profile(model, images, path="mine.json")
        $ gradlane plan --model mine.json --nodes 4 --gbps 1

    model: as it is trained, on its device and in its mode; of DistributedDataParallel, what it wraps, so that nothing
    is exchanged. Alone on its machine, else times are those of what runs beside it.
    inputs: of model(): a tensor, a tuple or list of arguments, or a dict of keywords.
    loss: makes a scalar of what model() returns; None: its `loss` if it has one, else the mean of all floating tensors
    in it. batch: samples in `inputs`; None: the first length of its first tensor. steps: measured ones, after two
    others; medians count. path: a file to write.

    Returns {"name", "batch", "forward_ms", "backward_ms", "layers": [{"name", "elements", "backward_ms"}, ...]}, layers
    in the order of forward, which is the reverse of that in which gradients came. Parameters that need none, or get
    none, are not in it. The model is as before: gradients, buffers such as running means, and random states of the CPU
    and its GPU. Raises BadArgument.
    """
    model, inputs, steps = _unwrapped(model), _as_call(inputs), _arguments.whole("steps", steps, 1, 10000)
    names = {parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not names:
        raise errors.bad_argument("gradlane: profile() of a model without parameters that need gradients")
    if path is not None and not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK):
        raise errors.bad_argument(f"gradlane: profile() cannot write to the folder of {os.fspath(path)!r}")
    batch = _arguments.whole("batch", _batch_of(inputs) if batch is None else batch, 1, 10**7)
    run = _Run(model, inputs, loss, list(names))
    with _left_alone(model, list(names)):
        measured = [run.step() for _ in range(WARM_UPS + steps)][WARM_UPS:]
    ready = [parameter for parameter in names if all(parameter in step.ready for step in measured)]
    if not ready:
        raise errors.bad_argument("gradlane: profile() of a loss that no parameter has to do with")
    ready.sort(key=lambda parameter: statistics.median(step.ready[parameter] for step in measured))
    layers, before = [], 0.0
    for parameter in ready:
        at = statistics.median(step.ready[parameter] for step in measured)
        layers.append({"name": names[parameter], "elements": parameter.numel(), "backward_ms": max(at - before, 0.0)})
        before = at
    result = {"name": name or type(model).__name__, "batch": batch,
              "forward_ms": statistics.median(step.forward for step in measured),
              "backward_ms": statistics.median(step.backward for step in measured), "layers": layers[::-1]}
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    return result


# ---- A step


class _Step:
    """Milliseconds; those of gradients from the start of backward."""

    def __init__(self) -> None:
        self.forward = self.backward = 0.0
        self.ready: dict[torch.nn.Parameter, float] = {}


class _Run:
    def __init__(self, model: torch.nn.Module, inputs: tuple[tuple[Any, ...], dict[str, Any]],
                 loss: Callable[[Any], torch.Tensor] | None, parameters: list[torch.nn.Parameter]) -> None:
        self.model, self.inputs, self.parameters = model, inputs, parameters
        self.loss = loss or _usual_loss
        devices = {parameter.device for parameter in parameters if parameter.is_cuda}
        if len(devices) > 1:
            raise errors.bad_argument("gradlane: profile() of a model on several GPUs: profile what one of them has")
        self.clock: _Clock = _CudaClock(devices.pop()) if devices else _Clock()

    def step(self) -> _Step:
        step, clock, ready = _Step(), self.clock, {}

        def note(parameter: torch.nn.Parameter) -> Callable[[torch.Tensor], None]:
            def noted(_: torch.Tensor) -> None:
                ready[parameter] = clock.mark()
            return noted

        for parameter in self.parameters:
            parameter.grad = None
        handles = [parameter.register_hook(note(parameter)) for parameter in self.parameters]
        try:
            begin = clock.mark()
            positional, keywords = self.inputs
            value = self.loss(self.model(*positional, **keywords))
            if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
                raise errors.bad_argument("gradlane: profile() needs a loss: one number that depends on the model's "
                                          "parameters. Give it as loss=, a function of what the model returns")
            middle = clock.mark()
            value.backward()
            end = clock.mark()
        finally:
            for handle in handles:
                handle.remove()
        clock.finish()
        step.forward, step.backward = clock.between(begin, middle), clock.between(middle, end)
        step.ready = {parameter: clock.between(middle, at) for parameter, at in ready.items()}
        return step


class _Clock:
    def mark(self) -> Any:
        return time.perf_counter()

    def finish(self) -> None:
        pass

    def between(self, a: Any, b: Any) -> float:
        return float(b - a) * 1e3


class _CudaClock(_Clock):
    """Of the GPU: calls return long before it has computed anything."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def finish(self) -> None:
        torch.cuda.synchronize(self.device)

    def between(self, a: Any, b: Any) -> float:
        return float(a.elapsed_time(b))


class _left_alone:
    """Gradients, buffers and random states are afterwards what they were."""

    def __init__(self, model: torch.nn.Module, parameters: list[torch.nn.Parameter]) -> None:
        self.parameters, self.buffers = parameters, list(model.buffers())
        self.devices = sorted({parameter.device.index for parameter in parameters if parameter.is_cuda})

    def __enter__(self) -> None:
        self.gradients = [parameter.grad for parameter in self.parameters]
        self.contents = [buffer.clone() for buffer in self.buffers]
        self.random = torch.random.fork_rng(devices=self.devices)
        self.random.__enter__()

    def __exit__(self, *why: Any) -> None:
        self.random.__exit__(*why)
        for parameter, gradient in zip(self.parameters, self.gradients):
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, content in zip(self.buffers, self.contents):
                buffer.copy_(content)


# ---- Arguments


def _unwrapped(model: object) -> torch.nn.Module:
    if not isinstance(model, torch.nn.Module):
        raise errors.bad_argument(f"gradlane: profile() of {type(model).__name__}, which is no torch.nn.Module")
    wrapped = dist.is_available() and isinstance(model, torch.nn.parallel.DistributedDataParallel)
    return model.module if wrapped else model


def _as_call(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)


def _batch_of(call: tuple[tuple[Any, ...], dict[str, Any]]) -> int:
    first = next((tensor for tensor in _tensors(call) if tensor.dim() > 0), None)
    if first is None:
        raise errors.bad_argument("gradlane: profile() cannot tell how many samples there are in inputs: say batch=")
    return int(first.shape[0])


def _usual_loss(output: Any) -> torch.Tensor:
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    means = [tensor.float().mean() for tensor in _tensors(output) if tensor.is_floating_point()]
    if not means:
        raise errors.bad_argument("gradlane: profile() finds no floating tensor in what the model returns: give loss=")
    return torch.stack(means).sum()
