"""The process's connection to its daemon, for the backend and the hook: operations on tensors, from any thread.

They run in the order of the calls, one after the other; tasks.py has the details.
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
from .._library import Reduction, Type
from . import gpu, operations, staging, summary
from .codec import check, is_adaptive, unknown
from .tasks import Tasks

if TYPE_CHECKING:
    from torch.futures import Future

TORCH = os.path.join(os.path.dirname(torch.__file__), "")  # as names of its files begin
_PART = 64 << 20  # bytes of all ranks that a reduce-scatter may have where the daemon's local_reduce is on
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_of_parents: list[Engine] = []  # engines of processes that this one was forked from: never to be closed here


def _forget() -> None:
    """In a child after fork()."""
    Engine._guard = threading.RLock()
    Engine._world = None
    for engine in list(_engines):
        engine._forget()


os.register_at_fork(after_in_child=_forget)


class Engine:
    """Use shared(). All methods that start an operation return a Future, and set what goes wrong as its exception.

    A tensor belongs to the operation until its future is completed. Options of all of them: timeout: seconds from its
    turn on until the operation fails, on all ranks; None: the daemons' limit. result: the value of the future; None:
    the tensor. on_result(tensor) is called when the data is in place, on_error(exception) if it failed (or, after
    on_result, with a LossWarning where warnings are errors), before the future is completed. The future's own exception
    is a RuntimeError with the other's class and text. on_data(tensor): of data on a GPU, with what is exchanged of it.

    Tensors are of any shape and strides, on the CPU or a CUDA device. What can be known is raised at once: BadArgument,
    and DaemonGone if there is no connection any more. Sums of float32 of 1024 elements or more lose what their codec
    takes (docs/codecs.md); all else arrives as it is.

    Attributes: rank, world, codec, strategies: as of gradlane.Context. codecs: what the daemon has. express(), tell():
    as of Tasks. is_apart: of apart().
    """

    socket: str | None = None  # of the job's own daemon; None: what the environment says, or is found
    _current: Engine | None = None
    _world: int | None = None  # of the latest engine
    _patience: float | None = None  # s, of the next one, after world_of() has waited in vain; None: as of open()
    _guard = threading.RLock()  # a finalizer may release() in the middle of shared()

    @staticmethod
    def shared(rank: int | None = None, world: int | None = None) -> Engine:
        """The process's engine, opened at first use; each call must be followed by a release().

        rank: which one to be, None: what RANK says. world: how many ranks the caller's job has. Raises BadArgument if
        the daemon has others, and what gradlane.open() raises.
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
        """How many ranks the daemons have, to be asked before ranks meet; None if it cannot be known then.

        The first time in a process it connects. Later that would end what other ranks are still finishing.
        """
        with Engine._guard:
            if Engine._world is None:
                try:
                    Engine._current = Engine(_context.open(rank=rank))
                except (errors.Error, ImportError) as error:  # again when ranks have met, so that all hear of it
                    Engine._patience = 0.0 if isinstance(error, errors.NoDaemon) else None
                    daemon = error.refused_by if isinstance(error, errors.NoDaemon) else None
                    return daemon[1] if daemon else None
            return Engine._world

    @staticmethod
    def connect(rank: int, timeout: float) -> None:
        """To a daemon that is found; the next shared() takes it. Raises what gradlane.open() raises."""
        with Engine._guard:
            Engine._current = Engine(_context.open(rank=rank, timeout=timeout))

    @staticmethod
    def apart(socket: str, rank: int) -> Engine:
        """Another one, of a ring of some ranks, of which this is `rank`. Raises what gradlane.open() raises."""
        return Engine(_context.open(socket, rank=rank), socket)

    @staticmethod
    def dismiss() -> None:
        """Closes what connect() has opened, and nobody has taken."""
        with Engine._guard:
            engine = Engine._current
            if engine is None or engine._users > 0:
                return
            Engine._current = None
        engine.close()

    @staticmethod
    def exists() -> bool:
        """Whether the process has one that can be used."""
        return Engine._current is not None and Engine._current.usable

    @staticmethod
    def of_groups() -> bool:
        """Whether process groups use the engine that the process has."""
        return Engine._current is not None and Engine._current.groups

    @staticmethod
    def existing() -> Engine:
        """The engine that the process has. Raises BadArgument if there is none."""
        engine = Engine._current
        if engine is None or not engine.usable:
            raise errors.bad_argument("gradlane: there is no connection; call init_process_group('gradlane') first")
        return engine

    @staticmethod
    def renew() -> None:
        """Closes the engine, whoever still uses it: the next shared() connects anew. Not if nobody has used it yet."""
        with Engine._guard:
            engine = Engine._current
            if engine is None or engine._users == 0 and engine.usable:
                return
            Engine._current = None
        engine.close()

    def __init__(self, connected: _context.Context, apart: str | None = None) -> None:
        self.rank, self.world, self.codec = connected.rank, connected.world, connected.codec
        self.strategies = connected.strategies
        self.is_apart = apart is not None
        if not self.is_apart:
            Engine._world = self.world
        self._context = connected  # keeps the connection open
        self._users = 0
        self._tasks = Tasks(connected._connection, apart or Engine.socket)
        self._memory = self._tasks.memory
        self.express, self.tell = self._tasks.express, self._tasks.tell
        trainers: int = connected._lib.gradlane_local_reduce(connected._connection.handle)
        self._local_reduce = trainers != 0
        # Of an average, where trainers of a node are summed up first, residuals are of their mean: what one owes is so
        # many times as much in its own gradients.
        self.per_debt = max(trainers, 1)
        self.codecs = connected._codecs
        self._found: dict[str | None, Codec] = {}  # codecs that were asked for
        self.groups = False  # whether process groups use it
        _engines.add(self)
        atexit.register(self.close, silent=True)

    @property
    def usable(self) -> bool:
        """Whether there is a daemon that operations can go to."""
        return not self._tasks.closed and not self._tasks.gone

    def find_codec(self, name: str | None) -> Codec:
        """The daemon's codec of this name, None: that of its configuration. Raises BadArgument if there is none."""
        if name not in self._found:
            with self._tasks.lock:
                self._tasks.check()
                self._found[name] = self._ask_for(name)
        return self._found[name]

    def table(self) -> tuple[Codec, ...]:
        """All codecs of the daemon."""
        return _codecs.table(self._context._connection)

    def with_residual(self, word: str) -> str:
        """The name of a codec of the daemon's that takes residuals, of this word if there is one; "": there is none."""
        with self._tasks.lock:
            self._tasks.check()
            return _codecs.with_residual(self.table(), word)

    def check_way(self, codec: str, strategy: str | None) -> None:
        """Raises BadArgument if sums by this codec cannot go by this strategy, None: by none of the daemon's."""
        connection = self._context._connection
        with self._tasks.lock:
            self._tasks.check()
            way = None if strategy is None else strategy.encode()
            code = connection.lib.gradlane_check_codec(connection.handle, codec.encode(), way)
            if code != errors.OK:
                raise errors.error(code, f"gradlane: {connection.error()}")

    def find_strategy(self, name: str | None) -> str | None:
        """The same, if the daemon allows it. Raises BadArgument, which says what it allows."""
        if _arguments.strategy_name(name) is not None and name not in (*self.strategies, "auto"):
            raise errors.bad_argument(
                f"gradlane: strategy {name!r}: the daemon allows {', '.join(self.strategies)} (strategies in its "
                "configuration)"
            )
        return name

    # ---- Memory

    def zeros(self, numel: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A flat tensor of zeros in shared memory: all_reduce and broadcast use it where it is. Raises OutOfMemory."""
        with self._tasks.lock:
            self._tasks.check()
            return self._memory.tensor(numel, dtype)

    empty = zeros

    # ---- Operations

    def all_reduce(self, tensor: torch.Tensor, *, average: bool = False, codec: str | Callable[[], str] | None = None,
                   residual: torch.Tensor | None = None, reduction: str = "sum", strategy: str | None = None,
                   pieces: bool = True, **options: Any) -> Future[Any]:
        """The tensor ends as the sum of the ranks' tensors, or their mean; reduction: or "min" or "max". In place.

        codec: of float32; None: the daemon's; a function: called when all operations before have ended. residual: error
        feedback, float32 of zeros() of the same size; of codecs with several states a row of that size for each.
        strategy: which way round; None: the daemon's. pieces: False: one operation of the daemon, so that a codec looks
        at the whole of it; the tensor is of zeros() then.
        """
        picked = _arguments.reduction(reduction)
        operand = self._operand(tensor, "all_reduce", True, average, picked != Reduction.SUM)
        codec = self._codec(codec, operand, tensor)
        address, pitch = (None, 0) if residual is None else self._residual(residual, tensor, codec)
        place = self._memory.address(operand.work)
        if not pieces and place is None:
            raise errors.bad_argument("gradlane: without pieces a tensor must be of Engine.zeros()")
        operation = operations.InPlace(operand, place, codec, average, address, pieces=pieces)
        operation.state_pitch = pitch
        operation.reduction, operation.strategy = picked, self.find_strategy(strategy)
        operation.keep = residual
        return self._start(operation, tensor, **options)

    def broadcast(self, tensor: torch.Tensor, root: int, **options: Any) -> Future[Any]:
        """The tensor ends as that of rank `root`, bit by bit, whatever its type. In place."""
        operand = self._operand(tensor, "broadcast", False, filled=root == self.rank)
        operation = operations.InPlace(operand, self._memory.address(operand.work), root=root)
        return self._start(operation, tensor, **options)

    def all_gather(self, outputs: Sequence[torch.Tensor], tensor: torch.Tensor, **options: Any) -> Future[Any]:
        """outputs: a tensor per rank, as large as `tensor`; outputs[i] ends as rank i's tensor, bit by bit."""
        own = self._operand(tensor, "all_gather", False)
        theirs = [self._operand(output, "all_gather", False, filled=False) for output in outputs]
        self._match("all_gather", own, theirs)
        return self._start(operations.Blocks(True, theirs, own), outputs, **options)

    def reduce_scatter(self, output: torch.Tensor, inputs: Sequence[torch.Tensor], *, average: bool = False,
                       codec: str | None = None, reduction: str = "sum", **options: Any) -> Future[Any]:
        """inputs: a tensor per rank, as large as `output`, which ends as the sum of the ranks' inputs[rank].

        reduction: or as "min" or "max" of these.
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
        """tensor: of zeros(), a block for each rank, one behind the other, all of the size of `output`, which ends as
        the sum, or mean, of the ranks' blocks of this rank. In one operation, which leaves what it likes in `tensor`.

        codec, residual, strategy: as of all_reduce(); a residual is as large as `tensor`.
        """
        operand = self._operand(tensor, "reduce_scatter", True, average)
        address = self._memory.address(operand.work)
        if address is None or tensor.numel() != output.numel() * self.world or output.dtype != tensor.dtype:
            raise errors.bad_argument(
                f"gradlane: reduce_scatter of {tensor.numel()} elements to {output.numel()} on each of {self.world} "
                "ranks: it must be of Engine.zeros(), and a block for each rank"
            )
        codec = self._codec(codec, operand, tensor)
        owed, pitch = (None, 0) if residual is None else self._residual(residual, tensor, codec)
        summed = self._local_reduce and operand.nbytes > _PART
        operation = operations.Scatter(operand, address, self.rank, self.world, output, codec, average, owed, summed)
        operation.state_pitch = pitch
        operation.strategy = self.find_strategy(strategy)
        operation.keep = residual
        return self._start(operation, output, **options)

    def barrier(self, **options: Any) -> Future[Any]:
        """Ends when all ranks have started it."""
        return self._start(operations.Operation(), None, **options)

    def adopt(self, tensor: torch.Tensor, outcome: int, **options: Any) -> Future[Any]:
        """Goes on with an all-reduce in place that native/express.h has begun. outcome: address of its outcome."""
        operation = operations.Operation()
        operation.keep = tensor
        return self._start(operation, tensor, adopted=outcome, **options)

    # ---- Ends

    def release(self) -> None:
        """To be called once per shared(): the last user closes the connection."""
        with Engine._guard:
            self._users -= 1
            if self._users > 0:
                return
            if Engine._current is self:
                Engine._current = None
        self.close()

    def close(self, silent: bool = False, summarize: bool = True) -> None:
        """Gives the rank back; what is not over fails, on all ranks. Tensors of zeros() stay valid."""
        atexit.unregister(self.close)
        summarize = summarize and not self.is_apart and summary.wanted(self.rank) and self.usable
        self._tasks.close(self._context.close, silent)
        if summarize:  # behind it: nobody waits for what the daemon says
            summary.show(Engine.socket, self._tasks.overlap.hidden)

    # ---- Private

    def _forget(self) -> None:
        """In a child after fork(): the connection is the parent's."""
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
        """Address and state_pitch of a residual: flat, or a row for each of the codec's states."""
        states = 1 if callable(codec) else self.find_codec(codec).states
        rows = residual.view(max(states, 1), -1) if residual.dim() == 1 else residual
        address = self._memory.address(residual)
        fits = rows.dim() == 2 and rows.shape[1] == tensor.numel() and rows.shape[0] == max(states, 1)
        if address is None or residual.dtype != torch.float32 or not fits or rows.stride(1) != 1 and rows.shape[1] > 1:
            raise errors.bad_argument(
                f"gradlane: the residual must be {tensor.numel()} elements of float32 of Engine.zeros()"
                + (f", for each of {states} states of codec {codec}" if states > 1 else "")
            )
        return address, int(rows.stride(0))

    def _operand(self, tensor: torch.Tensor, name: str, reduce: bool, average: bool = False,
                 pick: bool = False, filled: bool = True) -> staging.Operand:
        return staging.Operand(self._tasks.lend, tensor, name, reduce, average, pick, filled)

    def _codec(self, codec: Any, operand: staging.Operand, tensor: torch.Tensor) -> Any:
        if not callable(codec) and is_adaptive(check(codec, self)):
            raise errors.bad_argument(
                f"gradlane: codec {codec!r} of one operation; a gradlane.AdaptiveBound per tensor does that: pass its "
                "codec() and call its update()"
            )
        if operand.type != Type.FLOAT32:
            return None
        return codec

    def _match(self, name: str, one: staging.Operand, many: Sequence[staging.Operand]) -> None:
        if len(many) != self.world:
            raise errors.bad_argument(f"gradlane: {name} with {len(many)} blocks, and there are {self.world} ranks")
        for other in many:
            if other.nbytes != one.nbytes or other.tensor.dtype != one.tensor.dtype:
                raise errors.bad_argument(
                    f"gradlane: {name} of {tuple(one.tensor.shape)} {one.tensor.dtype} with a block of "
                    f"{tuple(other.tensor.shape)} {other.tensor.dtype}; all must be of one size and type"
                )

    def _start(self, operation: operations.Operation, tensor: Any, timeout: float | None = None, result: Any = None,
               on_result: Callable[[Any], None] | None = None,
               on_error: Callable[[Exception], None] | None = None,
               on_data: Callable[[torch.Tensor], None] | None = None,
               adopted: int | None = None) -> Future[Any]:
        operation.tensor, operation.on_result, operation.on_error = tensor, on_result, on_error
        operation.result, operation.on_data = tensor if result is None else result, on_data
        operation.devices = gpu.devices_of(tensor, result)
        operation.inference = staging.is_inference((tensor, result))
        operation.timeout = timeout
        if operation.type == Type.FLOAT32 or adopted is not None:  # a codec may have something to say
            operation.caller = _losses.caller(TORCH)
        return self._tasks.start(operation) if adopted is None else self._tasks.adopt(operation, adopted)
