#!/usr/bin/python3
"""Tests the stores of elastic trainings with real servers, some of which are killed or stopped: TCPStore and etcd.

The tests start their own servers on free ports. Tests of etcd need Debian's etcd-server, which tools/setup.sh --test
installs.
"""

import base64
import concurrent.futures
import contextlib
import gc
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import gradlane
from gradlane.torch.bootstrap.store_group import uses_libuv
from gradlane.torch.elastic import store as stores
from gradlane.torch.elastic.store import Address, EtcdStore, StoreFailed, connect
from tests.scripts.fixtures.paths import PACKAGE
from tests.scripts.fixtures.ports import free_port
from tests.scripts.fixtures.waiting import PATIENCE, wait_for

ETCD = shutil.which("etcd")
LIMIT = 1.5  # s: time limit of requests to servers that have stopped
SERVE = [sys.executable, "-m", "gradlane.torch.elastic.serve_store"]
ENVIRONMENT = {**{name: value for name, value in os.environ.items() if not name.startswith("ETCD_")},
               "PYTHONPATH": str(PACKAGE)}
TEXTS = ["", "a", "?", "=", "'\"\\", "{\"a\": [1, \"b\"]}", "zwölf Boxkämpfer \N{SNOWMAN} \U0001f409", "a\0b\n\r\tc", " ",
         "100 kB " * 15000, "é" * 50000]


def has_ipv6():
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


class Server:
    """A process that serves a store. It keeps its port when it is started again."""

    scheme = ""

    def __init__(self, host="127.0.0.1"):
        self.port = free_port()
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self.url = f"{self.scheme}://{self.address}"
        self.folder = tempfile.TemporaryDirectory(prefix="gradlane-store-")
        self.log = pathlib.Path(self.folder.name) / "log"
        self.process = None

    def command(self):
        raise NotImplementedError

    def launch(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=ENVIRONMENT)

    def start(self):
        self.launch()
        wait_for(self.answers, f"{self.url} answers")
        return self

    def answers(self):
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(StoreFailed):
            return connect(self.url, "start").create("started", "yes") == "yes"
        return False

    def signal(self, number):
        self.process.send_signal(number)

    @contextlib.contextmanager
    def stopped(self):
        """Stops the process. A thread may go on for a while after the signal, so this waits for all."""
        self.signal(signal.SIGSTOP)
        try:
            tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
            wait_for(lambda: all(it.read_text().rpartition(") ")[2][0] == "T" for it in tasks.glob("*/stat")),
                     f"{self.url} is stopped")
            yield
        finally:
            self.signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        self.folder.cleanup()


class TcpServer(Server):
    scheme = "tcp"

    def command(self):
        return [*SERVE, self.address]


class EtcdServer(Server):
    """A node of etcd. It keeps its data when it is started again. `cluster` has all nodes."""

    scheme = "etcd"

    def __init__(self, host="127.0.0.1", cluster=None):
        super().__init__(host)
        self.peer = f"http://127.0.0.1:{free_port()}"
        self.cluster = cluster if cluster is not None else []
        self.cluster.append(self)

    def command(self):
        client = f"http://{self.address}"
        return [ETCD, "--name", str(self.port), "--data-dir", f"{self.folder.name}/data",
                "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", self.peer,
                "--initial-advertise-peer-urls", self.peer, "--initial-cluster-token", self.cluster[0].url,
                "--initial-cluster", ",".join(f"{node.port}={node.peer}" for node in self.cluster)]


class StoreCase(unittest.TestCase):
    def assert_fails(self, request, *arguments):
        """The request fails, and does not wait without end. Returns the text of the exception."""
        texts = []

        def send():
            with self.assertRaises(StoreFailed) as caught:
                request(*arguments)
            texts.append(str(caught.exception))

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        self.assertFalse(thread.is_alive(), "the request hangs")
        self.assertNotEqual("".join(texts), "")
        return texts[0]

    def limit(self, limit_s=LIMIT):
        """Sets the time limit of requests for the rest of the test."""
        patch = unittest.mock.patch.object(stores, "_TIMEOUT_S", limit_s)
        patch.start()
        self.addCleanup(patch.stop)


