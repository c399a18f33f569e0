"""Stores for the agreement of an elastic training: PyTorch's TCPStore, and etcd.

A training ends if its store is lost. A TCPStore is lost with its process. An etcd cluster is lost if it has no majority
or loses its data. A store that comes back without its data is lost too.
"""

from __future__ import annotations

import base64
import concurrent.futures
import datetime
import functools
import http.client
import json
import queue
import re
import socket
import threading
import urllib.parse
import uuid
from typing import Any, Callable, NamedTuple, Protocol, Sequence, TypeVar

import torch.distributed as dist

from ... import errors
from ..bootstrap.store_group import uses_libuv

_T = TypeVar("_T")
_TIMEOUT_S = 10.0  # of one request
_MOST_LATE = 16  # number of threads that may wait for a stopped server
_ID_KEY = "id"  # key of the id of the store's data, which the first process creates
_URLS = "tcp://HOST:PORT for a TCPStore, etcd://HOST:PORT,HOST:PORT,... for etcd, with [ADDRESS] for IPv6"


class StoreFailed(Exception):
    """The store has not answered. The request may have been executed."""


class Store(Protocol):
    """A store with compare-and-set. Both functions raise StoreFailed; the request can then be repeated."""

    def get(self, key: str) -> str | None:
        """Returns the value of a key, or None if there is none."""

    def create(self, key: str, value: str) -> str:
        """Creates the key unless it exists, and returns the value that it has afterwards."""


class Address(NamedTuple):
    """The address of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, lowest_port: int = 1) -> Address:
    """Returns the address from HOST:PORT, or [ADDRESS]:PORT for IPv6. Raises ValueError."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([\w.-]+)):([0-9]{1,5})", text)
    if found is None or not lowest_port <= int(found[3]) <= 65535:
        raise ValueError(f"{text!r} is no HOST:PORT")
    return Address(found[1] or found[2], int(found[3]))


def connect(url: str, job: str) -> Store:
    """Returns the store at the URL: tcp://HOST:PORT, or etcd://HOST:PORT,HOST:PORT,... with any nodes of the cluster.

    It connects at the first request. A request fails after 10 s at the latest. job: name of the training; trainings
    with different names can share a store. Raises BadArgument for any other URL.
    """
    scheme, _, names = url.partition("://")
    try:
        if scheme not in ("tcp", "etcd"):
            raise ValueError("this is no store")
        addresses = [parse_address(name) for name in names.split(",")]
        if scheme == "tcp" and len(addresses) > 1:
            raise ValueError("a TCPStore has one server")
    except ValueError as reason:
        raise errors.bad_argument(f"gradlane: store {url!r}: {reason}; allowed: {_URLS}") from None
    name = urllib.parse.quote(job, safe="", errors="surrogateescape")  # without "/"
    if scheme == "tcp":
        return LimitedStore(url, functools.partial(TcpStore, addresses[0], name))
    return LimitedStore(url, functools.partial(EtcdStore, addresses, name))


def host_of(url: str) -> str:
    """Returns the host of the first server of a URL that connect() takes."""
    return parse_address(url.partition("://")[2].partition(",")[0]).host


class LimitedStore:
    """A store that answers or fails within 10 s, and that fails once it has lost its data.

    PyTorch waits without a limit for a server that has stopped. So a thread executes the requests. If it is late,
    another thread executes the next requests.
    """

    def __init__(self, url: str, connect_to: Callable[[], Store]) -> None:
        self._url, self._connect_to = url, connect_to
        self._id = ""  # id of the store's data, once it is known
        self._worker: _Worker | None = None
        self._late: list[_Worker] = []

    def __del__(self) -> None:
        if self._worker is not None:
            self._worker.end()

    def get(self, key: str) -> str | None:
        """Returns the value of a key, or None if there is none."""
        return self._run(lambda store: store.get(key))

    def create(self, key: str, value: str) -> str:
        """Creates the key unless it exists, and returns the value that it has afterwards."""
        return self._run(lambda store: store.create(key, value))

    def _run(self, request: Callable[[Store], _T]) -> _T:
        self._late = [it for it in self._late if it.is_alive()]
        if len(self._late) >= _MOST_LATE:
            self._late[0].join(_TIMEOUT_S)
            raise self._timeout_error()
        worker = self._worker = self._worker or _Worker(self._url, self._connect_to, self._id)
        try:
            result = worker.submit(request).result(_TIMEOUT_S)
        except concurrent.futures.TimeoutError:
            worker.end()
            self._late.append(worker)
            self._worker = None
            raise self._timeout_error() from None
        self._id = worker.id
        return result

    def _timeout_error(self) -> StoreFailed:
        return StoreFailed(f"the store {self._url} does not answer within {_TIMEOUT_S:g} s")


