"""Trainers, one per rank of a rings.Ring, faults, and resource usage of daemons, for soak_test.py and soak."""

import collections
import contextlib
import json
import pathlib
import select
import subprocess
import sys
import time

from tests.scripts.fixtures import rings

CODECS = ["raw", "bf16", "fixed:10", "inceptionn:10"]
FAULTS = "{drop: 1%, duplicate: 1%, reorder: 2%, corrupt: 0.1%, seed: 7}"
WIRE_LOSS = 100  # lost frames of 10,000
PATIENCE = 120  # seconds for a job, which usually takes a few
TIMEOUTS = "{peer: 8s, start: 20s, operation: 60s, shutdown: 1s, min_rto: 1ms}"


def job(seed, operations, sizes="mixed", codecs=CODECS, in_flight=16):
    return {"seed": seed, "operations": operations, "sizes": sizes, "codecs": list(codecs), "in_flight": in_flight}


class TrainerTeam:
    """Trainer processes, one for each rank, until the end of the `with`."""

    def __init__(self, ring):
        self.ring = ring
        script = pathlib.Path(__file__).with_name("trainer.py")
        self.trainers = [
            ring.trainer(rank, sys.executable, script, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for rank in range(ring.nodes * ring.trainers)
        ]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.kill()
            return
        for trainer in self.trainers:
            trainer.stdin.close()
        for rank, trainer in enumerate(self.trainers):
            status = trainer.wait(rings.PATIENCE)
            trainer.stdout.close()
            assert status == 0, f"trainer {rank} ended with {status}"

    def kill(self):
        for trainer in self.trainers:
            trainer.kill()
            with contextlib.suppress(BrokenPipeError):
                trainer.stdin.close()
            trainer.wait(rings.PATIENCE)
            trainer.stdout.close()

    def run(self, what, patience=PATIENCE):
        """Returns every rank's report. Reports must have no failures and the same digest. patience: seconds."""
        for rank, trainer in enumerate(self.trainers):
            try:
                trainer.stdin.write(json.dumps(what) + "\n")
                trainer.stdin.flush()
            except BrokenPipeError:
                raise AssertionError(f"trainer {rank} has ended early") from None
        end = time.monotonic() + patience
        reports = [self._report(rank, end) for rank in range(len(self.trainers))]
        for rank, report in enumerate(reports):
            assert not report["failures"], f"rank {rank}: {len(report['failures'])} failures, {report['failures'][0]}"
            assert report["digest"] == reports[0]["digest"], f"ranks 0 and {rank} have different results: {reports}"
        return reports

    def _report(self, rank, end):
        stdout = self.trainers[rank].stdout
        if not select.select([stdout], [], [], max(0.0, end - time.monotonic()))[0]:
            raise AssertionError(f"trainer {rank} has not ended in time")
        line = stdout.readline()
        assert line, f"trainer {rank} has ended early"
        return json.loads(line)


@contextlib.contextmanager
def warm_ring(folder, gradlaned, network, **settings):
    """Yields a ring of the network's nodes. Its tables and buffers have been in use, and its window has found its size.
    """
    with rings.Ring("veth", network.nodes, folder, gradlaned, network, timeouts=TIMEOUTS, **settings) as ring:
        ring.start().wait_whole()
        with TrainerTeam(ring) as team:
            team.run(job(2, 40, "large"))
        yield ring


def check_injected(ring):
    """Checks that about as many faults were injected as FAULTS says for the received packets. Returns the counts as
    text."""
    counts = collections.Counter()
    for node in range(ring.nodes):
        for port in ring.stats(node)["ports"]:
            for queue in port["queues"]:
                counts.update(queue["counters"])
    for name, share in (("drop", 0.01), ("duplicate", 0.01), ("reorder", 0.02), ("corrupt", 0.001)):
        expected, found = share * counts["received"], counts["injected_" + name]
        assert 0.5 * expected - 10 < found < 1.5 * expected + 10, f"{found} times {name}, not about {expected:.0f}"
    return ", ".join(f"{counts[name]} {name}" for name in sorted(counts) if name.startswith("injected_"))


def check_lost(network, sent):
    """Checks that the switch has dropped about as many of `sent` data packets as WIRE_LOSS says. Returns the count as
    text."""
    lost, expected = network.dropped(), sent * WIRE_LOSS / 10000
    assert 0.5 * expected - 10 < lost < 2 * expected + 10, f"{lost} frames were lost, not about {expected:.0f}"
    return f"{lost} frames lost on the wire"


# ---- Resource usage of daemons

# Growth of a daemon's memory up to which a test reports no leak. After the warm-up, memory that is touched for the
# first time adds 0 to 40 kB. A leak of 32 bytes in each of 10,000 operations would add 320 kB.
RSS_TOLERANCE_KB = 200


def buffers_in_use(ring):
    """Returns the packet buffers in use by node; None if the daemons have no admin sockets."""
    stats = [ring.stats(node) for node in range(ring.nodes)]
    if any(one is None for one in stats):
        return None
    return [[pool["buffers"] - pool["free"] for pool in one["pools"]] for one in stats]


class Usage:
    """Packet buffers and memory of all daemons, at a time when they have no trainers and nothing to do."""

    def __init__(self, ring):
        self.ring = ring
        self.buffers = self._idle_buffers()
        self.rss_kb = [ring.rss_kb(node) for node in range(ring.nodes)]

    def growth_kb(self):
        """Returns the growth of memory of the daemon whose memory has grown most."""
        return max(self.ring.rss_kb(node) - before for node, before in enumerate(self.rss_kb))

    def wait_until_back(self):
        """Waits until buffers are exactly as before, and memory within the tolerance. Trainers have just left, and last
        packets wait for their acknowledgements."""
        back = time.monotonic() + rings.PATIENCE
        while True:
            now, growth = buffers_in_use(self.ring), self.growth_kb()
            if now == self.buffers and growth <= RSS_TOLERANCE_KB:
                return
            assert time.monotonic() < back, (f"packet buffers in use, by node: {self.buffers} before, {now} "
                                             f"after; memory: {self.rss_kb} kB before, {growth} more after")
            time.sleep(0.05)

    def _idle_buffers(self):
        """Returns the packet buffers in use as soon as they have not changed for 0.3 s."""
        last, since = buffers_in_use(self.ring), time.monotonic()
        end = since + rings.PATIENCE
        while last is not None and time.monotonic() < min(since + 0.3, end):
            time.sleep(0.05)
            now = buffers_in_use(self.ring)
            if now != last:
                last, since = now, time.monotonic()
        return last
