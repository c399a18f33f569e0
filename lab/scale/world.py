"""world.py - stores and thousands of processes in virtual time (needs no PyTorch)"""

import collections
import functools
import heapq
import itertools
from typing import NamedTuple

REQUEST_S, RTT_S = 150e-6, 50e-6  # time of a store for a request; round trip to it
DETECT_S = 0.75  # a node is silent for this time when its neighbours fail their operations
CHECK_S, CONNECT_S = 0.25, 1.2  # time between two checks that a process lives; time limit of a check
HELLO_S = 30e-6  # a hop of the news that a ring has failed
DEAD, LATE = object(), object()  # answers of Wait without a value


class Wait(NamedTuple):
    """Asks for the value of a key as soon as it exists. The answer is DEAD if process `watched` dies first, and LATE
    after `limit_s`. TCPStore calls this wait, and etcd watch."""

    key: str
    watched: int
    limit_s: float


class Probe(NamedTuple):
    """Asks which of these processes are dead. The checks are parallel, or follow each other."""

    processes: tuple
    parallel: bool = True


class Sleep(NamedTuple):
    seconds: float


class Process:
    """groups: the members of its epoch, a tuple of tuples. `change` is a generator of requests that begins when its
    epoch ends. It returns the record of the next epoch, and the groups."""

    def __init__(self, number):
        self.id, self.change, self.request = number, None, None
        self.epoch, self.groups, self.record, self.since = 0, (), "", 0.0
        self.told, self.ended = -1, -1  # latest epoch of whose end it will hear; latest that it has ended
        self.neighbours = frozenset()
        self.agreement = None  # of the class Agreement, if it uses that


class World:
    """Processes, and `stores` stores with a time per request. Reports of a group, and copies of records for it, are in
    the store of the group, and all other keys in the first store. Requests are served one after another."""

    def __init__(self, change, request_s=REQUEST_S, stores=1):
        self.change, self.request_s = change, request_s
        self.now, self.events, self.order = 0.0, [], itertools.count()
        self.processes, self.dead, self.stopped = {}, set(), set()
        self.keys, self.waiting, self.free_at = {}, collections.defaultdict(list), [0.0] * stores
        self.requests = collections.Counter()  # by process
        self.crash_at = ()  # the processes that create these keys die at once

    def begin(self, groups):
        """Makes the members of epoch 1."""
        self.processes = {number: Process(number) for number in itertools.chain(*groups)}
        for process in self.processes.values():
            self.install(process, "", groups)

    def run(self):
        """Goes on until nothing happens any more."""
        while self.events:
            self.now, _, function, arguments = heapq.heappop(self.events)
            function(*arguments)

    def survivors(self):
        return [it for it in self.processes.values() if not self.is_gone(it)]

    def is_gone(self, process):
        return process.id in self.dead or process.id in self.stopped

    def at(self, time, function, *arguments):
        heapq.heappush(self.events, (time, next(self.order), function, arguments))

    # ---- Requests

    def start(self, process):
        """Starts the change of a process."""
        process.change, process.request = self.change(process), None
        self.resume(process, None, None)

    def resume(self, process, request, answer):
        """Continues a process, unless it is gone or has had an answer to this request."""
        if process.change is None or process.request is not request or self.is_gone(process):
            return
        try:
            process.request = request = process.change.send(answer)
        except StopIteration as end:
            process.change = None
            self.install(process, *end.value)
            return
        if isinstance(request, Sleep):
            self.at(self.now + request.seconds, self.resume, process, request, None)
        elif isinstance(request, Probe):
            dead = self.dead.intersection(request.processes)
            times = [CONNECT_S] * len(dead) + [RTT_S] * (len(request.processes) - len(dead))
            seconds = max(times, default=0) if request.parallel else sum(times)
            self.at(self.now + seconds, self.resume, process, request, dead)
        else:
            self.requests[process.id] += 1
            self.at(self.serve(request.key, self.now + RTT_S / 2), self.execute, process, request)

    def serve(self, key, time):
        """Returns when the store of this key has served a request that arrives at `time`."""
        kind, _, group, *_ = key.split("/") + ["0"]
        store = int(group) % len(self.free_at) if kind in ("report", "copy") else 0
        self.free_at[store] = max(time, self.free_at[store]) + self.request_s
        return self.free_at[store]

    def execute(self, process, request):
        key = request.key
        if hasattr(request, "value") and key not in self.keys:
            self.keys[key] = request.value
            for waiter in self.waiting.pop(key, ()):
                self.at(self.serve(key, self.now) + RTT_S / 2, self.resume, *waiter, request.value)
            if key in self.crash_at:
                self.fail([process.id])
        if not isinstance(request, Wait) or key in self.keys:
            self.at(self.now + RTT_S / 2, self.resume, process, request, self.keys.get(key))
            return
        self.waiting[key].append((process, request))
        self.at(self.now + request.limit_s, self.resume, process, request, LATE)
        if request.watched in self.dead:
            self.at(self.now + CHECK_S + CONNECT_S, self.resume, process, request, DEAD)

    # ---- Failures, and the rings that notice them

    def fail(self, processes, stop=False):
        """Kills the nodes of some processes, or stops them. A stopped process looks alive to Wait and Probe."""
        (self.stopped if stop else self.dead).update(processes)
        for number in processes:
            for it in self.processes[number].neighbours:
                self.at(self.now + DETECT_S, self.notice, self.processes[it], self.processes[number].epoch)
        for waiter in itertools.chain(*self.waiting.values()) if not stop else ():
            if waiter[1].watched in processes:
                self.at(self.now + CHECK_S + CONNECT_S, self.resume, *waiter, DEAD)

    def notice(self, process, epoch):
        """Ends the epoch of a process, because a ring has failed. Its other rings fail, too."""
        if process.epoch != epoch or process.ended >= epoch or self.is_gone(process):
            return
        process.ended = epoch
        hops = max(map(len, [process.groups, *process.groups])) / 2  # the news goes both ways around a ring
        for it in map(self.processes.get, process.neighbours):
            if max(it.told, it.ended) < epoch:
                it.told = epoch
                self.at(self.now + hops * HELLO_S, self.notice, it, epoch)
        self.start(process)

    def install(self, process, record, groups):
        """Starts the next epoch of a process."""
        process.epoch, process.since, process.record = process.epoch + 1, self.now, record
        process.groups, process.neighbours = groups, neighbours(groups, process.id)
        others = [self.processes[it] for it in process.neighbours]
        if any(map(self.is_gone, others)):
            self.at(self.now + CHECK_S + CONNECT_S, self.notice, process, process.epoch)
        elif any(it.ended >= process.epoch for it in others):
            self.at(self.now + HELLO_S, self.notice, process, process.epoch)


@functools.lru_cache(8)
def places(groups):
    """Returns {process: (index of its group, position in the group)}."""
    return {it: (index, at) for index, group in enumerate(groups) for at, it in enumerate(group)}


def neighbours(groups, process):
    """Returns the other members of the rings of a process: its group, and those with its position in other groups. A
    position that the smallest group does not have is in no second ring."""
    if process not in places(groups):
        return frozenset()
    index, at = places(groups)[process]
    column = [it[at] for it in groups] if at < min(map(len, groups)) else []
    return frozenset([*groups[index], *column]) - {process}
