"""The process's connection to its daemon, for backend and hook. It runs operations on tensors, from any thread.

Operations run one after the other, in the order of the calls; tasks.py has the details.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Sequence

import torch

from .. import _arguments, _codecs, _context, _losses, errors
from .._codecs import Codec
from .._library import Capability, Reduction, Type
from . import gpu, gpu_sum, operations, staging, summary
from .codec import check, is_adaptive, unknown
from .tasks import Tasks

if TYPE_CHECKING:
    from torch.futures import Future

TORCH = os.path.join(os.path.dirname(torch.__file__), "")  # prefix of the names of PyTorch's files
_PART = 64 << 20  # largest reduce-scatter if the daemon's local_reduce is on, in bytes of all ranks
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_of_parents: list[Engine] = []  # engines of parent processes, before fork(); this process never closes them


def _forget() -> None:
    """Disowns the engines of the parent, in a child after fork()."""
    Engine._guard = threading.RLock()
    Engine._world = None
    for engine in list(_engines):
        engine._forget()


os.register_at_fork(after_in_child=_forget)


class Engine:
    """Connection to the daemon; shared() returns the one of the process. Methods that start an operation return a
    Future.

    Tensors may have any shape and strides, on the CPU or a CUDA device. A tensor belongs to the operation until its
    future is completed. Sums of float32 of 1024 elements or more lose what their codec loses (docs/codecs.md); all
    other data arrives exactly.

    Errors that a call can see are raised at once: BadArgument, and DaemonGone if there is no connection any more. Later
    errors become the future's exception, which is a RuntimeError with the class and text of the original.

    Options of all operations; all callbacks run before the future is completed:
    - timeout: seconds from the operation's turn until it fails, on all ranks. None: the daemons' limit.
    - result: value of the future. None: the tensor.
    - on_result(tensor): called when the data is in place.
    - on_host_result(tensor): called before on_result, with the result of an all-reduce in host memory. The tensor is
      valid during the call only.
    - on_error(exception): called if the operation failed. Where warnings are errors, it also gets a LossWarning, after
      on_result.
    - on_data(tensor): called with the host copy of data on a GPU, before it is exchanged.

    `rank`, `world`, `codec` and `strategies` are as in gradlane.Context. `codecs` are names of the daemon's codecs.
    fast_path(), tell() and results_hash() are those of Tasks. `is_subgroup` says whether open_subgroup() has made the
    engine.
    """

    socket: str | None = None  # socket of the job's own daemon; None: GRADLANE_SOCKET, or the one that is found
    _current: Engine | None = None
    _world: int | None = None  # number of ranks of the latest engine
    # Seconds that the next shared() waits for a daemon: 0 if world_of() has found none; None: the default of open().
    _patience: float | None = None
    _guard = threading.RLock()  # reentrant: a finalizer may call release() inside shared()

    @staticmethod
    def shared(rank: int | None = None, world: int | None = None) -> Engine:
        """Returns the process's engine, opened at first use. Each call must be followed by a release().

        rank: rank to connect as. None: the value of RANK, or any free rank if RANK is not set. world: number of ranks
        of the caller's job. Raises BadArgument if the daemon has other numbers, and what gradlane.open() raises.
        """
        with Engine._guard:
            engine = Engine._current
            if engine is None or not engine.usable:
                patience, Engine._patience = Engine._patience, None
                engine = Engine(_context.open(Engine.socket, rank=rank, timeout=patience))
            if (world is not None and world != engine.world) or (rank is not None and rank != engine.rank):
                text = f"this is rank {rank} of {world} of the job, but {engine.rank} of {engine.world} of the daemons"
                if engine is not Engine._current:
                    engine.close()
                raise errors.bad_argument(f"{text}: start one process per trainer of the daemons, as gradlane run does")
            Engine._current = engine
            engine._users += 1
            return engine

    @staticmethod
    def world_of(rank: int) -> int | None:
        """Returns the number of ranks of the daemons, before the rendezvous. Returns None if it cannot be known then.

        It connects only if the number is unknown. Another connection would abort operations that other ranks are
        finishing.
        """
        with Engine._guard:
            if Engine._world is None:
                try:
                    Engine._current = Engine(_context.open(rank=rank))
                # The error is not raised here. shared() raises it again after the rendezvous, so that all ranks learn
                # of it.
                except (errors.Error, ImportError) as error:
                    Engine._patience = 0.0 if isinstance(error, errors.NoDaemon) else None
                    daemon = error.refused_by if isinstance(error, errors.NoDaemon) else None
                    return daemon[1] if daemon else None
            return Engine._world

    @staticmethod
    def connect(rank: int, timeout: float) -> None:
        """Connects to a daemon that was found; the next shared() uses this engine. Raises what gradlane.open() raises.
        """
        with Engine._guard:
            Engine._current = Engine(_context.open(rank=rank, timeout=timeout))

    @staticmethod
    def open_subgroup(socket: str, rank: int) -> Engine:
        """Returns another engine, for a ring of some ranks, in which this is `rank`. Raises what gradlane.open()
        raises."""
        return Engine(_context.open(socket, rank=rank), socket)

    @staticmethod
    def dismiss() -> None:
        """Closes the engine that connect() has opened, if nobody uses it."""
        with Engine._guard:
            engine = Engine._current
            if engine is None or engine._users > 0:
                return
            Engine._current = None
        engine.close()

    @staticmethod
    def exists() -> bool:
        """Returns whether the process has an engine that can be used."""
        return Engine._current is not None and Engine._current.usable

    @staticmethod
    def of_groups() -> bool:
        """Returns whether process groups use the process's engine."""
        return Engine._current is not None and Engine._current.groups

    @staticmethod
    def existing() -> Engine:
        """Returns the process's engine. Raises BadArgument if there is none."""
        engine = Engine._current
        if engine is None or not engine.usable:
            raise errors.bad_argument("gradlane: there is no connection; call init_process_group('gradlane') first")
        return engine

    @staticmethod
    def renew() -> None:
        """Closes the engine, even if it is in use; the next shared() connects again. Does nothing if nobody has used it
        yet."""
        with Engine._guard:
            engine = Engine._current
            if engine is None or engine._users == 0 and engine.usable:
                return
            Engine._current = None
        engine.close()

    def __init__(self, connected: _context.Context, open_subgroup: str | None = None) -> None:
        gpu_sum.is_wanted()  # raises BadArgument
        self.rank, self.world, self.codec = connected.rank, connected.world, connected.codec
        self.strategies = connected.strategies
        self.is_subgroup = open_subgroup is not None
        if not self.is_subgroup:
            Engine._world = self.world
        self._context = connected  # keeps the connection open
        self._users = 0
        self._tasks = Tasks(connected._connection, open_subgroup or Engine.socket)
        self._memory = self._tasks.memory
        self.fast_path, self.tell = self._tasks.fast_path, self._tasks.tell
        self.results_hash = self._tasks.results_hash
        trainers: int = connected._lib.gradlane_local_reduce(connected._connection.handle)
        self._local_reduce = trainers != 0
        # Residual scale. With local_reduce the trainers of a node are summed first, and the residual of an average is
        # that of their mean. It is multiplied by their number before it is added to one trainer's gradients.
        self.residual_scale = max(trainers, 1)
        self.codecs = connected._codecs
        self._found: dict[str | None, Codec] = {}  # results of find_codec(), by name
        self._gives_runs: dict[tuple[str, str | None], bool] = {}  # by codec and strategy: gradlane_check_runs()
        self._workspaces: dict[torch.device, gpu_sum.Workspace | None] = {}  # None: there is no memory for one
        self.groups = False  # whether process groups use this engine
        _engines.add(self)
        atexit.register(self.close, silent=True)

    @property
    def usable(self) -> bool:
        """Returns whether there is a daemon that can run operations."""
        return not self._tasks.closed and not self._tasks.gone

    def find_codec(self, name: str | None) -> Codec:
        """Returns the daemon's codec of this name. None: the codec of the daemon's configuration. Raises BadArgument if
        there is no such codec."""
        if name not in self._found:
            with self._tasks.lock:
                self._tasks.check()
                self._found[name] = self._ask_for(name)
        return self._found[name]

    def table(self) -> tuple[Codec, ...]:
        """Returns all codecs of the daemon."""
        return _codecs.table(self._context._connection)

    def with_residual(self, word: str) -> str:
        """Returns the name of a codec that takes residuals, of this word if there is one. Returns "" if there is none
        at all."""
        with self._tasks.lock:
            self._tasks.check()
            return _codecs.with_residual(self.table(), word)

    def check_codec_strategy(self, codec: str, strategy: str | None) -> None:
        """Raises BadArgument if sums by this codec cannot use this strategy. strategy None: raises it if no strategy of
        the daemon can run such sums."""
        connection = self._context._connection
        with self._tasks.lock:
            self._tasks.check()
            way = None if strategy is None else strategy.encode()
            code = connection.lib.gradlane_check_codec(connection.handle, codec.encode(), way)
            if code != errors.OK:
                raise errors.error(code, f"gradlane: {connection.error()}")

    def find_strategy(self, name: str | None) -> str | None:
        """Returns `name`, which may be None, if the daemon allows this strategy. Otherwise raises BadArgument, which
        lists the allowed ones."""
        if _arguments.strategy_name(name) is not None and name not in (*self.strategies, "auto"):
            raise errors.bad_argument(
                f"gradlane: strategy {name!r}: the daemon allows {', '.join(self.strategies)} (strategies in its "
                "configuration)"
            )
        return name

    # ---- Memory

    def zeros(self, numel: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Returns a flat tensor of zeros in shared memory, which all_reduce and broadcast do not copy. Raises
        OutOfMemory."""
        with self._tasks.lock:
            self._tasks.check()
            return self._memory.tensor(numel, dtype)

    empty = zeros

    # ---- Operations

    def all_reduce(self, tensor: torch.Tensor, *, average: bool = False, codec: str | Callable[[], str] | None = None,
                   residual: torch.Tensor | None = None, reduction: str = "sum", strategy: str | None = None,
                   pieces: bool = True, encoded: torch.Tensor | None = None, **options: Any) -> Future[Any]:
        """All-reduces the tensor in place: to the sum or mean of the ranks' tensors, or their `reduction`, "min" or
        "max".

        `codec` None is the daemon's. If it is a function, it is called when all earlier operations have
        ended. `residual` is for error feedback: float32 of zeros(), with as many elements as the tensor. A codec with
        several states needs a row of that size for each. `strategy` None is the daemon's. With `pieces` False the sum
        is one operation of the daemon, so that a codec sees the whole tensor. The tensor must then be of zeros().

        `encoded` is this rank's contribution, encoded before by `codec`: uint8 of zeros(), contiguous, as
        docs/codec-format.md (encoded tensors) says, for example from a GPU. It stays as it is. The tensor is float32 of
        zeros(), and its content does not count. Ranks with floats must pass `pieces` False.
        """
        picked = _arguments.reduction(reduction)
        sums = picked == Reduction.SUM and residual is None and pieces and encoded is None
        if sums and isinstance(tensor, torch.Tensor) and gpu.is_on_gpu(tensor) and gpu_sum.is_wanted():
            on_gpu = self._gpu_sum(tensor, average, codec, strategy)
            if on_gpu is not None:
                return self._start(on_gpu, tensor, **options)
        operand = self._operand(tensor, "all_reduce", True, average, picked != Reduction.SUM)
        codec = self._codec(codec, operand, tensor)
        address, pitch = (None, 0) if residual is None else self._residual(residual, tensor, codec)
        place = self._memory.address(operand.work)
        pieces = pieces and encoded is None
        if not pieces and place is None:
            raise errors.bad_argument("gradlane: encoded, and pieces=False, need a tensor of Engine.zeros()")
        operation = operations.InPlace(operand, place, codec, average, address, pieces=pieces)
        if operand.host is not None and operand.type == Type.FLOAT32 and self._adds_exactly(codec):
            operation.part_bytes = 0  # a piece travels faster as one part; GpuSum has the same parts
        operation.state_pitch = pitch
        operation.reduction, operation.strategy = picked, self.find_strategy(strategy)
        operation.keep = residual
        if encoded is not None:
            operation.encoded, operation.encoded_bytes = self._memory.address(encoded), encoded.numel()
            if operation.encoded is None or encoded.dtype != torch.uint8 or not encoded.is_contiguous():
                raise errors.bad_argument("gradlane: `encoded` must be contiguous uint8 of Engine.zeros()")
            operation.keep = residual, encoded
        return self._start(operation, tensor, **options)

    def broadcast(self, tensor: torch.Tensor, root: int, **options: Any) -> Future[Any]:
        """Copies the tensor of rank `root` to all ranks, in place and exactly, whatever its type."""
        operand = self._operand(tensor, "broadcast", False, filled=root == self.rank)
        operation = operations.InPlace(operand, self._memory.address(operand.work), root=root)
        return self._start(operation, tensor, **options)

    def all_gather(self, outputs: Sequence[torch.Tensor], tensor: torch.Tensor, **options: Any) -> Future[Any]:
        """Gathers the ranks' tensors exactly: outputs[i] becomes the tensor of rank i. `outputs` has one tensor per
        rank, each as large as `tensor`."""
        own = self._operand(tensor, "all_gather", False)
        theirs = [self._operand(output, "all_gather", False, filled=False) for output in outputs]
        self._match("all_gather", own, theirs)
        return self._start(operations.Blocks(True, theirs, own), outputs, **options)

    def reduce_scatter(self, output: torch.Tensor, inputs: Sequence[torch.Tensor], *, average: bool = False,
                       codec: str | None = None, reduction: str = "sum", **options: Any) -> Future[Any]:
        """Reduce-scatters: on rank r, `output` becomes the sum of all ranks' inputs[r].

        `inputs` has one tensor per rank, as large as `output`. `reduction` is "sum", "min" or "max".
        """
        picked = _arguments.reduction(reduction)
        kind = "reduce_scatter", True, average, picked != Reduction.SUM
        target = self._operand(output, *kind, filled=False)
        theirs = [self._operand(tensor, *kind) for tensor in inputs]
        self._match("reduce_scatter", target, theirs)
        codec = self._codec(codec, target, output)
        operation = operations.Blocks(False, theirs, target, codec, average)
        operation.reduction = picked
        return self._start(operation, output, **options)

    def reduce_scatter_shared(self, output: torch.Tensor, tensor: torch.Tensor, *, average: bool = False,
                              codec: str | None = None, residual: torch.Tensor | None = None,
                              strategy: str | None = None, **options: Any) -> Future[Any]:
        """Reduce-scatters in one operation: `output` becomes the sum, or mean, of all ranks' blocks for this rank.

        `tensor` is of zeros(). It has one block per rank, one after the other, each as large as `output`. Its content
        is undefined afterwards. `codec`, `residual` and `strategy` are as in all_reduce(). A residual is as large as
        `tensor`.
        """
        operand = self._operand(tensor, "reduce_scatter", True, average)
        address = self._memory.address(operand.work)
        if address is None or tensor.numel() != output.numel() * self.world or output.dtype != tensor.dtype:
            raise errors.bad_argument(
                f"gradlane: reduce_scatter of {tensor.numel()} elements to {output.numel()} on each of {self.world} "
                "ranks: the input must be of Engine.zeros(), with a block of that size and type for each rank"
            )
        codec = self._codec(codec, operand, tensor)
        owed, pitch = (None, 0) if residual is None else self._residual(residual, tensor, codec)
        summed = self._local_reduce and operand.nbytes > _PART
        operation = operations.SharedReduceScatter(operand, address, self.rank, self.world, output, codec, average,
                                                   owed, summed)
        operation.state_pitch = pitch
        operation.strategy = self.find_strategy(strategy)
        operation.keep = residual
        return self._start(operation, output, **options)

    def barrier(self, **options: Any) -> Future[Any]:
        """Starts a barrier, which ends when all ranks have started it."""
        return self._start(operations.Operation(), None, **options)

    def adopt(self, tensor: torch.Tensor, outcome: int, **options: Any) -> Future[Any]:
        """Continues an in-place all-reduce that native/fast_path.h has started. outcome: address of its
        gradlane_outcome.
        """
        operation = operations.Operation()
        operation.keep = tensor
        return self._start(operation, tensor, adopted=outcome, **options)

    # ---- Ends

    def release(self) -> None:
        """Ends a use of the engine. Call it once per shared(); the last call closes the connection."""
        with Engine._guard:
            self._users -= 1
            if self._users > 0:
                return
            if Engine._current is self:
                Engine._current = None
        self.close()

    def close(self, silent: bool = False, summarize: bool = True) -> None:
        """Closes the connection, which frees the rank. Unfinished operations fail, on all ranks. Tensors of zeros()
        stay valid."""
        atexit.unregister(self.close)
        if not silent:
            for workspace in self._workspaces.values():
                if workspace is not None:
                    workspace.settle()
        summarize = summarize and not self.is_subgroup and summary.wanted(self.rank) and self.usable
        self._tasks.close(self._context.close, silent)
        if summarize:  # after the close: no operation waits for the daemon's answer
            summary.show(Engine.socket, self._tasks.overlap.hidden)

    # ---- Private

    def _forget(self) -> None:
        """Disowns the engine, in a child after fork(): the connection is the parent's."""
        closed = self._tasks.closed
        self._tasks.forget()
        if closed:
            return
        Engine._current = None
        atexit.unregister(self.close)
        _of_parents.append(self)

    def _ask_for(self, name: str | None) -> Codec:
        asked = _arguments.codec_name(name, self.codecs)
        try:
            return _codecs.find(self._context._connection, asked)
        except errors.BadArgument as error:
            raise unknown(error, name, self) from None

    def _residual(self, residual: torch.Tensor, tensor: torch.Tensor, codec: Any) -> tuple[int, int]:
        """Returns address and state_pitch of a residual, which is flat or has one row for each of the codec's states.
        """
        states = 1 if callable(codec) else self.find_codec(codec).states
        rows = residual.view(max(states, 1), -1) if residual.dim() == 1 else residual
        address = self._memory.address(residual)
        fits = rows.dim() == 2 and rows.shape[1] == tensor.numel() and rows.shape[0] == max(states, 1)
        if address is None or residual.dtype != torch.float32 or not fits or rows.stride(1) != 1 and rows.shape[1] > 1:
            raise errors.bad_argument(
                f"gradlane: the residual must be {tensor.numel()} float32 elements of Engine.zeros()"
                + (f", for each of {states} states of codec {codec}" if states > 1 else "")
            )
        return address, int(rows.stride(0))

    def _adds_exactly(self, codec: Any) -> bool:
        """Returns whether the codec is fixed:B, which adaptive bounds choose, too. Its sums keep their bits however the
        tensor is divided, unless floats are beyond the codec."""
        if callable(codec):
            return True
        flags = self.find_codec(codec).flags
        return Capability.EXACT_SUMS | Capability.ADAPTIVE in flags and Capability.UNBIASED not in flags

    def _gpu_sum(self, tensor: torch.Tensor, average: bool, codec: Any, strategy: str | None) -> gpu_sum.GpuSum | None:
        """Returns the operation if the GPU can encode and decode for the sum of this CUDA tensor, else None."""
        name = self.codec if codec is None else codec
        if not (tensor.dtype == torch.float32 and tensor.layout == torch.strided and tensor.is_contiguous() and
                not tensor.is_neg() and tensor.numel() >= gpu_sum.LEAST and isinstance(name, str)) or Tasks.hashes:
            return None
        found = gpu_sum.codec_for(name, tensor.device)
        if found is None:
            return None
        connection, key = self._context._connection, (name, strategy)
        with self._tasks.lock:
            self._tasks.check()
            if key not in self._gives_runs:
                named = None if strategy is None else strategy.encode()
                code = connection.lib.gradlane_check_runs(connection.handle, name.encode(), named, gpu.PART // 4)
                self._gives_runs[key] = code == errors.OK
            if not self._gives_runs[key]:
                return None
            if tensor.device not in self._workspaces:
                try:
                    with torch.inference_mode(False):
                        self._workspaces[tensor.device] = gpu_sum.Workspace(
                            tensor.device, self._memory.tensor, connection.lib.gradlane_runs_space)
                except (errors.OutOfMemory, RuntimeError) as reason:  # RuntimeError: the GPU has no memory
                    self._workspaces[tensor.device] = None
                    gpu_sum.warn(tensor.device, reason)
            workspace = self._workspaces[tensor.device]
        if workspace is None:
            return None
        operation = gpu_sum.GpuSum(tensor, workspace, found, name, average, self.world)
        operation.strategy = self.find_strategy(strategy)
        return operation

    def _operand(self, tensor: torch.Tensor, name: str, reduce: bool, average: bool = False,
                 pick: bool = False, filled: bool = True) -> staging.Operand:
        return staging.Operand(self._tasks.lend, tensor, name, reduce, average, pick, filled)

    def _codec(self, codec: Any, operand: staging.Operand, tensor: torch.Tensor) -> Any:
        if not callable(codec) and is_adaptive(check(codec, self)):
            raise errors.bad_argument(
                f"gradlane: codec {codec!r} is not for single operations; use a gradlane.AdaptiveBound per tensor: "
                "pass its codec() and call its update()"
            )
        # The library knows which codecs serve other types.
        return None if callable(codec) and operand.type != Type.FLOAT32 else codec

    def _match(self, name: str, one: staging.Operand, many: Sequence[staging.Operand]) -> None:
        if len(many) != self.world:
            raise errors.bad_argument(f"gradlane: {name} with {len(many)} blocks, but there are {self.world} ranks")
        for other in many:
            if other.nbytes != one.nbytes or other.tensor.dtype != one.tensor.dtype:
                raise errors.bad_argument(
                    f"gradlane: {name} of {tuple(one.tensor.shape)} {one.tensor.dtype} with a block of "
                    f"{tuple(other.tensor.shape)} {other.tensor.dtype}; all must be of one size and type"
                )

    def _start(self, operation: operations.Operation, tensor: Any, timeout: float | None = None, result: Any = None,
               on_result: Callable[[Any], None] | None = None,
               on_host_result: Callable[[torch.Tensor], None] | None = None,
               on_error: Callable[[Exception], None] | None = None,
               on_data: Callable[[torch.Tensor], None] | None = None,
               adopted: int | None = None) -> Future[Any]:
        operation.tensor, operation.on_result, operation.on_error = tensor, on_result, on_error
        operation.on_host_result = on_host_result
        operation.result, operation.on_data = tensor if result is None else result, on_data
        operation.devices = gpu.devices_of(tensor, result)
        operation.inference = staging.is_inference((tensor, result))
        operation.timeout = timeout
        if operation.type == Type.FLOAT32 or adopted is not None:  # the library may warn about the codec
            operation.caller = _losses.caller(TORCH)
        return self._tasks.start(operation) if adopted is None else self._tasks.adopt(operation, adopted)
