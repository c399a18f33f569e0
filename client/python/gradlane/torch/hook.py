"""DDP communication hook: averages gradients through gradlane, with any backend of the job.

    ddp.register_comm_hook(gradlane.torch.State(), gradlane.torch.hook)

Each bucket keeps a residual and an adaptive bound from step to step. DDP forms its buckets again after the first step.
So a new bucket takes over the state of its parameters, from other buckets or from a state dict.
"""

from __future__ import annotations

import datetime
from typing import Any, Sequence

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout
from torch.futures import Future

from .. import adaptive, errors
from .._library import Capability
from . import call_statistics, gpu, subgroups
from .bootstrap import joining, launch
from .codec import bound_of, check, is_adaptive
from .bootstrap.store_group import rendezvous
from .bucket_state import (BucketLayout, BucketState, ParameterState, check_buckets, check_codec, check_fits,
                           shape_of_residual, too_many)
from .codec_schedule import CodecSchedule, named
from .engine import Engine

_VERSION = 2  # version of state dicts


class State:
    """Options of hook(), and the residuals and adaptive bounds that it keeps from step to step. Make one per DDP model.

    - codec: codec of float32 gradients; other types travel exactly. None or "fixed" stands for "fixed:adaptive", whose
      bound follows the gradients. "auto:2^-10" chooses a codec for each size of buckets, within that bound
      (docs/plan.md).
    - error_feedback: whether the codec's error is added in the next step. None: yes with "fixed:adaptive" and with
      codecs that are made for it (topk, onebit, ...).
    - process_group: group of the ranks that average. None: the default group, which must have as many ranks as the
      daemons. A group of some ranks gets daemons of its own.
    - strategy: algorithm of the all-reduce, one that the daemon allows. None: its first, or the first that can run the
      codec.
    - warmup: number of exact steps at the start. They come before those of `ramp`.
    - ramp: [(codec, steps), ...]. These codecs run before `codec`, each for its number of steps. They are `codec` with
      other parameters.
    - exact: patterns (fnmatch) of names of parameters that travel exactly, for example "*.bias". They need `model`, the
      module that has these parameters.

    Raises NoDaemon, and BadArgument if options do not go together. State and backend gradlane share one connection.
    """

    def __init__(self, codec: str | None = None, error_feedback: bool | None = None,
                 process_group: dist.ProcessGroup | None = None, *, strategy: str | None = None, warmup: int = 0,
                 ramp: Sequence[tuple[str, int]] = (), exact: Sequence[str] = (),
                 model: torch.nn.Module | None = None) -> None:
        _check_group(process_group)
        # The engine is never released, because release() may close the connection. A later State would then open the
        # rank again, which aborts what other ranks still run.
        self._engine = _open(process_group)
        self.codec = check(codec, self._engine) or self._engine.codecs.adaptive
        self.strategy = self._engine.find_strategy(strategy)
        self._plan = CodecSchedule(self._engine, self.codec, self.strategy, warmup, ramp)
        self.error_feedback = _feedback(error_feedback, self.codec, self._engine)
        self._exact = named(exact, model)
        # In a step that torch.compile() has compiled, the exchange still runs uncompiled.
        self._uncompiled = torch.compiler.disable(self._exchange)
        self._group = process_group
        self._step = 0
        # Number of each parameter, in the order in which the first step of a DDP has them. It is the same in every run.
        # Parameters that are frozen now have the last numbers.
        self._order: dict[torch.Tensor, int] = {}
        self._live = 0  # number of parameters that are not frozen
        self._seen: list[BucketState] = []  # buckets of this step
        self._known: list[BucketState] = []  # buckets of the step before
        # Number of parameters in each bucket of the first step. The numbers in `_order` depend on it.
        self._first_step_sizes: list[int] = []
        self._where: dict[torch.Tensor, tuple[BucketState, int]] = {}  # (BucketState, position in it) of each parameter
        # loaded states of the parameters that are in no bucket now
        self._left: dict[torch.Tensor, ParameterState] = {}
        # Parameters of a loaded state dict by number, and its `_first_step_sizes`, until the end of the first step
        # after loading.
        self._loaded: list[ParameterState] = []
        self._saved_firsts: list[int] = []

    def __repr__(self) -> str:
        options = f"codec={self.codec!r}, error_feedback={self.error_feedback}"
        options += "" if self.strategy is None else f", strategy={self.strategy!r}"
        return f"<gradlane.torch.State({options}): rank {self._engine.rank} of {self._engine.world}>"

    def reset(self) -> None:
        """Sets residuals to zero and restarts adaptive bounds. Call it on all ranks, before going on after a failure.

        It waits for the other ranks and connects again, so that ranks agree on the number of operations so far. It
        skips both outside a torch.distributed job. It also skips both if a process group of backend gradlane uses the
        connection; make that group again instead.
        """
        ours = self._engine.is_subgroup
        keep_connection = not ours and (self._engine.groups or Engine.of_groups() or
                                        not (dist.is_available() and dist.is_initialized()))
        if ours:
            subgroups.leave(self._group)
        elif not keep_connection:
            Engine.renew()  # first, so that settle() below does not wait forever
        for kept in {kept for kept, _ in self._where.values()}:
            kept.settle()
            kept.reset()
        self._loaded = [ParameterState(loaded.shape, None, None) for loaded in self._loaded]
        self._left = {}
        if not keep_connection:
            dist.barrier(group=self._group)  # a rank that reconnects aborts what other ranks still run
            self._reconnect()

    def state_dict(self) -> dict[str, Any]:
        """Returns residuals (float32, in the shapes of parameters) and adaptive bounds of this rank, for a checkpoint.
        """
        entries = [self._state_of(parameter) for parameter in self._order] + self._loaded[len(self._order):]
        bounds = list({id(entry.bound): entry.bound for entry in entries if entry.bound is not None}.values())
        numbers = {id(bound): number for number, bound in enumerate(bounds)}
        return {
            "version": _VERSION,
            "codec": self.codec,
            "step": self._step,
            "buckets": self._first_step_sizes + self._saved_firsts[len(self._first_step_sizes):],
            "frozen": len(self._order) - self._live if self._live else 0,
            "shapes": [entry.shape for entry in entries],
            "residuals": [None if entry.residual is None else entry.residual.clone() for entry in entries],
            "bounds": [bound.state_dict() for bound in bounds],
            "bound_of": [None if entry.bound is None else numbers[id(entry.bound)] for entry in entries],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from state_dict() of the same rank.

        Residuals of frozen parameters are kept only if this State has already seen these parameters. Raises
        BadArgument, now or in the first step, if parameters or buckets do not fit, or if residuals are of a codec with
        another first word. Warns if an old state dict does not name its codec.
        """
        if state.get("version") != _VERSION:
            raise errors.bad_argument(f"the state dict has version {state.get('version')}; needed: version {_VERSION}")
        if not self.error_feedback and any(residual is not None for residual in state["residuals"]):
            raise errors.bad_argument("the state dict has residuals, but this State has no error_feedback")
        check_codec(state, self.codec)
        for shape, residual in zip(state["shapes"], state["residuals"]):
            if residual is not None and residual.shape != shape_of_residual(shape, self._plan.states):
                raise errors.bad_argument(
                    f"the state dict has residuals of another codec: shape {tuple(residual.shape)} for a parameter of "
                    f"shape {tuple(shape)}, but codec {self.codec} has {self._plan.states} states"
                )
        bounds = [self._bound_of(saved) for saved in state["bounds"]]
        loaded = [
            ParameterState(shape, residual, None if number is None else bounds[number])
            for shape, residual, number in zip(state["shapes"], state["residuals"], state["bound_of"])
        ]
        live = len(loaded) - state.get("frozen", 0)
        known = list(self._order)
        if (live, len(loaded)) != (self._live, len(known)):
            del loaded[live:], known[self._live or len(known):]
        for number, parameter in enumerate(known):
            check_fits(loaded, number, parameter)
        if known and len(loaded) > len(known):
            raise too_many(loaded, len(known))
        check_buckets(state["buckets"], self._first_step_sizes)
        self._step = int(state.get("step", self._step))
        self._left = dict(zip(self._order, loaded))
        self._loaded, self._saved_firsts = ([], []) if self._order else (loaded, list(state["buckets"]))
        self._where = {}

    # ---- Private

    def _exchange(self, bucket: dist.GradBucket) -> Future[torch.Tensor]:
        if not self._engine.usable:
            self._reconnect()
        buffer = bucket.buffer()
        if buffer.is_sparse:
            return self._exchange_sparse(bucket, buffer)
        known = len(self._order)
        kept = self._keep(bucket.parameters(), buffer)
        self._see(bucket, kept, known)
        call_statistics.note("gradients of the hook", call_statistics.HERE, "", call_statistics.size_of(buffer))
        codec: str | None = None
        residual: torch.Tensor | None = None
        if buffer.dtype == torch.float32:
            codec = self._plan.codec(self._step) if kept.bound is None else kept.bound.codec()
            residual = kept.residual
        elif kept.bound is None and not is_adaptive(self._plan.codec(self._step)):
            codec = self._plan.codec(self._step)  # some codecs serve other floating types, too
        if self._step < self._plan.warmup and codec is not None:
            codec = self._engine.codecs.exact
        exact = codec == self._engine.codecs.exact
        options: dict[str, Any] = {"average": True, "timeout": _timeout_of(self._group)}
        if residual is not None and not exact and kept.layout is None and gpu.is_on_gpu(buffer):
            options["on_data"] = kept.withhold_residuals  # in the engine's thread: here it would wait for the GPU
        elif residual is not None and not (exact and kept.bound is None):  # otherwise the residual is not applied
            kept.withhold_residuals(buffer)
        # An exact step with an adaptive bound applies the whole residual.
        if residual is not None and exact:
            if kept.bound is not None:
                buffer.add_(residual[0].to(buffer.device), alpha=self._engine.residual_scale)
                residual.zero_()
            residual = None
        if bucket.is_last():
            self._step += 1
        if kept.layout is not None and not exact:
            kept.future = self._exchange_cut(kept, kept.layout, buffer, codec, residual, options)
        else:
            options["on_result" if kept.bound is None else "on_host_result"] = kept.take
            kept.future = self._engine.all_reduce(buffer, codec=codec, residual=residual,
                                                  strategy=None if exact else self.strategy, **options)
        return kept.future

    def _exchange_sparse(self, bucket: dist.GradBucket, buffer: torch.Tensor) -> Future[torch.Tensor]:
        """Averages a sparse bucket exactly, with the job's own backend. Its parameters get no numbers, residuals or
        bounds."""
        self._see(bucket, None, len(self._order))
        if bucket.is_last():
            self._step += 1
        world = dist.get_world_size(self._group)
        work = dist.all_reduce(buffer, group=self._group, async_op=True)

        def average(future: Future[Any]) -> torch.Tensor:
            future.value()  # raises the error of the all-reduce
            return buffer / world

        return work.get_future().then(average)

    def _see(self, bucket: dist.GradBucket, kept: BucketState | None, known: int) -> None:
        """Records a bucket of the current step. After the last one, numbers parameters again if buckets have changed.

        known: number of parameters that had numbers before this bucket. Raises BadArgument if a loaded state dict has
        other parameters or buckets.
        """
        if bucket.index() == 0:
            self._seen = []
        if kept is not None:
            self._seen.append(kept)
        if len(self._order) > known:
            self._first_step_sizes.append(len(self._order) - known)
        last = bucket.is_last()
        if last and len(self._loaded) > len(self._order):
            raise too_many(self._loaded, len(self._order))
        check_buckets(self._saved_firsts, self._first_step_sizes)
        if not last:
            return
        self._loaded, self._saved_firsts = [], []
        if self._seen != self._known:
            self._known = self._seen
            self._renumber_parameters()

    def _renumber_parameters(self) -> None:
        """Numbers parameters again if some were added, frozen or thawed. The new numbers are those of a DDP that has
        had these parameters from the start. A State that loads the state dict belongs to such a DDP."""
        seen = [parameter for kept in self._seen for parameter in kept.parameters]
        if set(seen) == set(list(self._order)[:self._live]):
            return
        self._order = {parameter: number for number, parameter in enumerate(dict.fromkeys([*seen, *self._order]))}
        self._live = len(seen)
        self._first_step_sizes = [len(kept.parameters) for kept in self._seen]

    def _exchange_cut(self, kept: BucketState, layout: BucketLayout, buffer: torch.Tensor, codec: str | None,
                      residual: torch.Tensor | None, options: dict[str, Any]) -> Future[Any]:
        """All-reduces a divided bucket in several operations. The callback of the last operation puts the result
        together."""
        kept.work.copy_(buffer)
        failed: list[Exception] = []

        def gather(result: torch.Tensor) -> None:
            if failed:
                raise failed[0]
            start = 0
            for first, numel in layout.exact:
                kept.work[first:first + numel] = kept.packed[start:start + numel]
                start += numel
            buffer.copy_(kept.work)
            kept.take(buffer)

        ends = {"on_result": gather, "result": buffer}
        for number, (first, numel) in enumerate(layout.coded, start=1):
            last = number == len(layout.coded) and not layout.exact
            rows = None if residual is None else residual[:, first:first + numel]
            future = self._engine.all_reduce(kept.work[first:first + numel], codec=codec, residual=rows,
                                             strategy=self.strategy, pieces=not self._plan.looks,
                                             **(ends if last else {"on_error": failed.append}), **options)
        if layout.exact:
            kept.packed = torch.cat([kept.work[first:first + numel] for first, numel in layout.exact])
            future = self._engine.all_reduce(kept.packed, codec=self._engine.codecs.exact, **ends, **options)
        return future

    def _reconnect(self) -> None:
        """Opens the engine again and keeps residuals and bounds. The process group or the daemon was replaced."""
        state = self.state_dict()
        self._engine = _open(self._group)
        self.load_state_dict(state)

    def _keep(self, parameters: Sequence[torch.Tensor], buffer: torch.Tensor) -> BucketState:
        """Returns the BucketState of these parameters. If they form a new bucket, makes one from the state that they
        have now."""
        known = self._where.get(parameters[0])
        if known is not None and list(map(id, known[0].parameters)) == list(map(id, parameters)):
            known[0].settle()
            return known[0]
        for parameter in parameters:
            number = self._order.setdefault(parameter, len(self._order))
            if self._loaded:
                check_fits(self._loaded, number, parameter)
                self._left.setdefault(parameter, self._loaded[number])
        kept = BucketState(parameters, None, None)
        if buffer.dtype == torch.float32:
            before = [self._state_of(parameter) for parameter in parameters]
            kept.bound = self._joined_bound(before)
            if self.error_feedback:
                rows = self._plan.states
                kept.residual = self._engine.zeros(rows * buffer.numel()).view(rows, -1)
                for position, entry in enumerate(before):
                    place = kept.residual_of(position)
                    if entry.residual is not None and place is not None:
                        place.copy_(self._moved(entry.residual))
            kept.layout = BucketLayout.of(parameters, self._exact, self._plan.looks)
            if kept.layout is not None:
                kept.work = self._engine.zeros(buffer.numel())
        for position, parameter in enumerate(parameters):
            self._where[parameter] = (kept, position)
            self._left.pop(parameter, None)
        return kept

    def _moved(self, residual: torch.Tensor) -> torch.Tensor:
        """Returns a residual for use in another bucket, where other ranks sum the blocks. The rows for sums that this
        rank computes are added to the first row, which is for its own gradients."""
        if not self._plan.owned:
            return residual
        moved = torch.zeros_like(residual)
        moved[0] = residual.sum(0)
        return moved

    def _state_of(self, parameter: torch.Tensor) -> ParameterState:
        """Returns shape, residual and bound that the parameter has now."""
        known = self._where.get(parameter)
        if known is not None:
            kept, position = known
            kept.settle()
            return ParameterState(parameter.shape, kept.residual_of(position), kept.bound)
        return self._left.get(parameter) or ParameterState(parameter.shape, None, None)

    def _joined_bound(self, entries: Sequence[ParameterState]) -> adaptive.AdaptiveBound | None:
        bound = bound_of(self.codec, self._engine)
        before = {id(entry.bound): entry.bound for entry in entries}
        if bound is not None and id(None) not in before:
            bound.join([one for one in before.values() if one is not None])
        return bound

    def _bound_of(self, saved: dict[str, Any]) -> adaptive.AdaptiveBound | None:
        bound = bound_of(self.codec, self._engine)
        if bound is not None and bound.bits == saved["bits"]:  # otherwise the new bound starts empty
            bound.load_state_dict(saved)
        return bound


def hook(state: State, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Averages a bucket over the ranks, for DistributedDataParallel.register_comm_hook(State(...), hook).

    bucket: gradients of any floating type. float32 goes through the codec of the State, other types travel exactly. The
    job's own backend averages sparse gradients. Returns a future of the bucket's flat tensor. Raises BadArgument if
    `state` is no State, or if a state dict does not fit.
    """
    if not isinstance(state, State):
        raise errors.bad_argument(
            f"gradlane.torch.hook with a state of type {type(state).__name__}: call "
            "ddp.register_comm_hook(gradlane.torch.State(), gradlane.torch.hook)"
        )
    return state._uncompiled(bucket)


# DDP compares the annotations with its own classes. Without this line, the annotations are strings.
hook.__annotations__.update({"bucket": dist.GradBucket, "return": Future[torch.Tensor]})


def _feedback(wanted: object, codec: str, engine: Engine) -> bool:
    found = None if is_adaptive(codec) else engine.find_codec(codec)
    if wanted is None:  # off by default for `fixed:B`, as the user has chosen its error bound
        return found is None or found.states > 0 and Capability.ADAPTIVE not in found.flags
    if not isinstance(wanted, bool):
        kind = type(wanted).__name__
        raise errors.bad_argument(f"gradlane: error_feedback {wanted!r} is {kind}; allowed: True, False or None")
    if wanted and found is not None and found.states == 0:
        able = engine.with_residual(found.word)
        raise errors.bad_argument(
            f"gradlane: codec {codec!r} does not support error_feedback; one that does is "
            f"{(able or engine.codecs.adaptive)!r}"
        )
    return wanted


def _check_group(group: object) -> None:
    if group is None or isinstance(group, dist.ProcessGroup):
        return
    foreign = group is dist.GroupMember.NON_GROUP_MEMBER
    what = "a group without this rank" if foreign else type(group).__name__
    raise errors.bad_argument(f"gradlane: process_group is {what}; leave it out, or pass a group with this rank")


def _timeout_of(group: dist.ProcessGroup | None) -> float | None:
    """Returns the time limit of the job's own operations in seconds: the one that PyTorch was given, or its default.
    None if there is no job."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    job = group or dist.group.WORLD
    backend = job._get_backend(job._device_types[0])
    options = getattr(backend, "options", None)  # Gloo, NCCL and gradlane have them
    return float(getattr(options, "_timeout", default_pg_timeout).total_seconds())


def _rendezvous_timeout(group: dist.ProcessGroup) -> datetime.timedelta:
    """Returns how long ranks of a group wait for each other in a rendezvous: the shorter timeout of group and job.
    new_group() does not inherit the job's timeout."""
    return datetime.timedelta(seconds=min(_timeout_of(group) or 0, _timeout_of(None) or 0))


def _open(process_group: dist.ProcessGroup | None) -> Engine:
    number = ranks = None
    if dist.is_available() and dist.is_initialized():
        rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
        number, ranks = rank, world
        if process_group is not None and 1 < world < dist.get_world_size():
            return subgroups.engine_of(process_group, _rendezvous_timeout(process_group))
        if launch.wanted() and not Engine.exists() and world == dist.get_world_size():
            limit = datetime.timedelta(seconds=_timeout_of(process_group) or 0)
            store = dist.distributed_c10d._get_default_store()
            store = dist.PrefixStore(rendezvous(store, rank, world, limit), store)
            joining.join_all(store, rank, world, limit, lambda own: launch.prepare(own, rank, world, limit))
    try:
        return Engine.shared(number, ranks)
    except errors.NoDaemon as error:
        raise errors.NoDaemon(
            error.code, f"{error}; start the job with 'gradlane run -n N -- COMMAND', or a daemon on each node"
        ) from error
