"""Gradients of DistributedDataParallel through gradlane, whatever the job's backend is.

    ddp.register_comm_hook(gradlane.torch.State(), gradlane.torch.hook)

What is kept from step to step, residuals and adaptive bounds, belongs to buckets, and DDP forms its buckets anew after
the first step. So each bucket starts from what its parameters had before, wherever that was: in other buckets, or in a
state dict.
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
from . import gpu, ledger, rings
from .bootstrap import joining, launch
from .codec import bound_of, check, is_adaptive
from .bootstrap.store_group import rendezvous
from .engine import Engine
from .kept import Cuts, Kept, Loaded, check_buckets, check_codec, check_fits, shape_of_residual, too_many
from .plan import Plan, named

_VERSION = 2  # of state dicts


class State:
    """How hook() averages gradients, and what is kept from step to step. One per DDP model.

    codec: of float32 gradients; None or "fixed": "fixed:adaptive", whose bound follows the gradients; "auto:2^-10":
    chosen for each size of buckets, within that bound (docs/plan.md). Other types travel exactly. error_feedback: what
    a codec takes away is added in the next step. None: with "fixed:adaptive", and with codecs that are made for it
    (topk, onebit, ...), yes. process_group: None: the default one, which must have as many ranks as the daemons; one of
    some ranks has daemons of its own started. strategy: which way round gradients go, one of those that the daemon
    allows; None: its first, or the first that can. warmup: so many steps at first are exact. ramp: [(codec, steps),
    ...], codecs of the same word that come before `codec`, each for so many steps. exact: patterns (fnmatch) of names
    of parameters that travel exactly, "*.bias" say; model: whose parameters these are.

    Raises NoDaemon, and BadArgument if something does not go together. The connection is shared with backend gradlane.
    """

    def __init__(self, codec: str | None = None, error_feedback: bool | None = None,
                 process_group: dist.ProcessGroup | None = None, *, strategy: str | None = None, warmup: int = 0,
                 ramp: Sequence[tuple[str, int]] = (), exact: Sequence[str] = (),
                 model: torch.nn.Module | None = None) -> None:
        _check_group(process_group)
        # Never released: whoever opens a rank anew ends what other ranks still do.
        self._engine = _open(process_group)
        self.codec = check(codec, self._engine) or self._engine.codecs.adaptive
        self.strategy = self._engine.find_strategy(strategy)
        self._plan = Plan(self._engine, self.codec, self.strategy, warmup, ramp)
        self.error_feedback = _feedback(error_feedback, self.codec, self._engine)
        self._exact = named(exact, model)
        # Called by a step that torch.compile() has compiled, it runs as it is.
        self._uncompiled = torch.compiler.disable(self._exchange)
        self._group = process_group
        self._step = 0
        # Parameters: their numbers, in the order in which the first step of a DDP has them, which is the same in every
        # run. Behind those the ones that are frozen meanwhile.
        self._order: dict[torch.Tensor, int] = {}
        self._live = 0  # how many are not frozen
        self._seen: list[Kept] = []  # buckets of this step
        self._known: list[Kept] = []  # of the step before
        self._firsts: list[int] = []  # how many parameters the buckets of the first step had: numbers depend on that
        self._where: dict[torch.Tensor, tuple[Kept, int]] = {}  # parameters: (Kept, position in it)
        self._left: dict[torch.Tensor, Loaded] = {}  # of those that have no place now
        # Of a state dict, until the end of the first step with it: by number, and its `_firsts`.
        self._loaded: list[Loaded] = []
        self._saved_firsts: list[int] = []

    def __repr__(self) -> str:
        options = f"codec={self.codec!r}, error_feedback={self.error_feedback}"
        options += "" if self.strategy is None else f", strategy={self.strategy!r}"
        return f"<gradlane.torch.State({options}): rank {self._engine.rank} of {self._engine.world}>"

    def reset(self) -> None:
        """Residuals become zeros, adaptive bounds start anew. On all ranks, before going on after a failure.

        It meets the other ranks and connects anew, so that ranks agree again about how many operations there have been;
        but not if a process group of backend gradlane has the same connection, which must be made anew then.
        """
        ours = self._engine.is_apart
        alone = not ours and (self._engine.groups or Engine.of_groups() or
                              not (dist.is_available() and dist.is_initialized()))
        if ours:
            rings.leave(self._group)
        elif not alone:
            Engine.renew()  # first: nobody waits for what has no end then
        for kept in {kept for kept, _ in self._where.values()}:
            kept.settle()
            kept.reset()
        self._loaded = [Loaded(loaded.shape, None, None) for loaded in self._loaded]
        self._left = {}
        if not alone:
            dist.barrier(group=self._group)  # a rank that is taken anew ends what others are still doing
            self._reconnect()

    def state_dict(self) -> dict[str, Any]:
        """Residuals (float32, in the shapes of parameters) and adaptive bounds, for a checkpoint; of this rank."""
        entries = [self._entry(parameter) for parameter in self._order] + self._loaded[len(self._order):]
        bounds = list({id(entry.bound): entry.bound for entry in entries if entry.bound is not None}.values())
        numbers = {id(bound): number for number, bound in enumerate(bounds)}
        return {
            "version": _VERSION,
            "codec": self.codec,
            "step": self._step,
            "buckets": self._firsts + self._saved_firsts[len(self._firsts):],
            "frozen": len(self._order) - self._live if self._live else 0,
            "shapes": [entry.shape for entry in entries],
            "residuals": [None if entry.residual is None else entry.residual.clone() for entry in entries],
            "bounds": [bound.state_dict() for bound in bounds],
            "bound_of": [None if entry.bound is None else numbers[id(entry.bound)] for entry in entries],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from state_dict() of the same rank.

        What frozen parameters owe is for the State that has seen them only: another one leaves it out. Raises
        BadArgument, now or in the first step, if parameters or buckets do not fit, and if residuals are of a codec of
        another word. Warns where the state dict, an older one, does not say which codec that was.
        """
        if state.get("version") != _VERSION:
            raise errors.bad_argument(f"a state dict of version {state.get('version')}, this is version {_VERSION}")
        if not self.error_feedback and any(residual is not None for residual in state["residuals"]):
            raise errors.bad_argument("the state dict has residuals, and this State has no error_feedback")
        check_codec(state, self.codec)
        for shape, residual in zip(state["shapes"], state["residuals"]):
            if residual is not None and residual.shape != shape_of_residual(shape, self._plan.states):
                raise errors.bad_argument(
                    f"the state dict has residuals of another codec: shape {tuple(residual.shape)} of a parameter of "
                    f"shape {tuple(shape)}, and codec {self.codec} has {self._plan.states} states"
                )
        bounds = [self._bound_of(saved) for saved in state["bounds"]]
        loaded = [
            Loaded(shape, residual, None if number is None else bounds[number])
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
        check_buckets(state["buckets"], self._firsts)
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
        ledger.note("gradients of the hook", ledger.HERE, "", ledger.size_of(buffer))
        codec: str | None = None
        residual: torch.Tensor | None = None
        if buffer.dtype == torch.float32:
            codec = self._plan.codec(self._step) if kept.bound is None else kept.bound.codec()
            residual = kept.residual
        if self._step < self._plan.warmup and codec is not None:
            codec = self._engine.codecs.exact
        exact = codec == self._engine.codecs.exact
        options: dict[str, Any] = {"average": True, "timeout": _timeout_of(self._group)}
        if residual is not None and not exact and kept.cuts is None and gpu.is_far(buffer):
            options["on_data"] = kept.hold  # whose answer would have to be waited for here
        elif residual is not None and not (exact and kept.bound is None):  # else nothing of it is paid
            kept.hold(buffer)
        # A step of the adaptive bound: all that is owed goes now.
        if residual is not None and exact:
            if kept.bound is not None:
                buffer.add_(residual[0].to(buffer.device), alpha=self._engine.per_debt)
                residual.zero_()
            residual = None
        if bucket.is_last():
            self._step += 1
        if kept.cuts is not None and not exact:
            kept.future = self._exchange_cut(kept, kept.cuts, buffer, codec, residual, options)
        else:
            kept.future = self._engine.all_reduce(buffer, codec=codec, residual=residual, on_result=kept.take,
                                                  strategy=None if exact else self.strategy, **options)
        return kept.future

    def _exchange_sparse(self, bucket: dist.GradBucket, buffer: torch.Tensor) -> Future[torch.Tensor]:
        """Exactly, by the job's own backend. Nothing is kept of such a one, and it has no number."""
        self._see(bucket, None, len(self._order))
        if bucket.is_last():
            self._step += 1
        world = dist.get_world_size(self._group)
        work = dist.all_reduce(buffer, group=self._group, async_op=True)

        def average(future: Future[Any]) -> torch.Tensor:
            future.value()  # raises what has gone wrong
            return buffer / world

        return work.get_future().then(average)

    def _see(self, bucket: dist.GradBucket, kept: Kept | None, known: int) -> None:
        """known: how many parameters had numbers before it. Raises BadArgument if a state dict is of others."""
        if bucket.index() == 0:
            self._seen = []
        if kept is not None:
            self._seen.append(kept)
        if len(self._order) > known:
            self._firsts.append(len(self._order) - known)
        last = bucket.is_last()
        if last and len(self._loaded) > len(self._order):
            raise too_many(self._loaded, len(self._order))
        check_buckets(self._saved_firsts, self._firsts)
        if not last:
            return
        self._loaded, self._saved_firsts = [], []
        if self._seen != self._known:
            self._known = self._seen
            self._number_anew()

    def _number_anew(self) -> None:
        """If parameters were added, frozen or thawed: as a DDP has them that has these from the start; who loads the
        state dict has such a one."""
        seen = [parameter for kept in self._seen for parameter in kept.parameters]
        if set(seen) == set(list(self._order)[:self._live]):
            return
        self._order = {parameter: number for number, parameter in enumerate(dict.fromkeys([*seen, *self._order]))}
        self._live = len(seen)
        self._firsts = [len(kept.parameters) for kept in self._seen]

    def _exchange_cut(self, kept: Kept, cuts: Cuts, buffer: torch.Tensor, codec: str | None,
                      residual: torch.Tensor | None, options: dict[str, Any]) -> Future[Any]:
        """In several operations, of which the last one to end puts the result together."""
        kept.work.copy_(buffer)
        failed: list[Exception] = []

        def gather(result: torch.Tensor) -> None:
            if failed:
                raise failed[0]
            start = 0
            for first, numel in cuts.exact:
                kept.work[first:first + numel] = kept.packed[start:start + numel]
                start += numel
            buffer.copy_(kept.work)
            kept.take(buffer)

        ends = {"on_result": gather, "result": buffer}
        for number, (first, numel) in enumerate(cuts.coded, start=1):
            last = number == len(cuts.coded) and not cuts.exact
            rows = None if residual is None else residual[:, first:first + numel]
            future = self._engine.all_reduce(kept.work[first:first + numel], codec=codec, residual=rows,
                                             strategy=self.strategy, pieces=not self._plan.looks,
                                             **(ends if last else {"on_error": failed.append}), **options)
        if cuts.exact:
            kept.packed = torch.cat([kept.work[first:first + numel] for first, numel in cuts.exact])
            future = self._engine.all_reduce(kept.packed, codec=self._engine.codecs.exact, **ends, **options)
        return future

    def _reconnect(self) -> None:
        """The process group was destroyed since, and there is another one; or there is another daemon."""
        state = self.state_dict()
        self._engine = _open(self._group)
        self.load_state_dict(state)

    def _keep(self, parameters: Sequence[torch.Tensor], buffer: torch.Tensor) -> Kept:
        """What is kept for these parameters."""
        known = self._where.get(parameters[0])
        if known is not None and list(map(id, known[0].parameters)) == list(map(id, parameters)):
            known[0].settle()
            return known[0]
        for parameter in parameters:
            number = self._order.setdefault(parameter, len(self._order))
            if self._loaded:
                check_fits(self._loaded, number, parameter)
                self._left.setdefault(parameter, self._loaded[number])
        kept = Kept(parameters, None, None)
        if buffer.dtype == torch.float32:
            before = [self._entry(parameter) for parameter in parameters]
            kept.bound = self._joined_bound(before)
            if self.error_feedback:
                rows = self._plan.states
                kept.residual = self._engine.zeros(rows * buffer.numel()).view(rows, -1)
                for position, entry in enumerate(before):
                    place = kept.residual_of(position)
                    if entry.residual is not None and place is not None:
                        place.copy_(self._moved(entry.residual))
            kept.cuts = Cuts.of(parameters, self._exact, self._plan.looks)
            if kept.cuts is not None:
                kept.work = self._engine.zeros(buffer.numel())
        for position, parameter in enumerate(parameters):
            self._where[parameter] = (kept, position)
            self._left.pop(parameter, None)
        return kept

    def _moved(self, residual: torch.Tensor) -> torch.Tensor:
        """To another bucket, where blocks have other owners: what this rank owes of sums it owes from now on as one of
        those that contribute."""
        if not self._plan.owned:
            return residual
        moved = torch.zeros_like(residual)
        moved[0] = residual.sum(0)
        return moved

    def _entry(self, parameter: torch.Tensor) -> Loaded:
        """What there is of the parameter so far."""
        known = self._where.get(parameter)
        if known is not None:
            kept, position = known
            kept.settle()
            return Loaded(parameter.shape, kept.residual_of(position), kept.bound)
        return self._left.get(parameter) or Loaded(parameter.shape, None, None)

    def _joined_bound(self, entries: Sequence[Loaded]) -> adaptive.AdaptiveBound | None:
        bound = bound_of(self.codec, self._engine)
        before = {id(entry.bound): entry.bound for entry in entries}
        if bound is not None and id(None) not in before:
            bound.join([one for one in before.values() if one is not None])
        return bound

    def _bound_of(self, saved: dict[str, Any]) -> adaptive.AdaptiveBound | None:
        bound = bound_of(self.codec, self._engine)
        if bound is not None and bound.bits == saved["bits"]:  # else this one starts anew
            bound.load_state_dict(saved)
        return bound


def hook(state: State, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """For DistributedDataParallel.register_comm_hook(State(...), hook): averages a bucket over the ranks.

    bucket: of any floating type; of float32 the codec of the State takes its share, other types travel exactly, and
    sparse gradients by the job's own backend. Returns a future of the bucket's flat tensor. Raises BadArgument for
    another state, or if a state dict does not fit.
    """
    if not isinstance(state, State):
        raise errors.bad_argument(
            f"gradlane.torch.hook with a state of {type(state).__name__}: it is "
            "ddp.register_comm_hook(gradlane.torch.State(), gradlane.torch.hook)"
        )
    return state._uncompiled(bucket)


# DDP compares them with its own classes, and they are strings so far.
hook.__annotations__.update({"bucket": dist.GradBucket, "return": Future[torch.Tensor]})


def _feedback(wanted: object, codec: str, engine: Engine) -> bool:
    found = None if is_adaptive(codec) else engine.find_codec(codec)
    if wanted is None:  # `fixed:B` has it only if asked: its errors have a bound that is chosen
        return found is None or found.states > 0 and Capability.ADAPTIVE not in found.flags
    if not isinstance(wanted, bool):
        kind = type(wanted).__name__
        raise errors.bad_argument(f"gradlane: error_feedback {wanted!r} is {kind}; it is True, False or None")
    if wanted and found is not None and found.states == 0:
        able = engine.with_residual(found.word)
        raise errors.bad_argument(
            f"gradlane: error_feedback with codec {codec!r}: it keeps nothing from step to step; one that does is "
            f"{(able or engine.codecs.adaptive)!r}"
        )
    return wanted


def _check_group(group: object) -> None:
    if group is None or isinstance(group, dist.ProcessGroup):
        return
    foreign = group is dist.GroupMember.NON_GROUP_MEMBER
    what = "one that this rank is no member of" if foreign else type(group).__name__
    raise errors.bad_argument(f"gradlane: process_group is {what}; leave it out, or pass a group that it is in")


def _timeout_of(group: dist.ProcessGroup | None) -> float | None:
    """Seconds that the job's own operations may take: what PyTorch was told, or its default. None: there is no job."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    job = group or dist.group.WORLD
    backend = job._get_backend(job._device_types[0])
    options = getattr(backend, "options", None)  # those of Gloo, NCCL and gradlane
    return float(getattr(options, "_timeout", default_pg_timeout).total_seconds())


def _meeting_time(group: dist.ProcessGroup) -> datetime.timedelta:
    """How long ranks of a group wait for each other: that of the job, too, which new_group() does not take over."""
    return datetime.timedelta(seconds=min(_timeout_of(group) or 0, _timeout_of(None) or 0))


def _open(process_group: dist.ProcessGroup | None) -> Engine:
    number = ranks = None
    if dist.is_available() and dist.is_initialized():
        rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
        number, ranks = rank, world
        if process_group is not None and 1 < world < dist.get_world_size():
            return rings.engine_of(process_group, _meeting_time(process_group))
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
