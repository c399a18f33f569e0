"""FSDP2 gradients (fully sharded data parallel) through gradlane, with any backend of the job.

    fully_shard(model)
    gradlane.torch.fsdp(model)

A unit is a module that fully_shard() was called for. Each backward has one reduce-scatter per unit, of all its
gradients. Its input has the ranks' shards one after the other. The reduce-scatter is compressed, with one residual per
unit. Parameters stay exact unless the caller asks for bfloat16.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import torch
import torch.distributed as dist

from .. import _codecs, errors
from .codec import bound_of, check
from .engine import Engine
from .hook import _check_group, _feedback, _open, _timeout_of
from .codec_schedule import CodecSchedule
from .subgroups import ranks_text
from .staging import premultiplied
from .work import Work

_VERSION = 1  # version of state dicts
_PARAMETERS = (None, "raw", "bf16")


class Sharded:
    """The units of a model that fsdp() or hsdp() has set up, with what they keep from step to step."""

    def __init__(self, codec: str, error_feedback: bool, units: dict[str, Unit]) -> None:
        self.codec, self.error_feedback, self._units = codec, error_feedback, units

    def __repr__(self) -> str:
        count = len(self._units)
        return f"<gradlane.torch.fsdp: {count} units, codec={self.codec!r}, error_feedback={self.error_feedback}>"

    def reset(self) -> None:
        """Sets residuals to zero and restarts adaptive bounds. Call it on all ranks, before going on after a failure,
        or after parameters were frozen or thawed."""
        for unit in self._units.values():
            unit.reset()

    def state_dict(self) -> dict[str, Any]:
        """Returns residuals and adaptive bounds of this rank, for a checkpoint. Residuals are float32 and flat, in the
        order in which the unit's shards travel. Another number of ranks cannot load them."""
        return {"version": _VERSION, "codec": self.codec, "units": {name: u.state() for name, u in self._units.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from state_dict() of the same rank, model and codec. Raises BadArgument, now or in the first step.
        """
        if state.get("version") != _VERSION or _codecs.renewed(str(state.get("codec"))) != self.codec:
            raise errors.bad_argument(
                f"the state dict has version {state.get('version')} and codec {state.get('codec')!r}; needed: version "
                f"{_VERSION} and codec {self.codec!r}"
            )
        if state["units"].keys() != self._units.keys():
            raise errors.bad_argument(
                f"the state dict has units {sorted(state['units'])}, but this model has {sorted(self._units)}"
            )
        for name, unit in self._units.items():
            unit.load(state["units"][name])


def fsdp(model: torch.nn.Module, codec: str | None = None, error_feedback: bool | None = None, *,
         strategy: str | None = None, parameters: str | None = None,
         process_group: dist.ProcessGroup | None = None) -> Sharded:
    """Makes all units of a model reduce their gradients through gradlane. Call fully_shard() for the units first.

    - codec: codec of float32 gradients; other types travel exactly. If parameters are bfloat16, use
      MixedPrecisionPolicy(reduce_dtype=torch.float32). None or "fixed" stands for "fixed:adaptive", whose bound follows
      the unit's gradients. Codecs that look at whole tensors (topk, fixed:rel, ...) are refused: a unit has many
      tensors.
    - error_feedback, strategy, process_group: as in State.
    - parameters: None: the job's own backend gathers them, as before. "raw": gradlane gathers them exactly. "bf16":
      gradlane gathers them, rounded to bfloat16 for the forward and backward pass. The optimizer's shards stay as they
      are.

    The model is sharded over all ranks of the daemons, or over process_group. Raises NoDaemon, and BadArgument if
    options do not go together.
    """
    if parameters not in _PARAMETERS:
        raise errors.bad_argument(f"gradlane: parameters is {parameters!r}; allowed: None, 'raw' or 'bf16'")
    found = units_of("fsdp", "set_custom_reduce_scatter", model)
    _check_group(process_group)
    for name, module in found.items():  # checked before daemons are started for a wrong group
        _check_mesh(name, module, process_group)
    options = ExchangeOptions.of("fsdp", codec, error_feedback, strategy, process_group)
    units: dict[str, Unit] = {}
    for name, module in found.items():
        units[name] = Unit(options)
        module.set_custom_reduce_scatter(units[name])
        options.keep_places(module)
        if parameters is not None:
            module.set_custom_all_gather(Gather(options.engine, parameters == "bf16", options.timeout))
    return Sharded(options.codec, options.error_feedback, units)


class ExchangeOptions(NamedTuple):
    """Options for the gradients of all units. `states` is the number of rows of a residual, 0 if there is none.
    `timeout` is in seconds; None: the daemons' limit."""

    engine: Engine
    codec: str
    error_feedback: bool
    strategy: str | None
    states: int
    timeout: float | None

    @staticmethod
    def of(caller: str, codec: str | None, error_feedback: bool | None, strategy: str | None,
           process_group: dist.ProcessGroup | None) -> ExchangeOptions:
        """Returns the ExchangeOptions for the user's options; the group was checked before. Raises NoDaemon and
        BadArgument."""
        engine = _open(process_group)
        chosen = check(codec, engine) or engine.codecs.adaptive
        engine.find_strategy(strategy)
        plan = CodecSchedule(engine, chosen, strategy, 0, ())
        if plan.looks:
            raise errors.bad_argument(
                f"gradlane: {caller} with codec {chosen!r}: it looks at whole tensors, but a unit joins many tensors; "
                f"use '{engine.codecs.adaptive}', or another codec of 'gradlane codecs'"
            )
        feedback = _feedback(error_feedback, chosen, engine)
        states = plan.states if feedback else 0
        return ExchangeOptions(engine, chosen, feedback, strategy, states, _timeout_of(process_group))

    def keep_places(self, module: Any) -> None:
        """Makes FSDP send parameters without gradients too, so that each parameter keeps its place in the residual."""
        if self.error_feedback and hasattr(module, "set_reduce_scatter_unused_params"):
            module.set_reduce_scatter_unused_params(True, recurse=False)


class Unit:
    """Reduce-scatter of one unit, with the interface of ReduceScatter in torch.distributed.fsdp. FSDP calls allocate()
    for the input, then allocate() for the output, then __call__()."""

    def __init__(self, options: ExchangeOptions) -> None:
        self._engine, self._codec, self._strategy = options.engine, options.codec, options.strategy
        self._states, self._timeout = options.states, options.timeout
        self._bound = bound_of(options.codec, options.engine)
        self._buffer: torch.Tensor | None = None  # shared memory, in use by FSDP from allocate() to the end of __call__
        self._lent = False
        self._residual: torch.Tensor | None = None
        self._loaded: torch.Tensor | None = None
        # sum of squares of the latest result, and the future of that sum's all-reduce
        self._squares: tuple[torch.Tensor, Any] | None = None

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Returns an empty tensor. The input lies in shared memory. The output, in which gradients stay, does not."""
        numel = int(torch.Size(size).numel())
        if self._lent or device.type != "cpu" or numel == 0:
            return torch.empty(size, dtype=dtype, device=device)
        self._lent = True
        return self._shared(numel, dtype).view(tuple(size))

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, op: Any,
                 async_op: bool = False) -> Any:
        """Reduce-scatters gradients and waits for the end, which FSDP does not do on the CPU. Raises OperationFailed
        and DaemonGone."""
        try:
            op, (tensor,) = premultiplied(op, [input_tensor], True)
            if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
                raise errors.bad_argument(f"gradlane: fsdp with {op}: gradients can only be summed or averaged")
            work = Work(output_tensor).begin(
                lambda result, on_error: self._exchange(output_tensor, tensor, op == dist.ReduceOp.AVG, on_error))
            work.wait()
        except errors.BadArgument:  # nothing was started
            raise
        except Exception:
            self.reset()
            raise
        finally:
            self._lent = False
        return work if async_op else None

    def reset(self) -> None:
        """Drops the residual and what the adaptive bound has seen of the gradients."""
        self._squares = self._loaded = self._residual = None
        if self._bound is not None:
            self._bound.reset()

    def state(self) -> dict[str, Any]:
        """Returns residual and bound, for a checkpoint."""
        self._update_bound()
        residual = self._loaded if self._residual is None else self._residual
        return {"residual": None if residual is None else residual.clone(),
                "bound": None if self._bound is None else self._bound.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Restores what state() has returned. Raises BadArgument if there is a residual without error feedback."""
        self.reset()
        if state["residual"] is not None and self._states == 0:
            raise errors.bad_argument("the state dict has residuals, but this model has no error_feedback")
        self._loaded, self._residual = state["residual"], None
        if self._bound is not None and state["bound"] is not None:
            self._bound.load_state_dict(state["bound"])

    # ---- Private

    def _exchange(self, output: torch.Tensor, tensor: torch.Tensor, average: bool, on_error: Any) -> Any:
        shared = self._buffer
        if shared is None or shared.data_ptr() != tensor.data_ptr():
            shared = self._shared(tensor.numel(), tensor.dtype)
            shared.copy_(tensor.detach().reshape(-1))
        coded = tensor.dtype == torch.float32
        codec, residual = self._choose(shared, average) if coded else (self._plain_codec(), None)
        future = self._engine.reduce_scatter_shared(
            output.detach(), shared, average=average, codec=codec, residual=residual, strategy=self._strategy,
            timeout=self._timeout, on_error=on_error)
        if coded and self._bound is not None:
            future.wait()
            self._start_square_sum(output, 1.0 if average else 1.0 / self._engine.world)
        return future

    def _plain_codec(self) -> str | None:
        """Returns the codec of types without residuals, or None if its bound follows gradients of float32."""
        return self._codec if self._bound is None else None

    def _choose(self, shared: torch.Tensor, average: bool) -> tuple[str, torch.Tensor | None]:
        """Returns codec and residual for this step. An exact step with an adaptive bound adds the residual to `shared`
        instead."""
        self._update_bound()
        codec = self._codec if self._bound is None else self._bound.codec()
        if self._states == 0:
            return codec, None
        residual = self._residual_for(shared.numel())
        if self._bound is not None and codec == self._engine.codecs.exact:  # applies the whole residual
            shared.add_(residual[0].to(shared.device), alpha=self._engine.residual_scale if average else 1)
            residual.zero_()
            return codec, None
        return codec, residual

    def _residual_for(self, numel: int) -> torch.Tensor:
        shape = self._states, numel
        if self._residual is None or self._residual.shape != shape:
            if self._residual is not None:
                raise errors.bad_argument(
                    f"gradlane: a unit of {self._residual.shape[1]} gradients has {numel} now: with error "
                    "feedback all of its parameters need a gradient in each backward. If some were frozen or thawed, "
                    "call reset() of the result of gradlane.torch.fsdp() or hsdp(), on all ranks. If a backward "
                    "failed, make a new model")
            self._residual = self._engine.zeros(self._states * numel).view(shape)
            loaded, self._loaded = self._loaded, None
            if loaded is not None:
                if loaded.shape != shape:
                    raise errors.bad_argument(
                        f"the state dict is of another model or number of ranks: a unit's residual has the shape "
                        f"{tuple(loaded.shape)}, here {shape}"
                    )
                self._residual.copy_(loaded)
        return self._residual

    def _shared(self, numel: int, dtype: torch.dtype) -> torch.Tensor:
        if self._buffer is None or self._buffer.numel() != numel or self._buffer.dtype != dtype:
            self._buffer = self._engine.zeros(numel, dtype)
        return self._buffer

    def _start_square_sum(self, output: torch.Tensor, scale: float) -> None:
        """Starts an all-reduce of the shards' sums of squares, as no rank has the whole result. The bound of the next
        step uses it."""
        squares = output.detach().double().square().sum().mul_(scale * scale).cpu().reshape(1)
        self._squares = squares, self._engine.all_reduce(squares, timeout=self._timeout)
        self._numel = output.numel() * self._engine.world

    def _update_bound(self) -> None:
        asked, self._squares = self._squares, None
        if asked is None or self._bound is None:
            return
        asked[1].wait()
        self._bound.update_mean(float(asked[0]) / self._numel)


class Gather:
    """All-gather of one unit's parameters, with the interface of AllGather in torch.distributed.fsdp."""

    def __init__(self, engine: Engine, rounded: bool, timeout: float | None) -> None:
        self._engine, self._rounded, self._timeout = engine, rounded, timeout

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Returns an empty tensor, as PyTorch's own AllGather does."""
        return torch.empty(size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup,
                 async_op: bool = False) -> Any:
        """Gathers the parameters of all ranks. Raises OperationFailed and DaemonGone, now or from wait()."""
        world = self._engine.world
        output, own = output_tensor.detach(), input_tensor.detach()
        options: dict[str, Any] = {"timeout": self._timeout}
        if self._rounded and own.dtype == torch.float32:
            own = own.to(torch.bfloat16)
            rounded = torch.empty(world * own.numel(), dtype=own.dtype, device=own.device)
            options["on_result"] = lambda _: output.copy_(rounded.view(output.shape))
        else:
            rounded = output
        blocks = list(rounded.view(world, -1))
        work = Work(output_tensor).begin(
            lambda result, on_error: self._engine.all_gather(blocks, own.reshape(-1), result=result, on_error=on_error,
                                                             **options))
        if async_op:
            return work
        work.wait()
        return None


def units_of(name: str, method: str, model: torch.nn.Module) -> dict[str, Any]:
    """Returns the model's units that have parameters, by name. Raises BadArgument if there are none, or if PyTorch's
    FSDP2 lacks `method`, which `name` needs."""
    from torch.distributed.fsdp import FSDPModule  # imported here, as it is slow and used only here

    if not hasattr(FSDPModule, method):
        raise errors.bad_argument(
            f"gradlane: {name} needs FSDPModule.{method}, which PyTorch {torch.__version__} does not have")
    found = {name or "(root)": module for name, module in model.named_modules() if isinstance(module, FSDPModule)}
    if not found:
        raise errors.bad_argument("gradlane: the model is not sharded: call fully_shard(model) first")
    return {name: module for name, module in found.items() if group_of(module) is not None}


def group_of(module: Any) -> Any:
    """Returns PyTorch's group of a unit's parameters, or None if the unit has no parameters of its own."""
    return getattr(module._get_fsdp_state(), "_fsdp_param_group", None)


def _check_mesh(name: str, module: Any, process_group: dist.ProcessGroup | None) -> None:
    over, ours = shards_of(module), dist.get_process_group_ranks(process_group or dist.group.WORLD)
    if over != ours:
        raise errors.bad_argument(
            f"gradlane: fsdp: {name} is sharded over ranks {ranks_text(over)}, but this group has {ranks_text(ours)}: "
            "shard it over all of them, pass the process_group that it is sharded over, or use gradlane.torch.hsdp() "
            "for replicas"
        )


def shards_of(module: Any) -> list[int]:
    """Returns the ranks of the job over which a unit is sharded."""
    group = getattr(group_of(module), "_reduce_scatter_process_group")
    ranks: list[int] = dist.get_process_group_ranks(group)
    return ranks
