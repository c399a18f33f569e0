"""Two nodes whose trainers work while something breaks. They are on two cards of one guest, or in a guest each."""

import json
import time

from tests.vm import node_files
from tests.vm.guest import Card
from tests.vm.ring import RIGHT, expect

PEER = 10  # seconds, `timeouts.peer`: guests are slow
OPERATION = 120  # seconds, `timeouts.operation`
SETTINGS = {"timeouts": f"{{peer: {PEER}s, start: 100s, operation: {OPERATION}s, shutdown: 2s}}"}
FOREVER = 1_000_000  # all-reduces


class Pair:
    """`ring` says which cards the nodes have. `guests` is the number of guests, 1 or 2."""

    def __init__(self, stage, ring, guests=1):
        self._stage, self._ring, self._count = stage, ring, guests
        self._ends = stage.cable().ends
        groups = [self._ends] if guests == 1 else [[end] for end in self._ends]
        self.guests = [stage.prepare([Card(ring.card, end, ring.options) for end in ends]) for ends in groups]
        for rank in range(2):
            self._add_file(rank)
        stage.boot(*self.guests)
        for rank in range(2):
            self.bind(rank)
            self.start(rank)
        self.whole()

    def guest(self, rank):
        return self.guests[rank % self._count]

    def card(self, rank):
        """Returns the number of the rank's card in its guest."""
        return rank if self._count == 1 else 0

    def address(self, rank):
        return self.guest(rank).address(self.card(rank))

    def run(self, rank, script, **options):
        return self.guest(rank).run(script, **options)

    # ---- Machines and daemons

    def bind(self, rank):
        self.run(rank, f"bind {self.address(rank)}")

    def start(self, rank):
        self.run(rank, f"daemon {rank}")

    def replace(self, rank):
        """Boots a new machine as the replacement of one that has ended, and starts its daemon."""
        self.guests[rank] = self._stage.prepare([Card(self._ring.card, self._ends[rank], self._ring.options)])
        self._add_file(rank)
        self._stage.boot(self.guests[rank])
        self.bind(rank)
        self.start(rank)

    def whole(self):
        for rank in range(2):
            self.run(rank, f"whole {rank} 100")

    def pid(self, rank):
        """Returns the process number of a daemon, which must run."""
        return self.run(rank, f"[ ! -s /tmp/status{rank} ] && cat /tmp/pid{rank}").output.strip()

    def log(self, rank):
        return self.guest(rank).read(f"/tmp/log{rank}")

    def stop(self):
        for rank in range(2):
            self.run(rank, f"stop {rank}")

    # ---- Trainers

    def train(self, count):
        """Starts the trainers for `count` all-reduces of each codec. Returns when some are done."""
        for rank in range(2):
            self.run(rank, f"rm -f /tmp/trained{rank}; (RANK={rank} GRADLANE_SOCKET=/tmp/n{rank}.sock gradlane perf "
                           f"-b 16K -e 16K -w 0 -n {count} --codec raw,fixed:10 >/tmp/perf{rank} 2>&1; "
                           f"echo $? >/tmp/trained{rank}) >/dev/null 3>&- &")
        before, end = self.done(), time.monotonic() + 60
        while self.done() < before + 10:
            assert time.monotonic() < end, f"no operations: {self.guest(0).read('/tmp/perf0')}"

    def done(self):
        stats = json.loads(self.run(0, "gradlane stats --config /tmp/n0.yaml --json").output)
        return sum(entry["counters"].get("operations_done", 0) for entry in stats["ranks"])

    def in_work(self):
        """Checks that the trainers still run. They must run when something breaks."""
        for rank in range(2):
            self.run(rank, f"[ ! -e /tmp/trained{rank} ] || {{ cat /tmp/perf{rank}; false; }}")

    def finished(self, rank, seconds=100):
        """Waits for the end of a trainer. Returns its exit status and its output."""
        self.run(rank, f"await {seconds} test -s /tmp/trained{rank}", timeout=seconds + 20)
        return int(self.guest(rank).read(f"/tmp/trained{rank}")), self.guest(rank).read(f"/tmp/perf{rank}")

    def fails(self, rank, pattern):
        """Waits until the trainer has failed with an error of this pattern. Returns its last line."""
        status, text = self.finished(rank)
        assert status == 1, f"exit status {status}: {text}"
        expect(pattern, text)
        return text.strip().splitlines()[-1].removeprefix("gradlane perf: ")

    def succeed(self):
        for rank in range(2):
            status, text = self.finished(rank)
            assert status == 0, f"rank {rank}, exit status {status}: {text}"
        assert RIGHT in self.guest(0).read("/tmp/perf0"), self.guest(0).read("/tmp/perf0")

    def right_again(self):
        """Checks that the ring forms again by itself, and that the next trainers succeed at the first try."""
        self.whole()
        self.train(10)
        self.succeed()

    # ---- Private

    def _add_file(self, rank):
        port = f"{{name: e0, pci: '{self.address(rank)}'}}"
        self.guest(rank).files |= node_files.files({rank: node_files.node(rank, [port], **SETTINGS)})
