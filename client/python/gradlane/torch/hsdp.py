"""Gradients of replicas of a sharded model (hybrid sharding) through gradlane, whatever the job's backend is.

    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh["shard"])
    gradlane.torch.hsdp(model, mesh["replicate"])

Shards travel within a machine, as a rule, and by PyTorch's own means; what goes between machines is the sum of each
shard over its replicas, and that is what is compressed, with a residual of each unit's own.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist

from .. import errors
from . import rings
from .fsdp import Sharded, Unit, Way, group_of, shards_of, units_of
from .hook import _check_group, _meeting_time
from .work import Work


def hsdp(model: torch.nn.Module, replicate: Any, codec: str | None = None, error_feedback: bool | None = None, *,
         strategy: str | None = None) -> Sharded:
    """Has all units of a model, for which fully_shard() was called before, average their gradients over replicas.

    replicate: the dimension of a DeviceMesh, or the process group, of the ranks that have the same shards; the model is
    sharded over the other dimension alone. All ranks of the job call it. codec, error_feedback, strategy: as of fsdp().
    Replicas begin with the same parameters, as they do after torch.manual_seed() or a checkpoint; PyTorch does not see
    to it. Where the group is not all of the job, daemons of its own are started for it.

    Raises NoDaemon, and BadArgument if something does not go together.
    """
    found = units_of("hsdp", "set_all_reduce_hook", model)
    for name, module in found.items():
        if getattr(group_of(module).mesh_info, "replicate_mesh_dim", None) is not None:
            raise errors.bad_argument(
                f"gradlane: hsdp: {name} is replicated by PyTorch already: call fully_shard() with mesh[\"shard\"], "
                "with the dimension alone over which it is sharded"
            )
    group = replicate.get_group() if hasattr(replicate, "get_group") else replicate
    if isinstance(group, dist.ProcessGroup) and group.size() == 1:
        return Sharded(codec or "raw", False, {})  # one replica
    _check_group(group)
    _check_shards(found, group)
    way = Way.of("hsdp", codec, error_feedback, strategy, group)
    units: dict[str, Unit] = {}
    for name, module in found.items():
        replica = Replica(way)
        module.set_all_reduce_hook(replica)
        way.keep_places(module)
        units[name] = replica
    return Sharded(way.codec, way.error_feedback, units)


class Replica(Unit):
    """All-reduce of one unit's shard, which FSDP calls behind its reduce-scatter."""

    def __call__(self, tensor: torch.Tensor) -> None:  # type: ignore[override]
        """In place. Raises OperationFailed and DaemonGone."""
        try:
            Work(tensor).begin(lambda result, on_error: self._average(tensor.detach().view(-1), on_error)).wait()
        except errors.BadArgument:  # nothing was started
            raise
        except Exception:
            self.reset()
            raise

    def _average(self, tensor: torch.Tensor, on_error: Any) -> Any:
        coded = tensor.dtype == torch.float32
        codec, residual = self._choose(tensor, True) if coded else (None, None)
        take = None if self._bound is None or not coded else self._take
        return self._engine.all_reduce(tensor, average=True, codec=codec, residual=residual, strategy=self._strategy,
                                       timeout=self._timeout, on_error=on_error, on_result=take)

    def _take(self, result: torch.Tensor) -> None:
        """All of the ring's ranks have all of it."""
        if self._bound is not None:
            self._bound.update(result.cpu().numpy())


def _check_shards(found: dict[str, Any], group: dist.ProcessGroup) -> None:
    """Raises BadArgument, before there is a ring, if these ranks do not have the same shards; on all of them."""
    ranks, mine = dist.get_process_group_ranks(group), dist.get_rank()
    shards = {name: shards_of(module) for name, module in found.items()}
    said = {name: f"part {over.index(mine)} of {len(over)} of {sum(it.numel() for it in found[name].parameters())}"
            for name, over in shards.items()}
    everybody = [json.loads(text) for text in rings.hear(group, json.dumps(said), _meeting_time(group))]
    for name, over in shards.items():
        both = sorted(set(ranks).intersection(over) - {mine})
        if both:
            raise errors.bad_argument(
                f"gradlane: hsdp: {name} is sharded over rank {both[0]}, which `replicate` has too: the one is "
                "mesh[\"shard\"], the other mesh[\"replicate\"]"
            )
    for rank, theirs in zip(ranks, everybody):
        unlike = next((name for name in {**said, **theirs} if said.get(name) != theirs.get(name)), None)
        if unlike is not None:
            raise errors.bad_argument(
                f"gradlane: hsdp: of {unlike} this rank has {said.get(unlike, 'nothing')} elements, and rank {rank}, "
                f"which `replicate` has too, {theirs.get(unlike, 'nothing')}: replicas are ranks with the same shards"
            )
