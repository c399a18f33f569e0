"""Profile of a step of a model, as `gradlane plan --model FILE` reads it."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from typing import Any, Callable, Iterator, Mapping

import torch
import torch.distributed as dist

from .. import _arguments, errors

WARM_UPS = 2


def profile(model: torch.nn.Module, inputs: Any, *, loss: Callable[[Any], torch.Tensor] | None = None,
            batch: int | None = None, name: str | None = None, steps: int = 5,
            path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Measures forward and backward of a model, and when each gradient is ready.

        gradlane.torch.profile(model, images, path="mine.json")
        $ gradlane plan --model mine.json --nodes 4 --gbps 1

    Run it alone on the machine, because other programs change the times.

    - model: module as it is trained, on its device and in its mode. A DistributedDataParallel is measured without its
      exchange.
    - inputs: arguments of model(), as a tensor, a tuple or list of arguments, or a dict of keywords.
    - loss: function that makes a scalar of what model() returns. None: the `loss` of the result, or else the sum of the
      means of all floating tensors in it.
    - batch: number of samples in `inputs`. None: first dimension of its first tensor.
    - name: name in the result. None: class of the model.
    - steps: number of measured steps, after two warm-up steps. Times are medians.
    - path: file to write, if any.

    Returns {"name", "batch", "forward_ms", "backward_ms", "layers": [{"name", "elements", "backward_ms"}, ...]}. Layers
    are in the order of forward, the reverse of that in which gradients came. A compiled model has all gradients at the
    end. Parameters that need or get no gradient are left out.

    Gradients, buffers such as running means, and the random states of the CPU and of the model's GPU are restored.
    Meanwhile there is a copy of the buffers and a second set of gradients. Raises BadArgument, and what the model
    raises.
    """
    if loss is not None and not callable(loss):
        raise errors.bad_argument(f"gradlane: profile() with loss={loss!r}: it must be a function that makes one "
                                  "number of the model's result")
    model, inputs, steps = _unwrapped(model), _as_call(inputs), _arguments.whole("steps", steps, 1, 10000)
    names = _names_of(model)
    if path is not None:
        _check_path(path)
    batch = _arguments.whole("batch", _batch_of(inputs) if batch is None else batch, 1, 10**7)
    run = _Run(model, inputs, loss, list(names))
    with _PreserveModelState(model, list(names)), torch.enable_grad():
        measured = [run.step() for _ in range(WARM_UPS + steps)][WARM_UPS:]
    ready = [parameter for parameter in names if all(parameter in step.ready for step in measured)]
    if not ready:
        raise errors.bad_argument("gradlane: profile() of a loss that depends on no parameter")
    ready.sort(key=lambda parameter: statistics.median(step.ready[parameter] for step in measured))
    layers, before = [], 0.0
    for parameter in ready:
        at = statistics.median(step.ready[parameter] for step in measured)
        layers.append({"name": names[parameter], "elements": parameter.numel(), "backward_ms": max(at - before, 0.0)})
        before = at
    result = {"name": str(name or type(model).__name__), "batch": batch,
              "forward_ms": statistics.median(step.forward for step in measured),
              "backward_ms": statistics.median(step.backward for step in measured), "layers": layers[::-1]}
    if path is not None:
        _write(path, result)
    return result


# ---- A step


class _Step:
    """Times of a step in milliseconds. `ready` has that of each gradient, from the start of backward."""

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
            raise errors.bad_argument("gradlane: profile() of a model on several GPUs: profile the part on one of them")
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
                                          "parameters. Pass it as loss=, a function of the model's result")
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
    """Clock that measures on the GPU. Calls return long before the GPU has computed anything."""

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


