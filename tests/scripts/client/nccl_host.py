"""Loads libnccl-net-gradlane.so and calls it as NCCL does, for nccl_test.py.

The tables of functions are those of src/include/plugin/net/net_v10.h to net_v12.h and src/include/plugin/tuner/
tuner_v4.h to tuner_v6.h of NCCL 2.27 to 2.30. They are written down here once more, so a fault in client/nccl/api.h
shows.
"""

import ctypes
import os
import threading
from ctypes import byref, c_char_p, c_int, c_int16, c_size_t, c_uint64, c_ulong, c_void_p

import numpy

from tests.scripts.fixtures.waiting import PATIENCE, wait_for

VERSIONS = (10, 11, 12)
SUCCESS, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR = 0, 2, 3, 4, 5, 6
HOST, CUDA = 1, 2
HANDLE_BYTES = 128
MOST_REQUESTS = 32
WARN = 2
# ncclDataType_t. bfloat16 arrays are uint16 here. 10 and 11 are the two forms of float8.
TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8,
         "bfloat16": 9, "float8_e4m3": 10, "float8_e5m2": 11}
SUM, PROD, MAX, MIN = range(4)
BROADCAST, ALL_REDUCE = 0, 4
TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN = range(4)
ALGORITHMS, PROTOCOLS, SIMPLE = 7, 3, 2

NET_START = ("init", "devices", "getProperties", "listen", "connect", "accept", "regMr", "regMrDmaBuf", "deregMr", "isend",
             "irecv", "iflush", "test", "closeSend", "closeRecv", "closeListen", "getDeviceMr", "irecvConsumed",
             "makeVDevice")
COLLNET_START = ("init", "devices", "getProperties", "listen", "connect", "reduceSupport", "regMr", "regMrDmaBuf",
                 "deregMr", "iallreduce", "iallgather", "ireducescatter", "iflush", "test", "closeColl", "closeListen",
                 "makeVDevice")
NET = {10: NET_START, 11: (*NET_START, "finalize", "setNetAttr"), 12: (*NET_START, "finalize", "setNetAttr")}
COLLNET = {10: COLLNET_START, 11: (*COLLNET_START, "finalize"), 12: (*COLLNET_START, "finalize")}
TUNER = {4: ("init", "getCollInfo", "destroy"), 5: ("init", "getCollInfo", "finalize"),
         6: ("init", "getCollInfo", "finalize", "getChunkSize")}

LOGGER = ctypes.CFUNCTYPE(None, c_int, c_ulong, c_char_p, c_int, c_char_p, c_char_p)


def properties_type(version):
    devices = 8 if version == 12 else 4
    fields = [("name", c_char_p), ("pciPath", c_char_p), ("guid", c_uint64), ("ptrSupport", c_int), ("regIsGlobal", c_int),
              ("forceFlush", c_int), ("speed", c_int), ("port", c_int), ("latency", ctypes.c_float), ("maxComms", c_int),
              ("maxRecvs", c_int), ("netDeviceType", c_int), ("netDeviceVersion", c_int), ("ndevs", c_int),
              ("devs", c_int * devices), ("maxP2pBytes", c_size_t), ("maxCollBytes", c_size_t)]
    if version >= 11:
        fields.append(("maxMultiRequestSize", c_int))
    if version >= 12:
        fields += [("railId", c_int16), ("planeId", c_int16)]
    return type("Properties", (ctypes.Structure,), {"_fields_": fields})


class Table:
    """A table of functions, which are attributes. A name, then pointers. A function that is NULL is None."""

    def __init__(self, library, symbol, names):
        words = (c_void_p * (1 + len(names))).in_dll(library, symbol)
        self.name = ctypes.string_at(words[0]).decode()
        for name, address in zip(names, words[1:]):
            setattr(self, name, address and ctypes.CFUNCTYPE(c_int)(address))


def pointer(value):
    return c_void_p(value)


