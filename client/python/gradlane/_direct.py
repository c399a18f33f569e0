"""Operations that need links between all nodes: reduce, gather, scatter, all-to-all."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, overload

import numpy
from numpy.typing import NDArray

from . import _arguments, _forms, errors
from ._listing import Listing
from ._operands import Operand, check_array, overlap
from ._operations import Operation
from ._requests import Request

_Array = TypeVar("_Array", bound=NDArray[Any])


class Direct(Listing):
    """Base of Context. The daemon's configuration must allow the strategy "direct", or the operations raise
    BadArgument."""

    @overload
    def reduce(self, array: _Array, *, root: int = 0, average: bool = False, reduction: str = "sum",
               strategy: str | None = None, codec: str | None = None, residual: NDArray[numpy.float32] | None = None,
               tag: int | None = None, timeout: float | None = None, type: str | None = None,
               async_: Literal[False] = False) -> _Array: ...

    @overload
    def reduce(self, array: _Array, *, root: int = 0, average: bool = False, reduction: str = "sum",
               strategy: str | None = None, codec: str | None = None, residual: NDArray[numpy.float32] | None = None,
               tag: int | None = None, timeout: float | None = None, type: str | None = None,
               async_: Literal[True]) -> Request[_Array]: ...

    @overload
    def reduce(self, array: _Array, *, root: int = 0, average: bool = False, reduction: str = "sum",
               strategy: str | None = None, codec: str | None = None, residual: NDArray[numpy.float32] | None = None,
               tag: int | None = None, timeout: float | None = None, type: str | None = None,
               async_: bool) -> _Array | Request[_Array]: ...

    def reduce(self, array: _Array, *, root: int = 0, average: bool = False, reduction: str = "sum",
               strategy: str | None = None, codec: str | None = None, residual: NDArray[numpy.float32] | None = None,
               tag: int | None = None, timeout: float | None = None, type: str | None = None,
               async_: bool = False) -> _Array | Request[_Array]:
        """Replaces the array of rank `root` by the result that all_reduce() would have. The other arrays stay as they
        were.

        Residuals change on all ranks as they do in all_reduce().
        """
        root = _arguments.whole("root", root, 0, self.world - 1)
        result: _Array | Request[_Array] = self._reduce(
            "reduce", array, (tag, timeout, strategy, average, reduction), codec, residual, type, async_, root)
        return result

    @overload
    def gather(self, array: _Array, *, root: int = 0, codec: str | None = None, strategy: str | None = None,
               tag: int | None = None, timeout: float | None = None, type: str | None = None,
               async_: Literal[False] = False) -> _Array: ...

    @overload
    def gather(self, array: _Array, *, root: int = 0, codec: str | None = None, strategy: str | None = None,
               tag: int | None = None, timeout: float | None = None, type: str | None = None,
               async_: Literal[True]) -> Request[_Array]: ...

    @overload
    def gather(self, array: _Array, *, root: int = 0, codec: str | None = None, strategy: str | None = None,
               tag: int | None = None, timeout: float | None = None, type: str | None = None,
               async_: bool) -> _Array | Request[_Array]: ...

    def gather(self, array: _Array, *, root: int = 0, codec: str | None = None, strategy: str | None = None,
               tag: int | None = None, timeout: float | None = None, type: str | None = None,
               async_: bool = False) -> _Array | Request[_Array]:
        """Fills the array of rank `root` with all ranks' blocks. The arrays of other ranks stay as they were.

        The array is `world` blocks of equal size, of which block `rank` is this rank's. Any type but objects is copied
        bit by bit.
        """
        root = _arguments.whole("root", root, 0, self.world - 1)
        result: _Array | Request[_Array] = self._copy(
            "gather", array, (root,), self._how(tag, timeout, strategy, codec=codec), type, async_)
        return result

    @overload
    def scatter(self, array: _Array, *, root: int = 0, codec: str | None = None, strategy: str | None = None,
                tag: int | None = None, timeout: float | None = None, type: str | None = None,
                async_: Literal[False] = False) -> _Array: ...

    @overload
    def scatter(self, array: _Array, *, root: int = 0, codec: str | None = None, strategy: str | None = None,
                tag: int | None = None, timeout: float | None = None, type: str | None = None,
                async_: Literal[True]) -> Request[_Array]: ...

    @overload
    def scatter(self, array: _Array, *, root: int = 0, codec: str | None = None, strategy: str | None = None,
                tag: int | None = None, timeout: float | None = None, type: str | None = None,
                async_: bool) -> _Array | Request[_Array]: ...

    def scatter(self, array: _Array, *, root: int = 0, codec: str | None = None, strategy: str | None = None,
                tag: int | None = None, timeout: float | None = None, type: str | None = None,
                async_: bool = False) -> _Array | Request[_Array]:
        """Replaces block `rank` of the array by block `rank` of the array of rank `root`. The other blocks stay
        unchanged.

        The array is `world` blocks of equal size. Any type but objects is copied bit by bit.
        """
        root = _arguments.whole("root", root, 0, self.world - 1)
        result: _Array | Request[_Array] = self._copy(
            "scatter", array, (root,), self._how(tag, timeout, strategy, codec=codec), type, async_)
        return result

    @overload
    def all_to_all(self, array: NDArray[Any], out: _Array, *, codec: str | None = None, strategy: str | None = None,
                   tag: int | None = None, timeout: float | None = None, type: str | None = None,
                   async_: Literal[False] = False) -> _Array: ...

    @overload
    def all_to_all(self, array: NDArray[Any], out: _Array, *, codec: str | None = None, strategy: str | None = None,
                   tag: int | None = None, timeout: float | None = None, type: str | None = None,
                   async_: Literal[True]) -> Request[_Array]: ...

    @overload
    def all_to_all(self, array: NDArray[Any], out: _Array, *, codec: str | None = None, strategy: str | None = None,
                   tag: int | None = None, timeout: float | None = None, type: str | None = None,
                   async_: bool) -> _Array | Request[_Array]: ...

    def all_to_all(self, array: NDArray[Any], out: _Array, *, codec: str | None = None, strategy: str | None = None,
                   tag: int | None = None, timeout: float | None = None, type: str | None = None,
                   async_: bool = False) -> _Array | Request[_Array]:
        """Copies block `rank` of rank i's array to block i of `out`. Both arrays are `world` blocks of equal size.

        `array` stays unchanged. Any type but objects is copied bit by bit. If `codec` names a codec, it applies to
        float32, as in all_reduce(), but not to the block that a rank sends to itself. Codecs that are for sums only
        have no effect, and all blocks arrive bit by bit. These are the codecs that select, vote, wait for a threshold,
        round at random or agree on a scale (topk, signsgd, tbq, terngrad, ...: docs/client.md lists them). Returns
        `out`, or the Request.
        """
        how = self._how(tag, timeout, strategy, codec=codec)
        check_array("data", array)
        check_array("out", out)
        if out.dtype != array.dtype or out.size != array.size:
            raise errors.bad_argument(
                f"out has {out.size} elements of {out.dtype}, and data {array.size} of {array.dtype}: size and type "
                "must be equal"
            )
        if overlap(array, out):
            raise errors.bad_argument("all_to_all: data and out overlap in memory: use a separate array for out")
        form = _forms.of_copy(array, type)
        count = self._count("all_to_all", array, form)
        self._tidy()
        self._clear("all_to_all", array, out)
        source, data = Operand(self, array, form), Operand(self, out, form)
        operation = Operation("all_to_all", data)
        operation.source = source
        result: _Array | Request[_Array] = self._run(
            operation, (source.address, data.address, count, form.type), how, async_)
        return result
