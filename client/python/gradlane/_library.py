"""Loads libgradlane with ctypes, and declares its structs and functions (gradlane.h)."""

from __future__ import annotations

import ctypes
import enum
import os
import pathlib

from . import errors

API_VERSION = 10
EXACT_BELOW = 1024  # GRADLANE_EXACT_BELOW: sums of fewer float32 elements are exact with any codec


class Type(enum.IntEnum):
    """gradlane_type: type of an operation's elements."""

    FLOAT32 = 0
    FLOAT64 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    INT32 = 4
    INT64 = 5
    BYTES = 6


class Reduction(enum.IntEnum):
    """gradlane_reduction: function that combines the ranks' elements."""

    SUM = 0
    MIN = 1
    MAX = 2


class Collective(enum.IntEnum):
    """gradlane_collective: kind of a task."""

    ALL_REDUCE = 1
    REDUCE_SCATTER = 2
    ALL_GATHER = 3
    BROADCAST = 4
    BARRIER = 5


ASKS, FAILS, HASHES = 1, 2, 4  # GRADLANE_ASKS, GRADLANE_FAILS, GRADLANE_HASHES


class Capability(enum.IntFlag):
    """GRADLANE_CODEC_...: capabilities of a codec."""

    EXACT = 1
    FEEDBACK = 2
    EXACT_SUMS = 4
    ADAPTIVE = 8
    OWNED = 16
    AGREES = 32
    LOOKS = 64
    RATE = 128
    LATTICE = 256
    UNBIASED = 512
    HALVES = 1024
    ROUNDS_ONCE = 2048


class Options(ctypes.Structure):
    """gradlane_options."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("socket", ctypes.c_char_p),
        ("rank", ctypes.c_int),
        ("timeout_ms", ctypes.c_int),
        ("spin_us", ctypes.c_int),
        ("operation_timeout_ms", ctypes.c_int64),
        ("keep_warnings", ctypes.c_int),
        ("verify", ctypes.c_int),
    ]


class Run(ctypes.Structure):
    """gradlane_run."""

    _fields_ = [
        ("first", ctypes.c_uint64),
        ("at", ctypes.c_uint64),
        ("floats", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
    ]


class How(ctypes.Structure):
    """gradlane_how."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("codec", ctypes.c_char_p),
        ("residual", ctypes.c_void_p),
        ("average", ctypes.c_int),
        ("has_tag", ctypes.c_int),
        ("tag", ctypes.c_uint64),
        ("timeout_ms", ctypes.c_int64),
        ("whole", ctypes.c_size_t),
        ("strategy", ctypes.c_char_p),
        ("reduction", ctypes.c_int),
        ("verify", ctypes.c_int),
        ("state_pitch", ctypes.c_size_t),
        ("part_bytes", ctypes.c_size_t),
        ("blocks", ctypes.POINTER(ctypes.c_void_p)),
        ("hash", ctypes.POINTER(ctypes.c_uint64)),
        ("encoded", ctypes.c_void_p),
        ("encoded_bytes", ctypes.c_size_t),
        ("runs", ctypes.c_void_p),
        ("runs_bytes", ctypes.c_size_t),
    ]


class Task(ctypes.Structure):
    """gradlane_task."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("collective", ctypes.c_int),
        ("type", ctypes.c_int),
        ("root", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("data", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("how", ctypes.POINTER(How)),
        ("what", ctypes.c_char_p),
        ("user", ctypes.c_uint64),
    ]


class Outcome(ctypes.Structure):
    """gradlane_outcome."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("task", ctypes.c_uint64),
        ("user", ctypes.c_uint64),
        ("code", ctypes.c_int),
        ("cause", ctypes.c_int),
        ("asks", ctypes.c_int),
        ("late", ctypes.c_int),
        ("text", ctypes.c_char * 512),
        ("warning", ctypes.c_char * 512),
    ]

    def __init__(self) -> None:
        super().__init__(ctypes.sizeof(Outcome), 0, 0, errors.PENDING)


class Figures(ctypes.Structure):
    """gradlane_figures."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("operations", ctypes.c_uint64),
        ("data_bytes", ctypes.c_uint64),
        ("data_packets", ctypes.c_uint64),
        ("retransmitted", ctypes.c_uint64),
        ("lossy_values", ctypes.c_uint64),
        ("lossy_zeroed", ctypes.c_uint64),
        ("lossy_squares", ctypes.c_double),
        ("lossy_lost_squares", ctypes.c_double),
        ("hashed_results", ctypes.c_uint64),
        ("results_hash", ctypes.c_uint64),
        ("verified_blocks", ctypes.c_uint64),
        ("unverified_blocks", ctypes.c_uint64),
    ]


class CodecInfo(ctypes.Structure):
    """gradlane_codec_info."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("word", ctypes.c_char_p),
        ("usage", ctypes.c_char_p),
        ("example", ctypes.c_char_p),
        ("option", ctypes.c_char_p),
        ("least", ctypes.c_uint),
        ("most", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("states", ctypes.c_uint),
        ("variant", ctypes.c_char_p),
        ("promise", ctypes.c_char_p),
        ("source", ctypes.c_char_p),
    ]


