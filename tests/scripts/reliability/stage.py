"""A ring of real daemons with a trainer on each node, on which the rows of the fault matrix run."""

import json
import os
import pathlib
import queue
import random
import re
import subprocess
import sys
import threading
import time

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.paths import PACKAGE
from tests.scripts.fixtures.waiting import PATIENCE

SPREAD = 0.5  # seconds; largest delay of trainers that do not wait for each other
COUNT = 1_000_000  # floats: an operation takes long enough that faults come in the middle of one


class Limits:
    """Time limits of docs/reliability.md, unless the command line has others."""

    peer = 2.0  # seconds, timeouts.peer
    slack = 1.0  # seconds; None if processes may get no CPU time for long, so that errors may come at any time

    @classmethod
    def bound(cls):
        """Returns the longest time from a fault to its error, in seconds, or None if an error may come at any time."""
        return None if cls.slack is None else cls.peer + cls.slack

    @classmethod
    def timeouts(cls):
        """Returns `timeouts` of daemons. In unbounded runs, only the peer timeout ends anything."""
        start, operation = ("90s", "150s") if cls.slack is None else ("20s", "15s")
        return f"{{peer: {cls.peer * 1000:.0f}ms, start: {start}, operation: {operation}, shutdown: 1s}}"


class Problem(Exception):
    """A promise that was not kept."""


def require(condition, text):
    if not condition:
        raise Problem(text)


