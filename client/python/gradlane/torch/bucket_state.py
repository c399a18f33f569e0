"""State of buckets that the hook keeps from step to step, and checks of state dicts."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Container, Sequence

import torch

from .. import _codecs, errors
from .._library import EXACT_BELOW
from ..adaptive import AdaptiveBound

if TYPE_CHECKING:
    from torch.futures import Future


class BucketState:
    """State of the parameters of one bucket, in the bucket's order. `residual` and `bound` are None if there is none.

    `residual` has one row for each of the codec's states. `layout` divides the bucket; None if it is not divided.
    `work` has all elements of a divided bucket, in shared memory. `packed` has those that travel exactly.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], residual: torch.Tensor | None,
                 bound: AdaptiveBound | None) -> None:
        self.parameters = parameters
        self.residual = residual
        self.bound = bound
        self.layout: BucketLayout | None = None
        self.work = self.packed = torch.empty(0)
        self.future: Future[Any] | None = None  # future of the bucket's latest exchange
        self.offsets: list[int] = []
        offset = 0
        for parameter in parameters:
            self.offsets.append(offset)
            offset += parameter.numel()
        self._filled = [i for i, parameter in enumerate(parameters) if parameter.numel() > 0]
        self._first_offsets = torch.tensor([self.offsets[i] for i in self._filled], dtype=torch.long)
        self._withheld: list[tuple[torch.Tensor, torch.Tensor]] = []  # (rows of the residual, their withheld values)

    def residual_of(self, position: int) -> torch.Tensor | None:
        """Returns a view of a parameter's residual, in the shape of the parameter. Several states make one more
        dimension, the first. Returns None if there is no residual."""
        if self.residual is None:
            return None
        parameter, offset = self.parameters[position], self.offsets[position]
        rows = self.residual[:, offset:offset + parameter.numel()]
        shape = shape_of_residual(parameter.shape, len(rows))
        return rows.reshape(shape) if len(rows) == 1 else rows.view(shape)

    def reset(self) -> None:
        """Sets the residual to zero and restarts the bound."""
        self._withheld = []
        if self.residual is not None:
            self.residual.zero_()
        if self.bound is not None:
            self.bound.reset()

    def withhold_residuals(self, gradients: torch.Tensor) -> None:
        """Withholds the residuals of parameters whose gradient is all zero. DDP drops the result of parameters that no
        rank has used (find_unused_parameters), and a residual in it would be lost."""
        if self.residual is None:
            return
        if self._first_offsets.device != gradients.device:
            self._first_offsets = self._first_offsets.to(gradients.device)
        for i in (gradients[self._first_offsets] == 0).nonzero().flatten().tolist():
            position = self._filled[i]
            first = self.offsets[position]
            last = first + self.parameters[position].numel()
            if bool(gradients[first:last].any()):
                continue
            rows = self.residual[:, first:last]
            self._withheld.append((rows, rows.clone()))
            rows.zero_()

    def _restore_residuals(self) -> None:
        held, self._withheld = self._withheld, []
        for rows, owed in held:
            rows += owed

    def take(self, result: torch.Tensor) -> None:
        """Restores withheld residuals and updates the bound with the result of the exchange, before DDP gets it. If
        there is a bound, the result is in host memory.
        """
        self._restore_residuals()
        if self.bound is not None:
            self.bound.update(result.detach().numpy())

    def settle(self) -> None:
        """Waits for the bucket's latest exchange. Calls reset() if it has failed."""
        future, self.future = self.future, None
        if future is None:
            return
        try:
            future.wait()
        except RuntimeError:
            self.reset()


class BucketLayout:
    """Division of a bucket into parts, as (offset, number of elements). Each part in `coded` goes through the codec in
    its own operation. All parts in `exact` travel exactly, in one operation."""

    def __init__(self, coded: list[tuple[int, int]], exact: list[tuple[int, int]]) -> None:
        self.coded, self.exact = coded, exact

    @staticmethod
    def of(parameters: Sequence[torch.Tensor], exact: Container[int], each: bool) -> BucketLayout | None:
        """Returns the division of a bucket, or None if it is not divided. `exact` has id() of parameters that travel
        exactly. `each` is True if the codec needs thresholds or scales of whole tensors. Each parameter then has its
        own operation, and parameters too small for a codec travel exactly."""
        coded: list[tuple[int, int]] = []
        raw: list[tuple[int, int]] = []
        offset = 0
        for parameter in parameters:
            numel = parameter.numel()
            places = raw if id(parameter) in exact or each and numel < EXACT_BELOW else coded
            if places and sum(places[-1]) == offset and (places is raw or not each):
                places[-1] = places[-1][0], places[-1][1] + numel
            else:
                places.append((offset, numel))
            offset += numel
        return BucketLayout(coded, raw) if raw or each else None


def shape_of_residual(shape: Sequence[int], states: int) -> tuple[int, ...]:
    """Returns the shape of a residual. shape: shape of its parameter. states: number of states of the codec."""
    return tuple(shape) if states == 1 else (states, *shape)


class ParameterState:
    """A parameter's part of a state dict."""

    def __init__(self, shape: Sequence[int], residual: torch.Tensor | None, bound: AdaptiveBound | None) -> None:
        self.shape, self.residual, self.bound = tuple(shape), residual, bound


def check_codec(state: dict[str, Any], codec: str) -> None:
    """Raises BadArgument if the state dict has residuals of a codec with another first word, "topk" for "fixed:10" say.
    Warns if the state dict is too old to name its codec."""
    if all(residual is None for residual in state["residuals"]):
        return
    saved = state.get("codec")
    if saved is None:
        warnings.warn(
            f"gradlane: the state dict is too old to name the codec of its residuals; assuming that it is {codec}",
            stacklevel=3)
    elif _codecs.word_of(saved) != _codecs.word_of(codec):
        raise errors.bad_argument(
            f"the state dict has residuals of codec {saved!r}, but this State has codec {codec!r}: residuals fit only "
            f"their own codec; load them into a State({saved!r}), or start without them"
        )


def check_fits(loaded: Sequence[ParameterState], number: int, parameter: torch.Tensor) -> None:
    """Raises BadArgument if the state dict has no parameter of this number and shape."""
    if number >= len(loaded):
        raise errors.bad_argument(
            f"the state dict is of another model: it has {len(loaded)} parameters, and this model has one more, "
            f"of shape {tuple(parameter.shape)}"
        )
    if loaded[number].shape != tuple(parameter.shape):
        raise errors.bad_argument(
            f"the state dict is of another model, or of other buckets: its parameter {number} (in the order in which "
            f"DDP first had gradients) has shape {loaded[number].shape}, but here {tuple(parameter.shape)}"
        )


def check_buckets(saved: Sequence[int], firsts: Sequence[int]) -> None:
    """Raises BadArgument if the buckets of the first step differ from those of the state dict."""
    for number, (one, other) in enumerate(zip(saved, firsts)):
        if one != other:
            raise errors.bad_argument(
                f"the state dict is of other buckets: bucket {number} of the first step had {one} parameters, but here "
                f"it has {other}. Wrap the model with the same bucket_cap_mb, find_unused_parameters and static_graph"
            )


def too_many(loaded: Sequence[ParameterState], count: int) -> errors.BadArgument:
    """Returns the error for a state dict that has more parameters than the model, which has `count`."""
    return errors.bad_argument(
        f"the state dict is of another model: it has {len(loaded)} parameters, of which parameter {count} has "
        f"shape {loaded[count].shape}; this model has only {count}"
    )
