"""Transfers of states over TCP, in threads, so that trainings go on meanwhile."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading

from .steps import RingFailed, TransferFailed

_CONNECT_S = 5.0  # time limit of a connection
_MOST_STRANGERS = 16  # connections beyond those of takers are refused
_SILENCE_S = 30.0  # after this time without a byte, a transfer has failed
_CHUNK = 1 << 20  # bytes of one call; the timeout of a call is for all its bytes
_TOKEN_BYTES = 8


class Sender:
    """Sends `data` to each process that connects and sends the token, up to `takers` processes.

    host: local address to listen at. port, token: a receiver needs them. Raises RingFailed if it cannot listen.
    """

    def __init__(self, host: str, data: memoryview, takers: int) -> None:
        self.token = secrets.randbits(8 * _TOKEN_BYTES - 2)
        self._data: memoryview | None = data
        self._takers = takers
        self._lock = threading.Lock()
        try:
            self._listener = socket.create_server((host, 0), family=_family(host))
        except OSError as reason:
            raise RingFailed(f"cannot listen at {host} to send the state: {reason}") from None
        self.port = int(self._listener.getsockname()[1])
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, name="gradlane-send", daemon=True).start()

    def close(self) -> None:
        """Ends all transfers."""
        with self._lock:
            self._data = None
            for it in self._sockets:
                _shut_down(it)

    def _accept(self) -> None:
        with self._listener, contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with self._lock:
                    self._sockets = [it for it in self._sockets if it.fileno() >= 0]
                    refused = len(self._sockets) > self._takers + _MOST_STRANGERS
                    self._sockets.append(connection)
                if refused:
                    connection.close()
                    continue
                threading.Thread(target=self._serve, args=(connection,), name="gradlane-send", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_SILENCE_S)
            with self._lock:
                data = self._data
            if data is None or not hmac.compare_digest(_receive(connection, _TOKEN_BYTES), _encode(self.token)):
                return
            for first in range(0, len(data), _CHUNK):
                connection.sendall(data[first:first + _CHUNK])
            with self._lock:
                self._takers -= 1
                last = self._takers == 0
            if last:
                self.close()


class Receiver:
    """Receives bytes from a Sender into `target`. `done` is set at the end."""

    def __init__(self, host: str, port: int, token: int, target: memoryview) -> None:
        self.size = len(target)
        self.done = threading.Event()
        self._error: OSError | None = None
        self._closed = False
        try:
            self._socket = socket.socket(_family(host))
        except OSError as reason:
            raise TransferFailed(f"cannot receive the state: {reason}") from None
        self._socket.settimeout(_CONNECT_S)
        threading.Thread(target=self._run, args=((host, port), token, target), name="gradlane-receive",
                         daemon=True).start()

    def check(self) -> None:
        """Raises TransferFailed if the transfer has failed."""
        if self._error is not None:
            raise TransferFailed(f"the state of the training has not arrived over TCP: {self._error}")

    def close(self) -> None:
        """Ends the transfer."""
        self._closed = True
        _shut_down(self._socket)  # has no effect before connect()

    def _run(self, address: tuple[str, int], token: int, target: memoryview) -> None:
        try:
            with self._socket:
                self._socket.connect(address)
                if self._closed:
                    raise ConnectionAbortedError("closed")
                self._socket.settimeout(_SILENCE_S)
                self._socket.sendall(_encode(token))
                _receive_into(self._socket, target)
        except OSError as reason:
            self._error = reason
        self.done.set()


# ---- Private


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _shut_down(it: socket.socket) -> None:
    """Makes the calls of the socket's thread fail, so that it closes the socket."""
    with contextlib.suppress(OSError):
        it.shutdown(socket.SHUT_RDWR)


def _encode(token: int) -> bytes:
    return token.to_bytes(_TOKEN_BYTES, "little")


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    _receive_into(connection, memoryview(data))
    return bytes(data)


def _receive_into(connection: socket.socket, target: memoryview) -> None:
    """Fills `target`. Raises OSError."""
    while target:
        count = connection.recv_into(target)
        if count == 0:
            raise ConnectionError("the other process has closed the connection")
        target = target[count:]
