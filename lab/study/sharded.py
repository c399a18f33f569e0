"""sharded.py - the study's model under FSDP2 (its trainers)"""

import warnings

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

# It is about in-place operations on outputs, of which there are none.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


def shard(model, method):
    """Each block a unit, and the rest one; bfloat16 parameters for computing where the method has them."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16) if method.halves else None
    more = {"mp_policy": policy} if policy else {}
    for block in model.blocks:
        fully_shard(block, **more)
    fully_shard(model, **more)
    if method.codec:
        import gradlane.torch

        gradlane.torch.fsdp(model, codec=method.codec, error_feedback=method.feedback, parameters=method.parameters)
    return model
