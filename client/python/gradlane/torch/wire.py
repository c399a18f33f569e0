"""Tensors as Gloo takes them: contiguous, of types that all its versions have."""

from __future__ import annotations

import math
from typing import Sequence

import torch

from .. import errors
from . import staging

_CARRIED = (torch.float32, torch.float64, torch.float16, torch.uint8, torch.int8, torch.int32, torch.int64)
_REDUCED_AS = {torch.bfloat16: torch.float32, torch.int16: torch.int32, torch.bool: torch.int32}


class Wire:
    """A tensor of an operation; `wire` is flat, and what travels. finish() puts what has come into the tensor.

    reduce: its values matter, else its bytes do. average: so that it must be of a floating type. as_bytes: of whatever
    type, it travels as bytes.
    """

    def __init__(self, tensor: torch.Tensor, name: str, reduce: bool = False, average: bool = False,
                 as_bytes: bool = False) -> None:
        staging.check(tensor, name)
        self.tensor = tensor.detach()
        work = self.tensor.resolve_neg()
        if work.is_complex():
            work = torch.view_as_real(work.resolve_conj())
        if reduce:
            work = work.to(_REDUCED_AS.get(work.dtype, work.dtype))
        if average and tensor.dtype == torch.bool:
            raise errors.bad_argument(
                f"gradlane: {name} of {tensor.dtype} has no average; convert the tensor to a floating type")
        self.work = work.contiguous()
        self.wire = self.work.reshape(-1)
        if as_bytes or not reduce and work.dtype not in _CARRIED:
            self.wire = self.wire.view(torch.uint8)

    @classmethod
    def of_sparse(cls, tensor: torch.Tensor) -> Wire:
        """As it is: Gloo sums those, and gives the tensor other indices."""
        self = cls.__new__(cls)
        self.tensor = self.work = self.wire = tensor
        return self

    def counts(self, splits: Sequence[int], size: int) -> list[int]:
        """Of elements of the wire, for so many rows each; no splits: as many for each of so many ranks."""
        rows = self.tensor.shape[0] if self.tensor.dim() > 0 else 1
        if not splits:
            if rows % size != 0:
                raise errors.bad_argument(
                    f"gradlane: all_to_all_single of {rows} rows without sizes, which {size} ranks cannot share")
            splits = [rows // size] * size
        elif sum(splits) != rows:
            raise errors.bad_argument(f"gradlane: all_to_all_single with sizes of {sum(splits)} rows, not of {rows}")
        row = math.prod(self.tensor.shape[1:])
        if self.tensor.numel() > 0:
            row *= self.wire.numel() // self.tensor.numel()
        return [rows * row for rows in splits]

    def finish(self) -> None:
        """Where the tensor is not itself what has travelled."""
        if self.work.layout != torch.strided or self.work.data_ptr() == self.tensor.data_ptr():
            return
        work = self.work
        if self.tensor.is_complex():
            work = torch.view_as_complex(work)
        if self.tensor.dtype == torch.bool and work.dtype != torch.bool:
            work = work != 0
        self.tensor.copy_(work)


def together(flat: torch.Tensor, wires: Sequence[Wire]) -> None:
    """Finishes wires whose data has travelled one behind the other."""
    if flat is not wires[0].wire:
        for wire, part in zip(wires, flat.split([wire.wire.numel() for wire in wires])):
            wire.wire.copy_(part)
    for wire in wires:
        wire.finish()


def divide(total: torch.Tensor, size: int) -> None:
    """A sum of so many ranks becomes their average; of whole numbers what is left of the point, as NCCL has it."""
    total.div_(size, rounding_mode=None if total.dtype.is_floating_point or total.is_complex() else "trunc")