class Stores:
    """Tests of any store, on a server that is the same for all tests of a class."""

    make_server = Server

    @classmethod
    def setUpClass(cls):
        cls.server = cls.make_server()
        cls.addClassCleanup(cls.server.close)
        cls.server.start()

    def store(self, job=""):
        return connect(self.server.url, job or self.id())

    def test_missing(self):
        store = self.store()
        self.assertIsNone(store.get("key"))
        self.assertIsNone(store.get("key"), "again")

    def test_create(self):
        store, other = self.store(), self.store()
        self.assertEqual(store.create("key", "first"), "first")
        self.assertEqual(store.create("key", "second"), "first")
        self.assertEqual(other.create("key", "third"), "first")
        self.assertEqual((store.get("key"), other.get("key")), ("first", "first"))
        self.assertIsNone(other.get("ke"))
        self.assertIsNone(other.get("key/1"))

    def test_any_text(self):
        store, other = self.store(), self.store()
        for number, text in enumerate(TEXTS):
            key = f"text/{number}/é \"{text[:3]}"
            with self.subTest(text[:20]):
                self.assertIsNone(store.get(key))
                self.assertEqual(store.create(key, text), text)
                self.assertEqual(store.create(key, "another"), text)
                self.assertEqual(other.get(key), text)

    def test_trainings(self):
        """Trainings with different names do not meet, not even if a name has slashes."""
        names = ["a", "a/b", "a/", "a%2Fb", "b", "A", "ä \"", "\udcff", "a b"]
        all_stores = [self.store(f"{self.id()} {name}") for name in names]
        for name, store in zip(names, all_stores):
            for key in ("key", "b/key", "/key"):
                self.assertIsNone(store.get(key), (name, key))
                self.assertEqual(store.create(key, ascii(name)), ascii(name))
        for name, store in zip(names, all_stores):
            self.assertEqual(store.get("key"), ascii(name))

    def test_create_at_the_same_time(self):
        threads, keys = 8, 25
        barrier = threading.Barrier(threads)

        def create_all(number):
            store = self.store()
            barrier.wait(PATIENCE)
            found = [store.create(f"key/{it}", f"by {number}") for it in range(keys)]
            self.assertEqual(found, [store.get(f"key/{it}") for it in range(keys)])
            return found

        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(create_all, range(threads)))
        for other in found[1:]:
            self.assertEqual(other, found[0])
        self.assertLessEqual(set(found[0]), {f"by {number}" for number in range(threads)})

    def test_gone(self):
        """The store fails while there is no server. check_after_restart() of each class has what happens then."""
        store = self.store()
        store.create("key", "value")
        self.server.kill()
        try:
            for _ in range(2):
                self.assertIn(self.server.address, self.assert_fails(store.get, "key"))
                self.assertIn(self.server.address, self.assert_fails(store.create, "key", "value"))
            self.assertIn("refused", self.assert_fails(self.store().get, "key"))
        finally:
            self.server.start()
        self.check_after_restart(store)

    def test_stopped(self):
        """A server that is stopped makes each request fail in time. It goes on with its data."""
        store, other, unused = self.store(), self.store(), self.store()
        store.create("key", "value")
        self.assertIsNone(other.get("other"))
        self.limit()
        with self.server.stopped():
            for request in ((store.get, "key"), (other.create, "other", "value"), (unused.get, "key"),
                            (store.create, "key", "another"), (self.store().create, "key", "another")):
                self.assertIn(self.server.address, self.assert_fails(*request))
        # The machine may be slow, so that requests fail for some time.
        for name in ("store", "other", "unused"):
            self.assertEqual(wait_for(lambda it=locals()[name]: self.repeated(it.get, "key"), name), "value")
        self.assertIn(other.create("other", "later"), ("value", "later"), "the request may have been executed")

    def test_stopped_for_long(self):
        """The number of threads that wait for a stopped server has a limit. All end when it goes on."""
        self.limit(0.05)
        number = threading.active_count()
        store = self.store()
        self.repeated(store.get, "key")
        with self.server.stopped():
            for _ in range(30):
                self.assert_fails(store.get, "key")
            self.assertLessEqual(threading.active_count(), number + 1 + stores._MOST_LATE)
        wait_for(lambda: self.repeated(store.create, "key", "value") == "value", "the store answers")
        store = None
        gc.collect()
        wait_for(lambda: threading.active_count() <= number, "the threads have ended")

    def repeated(self, request, *arguments):
        """Returns the result of the request, or None if it fails."""
        with contextlib.suppress(StoreFailed):
            return request(*arguments)

    def check_after_restart(self, store):
        raise NotImplementedError