def _candidates() -> list[str]:
    """Returns the paths of the library to try, in order. The last one is a name that the loader looks up."""
    named = os.environ.get("GRADLANE_LIBRARY")
    if named:
        return [named]
    here = pathlib.Path(__file__).resolve().parent
    places = [here / "lib" / "libgradlane.so.0"]  # in a wheel
    # In the source tree, `here` is client/python/gradlane.
    if len(here.parents) > 2:
        places.append(here.parents[2] / "build" / "client" / "libgradlane.so.0")
    return [str(place) for place in places if place.exists()] + ["libgradlane.so.0"]


def _declare(lib: ctypes.CDLL) -> None:
    context, size, integer = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    how, request = ctypes.POINTER(How), ctypes.POINTER(ctypes.c_uint64)
    reducing = [context, context, size, integer, how, request]
    rooted = [context, context, size, integer, integer, how, request]
    signatures = {
        "gradlane_open": (integer, [ctypes.POINTER(context), ctypes.POINTER(Options)]),
        "gradlane_close": (None, [context]),
        "gradlane_disconnect": (None, [context]),
        "gradlane_rank": (integer, [context]),
        "gradlane_world": (integer, [context]),
        "gradlane_local_reduce": (integer, [context]),
        "gradlane_codec": (ctypes.c_char_p, [context]),
        "gradlane_codecs": (size, [context]),
        "gradlane_get_codec": (integer, [context, size, ctypes.POINTER(CodecInfo)]),
        "gradlane_find_codec": (integer, [context, ctypes.c_char_p, ctypes.POINTER(CodecInfo)]),
        "gradlane_check_codec": (integer, [context, ctypes.c_char_p, ctypes.c_char_p]),
        "gradlane_strategies": (size, [context]),
        "gradlane_get_strategy": (ctypes.c_char_p, [context, size]),
        "gradlane_error": (ctypes.c_char_p, [context]),
        "gradlane_get_cause": (integer, [context]),
        "gradlane_refused_by": (integer, [ctypes.POINTER(ctypes.c_char_p)]),
        "gradlane_warning": (ctypes.c_char_p, [context]),
        "gradlane_alloc": (integer, [context, size, ctypes.POINTER(context)]),
        "gradlane_free": (integer, [context, context]),
        "gradlane_all_reduce": (integer, reducing),
        "gradlane_reduce_scatter": (integer, reducing),
        "gradlane_all_gather": (integer, reducing),
        "gradlane_broadcast": (integer, rooted),
        "gradlane_reduce": (integer, rooted),
        "gradlane_gather": (integer, rooted),
        "gradlane_scatter": (integer, rooted),
        "gradlane_all_to_all": (integer, [context, context, context, size, integer, how, request]),
        "gradlane_barrier": (integer, [context, how, request]),
        "gradlane_encode": (integer, [context, context, size, context, size, how, request]),
        "gradlane_encoded_space": (size, [size]),
        "gradlane_encoded_bytes": (size, [context, size]),
        "gradlane_runs_space": (size, [size]),
        "gradlane_check_runs": (integer, [context, ctypes.c_char_p, ctypes.c_char_p, size]),
        "gradlane_wait": (integer, [context, ctypes.c_uint64, integer]),
        "gradlane_test": (integer, [context, ctypes.c_uint64]),
        "gradlane_cancel": (integer, [context, ctypes.c_uint64]),
        "gradlane_fd": (integer, [context]),
        "gradlane_resume": (integer, [context, ctypes.c_uint64]),
        "gradlane_share": (integer, [context]),
        "gradlane_add": (integer, [context, ctypes.POINTER(Task), ctypes.POINTER(Outcome)]),
        "gradlane_next": (integer, [context, ctypes.POINTER(Outcome)]),
        "gradlane_answer": (integer, [context, integer, ctypes.c_char_p]),
        "gradlane_get_figures": (integer, [context, ctypes.POINTER(Figures)]),
        "gradlane_sum_of_squares": (ctypes.c_double, [context, size]),
        "gradlane_add_rounded": (ctypes.c_float, [context, context, size, ctypes.c_float]),
        "gradlane_hash": (ctypes.c_uint64, [context, size]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments


def load() -> ctypes.CDLL:
    """Returns the library, with its functions declared. ctypes releases the interpreter lock during calls.

    Raises ImportError if there is none, NoDaemon if it is too old.
    """
    reasons = []
    for path in _candidates():
        try:
            lib = ctypes.CDLL(path)
        except OSError as reason:
            reasons.append(str(reason))
            continue
        # gradlane_version() needs no declaration: it takes no arguments and returns an int. An older library may lack
        # some of the functions that _declare() looks up, so check the version first.
        if lib.gradlane_version() < API_VERSION:
            raise errors.error(
                errors.Code.VERSION,
                f"{path} has interface version {lib.gradlane_version()}, this package needs {API_VERSION}: install "
                "both of one version, or set GRADLANE_LIBRARY to the library of this package",
            )
        _declare(lib)
        return lib
    raise ImportError("cannot load libgradlane; set GRADLANE_LIBRARY to its path: " + "; ".join(reasons))