class Failure(Exception):
    def __init__(self, call, result):
        super().__init__(f"{call} returned {result}")
        self.result = result


def check(call, result):
    if result != SUCCESS:
        raise Failure(call, result)


class Host:
    """A process of NCCL with the plug-in, for one version of the interfaces. It may play all ranks of a job."""

    def __init__(self, path, version):
        self.version, self.lines, self.lock = version, [], threading.Lock()
        library = ctypes.CDLL(str(path))
        self.net = Table(library, f"ncclNetPlugin_v{version}", NET[version])
        self.coll = Table(library, f"ncclCollNetPlugin_v{version}", COLLNET[version])
        self.tuner = Table(library, f"ncclTunerPlugin_v{version - 6}", TUNER[version - 6])
        self.logger = LOGGER(self._log)
        config = c_int(-1)
        if version == 10:
            check("net init", self.net.init(self.logger, None))
            check("CollNet init", self.coll.init(self.logger))
        else:
            context = c_void_p()
            check("net init", self.net.init(byref(context), c_uint64(1), byref(config), self.logger, None))
            check("CollNet init", self.coll.init(byref(context), c_uint64(1), self.logger))
        for table in (self.net, self.coll):
            count = c_int(-1)
            check("devices", table.devices(byref(count)))
            assert count.value == 1, count

    def _log(self, level, _flags, _file, _line, form, text):
        assert form == b"gradlane: %s", form
        with self.lock:
            self.lines.append((level, text.decode()))

    def log(self, level=WARN):
        with self.lock:
            return "\n".join(text for its, text in self.lines if its <= level)

    def before(self):
        """The arguments that come first in listen() and net's connect() since v11."""
        return () if self.version == 10 else (None,)

    def properties(self, table):
        found = properties_type(self.version)()
        check("getProperties", table.getProperties(0, byref(found)))
        return found

    # ---- CollNet

    def listen(self, socket):
        """Returns handle and listening object of a node whose daemon has this socket."""
        os.environ["GRADLANE_SOCKET"] = str(socket)
        handle, comm = ctypes.create_string_buffer(HANDLE_BYTES), c_void_p()
        check("listen", self.coll.listen(*self.before(), 0, handle, byref(comm)))
        return handle, comm.value

    def connect(self, handles, rank, listener):
        """Returns a Comm, or None if connect() has failed: then NCCL falls back. NCCL closes the listening object only
        after a success."""
        pointers, comm = (c_void_p * len(handles))(*(ctypes.addressof(each) for each in handles)), c_void_p()
        if self.coll.connect(pointers, len(handles), rank, pointer(listener), byref(comm)) != SUCCESS:
            assert comm.value is None
            return None
        check("closeListen", self.coll.closeListen(pointer(listener)))
        return Comm(self, comm.value)

    def communicator(self, sockets):
        """Returns the Comm of each node, or None for those whose connect() fails."""
        pairs = [self.listen(socket) for socket in sockets]
        return self.connect_all([handle for handle, _ in pairs], [listener for _, listener in pairs])

    def connect_all(self, handles, listeners):
        comms = [None] * len(handles)

        def connect(rank):
            comms[rank] = self.connect(handles, rank, listeners[rank])

        in_threads(connect, len(handles))
        return comms

    def supports(self, type_name, reduction):
        supported = c_int(-1)
        check("reduceSupport", self.coll.reduceSupport(TYPES[type_name], reduction, byref(supported)))
        return bool(supported.value)

    # ---- Net

    def net_listen(self):
        handle, comm = ctypes.create_string_buffer(HANDLE_BYTES), c_void_p()
        check("listen", self.net.listen(*self.before(), 0, handle, byref(comm)))
        return handle, comm.value

    def net_connect(self, handle):
        """Calls connect() once. Returns the sending object, or None if it must be called again."""
        comm = c_void_p()
        config = c_int(-1)
        first = (0, byref(config)) if self.version == 10 else (None, 0)
        check("connect", self.net.connect(*first, handle, byref(comm), None))
        return comm.value

    def net_accept(self, listener):
        comm = c_void_p()
        check("accept", self.net.accept(pointer(listener), byref(comm), None))
        return comm.value

    def net_pair(self):
        """Returns the two ends of a connection. NCCL calls connect() and accept() in turn until both are there."""
        handle, listener = self.net_listen()
        ends = [None, None]

        def both():
            ends[0] = ends[0] or self.net_connect(handle)
            ends[1] = ends[1] or self.net_accept(listener)
            return all(ends)

        wait_for(both, "a connection")
        check("closeListen", self.net.closeListen(pointer(listener)))
        return ends

    def isend(self, comm, array):
        request = c_void_p()
        check("isend", self.net.isend(pointer(comm), pointer(array.ctypes.data), c_size_t(array.nbytes), 0, None, None,
                                      byref(request)))
        return request.value

    def irecv(self, comm, array):
        request = c_void_p()
        data, size, tag = c_void_p(array.ctypes.data), c_size_t(array.nbytes), c_int(0)
        check("irecv", self.net.irecv(pointer(comm), 1, byref(data), byref(size), byref(tag), None, None, byref(request)))
        return request.value

    def net_test(self, request):
        """Returns the size of a message that is complete, else None."""
        done, size = c_int(-1), c_int(-1)
        check("test", self.net.test(pointer(request), byref(done), byref(size)))
        return size.value if done.value else None

    def net_wait(self, request):
        return wait_for(lambda: [size for size in [self.net_test(request)] if size is not None], "a message")[0]


