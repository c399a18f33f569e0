"""Queue of operations in the library, and the thread that handles their ends.

The library (client/gradlane.h, "Tasks") runs operations in the order of the calls, one after the other. An operation
that ends inside start() is handled in the thread that calls start(). Callbacks of all others run in the thread
"gradlane", before the next operation begins. So an operation that a callback starts has the same place in the order on
all ranks. It runs to its end inside the callback's call of start(), so that the callback can wait for it.

Ctrl-C may come between any two steps of the thread that calls. An operation is noted in `_under_way` before the library
gets it, so it ends properly even then.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import threading
import traceback
from typing import Any, Callable, Sequence

from torch.futures import Future

from .. import _buffers, _library, _losses, errors
from . import call_statistics, gpu, interrupts, staging, summary
from .bootstrap import local_daemon
from .operations import Failure, Operation, outcome

_JOIN_S = 5.0
_DIFFERENT = (errors.Cause.MISMATCH, errors.Cause.TAG)  # ranks have called different operations


class Tasks:
    """Runs operations over a connection. Any thread may call start() and close().

    own: socket of the daemon, if the job has started it.
    """

    hashes = False  # whether results join results_hash(), for all connections of the process

    def __init__(self, connection: _buffers.Connection, own: str | None = None) -> None:
        interrupts.clear()
        self.lock = threading.RLock()  # guards the memory and the fields below
        self.memory = staging.Memory(connection)
        self.closed = False
        self.gone = False  # whether the daemon is gone
        self.overlap = summary.Overlap()
        self._own = own
        self._connection, self._lib, self._handle = connection, connection.lib, connection.handle
        connection.check(self._lib.gradlane_share(self._handle))
        self._dead: str | None = None  # why the thread has ended, if by an error
        self._silent = False
        self._thread: threading.Thread | None = None
        self._users = itertools.count(1)
        # Operation and number of its piece, by `user` of the task. Tasks of native/fast_path.h have the negative of
        # their number as the key. `_early_ends` has the outcomes of those that ended before adopt() was called.
        self._under_way: dict[int, tuple[Operation, int]] = {}
        self._early_ends: dict[int, _library.Outcome] = {}
        self._fast_path: Any = None

    def start(self, operation: Operation) -> Future[Any]:
        """Starts an operation. Returns a Future of operation.result."""
        operation.future = gpu.future_of(operation.devices)
        if operation.is_remote:  # without the lock, because it may wait until the GPU accepts more work
            self._depart(operation)
        if threading.current_thread() is self._thread:
            self.check()
            self._run_now(operation)
            return self._future_of(operation)
        ends: dict[int, _library.Outcome] = {}
        try:
            with self.lock:
                self.check()
                self.overlap.start(bool(self._under_way))
                self._add(operation, ends)
            self._take(ends)
        except Exception:
            raise
        except BaseException:  # the operation has its place in the order on all ranks, so it must end
            interrupts.note()
            self._take(ends)
            raise
        if operation.piece_count == 0:
            self._complete(operation)
        return self._future_of(operation)

    def adopt(self, operation: Operation, address: int) -> Future[Any]:
        """Returns the Future of a task that native/fast_path.h has added. address: address of its gradlane_outcome."""
        end = _library.Outcome.from_buffer_copy(ctypes.string_at(address, ctypes.sizeof(_library.Outcome)))
        operation.future = Future()
        with self.lock:
            if end.code != errors.OK and end.code != errors.PENDING:
                self.check()
            self.overlap.start(bool(self._under_way))
            if end.code == errors.PENDING:
                self._ensure_thread()
                end = self._early_ends.pop(-end.task, end)
            operation.left = 1
            if end.code == errors.PENDING:
                self._under_way[-end.task] = operation, 0
        if end.code != errors.PENDING:
            self._end(operation, 0, end)
        return self._future_of(operation)

    def fast_path(self, native: Any) -> Any:
        """Returns the native.FastPath, which runs all-reduces without Python."""
        if self._fast_path is None:
            with self.lock:
                self.check()
                add = ctypes.cast(self._lib.gradlane_add, ctypes.c_void_p).value
                self._fast_path = native.FastPath(self._connection, add, self._handle)
                call_statistics.follow(self._fast_path)
        return self._fast_path

    def tell(self, codec: str | None, strategy: str | None, coded: bool) -> None:
        """Sets codec and strategy of later all-reduces of the fast path. coded: whether it may run sums that a codec
        applies to."""
        if self._fast_path is not None:
            self._fast_path.set(codec, strategy, coded, Tasks.hashes)

    def results_hash(self) -> tuple[int, int]:
        """Returns the number of hashed results so far, and their running hash (gradlane_figures). Raises DaemonGone."""
        figures = _library.Figures(ctypes.sizeof(_library.Figures))
        with self.lock:
            self.check()
            self._connection.check(self._lib.gradlane_get_figures(self._handle, figures))
        return figures.hashed_results, figures.results_hash

    def close(self, disconnect: Callable[[], None], silent: bool = False) -> None:
        """Calls `disconnect`. Unfinished operations fail. silent: threads that wait for them do not wake up."""
        with self.lock:
            if self.closed:
                return
            self.closed, self._silent = True, silent
            if self._fast_path is not None:
                call_statistics.forget(self._fast_path)
            self.memory.pinned.clear()
            disconnect()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    # ---- Any thread

    def check(self) -> None:
        """Raises DaemonGone if there is no connection any more, or the thread has ended by an error."""
        if self.closed:
            raise errors.daemon_gone("gradlane: the process group was destroyed, or belongs to the parent (fork)")
        if self._dead is not None:
            raise self._death()

    def lend(self, nbytes: int) -> Any:
        """Returns pinned memory for a tensor on a GPU. If there is none, waits for the oldest operation and tries
        again. Raises OutOfMemory if there is nothing to wait for."""
        while True:
            with self.lock:
                self.check()
                try:
                    return self.memory.pinned.lend(nbytes)
                except errors.OutOfMemory:
                    if not self._under_way or threading.current_thread() is self._thread:
                        raise
                    oldest = next(iter(self._under_way.values()))[0]
            oldest.future.wait()

    def forget(self) -> None:
        """Disowns the connection, in a child after fork(). Replaces the lock, because a thread of the parent may hold
        it."""
        self.closed = True
        self.lock = threading.RLock()

    # ---- Private

    def _future_of(self, operation: Operation) -> Future[Any]:
        future = operation.future
        return future if future.done() and operation.error is None else future.then(outcome)

    def _depart(self, operation: Operation) -> None:
        with self.lock:
            self.check()
        operation.depart()
        with self.lock:
            for host in operation.hosts():
                if host.last is not None:
                    self.memory.pinned.follow(host.block, host.last)

    def _add(self, operation: Operation, ends: dict[int, _library.Outcome]) -> None:
        """Adds all pieces in one step, which Ctrl-C does not divide. The caller holds the lock. ends: the pieces'
        outcomes are added to it, by `user`."""
        self._ensure_thread()
        flags = (_library.ASKS if operation.asks else 0) | (_library.HASHES if Tasks.hashes else 0)
        users = list(itertools.islice(self._users, operation.piece_count))
        tasks = [operation.task(piece, user, flags) for piece, user in enumerate(users)]
        outcomes = [_library.Outcome() for _ in users]
        operation.left = len(users)
        self._under_way.update((user, (operation, piece)) for piece, user in enumerate(users))
        ends.update(zip(users, outcomes))
        try:
            # This runs in C without a break, so Ctrl-C comes after it.
            collections.deque(map(self._lib.gradlane_add, itertools.repeat(self._handle), tasks, outcomes), maxlen=0)
        finally:
            for user, end in ends.items():
                if end.task == 0 and end.code == errors.PENDING:  # this piece was not added
                    self._under_way.pop(user, None)

    def _take(self, ends: dict[int, _library.Outcome]) -> None:
        """Processes the ends of pieces that have ended inside gradlane_add(). It may be called again after Ctrl-C."""
        for user, end in ends.items():
            if end.code == errors.PENDING:
                continue
            entry = self._under_way.get(user)
            if entry is not None:
                self._end(*entry, end)
                self._under_way.pop(user, None)

    def _run_now(self, operation: Operation) -> None:
        """Runs an operation to its end. A callback of another operation has started it, in the thread "gradlane"."""
        operation.left = operation.piece_count
        for piece in range(operation.piece_count):
            try:
                if operation.error is None:
                    operation.prepare(piece)
            except Exception as error:
                operation.fail(error)
            end = _library.Outcome()
            # A piece that has failed keeps its place in the order, because other ranks may have begun it.
            flags = (0 if operation.error is None else _library.FAILS) | (_library.HASHES if Tasks.hashes else 0)
            self._lib.gradlane_add(self._handle, operation.task(piece, 0, flags), end)
            self._end(operation, piece, end)
        if operation.piece_count == 0:
            self._complete(operation)

    def _ensure_thread(self) -> None:
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, name="gradlane", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the system allows no more threads
            self._thread = None
            raise

    def _end(self, operation: Operation, piece: int, end: _library.Outcome) -> None:
        """Records how a piece has ended. It may be called again after Ctrl-C."""
        if operation.future.done():
            return
        if end.code != errors.OK:
            operation.fail(self._error(end, operation))
        elif not self._silent:
            try:
                with operation.mode():
                    operation.landed(piece)
            except RuntimeError as error:  # error of the GPU
                operation.fail(error)
        if end.warning:
            self._warn(operation, end.warning.decode(errors="replace"))
        operation.left -= 1
        if operation.left <= 0:
            self._complete(operation)

    def _warn(self, operation: Operation, text: str) -> None:
        """Issues a LossWarning. If warnings are errors, the operation goes on, because other ranks have no warning. It
        then fails at its end, on this rank."""
        try:
            _losses.say(text, operation.caller or _losses.caller())
        except errors.LossWarning as warning:
            operation.warning = operation.warning or warning

    def _complete(self, operation: Operation) -> None:
        if self._silent:
            return
        is_first = not operation.completed
        operation.completed = True
        try:
            if is_first and operation.error is None:
                with gpu.behind(operation.devices), operation.mode():
                    operation.finish()
                    if operation.on_host_result is not None:
                        operation.on_host_result(operation.host_result())
                    if operation.on_result is not None:
                        operation.on_result(operation.tensor)
                    if operation.devices:
                        gpu.claim(operation.tensor, operation.result)
                operation.error = operation.warning
        except Exception as reason:  # the waiting thread gets the error
            operation.error = reason
        error = operation.error
        try:
            if error is not None and operation.on_error is not None:
                operation.on_error(error)
        finally:
            if operation.is_remote:
                self._let_go(operation)  # frees the blocks here, without the lock, because unpinning takes time
            with gpu.behind(operation.devices):
                operation.future.set_result(operation.result if error is None else Failure(error))

    def _let_go(self, operation: Operation) -> Sequence[Any]:
        with self.lock:
            return operation.let_go(self.memory.pinned)

    def _death(self) -> errors.Error:
        text = f"gradlane: its thread ended because of a bug: {self._dead}; restart the process"
        return errors.daemon_gone(text)

    def _error(self, end: _library.Outcome, operation: Operation) -> errors.Error:
        if self.closed:
            return errors.daemon_gone("gradlane: the process group was destroyed before the operation ended")
        self.gone = self.gone or end.code == errors.Code.DAEMON_GONE
        text = end.text.decode(errors="replace")
        if end.cause == errors.Cause.TAG:
            text += " (ranks called different operations or numbers of operations, or disagree about which ones failed)"
        if end.cause in _DIFFERENT and interrupts.seen:
            text += ("; a signal such as Ctrl-C interrupted an earlier call of this rank, so operations may be "
                     "missing: call destroy_process_group() and init_process_group() again on all ranks")
        if end.late and operation.timeout is not None:
            text += f"; the timeout of the process group is {operation.timeout:g} s"
        if end.code == errors.Code.DAEMON_GONE:
            text += local_daemon.last_words(self._own)
        return errors.error(end.code, "gradlane: " + text, end.cause)

    # ---- The thread

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # otherwise waiting threads would wait forever
            self._die(error)

    def _work(self) -> None:
        end = _library.Outcome()
        while self._lib.gradlane_next(self._handle, end) == errors.OK:
            user = end.user or -end.task
            if end.asks:
                self._answer(*self._under_way[user])
                continue
            with self.lock:
                entry = self._under_way.get(user)
                if entry is None:
                    self._early_ends[user] = _library.Outcome.from_buffer_copy(end)
                    continue
            self._end(*entry, end)
            with self.lock:
                self._under_way.pop(user, None)
        if not self.closed:
            raise RuntimeError(self._connection.error())

    def _answer(self, operation: Operation, piece: int) -> None:
        code, codec = errors.OK, None
        try:
            gpu.settle(operation.devices)
            codec = operation.prepare(piece)
        except Exception as error:  # the waiting thread gets the error
            operation.fail(error)
            code = errors.Code.BAD_ARGUMENT
        self._lib.gradlane_answer(self._handle, code, None if codec is None else codec.encode())

    def _die(self, error: BaseException) -> None:
        """Handles an error that ends the thread. Operations in flight fail, and start() refuses others."""
        with self.lock:
            self.gone, self._dead = True, repr(error)
            self._connection.disconnect()  # so that nothing is copied to memory of failed operations
            others = dict.fromkeys(operation for operation, _ in self._under_way.values())
            self._under_way.clear()
        for other in others:
            if not other.future.done():
                other.fail(self._death())
                try:
                    self._complete(other)
                except Exception:  # the other operations must fail, too
                    traceback.print_exc()
