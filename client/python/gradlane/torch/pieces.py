"""How pieces of operations get to the daemon and back, and what numbers and tags they have.

The thread that calls may be interrupted anywhere, by Ctrl-C: what it has done so far is in the operation at any moment,
so that _repair() can have the engine's thread go on.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
import zlib

from .. import _buffers, _library, _losses, errors
from . import interrupts, staging, started
from .operations import Flight, Operation

_DIFFERENT = (errors.Cause.MISMATCH, errors.Cause.TAG)  # operations that ranks have called
FOR_ALL = (errors.OperationFailed, errors.DaemonGone)  # failures that operations behind share


class Pieces:
    """Base of Driver. An operation is in one thread at a time. own: the socket of the daemon, if the job started it."""

    def __init__(self, connection: _buffers.Connection, own: str | None = None) -> None:
        self._own = own
        self.lock = threading.RLock()  # around the library, the memory and the queue
        self.memory = staging.Memory(connection)
        self.closed = False
        self.gone = False  # the daemon is
        self._dead: str | None = None  # why the engine's thread is
        self._connection = connection
        self._lib = connection.lib
        self._how = _library.How(ctypes.sizeof(_library.How))
        self._how.has_tag = 1
        self._counted = 0
        self._past = 0  # a hash of the numbers of those that failed

    def check(self) -> None:
        """Raises if there is no connection any more."""
        if self.closed:
            raise errors.daemon_gone("gradlane: the process group was destroyed, or belongs to the parent of a fork")
        if self._dead is not None:
            raise self._death()

    def _submit(self, operation: Operation) -> bool:
        """Starts the next piece; False if there is none, or no room yet."""
        piece, flights = operation.next_piece, operation.flights
        if piece == operation.piece_count or operation.error is not None or len(flights) == staging.WINDOW:
            return False
        try:
            operation.arrive(piece)
            flight = Flight(piece, operation.place(piece))
            flights.append(flight)
            if flight.staged:
                with self.lock:
                    self.memory.lend(flight)
                if flight.address is None:
                    flights.pop()
                    return False
                operation.load(piece, flight.address)
            with self.lock:
                self.check()
                self._call(operation, flight)
        except Exception as error:  # whoever waits shall have it
            operation.fail(self._explained(error))
            self._withdraw(operation)
            return False
        operation.next_piece = piece + 1
        return True

    def _withdraw(self, operation: Operation) -> None:
        """Takes back the latest piece if the daemon does not have it."""
        if operation.flights and operation.flights[-1].request.value == 0:
            with self.lock:
                self.memory.give_back(operation.flights[-1])
            operation.flights.pop()

    def _call(self, operation: Operation, flight: Flight) -> None:
        how, piece = self._how, flight.piece
        if callable(operation.codec):  # the first piece
            operation.codec = operation.codec()
        how.codec = operation.codec.encode() if operation.codec is not None else None
        how.average = operation.average
        how.reduction = operation.reduction
        how.strategy = operation.strategy.encode() if operation.strategy is not None else None
        how.residual = operation.residual_of(piece)
        how.tag = operation.tag(piece, self._past)
        how.timeout_ms = operation.timeout_ms
        how.whole = operation.whole
        how.state_pitch = operation.state_pitch
        how.part_bytes = operation.part_bytes
        arguments = operation.arguments(piece, flight.address)
        code = operation.function(self._lib)(
            self._connection.handle, *arguments, ctypes.byref(how), ctypes.byref(flight.request)
        )
        if code != errors.OK:
            flight.request.value = 0
            raise self._error(code)

    def _death(self) -> errors.Error:
        text = f"gradlane: its thread has ended, which is a bug: {self._dead}; start the process anew"
        return errors.daemon_gone(text)

    def _error(self, code: int, operation: Operation | None = None) -> errors.Error:
        self.gone = self.gone or code == errors.Code.DAEMON_GONE
        text, cause = self._connection.error(), self._connection.cause()
        if code == errors.Code.FAILED and cause == errors.Cause.TAG:
            text += " (the ranks called different operations, or not equally many, or disagree about what has failed)"
        if code == errors.Code.FAILED and cause in _DIFFERENT and interrupts.seen:
            text += ("; a signal, Ctrl-C say, has broken off a call of this rank before, which may have left out "
                     "operations since: begin anew on all ranks, destroy_process_group() and init_process_group()")
        timed_out = code == errors.Code.FAILED and cause == errors.Cause.TIMEOUT
        if timed_out and operation is not None and operation.is_late():
            text += f"; the timeout of the process group is {operation.timeout:g} s"
        if code == errors.Code.DAEMON_GONE:
            text += started.last_words(self._own)
        return errors.error(code, "gradlane: " + text, cause)

    def _explained(self, error: Exception) -> Exception:
        """With what the daemon has left, if it is the job's own."""
        words = started.last_words(self._own) if isinstance(error, errors.DaemonGone) else ""
        return errors.daemon_gone(f"{error}{words}") if words and words not in str(error) else error

    def _land(self, operation: Operation, timeout_ms: int = 0) -> bool:
        """Takes the end of the oldest piece under way; False if it has not ended."""
        flight = operation.flights[0]
        with self.lock:
            if self.closed:
                text = "gradlane: the process group was destroyed before the operation ended"
                operation.fail(errors.daemon_gone(text))
                operation.flights.clear()
                return True
            if not flight.ended:
                self._wait(flight, timeout_ms)
            code = flight.codes[-1]
            if code == errors.PENDING:
                return False
            if code != errors.OK:
                operation.fail(self._error(code, operation))
            else:
                self._note_warnings(operation)
        if not flight.staged and code == errors.OK:
            try:
                with operation.mode():
                    operation.landed(flight.piece)
            except RuntimeError as error:  # of the GPU
                operation.fail(error)
        if flight.staged and flight.address is not None:
            if code == errors.OK:
                operation.unload(flight.piece, flight.address)
            with self.lock:
                self.memory.give_back(flight)
        operation.flights.popleft()
        return True

    def _wait(self, flight: Flight, timeout_ms: int) -> None:
        # The library says only once how it ended. Ctrl-C comes between calls from Python: here not before that is kept,
        # as it is C that calls.
        flight.codes[:] = map(self._lib.gradlane_wait, (self._connection.handle,), (flight.request,), (timeout_ms,))

    def _look_behind(self, operation: Operation) -> None:
        """What has ended before the oldest piece, as a small one may: until the library is asked about it too, the
        descriptor stays readable, and whoever sleeps on it does not sleep."""
        with self.lock:
            if self.closed:
                return
            for flight in itertools.islice(operation.flights, 1, None):  # of the oldest the descriptor shall tell
                if not flight.ended:
                    self._wait(flight, 0)

    def _note_warnings(self, operation: Operation) -> None:
        """Of what the codec takes. Where they are errors, the operation goes on all the same: other ranks have none."""
        try:
            _losses.warn(self._lib, self._connection.handle, operation.caller)
        except errors.LossWarning as warning:
            operation.warning = operation.warning or warning

    def _descriptor(self) -> int:
        """Readable while a piece may have ended."""
        descriptor: int = self._lib.gradlane_fd(self._connection.handle)
        return descriptor

    def _repair(self, operation: Operation) -> None:
        """After an exception anywhere in _try(), Ctrl-C above all: as if it had come between two pieces."""
        flights = operation.flights
        if flights and flights[-1].request.value == 0:
            self._withdraw(operation)
        elif flights:
            operation.next_piece = flights[-1].piece + 1
        if flights and flights[0].ended:
            self._land(operation)

    def _count(self, operation: Operation) -> None:
        """Gives the operation its number, when its turn comes; each has one, whether it begins or fails before that."""
        if operation.number is None:
            operation.number = self._counted  # no call in between, where Ctrl-C could come
            self._counted += 1
            operation.begun = time.monotonic()

    def _note(self, operation: Operation) -> None:
        """Ranks that disagree about what has failed may disagree about numbers, so their tags shall differ."""
        if isinstance(operation.error, FOR_ALL):
            self._past = zlib.crc32(b"%d" % (operation.number or 0), self._past)
