"""Forms in which arrays are exchanged: the daemon's type of the elements, and the type of the memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from . import errors
from ._library import Type


class Form(NamedTuple):
    """Form of an array's elements. raw: whether elements are moved as bytes, whatever their type."""

    type: Type
    per_element: int  # elements of this type per element of the array
    dtype: numpy.dtype[Any]  # type of the memory that the daemon works on
    raw: bool


# Types of the daemon by kind and size. Integers wrap around, so signed and unsigned sums have the same bits.
_SAME = {
    ("f", 4): Type.FLOAT32,
    ("f", 8): Type.FLOAT64,
    ("f", 2): Type.FLOAT16,
    ("i", 4): Type.INT32,
    ("u", 4): Type.INT32,
    ("i", 8): Type.INT64,
    ("u", 8): Type.INT64,
    ("i", 1): Type.BYTES,
    ("u", 1): Type.BYTES,
}
_PAIRS = {("c", 8): Type.FLOAT32, ("c", 16): Type.FLOAT64}
_WIDENED = (("b", 1), ("i", 2), ("u", 2))  # summed as int32; for bool, a result other than 0 is True
# Kinds and sizes whose minima and maxima the daemon takes directly. These depend on the sign: the daemon's int32 and
# int64 are signed, its bytes unsigned.
_ORDERED = (("f", 2), ("f", 4), ("f", 8), ("i", 4), ("i", 8), ("u", 1))
_WIDER = {
    ("b", 1): (Type.INT32, "int32"),
    ("i", 1): (Type.INT32, "int32"),
    ("i", 2): (Type.INT32, "int32"),
    ("u", 2): (Type.INT32, "int32"),
    ("u", 4): (Type.INT64, "int64"),
}
_PICKS = "bool, int8 to int64, uint8 to uint32, float16, float32, float64, bfloat16"
_SUMS = "bool, int8 to int64, uint8 to uint64, float16, float32, float64, complex64, complex128, bfloat16"

FLOAT32 = Form(Type.FLOAT32, 1, numpy.dtype("float32"), False)
BYTES = Form(Type.BYTES, 1, numpy.dtype("uint8"), False)


def _is_bfloat16(array: NDArray[Any], name: object) -> bool:
    if name is None:
        return array.dtype.isbuiltin == 2 and array.dtype.name == "bfloat16"  # the type of package ml_dtypes
    if name != "bfloat16":
        raise errors.bad_argument(f"type is {name!r}; allowed: 'bfloat16', or None for the array's own type")
    if array.dtype != numpy.uint16:
        raise errors.bad_argument(f"type is 'bfloat16', which is for arrays of uint16, not of {array.dtype}")
    return True


def _of_same(dtype: numpy.dtype[Any]) -> Type | None:
    return _SAME.get((dtype.kind, dtype.itemsize)) if dtype.isbuiltin != 2 else None


def of_sum(array: NDArray[Any], type_name: object, average: bool) -> Form:
    """Returns the form for an operation that adds or averages. Raises BadArgument if the type has no sum."""
    dtype = array.dtype
    if dtype is FLOAT32.dtype and type_name is None:  # the usual case
        return FLOAT32
    if _is_bfloat16(array, type_name):
        return Form(Type.BFLOAT16, 1, dtype, False)
    if average and dtype.kind not in "fc":
        raise errors.bad_argument(
            f"cannot average {dtype}: only floating types; use average=False, or array.astype('float32')"
        )
    native = dtype.newbyteorder("=")
    same = _of_same(dtype)
    if same is not None:
        return Form(same, 1, native, False)
    kind = (dtype.kind, dtype.itemsize)
    if kind in _PAIRS:
        return Form(_PAIRS[kind], 2, native, False)
    if kind in _WIDENED:
        return Form(Type.INT32, 1, numpy.dtype("int32"), False)
    raise errors.bad_argument(f"cannot sum arrays of {dtype}; allowed: {_SUMS}: use array.astype()")


def of_pick(array: NDArray[Any], type_name: object) -> Form:
    """Returns the form for an operation that takes minima or maxima. Raises BadArgument if the type has none."""
    dtype = array.dtype
    if _is_bfloat16(array, type_name):
        return Form(Type.BFLOAT16, 1, dtype, False)
    kind = (dtype.kind, dtype.itemsize)
    same = _of_same(dtype) if kind in _ORDERED else None
    if same is not None:
        return Form(same, 1, dtype.newbyteorder("="), False)
    wider = _WIDER.get(kind) if dtype.isbuiltin != 2 else None
    if wider is not None:
        return Form(wider[0], 1, numpy.dtype(wider[1]), False)
    raise errors.bad_argument(
        f"cannot take the minimum or maximum of arrays of {dtype}; allowed: {_PICKS}: use array.astype()"
    )


def of_copy(array: NDArray[Any], type_name: object) -> Form:
    """Returns the form for an operation that only moves elements. Raises BadArgument for objects."""
    dtype = array.dtype
    if _is_bfloat16(array, type_name):
        return Form(Type.BFLOAT16, 1, dtype, False)
    if dtype.hasobject:
        raise errors.bad_argument(f"arrays of {dtype} hold Python objects, which cannot be sent: convert them")
    same = _of_same(dtype)
    if same is not None and dtype.isnative:
        return Form(same, 1, dtype, False)
    # Elements are moved as bytes, because NumPy's assignment of structures would leave out their padding.
    return Form(Type.BYTES, dtype.itemsize, numpy.dtype(f"V{dtype.itemsize}") if dtype.itemsize > 0 else dtype, True)