class Tcp(Stores, StoreCase):
    make_server = TcpServer

    def check_after_restart(self, store):
        """The new server has no data. So processes of the training cannot use it, and a new training can."""
        for _ in range(2):
            self.assertIn("has lost the data", self.assert_fails(store.get, "key"))
            self.assertIn("has lost the data", self.assert_fails(store.create, "other", "value"))
        fresh = self.store()
        self.assertIsNone(fresh.get("key"))
        self.assertIsNone(fresh.get("other"), "a request that failed")
        self.assertEqual(fresh.create("key", "new"), "new")

    @unittest.skipUnless(has_ipv6(), "needs IPv6")
    def test_ipv6(self):
        server = TcpServer("::1")
        self.addCleanup(server.close)
        self.assertTrue(server.start().url.startswith("tcp://[::1]:"))
        self.assertEqual(connect(server.url, "a").create("key", "value"), "value")
        self.assertEqual(connect(server.url, "a").get("key"), "value")

    def test_other_users(self):
        """Values of other programs in the store are errors."""
        import torch.distributed as dist

        raw = dist.PrefixStore("gradlane elastic foreign", dist.TCPStore(
            "127.0.0.1", self.server.port, None, False, wait_for_workers=False, use_libuv=uses_libuv()))
        store = connect(self.server.url, "foreign")
        for key, value in (("text", "text"), ("empty", "")):
            raw.set(key, value)
            self.assert_fails(store.get, key)
        self.assertIn("another program", self.assert_fails(store.create, "text", "value"))


@unittest.skipIf(ETCD is None, "needs etcd; tools/setup.sh --test installs it")
class Etcd(Stores, StoreCase):
    make_server = EtcdServer

    def check_after_restart(self, store):
        """etcd has the data, and the store goes on."""
        self.assertEqual(store.get("key"), "value")
        self.assertEqual(store.create("key", "another"), "value")
        self.assertEqual(store.create("other", "value"), "value")

    def test_data_lost(self):
        """etcd is started again without its data, so the training cannot go on."""
        server = EtcdServer()
        self.addCleanup(server.close)
        store = connect(server.start().url, "a")
        store.create("key", "value")
        server.kill()
        shutil.rmtree(f"{server.folder.name}/data")
        server.start()
        self.assert_fails(store.get, "key")  # of the old connection
        self.assertIn("has lost the data", self.assert_fails(store.get, "key"))
        self.assertIsNone(connect(server.url, "a").get("key"))

    @unittest.skipUnless(has_ipv6(), "needs IPv6")
    def test_ipv6(self):
        server = EtcdServer("::1")
        self.addCleanup(server.close)
        self.assertEqual(connect(server.start().url, "a").create("key", "value"), "value")


@unittest.skipIf(ETCD is None, "needs etcd; tools/setup.sh --test installs it")
class Cluster(StoreCase):
    """etcd with three nodes."""

    def setUp(self):
        self.nodes = []
        for _ in range(3):
            self.addCleanup(EtcdServer(cluster=self.nodes).close)
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            wait_for(node.answers, f"{node.url} answers")
        self.url = "etcd://" + ",".join(node.address for node in self.nodes)

    def test_a_node_is_killed(self):
        store = connect(self.url, "a")
        store.create("key", "value")
        self.nodes[0].kill()
        # The others may have to elect a leader first.
        wait_for(lambda: self.works(store), "the store works without its first node")
        wait_for(lambda: self.works(connect(self.url, "a")), "a new store works without the first node")
        self.nodes[2].kill()
        self.limit()
        text = self.assert_fails(store.create, "no majority", "value")
        self.assertRegex(text, "does not answer|refused|timed out")
        self.nodes[0].launch()
        wait_for(lambda: self.works(store), "the store works with two nodes again")

    def test_a_node_is_stopped(self):
        store = connect(self.url, "a")
        store.create("key", "value")
        self.limit(6)
        with self.nodes[0].stopped():
            wait_for(lambda: self.works(store), "the store works without its first node")
            self.assertTrue(self.works(store), "again, because it knows which node works")

    def works(self, store):
        with contextlib.suppress(StoreFailed):
            self.assertEqual(store.create("key", "another"), "value")
            self.assertEqual(store.get("key"), "value")
            return True
        return False


