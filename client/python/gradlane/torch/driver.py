"""Who moves operations: the thread that calls, for a moment, and the engine's thread.

Operations run in the order of the calls, one after the other: the next one begins when the one before has ended and the
callbacks of its future have run. So an operation that a callback starts has the same place in the order on all ranks.
Callbacks of operations that the engine's thread has ended run in that thread; an operation that they start runs to its
end inside the call, so that they can wait for it.
"""

import collections
import ctypes
import select
import threading
import time

from torch.futures import Future

from .. import errors, library
from . import staging
from .bell import Bell
from .operations import Failure, outcome

SMALL = 1 << 20  # bytes: the calling thread waits for operations of up to so many itself,
_PATIENCE_MS = 1  # for so long; where links are too slow for that, only for smaller ones,
_SMALLEST = 16 << 10  # of so many bytes at least
_SLICE_MS = 1000  # of sleeping, to look whether the daemon still runs
_JOIN_S = 5.0


class Driver:
    """Runs operations over a connection; start() and close() may be called in any thread."""

    def __init__(self, connection):
        self.lock = threading.RLock()  # around the library, the memory and the queue
        self.memory = staging.Memory(connection)
        self.closed = False
        self.gone = False  # the daemon is
        self._silent = False
        self._connection = connection
        self._lib = connection.lib
        self._how = library.How(ctypes.sizeof(library.How))
        self._how.has_tag = 1
        self._request = ctypes.c_uint64()
        self._begun = 0
        self._small = SMALL
        self._queue = collections.deque()  # the thread works on the first, which stays until its callbacks have run
        self._thread = None
        self._poll = select.poll()
        self._bell = Bell()

    def check(self):
        """Raises if there is no connection any more."""
        if self.closed:
            raise errors.error(-3, "gradlane: the process group was destroyed, or belongs to the parent of a fork")

    def start(self, operation):
        """Returns a Future of operation.result."""
        operation.future = future = Future()
        with self.lock:
            self.check()
            nested = threading.current_thread() is self._thread
            over = operation.piece_count == 0
            if not over and not self._queue and operation.nbytes <= self._small:
                over = self._try(operation)
            if not over:
                future = future.then(outcome)
                if not nested:
                    self._enqueue(operation)
        if over:
            self._complete(operation)
            return future if operation.error is None else future.then(outcome)
        if nested:
            self._drive(operation)
        return future

    def close(self, disconnect, silent=False):
        """Calls `disconnect`; what is not over fails. silent: no thread that waits for it wakes up."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self._silent = silent
            thread = self._thread
            if thread is None:
                self._bell.close()
            else:
                self._bell.ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)
        with self.lock:
            disconnect()

    # ---- Any thread

    def _try(self, operation):
        """Runs a small operation here and now. Returns whether it is over, however it ended."""
        while self._submit(operation):
            pass
        while operation.flights:
            if not self._land(operation, _PATIENCE_MS):
                self._small = max(operation.nbytes // 2, _SMALLEST)
                return False
        self._small = min(max(self._small, 2 * operation.nbytes), SMALL)
        return operation.error is not None or operation.next_piece == operation.piece_count

    def _enqueue(self, operation):
        self._queue.append(operation)
        if self._thread is None:
            descriptor = self._lib.gradlane_fd(self._connection.handle)
            self._poll.register(self._bell.descriptor, select.POLLIN)
            self._poll.register(descriptor, select.POLLIN)
            self._thread = threading.Thread(target=self._run, name="gradlane", daemon=True)
            self._thread.start()
        elif len(self._queue) == 1:
            self._bell.ring()

    def _submit(self, operation):
        """Starts the next piece; False if there is none, or no room yet."""
        piece = operation.next_piece
        if piece == operation.piece_count or operation.error is not None or len(operation.flights) == staging.WINDOW:
            return False
        address = operation.place(piece)
        staged = address is None
        try:
            if staged:
                with self.lock:
                    address = self.memory.borrow()
                if address is None:
                    return False
                operation.load(piece, address)
            with self.lock:
                self.check()
                request = self._call(operation, piece, address)
        except errors.Error as error:
            operation.fail(error)
            return False
        operation.next_piece += 1
        operation.flights.append((request, piece, address, staged))
        return True

    def _call(self, operation, piece, address):
        how = self._how
        if piece == 0:  # not before, or an operation of a callback would have different places on different ranks
            operation.number = self._begun
            self._begun += 1
            if callable(operation.codec):
                operation.codec = operation.codec()
        how.codec = operation.codec.encode() if operation.codec is not None else None
        how.average = operation.average
        how.residual = operation.residual_of(piece)
        how.tag = operation.number << 24 | piece
        arguments = operation.arguments(piece, address)
        code = operation.function(self._lib)(
            self._connection.handle, *arguments, ctypes.byref(how), ctypes.byref(self._request)
        )
        if code != errors.OK:
            raise self._error(code)
        return self._request.value

    def _error(self, code):
        self.gone = self.gone or code == -3
        text = self._lib.gradlane_error(self._connection.handle).decode(errors="replace")
        return errors.error(code, "gradlane: " + text)

    def _land(self, operation, timeout_ms=0):
        """Takes the end of the oldest piece under way; False if it has not ended."""
        request, piece, address, staged = operation.flights[0]
        with self.lock:
            if self.closed:
                operation.fail(errors.error(-3, "gradlane: the process group was destroyed before the operation ended"))
                operation.flights.clear()
                return True
            code = self._lib.gradlane_wait(self._connection.handle, request, timeout_ms)
            if code == errors.PENDING:
                return False
            if code != errors.OK:
                operation.fail(self._error(code))
        operation.flights.popleft()
        if staged:
            if code == errors.OK:
                operation.unload(piece, address)
            with self.lock:
                self.memory.give_back(address)
        return True

    def _complete(self, operation):
        if self._silent:
            return
        error = operation.error
        if error is None:
            try:
                operation.finish()
                if operation.on_result is not None:
                    operation.on_result(operation.tensor)
            except Exception as reason:  # noqa: BLE001 - whoever waits shall have it
                error = operation.error = reason
        if error is not None and operation.on_error is not None:
            operation.on_error(error)
        operation.future.set_result(operation.result if error is None else Failure(error))

    # ---- The engine's thread

    def _run(self):
        while True:
            while self._queue:
                operation = self._queue[0]
                self._drive(operation)
                if operation.error is not None:
                    self._fail_others(operation.error)
                with self.lock:
                    self._queue.popleft()
            with self.lock:
                if self.closed:
                    self._bell.close()
                    return
            self._bell.wait()

    def _fail_others(self, error):
        """What was waiting behind the first. Without a ring each would take its time to fail."""
        with self.lock:
            others = [self._queue.pop() for _ in range(len(self._queue) - 1)]
        for other in reversed(others):
            other.fail(type(error)(error.code, f"{error} (an operation before this one)"))
            self._complete(other)

    def _drive(self, operation):
        """Runs the operation to its end."""
        while True:
            while self._submit(operation):
                pass
            if not operation.flights:
                break
            self._sleep(operation)
            while operation.flights and self._land(operation):
                pass
        self._complete(operation)

    def _sleep(self, operation):
        slice_ms = _SLICE_MS
        if operation.deadline is not None:
            left_ms = int((operation.deadline - time.monotonic()) * 1000) + 1
            if left_ms <= 0:
                self._give_up(operation)
            slice_ms = min(slice_ms, max(left_ms, 1))
        if any(descriptor == self._bell.descriptor for descriptor, _ in self._poll.poll(slice_ms)):
            self._bell.hush()

    def _give_up(self, operation):
        operation.deadline = None
        operation.fail(errors.error(-4, f"gradlane: {operation.name} was not over within its timeout of "
                                        f"{operation.timeout:g} s; a rank is missing or late"))
        with self.lock:
            for request, *_ in operation.flights:
                self._lib.gradlane_cancel(self._connection.handle, request)