class _PreserveModelState:
    """Context that restores gradients, buffers and random states when it ends."""

    def __init__(self, model: torch.nn.Module, parameters: list[torch.nn.Parameter]) -> None:
        self.model, self.parameters = model, parameters
        self.devices = sorted({parameter.device.index for parameter in parameters if parameter.is_cuda})

    def __enter__(self) -> None:
        self.gradients = [parameter.grad for parameter in self.parameters]
        # Forward may change buffers in place, resize them, or replace them.
        self.buffers = [(module, name, buffer, buffer.clone())
                        for module in self.model.modules() for name, buffer in module._buffers.items()
                        if buffer is not None]
        self.random = torch.random.fork_rng(devices=self.devices)
        self.random.__enter__()

    def __exit__(self, *why: Any) -> None:
        self.random.__exit__(*why)
        for parameter, gradient in zip(self.parameters, self.gradients):
            parameter.grad = gradient
        with torch.no_grad():
            for module, name, buffer, content in self.buffers:
                module._buffers[name] = buffer
                # Unchanged buffers are skipped, because expanded ones cannot be written. Contents are compared, because
                # a buffer's version does not count the updates of batch normalization.
                if torch.equal(buffer, content):
                    continue
                if buffer.shape != content.shape:
                    buffer.resize_(content.shape)
                buffer.copy_(content)


# ---- Arguments


def _unwrapped(model: object) -> torch.nn.Module:
    if not isinstance(model, torch.nn.Module):
        raise errors.bad_argument(f"gradlane: profile() of {type(model).__name__}, which is not a torch.nn.Module")
    if not dist.is_available():
        return model
    compiled = getattr(model, "_orig_mod", model)  # torch.compile() sets it
    return compiled.module if isinstance(compiled, torch.nn.parallel.DistributedDataParallel) else model


def _names_of(model: torch.nn.Module) -> dict[torch.nn.Parameter, str]:
    names = {}
    for name, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise errors.bad_argument(f"gradlane: profile() of a model whose {name} has no shape yet: call the "
                                      "model once first")
        if parameter.requires_grad and parameter.numel() > 0:
            names[parameter] = name.replace("_orig_mod.", "")
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise errors.bad_argument(f"gradlane: profile() would run the gradient hook of {name}, for example an "
                                      "optimizer's step: remove the hook first")
    if not names:
        raise errors.bad_argument("gradlane: profile() of a model without parameters that need gradients")
    others = {parameter.device.type for parameter in names} - {"cpu", "cuda"}
    if others:
        raise errors.bad_argument(f"gradlane: profile() cannot measure on {', '.join(sorted(others))}; allowed: CPU "
                                  "and CUDA")
    return names


def _check_path(path: str | os.PathLike[str]) -> None:
    """Raises BadArgument if the file cannot be written, before anything is measured. Creates no file there, because the
    model may fail."""
    try:
        if os.path.exists(path):
            with open(path, "a", encoding="utf-8"):
                return
        with tempfile.TemporaryFile(dir=_folder_of(path)):
            pass
    except OSError as error:
        raise _cannot_write(path, error) from None


def _write(path: str | os.PathLike[str], result: dict[str, Any]) -> None:
    """Writes a new file, which then replaces the old one. Links, special files, and files in folders without write
    access are written in place."""
    text = json.dumps(result, indent=1) + "\n"
    try:
        kept = os.path.islink(path) or not os.path.isfile(path) or not os.access(_folder_of(path), os.W_OK)
        if os.path.exists(path) and kept:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return
        beside = f"{os.fspath(path)}.{os.getpid()}"
        try:
            with open(beside, "x", encoding="utf-8") as file:
                file.write(text)
            os.replace(beside, path)
        except BaseException:
            if os.path.exists(beside):
                os.unlink(beside)
            raise
    except OSError as error:
        raise _cannot_write(path, error) from None


def _folder_of(path: str | os.PathLike[str]) -> str:
    return os.path.dirname(os.fspath(path)) or "."


def _cannot_write(path: str | os.PathLike[str], error: OSError) -> Exception:
    return errors.bad_argument(f"gradlane: profile() cannot write to {os.fspath(path)!r}: {error.strerror}")


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
        raise errors.bad_argument("gradlane: profile() cannot find the number of samples in inputs: pass batch=")
    return int(first.shape[0])


def _usual_loss(output: Any) -> torch.Tensor:
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    means = [tensor.float().mean() for tensor in _tensors(output) if tensor.is_floating_point()]
    if not means:
        raise errors.bad_argument("gradlane: profile() finds no floating tensor in the model's result: pass loss=")
    return torch.stack(means).sum()
