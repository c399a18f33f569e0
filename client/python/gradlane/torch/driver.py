"""Who moves operations: the thread that calls, for a moment, and the engine's thread.

Operations run in the order of the calls, one after the other: the next one begins when the one before has ended and the
callbacks of its future have run. So an operation that a callback starts has the same place in the order on all ranks.
Callbacks of operations that the engine's thread has ended run in that thread; an operation that they start runs to its
end inside the call, so that they can wait for it.
"""

from __future__ import annotations

import collections
import ctypes
import select
import threading
import time
import traceback
from typing import Any, Callable, Sequence

from torch.futures import Future

from .. import _buffers, errors
from . import gpu, interrupts, ledger, summary
from .bell import Bell
from .operations import Failure, Flight, Operation, outcome
from .pieces import FOR_ALL, Pieces

SMALL = 1 << 20  # bytes: the calling thread waits for operations of up to so many itself,
_PATIENCE_MS = 1  # for so long; where links are too slow for that, only for smaller ones,
_SMALLEST = 16 << 10  # of so many bytes at least
_SLICE_MS = 1000  # of sleeping, to look whether the daemon still runs
_JOIN_S = 5.0


class Driver(Pieces):
    """Runs operations over a connection; start() and close() may be called in any thread."""

    def __init__(self, connection: _buffers.Connection, own: str | None = None) -> None:
        super().__init__(connection, own)
        interrupts.clear()
        self._silent = False
        self.overlap = summary.Overlap()
        self._small = SMALL
        # The thread works on the first, which stays until its callbacks have run.
        self._queue: collections.deque[Operation] = collections.deque()
        self._failed: Sequence[Operation] = ()  # with the first
        self._thread: threading.Thread | None = None
        self._poll = select.poll()
        self._bell = Bell()
        self._express: Any = None
        self._block: Any = None

    def start(self, operation: Operation) -> Future[Any]:
        """Returns a Future of operation.result."""
        operation.future = future = gpu.future_of(operation.devices)
        remote = operation.is_remote
        if remote:  # not with the lock: the GPU may have no room for more
            self._depart(operation)
        with self.lock:
            self.check()
            nested = threading.current_thread() is self._thread
            if not nested:
                self.overlap.start(bool(self._queue))
            over = operation.piece_count == 0
            if not over and not self._queue and operation.nbytes <= self._small and not remote:
                try:
                    over = self._try(operation)
                except BaseException:  # Ctrl-C: it has its place in the order on all ranks, so the thread ends it
                    interrupts.note()
                    self._repair(operation)
                    self._enqueue(operation)
                    raise
            if not over:
                future = future.then(outcome)
                if not nested:
                    self._enqueue(operation)
        if over:
            self._complete(operation)
            return future if operation.error is None else future.then(outcome)
        if nested:
            self._exchange(operation)
            self._complete(operation)
        return future

    def resume(self, operation: Operation, number: int, request: int, code: int) -> Future[Any]:
        """As start(), of an operation of one piece that native/express.h has begun, in the block that it has."""
        operation.future = future = Future()
        with self.lock:
            operation.number, operation.begun = number, time.monotonic()
            self.overlap.start(bool(self._queue))
            flight = Flight(0, None)
            flight.address, flight.request.value = self._block.address, request
            operation.next_piece = 1
            over = code != errors.PENDING
            if request == 0:
                operation.fail(self._error(code))
            else:
                operation.flights.append(flight)
            if over and request != 0:
                flight.codes = [code]
                self._land(operation)
            if over:
                self._note(operation)
            else:
                self._small = max(operation.nbytes // 2, _SMALLEST)
                future = future.then(outcome)
                self._enqueue(operation)
        if over:
            self._complete(operation)
            return future if operation.error is None else future.then(outcome)
        return future

    def express(self, native: Any) -> Any:
        """Of the extension: the way of small sums without Python, which has a staging block of its own."""
        if self._express is None:
            with self.lock:
                self.check()
                self._block = self._connection.allocate(SMALL)
                functions = (getattr(self._lib, f"gradlane_{name}") for name in ("all_reduce", "wait", "warning"))
                addresses = (ctypes.cast(function, ctypes.c_void_p).value for function in functions)
                self._express = native.Express(self, *addresses, self._connection.handle, self._block.address)
                ledger.follow(self._express)
        return self._express

    def _close_express(self) -> None:
        if self._express is not None:
            self._express.close()
            ledger.forget(self._express)
            self._express = None

    def tell(self, codec: str | None, strategy: str | None, coded: bool) -> None:
        """What all-reduces that go so have from now on; coded: those of 1024 elements or more may."""
        with self.lock:  # which whoever is in it has: the words are its
            if self._express is not None:
                self._express.set(codec, strategy, coded)

    def close(self, disconnect: Callable[[], None], silent: bool = False) -> None:
        """Calls `disconnect`; what is not over fails. silent: no thread that waits for it wakes up."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self._close_express()
            self._silent = silent
            thread = self._thread
            self.memory.pinned.clear()
            try:
                # As long as operations are in the queue: they have the memory that the library may still copy to.
                disconnect()
            finally:
                if thread is None:
                    self._bell.close()
                else:
                    self._bell.ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)

    # ---- Any thread

    def lend(self, nbytes: int) -> Any:
        """Pinned memory for a tensor on a GPU. Where there is none, others end first. Raises OutOfMemory."""
        while True:
            with self.lock:
                self.check()
                try:
                    return self.memory.pinned.lend(nbytes)
                except errors.OutOfMemory:
                    if not self._queue or threading.current_thread() is self._thread:
                        raise
                    oldest = self._queue[0]
            oldest.future.wait()

    def _depart(self, operation: Operation) -> None:
        with self.lock:
            self.check()
        operation.depart()
        with self.lock:
            for host in operation.hosts():
                if host.last is not None:
                    self.memory.pinned.follow(host.block, host.last)

    def _let_go(self, operation: Operation) -> list[Any]:
        with self.lock:
            return operation.let_go(self.memory.pinned)

    def forget(self) -> None:
        """In a child after fork(): everything is the parent's, a lock that another thread held too."""
        self.closed = True
        self.lock = threading.RLock()

    def _try(self, operation: Operation) -> bool:
        """Runs a small operation here and now. Returns whether it is over, however it ended."""
        self._count(operation)
        while self._submit(operation):
            pass
        while operation.flights:
            if not self._land(operation, _PATIENCE_MS):
                self._small = max(operation.nbytes // 2, _SMALLEST)
                return False
        self._small = min(max(self._small, 2 * operation.nbytes), SMALL)
        self._note(operation)
        return operation.error is not None or operation.next_piece == operation.piece_count

    def _enqueue(self, operation: Operation) -> None:
        if self._thread is None:
            self._poll.register(self._bell.descriptor, select.POLLIN)
            self._poll.register(self._descriptor(), select.POLLIN)
            self._thread = threading.Thread(target=self._run, name="gradlane", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # there can be no more threads
                self._thread = None
                raise
        elif not self._queue:
            self._bell.ring()  # first, lest Ctrl-C leave it in a queue that nobody looks at
        self._queue.append(operation)

    def _complete(self, operation: Operation) -> None:
        if self._silent:
            return
        try:
            if operation.error is None:
                with gpu.behind(operation.devices), operation.mode():
                    operation.finish()
                    if operation.on_result is not None:
                        operation.on_result(operation.tensor)
                    if operation.devices:
                        gpu.claim(operation.tensor, operation.result)
                operation.error = operation.warning
        except Exception as reason:  # whoever waits shall have it
            operation.error = reason
        error = operation.error
        try:
            if error is not None and operation.on_error is not None:
                operation.on_error(error)
        finally:
            if operation.is_remote:
                self._let_go(operation)  # what it returns ends here, without the lock: to unpin takes time
            with gpu.behind(operation.devices):
                operation.future.set_result(operation.result if error is None else Failure(error))

    # ---- The engine's thread

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # else all who wait would do so for ever
            self._die(error)

    def _work(self) -> None:
        while True:
            while self._queue:
                operation = self._queue[0]
                self._exchange(operation)
                # Before anybody learns of the failure: what is started then is no longer to fail with it.
                failure = operation.error
                self._failed = self._take_others() if isinstance(failure, FOR_ALL) else ()
                self._complete(operation)
                for other in self._failed:
                    self._count(other)
                    if isinstance(failure, FOR_ALL):
                        text = f"{failure} (an operation before this one)"
                        other.fail(type(failure)(failure.code, text, failure.cause))
                    self._note(other)
                    self._complete(other)
                with self.lock:
                    self._queue.popleft()
            with self.lock:
                if self._queue:
                    continue
                if self.closed:
                    self._bell.close()
                    return
            self._bell.wait()

    def _take_others(self) -> list[Operation]:
        """What waits behind the first. Without a ring each would take its time to fail."""
        with self.lock:
            first, *others = self._queue
            self._queue.clear()
            self._queue.append(first)
        return others

    def _die(self, error: BaseException) -> None:
        """Nobody moves operations any more: those that there are fail, and start() refuses others."""
        with self.lock:
            self.gone, self._dead = True, repr(error)
            self._close_express()
            self._connection.disconnect()  # nothing is copied to what operations let go of
            others = [*self._queue, *self._failed]
            self._queue.clear()
        for other in others:
            if not other.future.done():
                other.fail(self._death())
                try:
                    self._complete(other)
                except Exception:  # the others shall hear of it, too
                    traceback.print_exc()

    def _exchange(self, operation: Operation) -> None:
        """Runs the operation until its data is there, or it has failed."""
        self._count(operation)
        gpu.settle(operation.devices)
        while True:
            while self._submit(operation):
                pass
            if not operation.flights:
                break
            self._sleep()
            while operation.flights and self._land(operation):
                pass
            self._look_behind(operation)
        if operation.error is None and operation.next_piece < operation.piece_count:
            operation.fail(RuntimeError(f"gradlane: {operation.name} ended before its data; this is a bug"))
        self._note(operation)

    def _sleep(self) -> None:
        if any(descriptor == self._bell.descriptor for descriptor, _ in self._poll.poll(_SLICE_MS)):
            self._bell.hush()