class Puppet:
    """A process of puppet_trainer.py, which does what it is told."""

    def __init__(self, ring, rank):
        self.rank = rank
        environment = {**os.environ, "GRADLANE_SOCKET": ring.socket(rank), "RANK": str(rank),
                       "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("puppet_trainer.py")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
        self._events = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.must_open = True

    def _read(self):
        for line in self.process.stdout:
            self._events.put(json.loads(line))
        self._events.put({"event": "ended"})

    def send(self, do, **fields):
        self.process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self.process.stdin.flush()

    def expect(self, *names, timeout=PATIENCE):
        """Returns the next event of these names. "step" events before it are skipped. Any other event is a problem."""
        end = time.monotonic() + timeout
        while True:
            try:
                event = self._events.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise Problem(f"trainer {self.rank}: not {' or '.join(names)} within {timeout:.0f} s") from None
            if event["event"] in names:
                if event["event"] == "failed":
                    self.must_open = self.must_open or event["errors"][0]["kind"] in ("DaemonGone", "NoDaemon")
                return event
            require(event["event"] == "step", f"trainer {self.rank}: {event}, not {' or '.join(names)}")

    def end(self):
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        self.process.stdin.close()
        self.process.stdout.close()


class Stage:
    """Daemons and trainers of `nodes` nodes, on links of one kind. It is a context manager."""

    def __init__(self, link, nodes, folder, gradlaned, own_tags=False, verbose=False):
        self.link, self.nodes, self.own_tags, self.verbose = link, nodes, own_tags, verbose
        self.everyone = list(range(nodes))
        sockets = link == "udp"
        self.network = None if link == "vhost" else networks.Network(nodes, kernel=sockets, offloads=sockets)
        self._make_ring = lambda: rings.Ring(link, nodes, folder, gradlaned, self.network, timeouts=Limits.timeouts(),
                                                  log="debug" if verbose else "info")
        self.puppets = []
        # This is the number of the last stream or operation. The seed of its data and its tags follow from it.
        self._number = random.randrange(1, 1000)

    def __enter__(self):
        if self.network:
            self.network.__enter__()
        try:
            self.ring = self._make_ring().start()
            self.puppets = [Puppet(self.ring, rank) for rank in self.everyone]
            self.recover()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *reason):
        try:
            for puppet in self.puppets:
                puppet.end()
            if hasattr(self, "ring"):
                self.ring.__exit__(*reason)
        finally:
            if self.network:
                self.network.__exit__(*reason)

    # ---- Trainers

    def open(self):
        """Connects the trainers that have no connection to the daemon that runs now."""
        waiting = [puppet for puppet in self.puppets if puppet.must_open]
        for puppet in waiting:
            puppet.send("open")
        for puppet in waiting:
            event = puppet.expect("opened", "failed")
            require(event["event"] == "opened", f"trainer {puppet.rank} cannot connect: {event.get('errors')}")
            puppet.must_open = False

    def all_right(self):
        """Does what docs/client.md tells trainers to do after a failure. Then operations must be right at the first
        try."""
        self.open()
        self._number += 1
        self.ask("resume", "resumed", tag=self._number << 20)
        for codec in ("raw", "fixed:10"):
            self._number += 1
            events = self.ask("all_reduce", "reduced", seed=self._number, count=COUNT, codec=codec,
                              tag=self._number << 20 if self.own_tags else None)
            self.check_same(events)

    def recover(self, late=None):
        """Makes each trainer recover on its own, after a random delay, with attempts until it works. Returns the
        largest number of attempts.

        late: rank that begins a second later than the others can.
        """
        self._number += 1
        for puppet in self.puppets:
            delay = 1 + SPREAD if puppet.rank == late else random.random() * SPREAD
            puppet.send("recover", seed=self._number, count=COUNT, codec="raw", tag=self._number << 20,
                        delay=delay, resume=not self.own_tags)
        events = [puppet.expect("reduced", "failed") for puppet in self.puppets]
        for puppet, event in zip(self.puppets, events):
            puppet.must_open = False
            told = "; ".join(f"{each['after']:.2f} s: {each['text']}" for each in event["told"])
            require(event["event"] == "reduced", f"trainer {puppet.rank} does not recover: {told}")
            if self.verbose and told:
                print(f"  trainer {puppet.rank}, {event['elapsed']:.2f} s: {told}", file=sys.stderr)
        self.check_same(events)
        return 1 + max(len(event["told"]) for event in events)

    def ask(self, do, answer, **fields):
        for puppet in self.puppets:
            puppet.send(do, **fields)
        events = [puppet.expect(answer, "failed") for puppet in self.puppets]
        bad = [f"trainer {puppet.rank}: {event['errors'][0]['text']}, after {event.get('elapsed', 0):.1f} s"
               for puppet, event in zip(self.puppets, events) if event["event"] == "failed"]
        require(not bad, f"{do} failed: {'; '.join(bad)}")
        return events

    def check_same(self, events):
        for puppet, event in zip(self.puppets, events):
            require(event["wrong"] == 0, f"trainer {puppet.rank}: {event['wrong']} elements of results are wrong")
        require(len({event["digest"] for event in events}) == 1, f"results differ: {events}")

    def stream(self, codec="raw"):
        """Starts operations on all ranks, which go on until stop_stream() or a failure. Returns when each trainer has
        finished some."""
        self._number += 1
        tag = self._number << 20 if self.own_tags else None
        for puppet in self.puppets:
            puppet.send("stream", seed=self._number, count=COUNT, codec=codec, tag=tag)
        steps = random.randint(2, 5)
        for puppet in self.puppets:
            for _ in range(steps):
                puppet.expect("step")

    def begin(self, ranks):
        """Starts one operation, on these ranks only."""
        self._number += 1
        for rank in ranks:
            self.puppets[rank].send("all_reduce", seed=self._number, count=COUNT, codec="raw",
                                    tag=self._number << 20 if self.own_tags else None)

    def stop_stream(self):
        """Ends the stream on all ranks at the same step, without an error. Returns the longest pause of any trainer."""
        self.puppets[0].send("stop")
        events = [puppet.expect("stopped", "failed") for puppet in self.puppets]
        for puppet, event in zip(self.puppets, events):
            require(event["event"] == "stopped", f"trainer {puppet.rank}: {event.get('errors')}")
        self.check_same(events)
        return max(event["pause"] for event in events)

    def failures(self, ranks, timeout=PATIENCE):
        """Returns the errors that end the stream on these ranks, by rank. All results before the errors must have been
        right."""
        events = {rank: self.puppets[rank].expect("failed", timeout=timeout) for rank in ranks}
        for rank, event in events.items():
            require(event["wrong"] == 0, f"trainer {rank}: {event['wrong']} elements of results were wrong")
        return events

    def kill_trainer(self, rank):
        self.puppets[rank].end()

    def new_trainer(self, rank):
        self.puppets[rank] = Puppet(self.ring, rank)

    # ---- Faults

    def pids(self, but=()):
        return {rank: self.ring.pid(rank) for rank in self.everyone if rank not in but}

    def check_alive(self, pids):
        for rank, pid in pids.items():
            require(self.ring.running(rank) and self.ring.pid(rank) == pid, f"daemon {rank} has ended")


def named_ranks(text):
    return {int(number) for number in re.findall(r"\brank (\d+)\b", text)}
