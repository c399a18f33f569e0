"""sharded.py - the study's model under FSDP2 (its trainers)"""

import warnings

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

# The warning is about in-place operations on outputs. The model has none.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


def shard(model, method):
    """Shards the model for FSDP2 and returns it. Each block is a unit, and the rest is one. Parameters are bfloat16 for
    computing if the method says so."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16) if method.halves else None
    more = {"mp_policy": policy} if policy else {}
    for block in model.blocks:
        fully_shard(block, **more)
    fully_shard(model, **more)
    if method.codec:
        import gradlane.torch

        gradlane.torch.fsdp(model, codec=method.codec, error_feedback=method.feedback, parameters=method.parameters)
    return model
