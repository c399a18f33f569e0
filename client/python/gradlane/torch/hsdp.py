"""HSDP (hybrid sharding) through gradlane: gradients of replicas of a sharded model, with any backend of the job.

    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh["shard"])
    gradlane.torch.hsdp(model, mesh["replicate"])

PyTorch moves the shards, usually within a machine. gradlane sums each shard over its replicas, between machines. It
compresses these sums, with one residual per unit.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist

from .. import errors
from . import subgroups
from .fsdp import Sharded, Unit, ExchangeOptions, group_of, shards_of, units_of
from .hook import _check_group, _rendezvous_timeout
from .work import Work


def hsdp(model: torch.nn.Module, replicate: Any, codec: str | None = None, error_feedback: bool | None = None, *,
         strategy: str | None = None) -> Sharded:
    """Makes all units of a model average their gradients over replicas. Call fully_shard() for the units first.

    `replicate` is the dimension of a DeviceMesh, or the process group, of the ranks that have the same shards. The
    model is sharded over the other dimension alone. `codec`, `error_feedback` and `strategy` are as in fsdp().

    All ranks of the job call it. Replicas must begin with the same parameters, for example after torch.manual_seed() or
    from a checkpoint. PyTorch does not ensure that. A group that is not the whole job gets daemons of its own.

    Raises NoDaemon, and BadArgument if options do not go together.
    """
    found = units_of("hsdp", "set_all_reduce_hook", model)
    for name, module in found.items():
        if getattr(group_of(module).mesh_info, "replicate_mesh_dim", None) is not None:
            raise errors.bad_argument(
                f"gradlane: hsdp: {name} is replicated by PyTorch already: call fully_shard() with mesh[\"shard\"], "
                "only the dimension over which it is sharded"
            )
    group = replicate.get_group() if hasattr(replicate, "get_group") else replicate
    if isinstance(group, dist.ProcessGroup) and group.size() == 1:
        return Sharded(codec or "raw", False, {})  # one replica has nothing to average
    _check_group(group)
    _check_shards(found, group)
    options = ExchangeOptions.of("hsdp", codec, error_feedback, strategy, group)
    units: dict[str, Unit] = {}
    for name, module in found.items():
        replica = Replica(options)
        module.set_all_reduce_hook(replica)
        options.keep_places(module)
        units[name] = replica
    return Sharded(options.codec, options.error_feedback, units)


class Replica(Unit):
    """All-reduce of one unit's shard. FSDP calls it after its reduce-scatter."""

    def __call__(self, tensor: torch.Tensor) -> None:  # type: ignore[override]
        """Averages the shard in place. Raises OperationFailed and DaemonGone."""
        try:
            Work(tensor).begin(lambda result, on_error: self._average(tensor.detach().view(-1), on_error)).wait()
        except errors.BadArgument:  # nothing was started
            raise
        except Exception:
            self.reset()
            raise

    def _average(self, tensor: torch.Tensor, on_error: Any) -> Any:
        coded = tensor.dtype == torch.float32
        codec, residual = self._choose(tensor, True) if coded else (self._plain_codec(), None)
        take = None if self._bound is None or not coded else self._take
        return self._engine.all_reduce(tensor, average=True, codec=codec, residual=residual, strategy=self._strategy,
                                       timeout=self._timeout, on_error=on_error, on_host_result=take)

    def _take(self, result: torch.Tensor) -> None:
        """Updates the bound with the result, which is the same on all ranks of the ring."""
        if self._bound is not None:
            self._bound.update(result.numpy())


def _check_shards(found: dict[str, Any], group: dist.ProcessGroup) -> None:
    """Raises BadArgument on all of these ranks if they do not have the same shards. It is called before daemons are
    started."""
    ranks, mine = dist.get_process_group_ranks(group), dist.get_rank()
    shards = {name: shards_of(module) for name, module in found.items()}
    said = {name: f"part {over.index(mine)} of {len(over)} of {sum(it.numel() for it in found[name].parameters())}"
            for name, over in shards.items()}
    everybody = [json.loads(text) for text in subgroups.gather(group, json.dumps(said), _rendezvous_timeout(group))]
    for name, over in shards.items():
        both = sorted(set(ranks).intersection(over) - {mine})
        if both:
            raise errors.bad_argument(
                f"gradlane: hsdp: {name} is sharded over rank {both[0]}, which is also in `replicate`: shard over "
                "mesh[\"shard\"], and replicate over mesh[\"replicate\"]"
            )
    for rank, theirs in zip(ranks, everybody):
        unlike = next((name for name in {**said, **theirs} if said.get(name) != theirs.get(name)), None)
        if unlike is not None:
            raise errors.bad_argument(
                f"gradlane: hsdp: {unlike}: this rank has {said.get(unlike, 'nothing')} elements, but rank {rank}, "
                f"also in `replicate`, has {theirs.get(unlike, 'nothing')}: all ranks of `replicate` must have the "
                "same shards"
            )
