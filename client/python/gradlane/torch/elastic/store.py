"""Stores for the agreement of an elastic training: PyTorch's TCPStore, and etcd.

    python3 -m gradlane.torch.elastic.store 0.0.0.0:29400    # serves a TCPStore until it is ended

A training ends if its store is lost. A TCPStore is lost with its process. An etcd cluster is lost if it has no majority.
"""

from __future__ import annotations

import base64
import datetime
import http.client
import json
import signal
import sys
from typing import Any, Protocol

import torch.distributed as dist

from ... import errors

_TIMEOUT_S = 10.0  # of one request
_SCHEMES = "tcp://HOST:PORT for a TCPStore, etcd://HOST:PORT for etcd"


class StoreFailed(Exception):
    """The store has not answered. The request may have been executed."""


class Store(Protocol):
    """A store with compare-and-set. Both functions raise StoreFailed; the request can then be repeated."""

    def get(self, key: str) -> str | None:
        """Returns the value of a key, or None if there is none."""

    def create(self, key: str, value: str) -> str:
        """Creates the key unless it exists, and returns the value that it has afterwards."""


def connect(url: str, job: str) -> Store:
    """Returns the store at the URL: tcp://HOST:PORT or etcd://HOST:PORT.

    job: name of the training; trainings with different names can share a store. Raises BadArgument for any other URL.
    """
    scheme, _, place = url.partition("://")
    host, _, port = place.rpartition(":")
    if scheme not in ("tcp", "etcd") or not host or not port.isdecimal():
        raise errors.bad_argument(f"gradlane: store {url!r}: this is no store, allowed: {_SCHEMES}")
    host = host.strip("[]")
    return TcpStore(host, int(port), job) if scheme == "tcp" else EtcdStore(host, int(port), job)


class TcpStore:
    """A TCPStore that another process serves, for example the agent of a torchrun."""

    def __init__(self, host: str, port: int, job: str) -> None:
        self._place, self._job = (host, port), job
        self._store: dist.Store | None = None

    def get(self, key: str) -> str | None:
        """Returns the value of a key, or None if there is none."""
        try:
            store = self._connected()
            return store.get(key).decode() if store.check([key]) else None
        except RuntimeError as reason:
            raise self._failed(reason) from None

    def create(self, key: str, value: str) -> str:
        """Creates the key unless it exists, and returns the value that it has afterwards."""
        try:
            return str(self._connected().compare_set(key, "", value).decode())
        except RuntimeError as reason:
            raise self._failed(reason) from None

    def _connected(self) -> dist.Store:
        if self._store is None:
            host, port = self._place
            store = dist.TCPStore(host, port, None, False, datetime.timedelta(seconds=_TIMEOUT_S),
                                  wait_for_workers=False)
            self._store = dist.PrefixStore(f"gradlane elastic {self._job}", store)
        return self._store

    def _failed(self, reason: RuntimeError) -> StoreFailed:
        self._store = None  # the next request connects again
        host, port = self._place
        return StoreFailed(f"the TCPStore at {host}:{port}: {str(reason).splitlines()[0]}")


class EtcdStore:
    """etcd 3.3 or newer, through its JSON gateway."""

    def __init__(self, host: str, port: int, job: str) -> None:
        self._place, self._prefix = (host, port), f"gradlane/{job}/"
        self._connection: http.client.HTTPConnection | None = None

    def get(self, key: str) -> str | None:
        """Returns the value of a key, or None if there is none."""
        return self._value(self._ask("range", {"key": self._name(key)}))

    def create(self, key: str, value: str) -> str:
        """Creates the key unless it exists, and returns the value that it has afterwards."""
        name = self._name(key)
        answer = self._ask("txn", {
            "compare": [{"key": name, "target": "CREATE", "create_revision": "0"}],
            "success": [{"request_put": {"key": name, "value": _coded(value)}}],
            "failure": [{"request_range": {"key": name}}],
        })
        if answer.get("succeeded"):
            return value
        found = self._value(answer["responses"][0]["response_range"])
        assert found is not None
        return found

    def _name(self, key: str) -> str:
        return _coded(self._prefix + key)

    def _ask(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        host, port = self._place
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
            self._connection.request("POST", f"/v3/kv/{method}", json.dumps(body))
            response = self._connection.getresponse()
            text = response.read()
            if response.status != http.client.OK:
                raise StoreFailed(f"etcd at {host}:{port}: {response.status} {response.reason}: {text[:200]!r}")
            answer: dict[str, Any] = json.loads(text)
            return answer
        except (OSError, http.client.HTTPException, ValueError) as reason:
            self._connection = None
            raise StoreFailed(f"etcd at {host}:{port}: {reason}") from None

    @staticmethod
    def _value(answer: dict[str, Any]) -> str | None:
        found = answer.get("kvs")
        return base64.b64decode(found[0].get("value", "")).decode() if found else None


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def main() -> None:
    """Serves a TCPStore at HOST:PORT, the only argument, until SIGINT or SIGTERM."""
    place = sys.argv[1] if len(sys.argv) == 2 else ""
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal():
        sys.exit("usage: python3 -m gradlane.torch.elastic.store HOST:PORT (serves the store of elastic trainings)")
    stopped = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stopped)
    store = dist.TCPStore(host.strip("[]"), int(port), None, True, wait_for_workers=False)
    print(f"the store is tcp://{host}:{store.port}", flush=True)
    signal.sigwait(stopped)


if __name__ == "__main__":
    main()
