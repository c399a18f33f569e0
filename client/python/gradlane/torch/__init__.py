"""PyTorch support: a torch.distributed backend and a DDP communication hook.

    import gradlane.torch

    torch.distributed.init_process_group("gradlane")   # under gradlane run or torchrun
    model = torch.nn.parallel.DistributedDataParallel(model)

See docs/pytorch.md of gradlane.
"""

from __future__ import annotations

import math
from typing import Any

from . import version  # noqa: F401 - before all that needs it

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from . import backend
from .elastic import elastic
from .engine import Engine
from .fsdp import fsdp
from .hook import State, hook
from .hsdp import hsdp
from .bootstrap.launchers import environment, init
from .call_statistics import explain
from .profiling import profile
from .replicas import check_replicas
from .default_options import hash_results, results_hash, use_codec, use_strategy
from .spans import Spans

__all__ = [
    "Engine", "Spans", "State", "check_replicas", "elastic", "empty", "environment", "explain", "fsdp", "hash_results",
    "hook", "hsdp", "init", "profile", "results_hash", "use_codec", "use_strategy", "zeros",
]

backend.register()


def zeros(*size: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Returns a tensor of zeros in memory that is shared with the daemon; all-reduce and broadcast do not copy it.

    Call it after init_process_group("gradlane"), or inside a job with a hook's State. In a job of one rank it is
    ordinary memory. size, dtype: as in torch.zeros(). Raises OutOfMemory, and BadArgument if there is no connection.
    The tensor stays valid after the process group is destroyed.
    """
    if not Engine.exists() and dist.is_initialized() and dist.get_world_size() == 1:
        return torch.zeros(*size, dtype=dtype)
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return Engine.existing().zeros(math.prod(shape), dtype or torch.get_default_dtype()).view(tuple(shape))


empty = zeros