class Comm:
    """A communicator on one node."""

    def __init__(self, host, address):
        self.host, self.address, self.memory = host, address, c_void_p()
        self.buffer = numpy.zeros(16, "uint8")
        assert host.coll.regMr(pointer(address), None, c_size_t(0), CUDA, byref(c_void_p())) != SUCCESS
        check("regMr", host.coll.regMr(pointer(address), pointer(self.buffer.ctypes.data), c_size_t(16), HOST,
                                       byref(self.memory)))
        assert self.memory.value

    def iallreduce(self, array, result, reduction=SUM, type_name=None):
        """Returns the request, or None: NCCL calls again later."""
        request = c_void_p()
        check("iallreduce", self.host.coll.iallreduce(
            pointer(self.address), pointer(array.ctypes.data), pointer(result.ctypes.data), c_size_t(array.size),
            TYPES[type_name or array.dtype.name], reduction, self.memory, self.memory, byref(request)))
        return request.value

    def test(self, request):
        done, size = c_int(-1), c_int(-1)
        check("test", self.host.coll.test(pointer(request), byref(done), byref(size)))
        return done.value == 1

    def close(self):
        if self.address is not None:
            check("deregMr", self.host.coll.deregMr(pointer(self.address), self.memory))
            check("closeColl", self.host.coll.closeColl(pointer(self.address)))
        self.address = None


def in_threads(function, ranks):
    """Calls function(rank) for all ranks at the same time."""
    errors = []

    def call(rank):
        try:
            function(rank)
        except BaseException as error:  # noqa: B902: the caller gets it
            errors.append(error)

    threads = [threading.Thread(target=call, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a call hangs"
    if errors:
        raise errors[0]


def all_reduce(comms, arrays, reduction=SUM, type_name=None):
    """Returns the result of each node."""
    results = [numpy.full_like(array, 77) for array in arrays]
    requests = [comm.iallreduce(array, result, reduction, type_name) for comm, array, result in zip(comms, arrays, results)]
    assert all(requests), requests
    finish(comms, requests)
    return results


def finish(comms, requests):
    """Tests one request of each communicator until all have ended."""
    left = set(range(len(requests)))

    def over():
        left.difference_update([i for i in sorted(left) if comms[i].test(requests[i])])
        return not left

    wait_for(over, "an all-reduce")