class _Worker(threading.Thread):
    """A thread that connects to a store and executes requests. data_id: id of the store's data, or "" if it is not
    known."""

    def __init__(self, url: str, connect_to: Callable[[], Store], data_id: str) -> None:
        super().__init__(name="gradlane-store", daemon=True)
        self.id = data_id
        self._url, self._connect_to = url, connect_to
        self._store: Store | None = None
        self._requests: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.start()

    def submit(self, request: Callable[[Store], _T]) -> concurrent.futures.Future[_T]:
        """Executes the request after those before it."""
        future: concurrent.futures.Future[_T] = concurrent.futures.Future()
        self._requests.put(lambda: self._execute(request, future))
        return future

    def end(self) -> None:
        """Ends the thread after its latest request."""
        self._requests.put(None)

    def run(self) -> None:
        """Executes requests until end()."""
        while (execute := self._requests.get()) is not None:
            execute()

    def _execute(self, request: Callable[[Store], _T], future: concurrent.futures.Future[_T]) -> None:
        try:
            self._store = self._store or self._connect()
            future.set_result(request(self._store))
        except Exception as reason:
            self._store = None  # the next request connects again
            future.set_exception(reason.with_traceback(None))  # a traceback would keep the future, and so the store

    def _connect(self) -> Store:
        store = self._connect_to()
        data_id = store.create(_ID_KEY, uuid.uuid4().hex)
        if data_id != (self.id or data_id):
            raise StoreFailed(f"the store {self._url} has lost the data of this training; start another one")
        self.id = data_id
        return store


class TcpStore:
    """A connection to a TCPStore that another process serves, for example the agent of a torchrun. Raises StoreFailed
    if it cannot connect."""

    def __init__(self, server: Address, job: str) -> None:
        self._server = server
        try:
            # PyTorch would try to connect for some seconds, and print each failure.
            socket.create_connection(server, _TIMEOUT_S).close()
            store = dist.TCPStore(server.host, server.port, None, False, datetime.timedelta(seconds=_TIMEOUT_S),
                                  wait_for_workers=False, use_libuv=uses_libuv())
        except (OSError, RuntimeError, ValueError, MemoryError) as reason:
            raise self._error(reason) from None
        self._store = dist.PrefixStore(f"gradlane elastic {job}", store)

    def get(self, key: str) -> str | None:
        """Returns the value of a key, or None if there is none."""
        try:
            return _decode(self._store.get(key)) if self._store.check([key]) else None
        except (RuntimeError, ValueError, MemoryError) as reason:
            raise self._error(reason) from None

    def create(self, key: str, value: str) -> str:
        """Creates the key unless it exists, and returns the value that it has afterwards."""
        try:
            return _decode(self._store.compare_set(key, "", "=" + value))
        except (RuntimeError, ValueError, MemoryError) as reason:
            raise self._error(reason) from None

    def _error(self, reason: Exception) -> StoreFailed:
        return StoreFailed(f"the TCPStore at {self._server}: {_describe(reason)}")


def _decode(stored: bytes) -> str:
    """Returns a value of a TCPStore without its prefix "=". compare_set() would replace an empty value."""
    text = stored.decode()
    if not text.startswith("="):
        raise ValueError(f"another program has set a value: {text[:200]!r}")
    return text[1:]


class EtcdStore:
    """A connection to etcd 3.4 or newer, through its JSON gateway, without TLS.

    nodes: some nodes of the cluster. A request that fails is sent to the next node.
    """

    def __init__(self, nodes: Sequence[Address], job: str) -> None:
        self._nodes, self._prefix = list(nodes), f"gradlane/{job}/"
        self._connection: http.client.HTTPConnection | None = None  # to the first of the nodes

    def __del__(self) -> None:
        self._disconnect()

    def get(self, key: str) -> str | None:
        """Returns the value of a key, or None if there is none."""
        name = self._name(key)
        return self._ask("range", {"key": name}, lambda answer: _find_value(answer, name))

    def create(self, key: str, value: str) -> str:
        """Creates the key unless it exists, and returns the value that it has afterwards."""
        name = self._name(key)

        def read(answer: Any) -> str:
            if answer.get("succeeded") is True:
                return value
            found = _find_value(answer["responses"][0]["response_range"], name)
            if found is None:
                raise ValueError("the value is missing")
            return found

        return self._ask("txn", {
            "compare": [{"key": name, "target": "CREATE", "create_revision": "0"}],
            "success": [{"request_put": {"key": name, "value": _encode(value)}}],
            "failure": [{"request_range": {"key": name}}],
        }, read)

    def _name(self, key: str) -> str:
        return _encode(self._prefix + key)

    def _ask(self, method: str, body: dict[str, Any], read: Callable[[Any], _T]) -> _T:
        failures = []
        for node in tuple(self._nodes):
            try:
                return read(json.loads(self._post(node, f"/v3/kv/{method}", json.dumps(body))))
            except (OSError, http.client.HTTPException, AttributeError, LookupError, RecursionError, TypeError,
                    ValueError) as reason:
                failures.append(f"etcd at {node}: {_describe(reason)}")
                self._disconnect()
                self._nodes.append(self._nodes.pop(0))
        raise StoreFailed("; ".join(failures))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _post(self, node: Address, path: str, body: str) -> bytes:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*node, timeout=_TIMEOUT_S / len(self._nodes))
        self._connection.request("POST", path, body)
        response = self._connection.getresponse()
        text = response.read()
        if response.status != http.client.OK:
            raise ValueError(f"{response.status} {response.reason}: {text[:200]!r}")
        return text


def _find_value(answer: Any, name: str) -> str | None:
    """Returns the value of the key with this name in an answer of etcd, or None if there is none."""
    if answer["header"]["revision"] and "kvs" not in answer:
        return None
    found = answer["kvs"][0]
    if found["key"] != name:
        raise ValueError("this is another key")
    return base64.b64decode(found.get("value", ""), validate=True).decode()


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _describe(reason: Exception) -> str:
    """Returns the first line of the exception's text, after its type if the text alone says little."""
    text = next(iter(str(reason).splitlines()), "")
    clear = text and isinstance(reason, (OSError, RuntimeError, ValueError))
    return text if clear else f"{type(reason).__name__}: {text}"