class Fake:
    """A server that gives each request, or each connection, the same answer, and then closes the connection.

    pace_s: seconds between two bytes of the answer.
    """

    def __init__(self, answer, waits_for_request=True, pace_s=0.0):
        self.answer, self.waits_for_request, self.pace_s = answer, waits_for_request, pace_s
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self.listener.getsockname()[1])
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self.listener.accept()[0]
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with contextlib.suppress(OSError), connection:
            if self.waits_for_request:
                text = b""
                while b"\r\n\r\n" not in text or not text.endswith(b"}"):  # the body is a JSON object
                    part = connection.recv(1 << 16)
                    if not part:
                        return
                    text += part
            if self.pace_s:
                for byte in self.answer:
                    connection.sendall(bytes([byte]))
                    time.sleep(self.pace_s)
            else:
                connection.sendall(self.answer)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1 << 16)

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def http(body, status="200 OK", length=None):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text) if length is None else length}\r\n\r\n".encode() + text


def coded(text):
    return base64.b64encode(text).decode()


HEADER = {"revision": "1"}
NAME = coded(b"gradlane/a/key")
FOUND = {"key": NAME, "value": coded(b"value")}
# These are wrong answers to any request.
WRONG = {
    "status 500": http("error", "500 Internal Server Error"),
    "status 404": http(b"404 page not found\n", "404 Not Found"),
    "status 503 with the fields": http({"header": HEADER, "kvs": [FOUND], "succeeded": True}, "503 Service Unavailable"),
    "a redirection": b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "no text": http(b""),
    "HTML": http(b"<html></html>"),
    "half of a JSON text": http(json.dumps({"header": HEADER, "kvs": [FOUND]}).encode()[:-9]),
    "not UTF-8": http(b"\xff\xfe\xfd"),
    "deep JSON": http(b"[" * 100000),
    "null": http(None), "a number": http(7), "a text": http("text"), "a list": http([]), "true": http(True),
    "an empty object": http({}),
    "no revision": http({"header": {}}),
    "a header that is a text": http({"header": "text"}),
    "other fields": http({"error": "etcdserver: no leader", "code": 14}),
    "no connection": b"",
    "half of a status": b"HTTP/1.1 2",
    "half of a header": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half of a body": http(b"{", length=1000),
    "a length that is none": http({}, length="x"),
    "a negative length": http({}, length="-5"),
    "a long header": b"HTTP/1.1 200 OK\r\nA: " + b"a" * 100000,
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"A: a\r\n" * 1000,
    "wrong chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n",
    "half of a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46",
}
# These are wrong values of the fields "kvs".
WRONG_KVS = [None, 7, "text", [], {}, True, [None], [7], ["text"], [[]], [{}], [{"value": coded(b"value")}],
             [{**FOUND, "key": coded(b"another")}], [{**FOUND, "value": 7}], [{**FOUND, "value": None}],
             [{**FOUND, "value": "!"}], [{**FOUND, "value": "YWJjZ"}], [{**FOUND, "value": coded(b"\xff")}],
             [{**FOUND, "value": "é"}]]
WRONG_RESPONSES = [None, 7, "text", [], {}, [None], [{}], [{"response_put": {}}], [{"response_range": None}],
                   [{"response_range": {}}], [{"response_range": {"header": HEADER}}],
                   *([{"response_range": {"header": HEADER, "kvs": it}}] for it in WRONG_KVS)]
# These are what no TCPStore sends.
NOISE = {"nothing": b"", "zeros": bytes(100000), "ones": b"\xff" * 100000, "text": b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100,
         "a byte": b"\0", "bytes": bytes(range(256)) * 100}


class Garbage(StoreCase):
    """Servers that are no stores, or that have a fault. A store raises StoreFailed and no other exception."""

    def fake(self, *arguments, **options):
        server = Fake(*arguments, **options)
        self.addCleanup(server.close)
        return server

    def each(self, answers):
        """Yields a name and a store on a server that gives this answer."""
        self.limit(5)
        for name, answer in answers:
            with self.subTest(name):
                yield name, EtcdStore([self.fake(answer).address], "a")

    def test_no_etcd(self):
        for _, store in self.each(WRONG.items()):
            self.assert_fails(store.get, "key")
            self.assert_fails(store.create, "key", "value")

    def test_wrong_values(self):
        for _, store in self.each((f"kvs {it}", http({"header": HEADER, "kvs": it})) for it in WRONG_KVS):
            self.assert_fails(store.get, "key")

    def test_wrong_responses(self):
        for field in ({}, {"succeeded": False}, {"succeeded": "true"}, {"succeeded": None}):
            for _, store in self.each((f"responses {it}", http({"header": HEADER, "responses": it, **field}))
                                      for it in WRONG_RESPONSES):
                self.assert_fails(store.create, "key", "value")

    def test_right_answers(self):
        """The answers above are wrong for no other reason."""
        values = {"header": HEADER, "kvs": [FOUND]}
        for _, store in self.each([("get", http(values))]):
            self.assertEqual(store.get("key"), "value")
        for _, store in self.each([("create", http({"header": HEADER, "responses": [{"response_range": values}]}))]):
            self.assertEqual(store.create("key", "another"), "value")

    def test_texts(self):
        """The error says what the server has sent, and where it is."""
        for name, store in self.each([(it, WRONG[it]) for it in ("status 500", "an empty object", "no connection")]):
            text = self.assert_fails(store.get, "key")
            self.assertRegex(text, r"^etcd at 127\.0\.0\.1:\d+: .", name)
            self.assertRegex(text, {"status 500": "500 Internal Server Error: .*error", "an empty object": "header",
                                    "no connection": "closed connection"}[name])

    def test_slow_answers(self):
        """A server sends a byte now and then, so each of them arrives in time, and all together do not."""
        self.limit()
        for answer in (http({"header": HEADER}), http(b" " * 1000)[:-900]):
            address = self.fake(answer, pace_s=0.2).address
            self.assertIn("does not answer", self.assert_fails(connect(f"etcd://{address}", "a").get, "key"))
        address = self.fake(bytes(1000), waits_for_request=False, pace_s=0.2).address
        self.assert_fails(connect(f"tcp://{address}", "a").get, "key")

    def test_no_tcp_store(self):
        self.limit()
        for name, answer in NOISE.items():
            with self.subTest(name):
                address = self.fake(answer, waits_for_request=False).address
                store = connect(f"tcp://{address}", "a")
                self.assertIn(str(address), self.assert_fails(store.get, "key"))
                self.assertIn(str(address), self.assert_fails(store.create, "key", "value"))

    def test_no_server(self):
        for url in ("tcp://127.0.0.1:{}", "etcd://127.0.0.1:{}", "etcd://127.0.0.1:{},127.0.0.1:{}", "tcp://[::1]:{}"):
            url = url.replace("{}", str(free_port()))
            self.assertIn(url.partition("://")[2].split(",")[0], self.assert_fails(connect(url, "a").get, "key"))
        for host in ("a..b", "-", "x" * 80, "no-such-host.invalid"):
            for scheme in ("tcp", "etcd"):
                self.assert_fails(connect(f"{scheme}://{host}:1", "a").get, "key")

    def test_wrong_kind(self):
        """The URL of a TCPStore names an etcd server, or the URL of etcd a TCPStore."""
        self.limit()
        for make, scheme in ((TcpServer, "etcd"), *([(EtcdServer, "tcp")] if ETCD else [])):
            server = make()
            self.addCleanup(server.close)
            store = connect(f"{scheme}://{server.start().address}", "a")
            self.assert_fails(store.get, "key")
            self.assert_fails(store.create, "key", "value")
            self.assertTrue(server.answers())


class Urls(unittest.TestCase):
    def test_wrong(self):
        for url, text in {
            "": "this is no store", "127.0.0.1:29400": "this is no store", "http://a:1": "this is no store",
            "TCP://a:1": "this is no store", "tcp:a:1": "this is no store",
            "tcp://": "'' is no HOST:PORT", "tcp://a": "'a' is no HOST:PORT", "tcp://:1": "':1' is no HOST:PORT",
            "tcp://a:": "'a:' is no HOST:PORT", "tcp://a:b": "'a:b' is no HOST:PORT", "tcp://a:0": "'a:0' is no HOST:PORT",
            "tcp://a:65536": "'a:65536' is no HOST:PORT", "tcp://a:-1": "is no HOST:PORT", "tcp://a:1/": "is no HOST:PORT",
            "tcp://a:1/b": "is no HOST:PORT", "tcp://a:+1": "is no HOST:PORT", "tcp://a:1 ": "is no HOST:PORT",
            "tcp://a:1\n": "is no HOST:PORT", "tcp://a:\N{SUPERSCRIPT TWO}": "is no HOST:PORT",
            "tcp://a:\N{ARABIC-INDIC DIGIT TWO}": "is no HOST:PORT", "tcp://a b:1": "is no HOST:PORT",
            "tcp://a@b:1": "is no HOST:PORT", "tcp://::1:1": "'::1:1' is no HOST:PORT", "tcp://[::1]": "is no HOST:PORT",
            "tcp://[::1:1": "is no HOST:PORT", "tcp://[]:1": "is no HOST:PORT", "tcp://[a]b:1": "is no HOST:PORT",
            "tcp://a:1,b:2": "a TCPStore has one server", "etcd://a:1,": "'' is no HOST:PORT",
            "etcd://a:1,b": "'b' is no HOST:PORT", "etcd://a:1;b:2": "is no HOST:PORT",
            "etcd://a:1, b:2": "' b:2' is no HOST:PORT", "tcp://a\r\nX:1": "is no HOST:PORT",
        }.items():
            with self.subTest(url), self.assertRaises(gradlane.BadArgument) as caught:
                connect(url, "a")
            self.assertIn(text, str(caught.exception))
            self.assertIn(f"gradlane: store {url!r}: ", str(caught.exception))
            self.assertIn("allowed: tcp://HOST:PORT for a TCPStore, etcd://HOST:PORT,", str(caught.exception))

    def test_right(self):
        """connect() does not connect yet, so it needs no server."""
        for url in ("tcp://a:1", "tcp://127.0.0.1:65535", "tcp://[::1]:29400", "tcp://[fe80::1%eth0]:1", "etcd://a-b.c_d:1",
                    "etcd://a:1,[::1]:2,b:3"):
            connect(url, "a")

    def test_places(self):
        self.assertEqual(stores.parse_address("[::1]:29400"), Address("::1", 29400))
        self.assertEqual(stores.parse_address("a.b:0", lowest_port=0), Address("a.b", 0))
        for text in ("[::1]:29400", "a.b:1", "127.0.0.1:2"):
            self.assertEqual(str(stores.parse_address(text)), text)


class Serve(unittest.TestCase):
    """python3 -m gradlane.torch.elastic.serve_store"""

    def run_to_end(self, *arguments):
        return subprocess.run([*SERVE, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE,
                              check=False)

    def test_serve(self):
        """It says where it listens, only listens there, and ends at a signal."""
        for number in (signal.SIGTERM, signal.SIGINT):
            process = subprocess.Popen([*SERVE, "127.0.0.1:0"], env=ENVIRONMENT, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            try:
                url = process.stdout.readline().removeprefix("the store is ").strip()
                self.assertRegex(url, r"^tcp://127\.0\.0\.1:[1-9]\d+$")
                self.assertEqual(connect(url, "a").create("key", "value"), "value")
                with self.assertRaises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.2", int(url.rpartition(":")[2]))).close()
                process.send_signal(number)
                self.assertEqual(process.communicate(timeout=PATIENCE), ("", ""), "no warning of runpy")
                self.assertEqual(process.returncode, 0)
            finally:
                process.kill()
                process.communicate()

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            run = self.run_to_end(address)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (
            1, "", f"gradlane: the store cannot listen at {address}: Address already in use; choose another HOST:PORT\n"))

    def test_wrong_arguments(self):
        for arguments, text in (((), "required: HOST:PORT"), (("a",), "'a' is no HOST:PORT; allowed: "),
                                (("a:1", "b"), "unrecognized arguments: b")):
            run = self.run_to_end(*arguments)
            self.assertEqual((run.returncode, run.stdout), (2, ""))
            self.assertIn(text, run.stderr)
            self.assertNotIn("Traceback", run.stderr)

    def test_help(self):
        run = self.run_to_end("--help")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        for text in ("serve_store [-h] HOST:PORT", "Serves a TCPStore", "0.0.0.0:29400"):
            self.assertIn(text, run.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
