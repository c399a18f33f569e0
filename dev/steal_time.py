#!/usr/bin/python3
"""Runs a command and stops some of its processes now and then for a while, as on a machine that is shared.

From time to time, one to three processes below the command, chosen at random, get SIGSTOP, and a while later SIGCONT.
The same seed makes the same choices, as long as there are the same processes. No process is left stopped, unless
SIGKILL ends this program. Exit status and output are the command's.

    dev/steal_time.py --seed 3 --load 2 -- meson test -C build --suite system
"""

import argparse
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

SPARED = {b"meson", b"ninja", b"steal_time.py"}  # these measure how long tests take, and test nothing


def processes():
    """Returns parent and state of each process, by pid."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_bytes().rpartition(b") ")[2].split()
                found[int(entry.name)] = int(fields[1]), fields[0]
    return found


def descendants(root):
    """Returns the processes below `root` that can be stopped. Leaves out dead ones, spared ones, and those that
    somebody else has stopped."""
    known = processes()
    found, layer = [], {root}
    while layer:
        layer = {pid for pid, (parent, _) in known.items() if parent in layer}
        found += sorted(layer)
    return [pid for pid in found if known[pid][1] not in b"TtZX" and not spared(pid)]


def spared(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return True
    return not words[0] or bool({os.path.basename(word) for word in words[:2]} & SPARED)


class Thief:
    def __init__(self, seed, pause, held, report):
        self.random, self.pause, self.held, self.report = random.Random(seed), pause, held, report
        self.stopped = []

    def steal(self, root):
        """Sends SIGSTOP to one to three processes below `root`."""
        candidates = descendants(root)
        for pid in self.random.sample(candidates, min(len(candidates), self.random.randint(1, 3))):
            with contextlib.suppress(ProcessLookupError):
                self.stopped.append(pid)
                os.kill(pid, signal.SIGSTOP)
                if self.report:
                    with contextlib.suppress(OSError):
                        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                        print(f"steal_time: {time.strftime('%H:%M:%S')} {pid} {words[:100]}", file=sys.stderr, flush=True)

    def give_back(self):
        while self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.stopped.pop(), signal.SIGCONT)

    def wait(self, process, seconds):
        """Waits at most `seconds` for the process. Returns whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return process.poll() is not None

    def run(self, process):
        try:
            while not self.wait(process, self.random.uniform(0.5, 1.5) * self.pause):
                self.steal(process.pid)
                self.wait(process, self.held)
                self.give_back()
        finally:
            self.give_back()
        return process.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="seed of the random choices (1)")
    parser.add_argument("--every", type=float, default=4, help="average number of seconds between stops (4)")
    parser.add_argument("--held", type=float, default=2, help="seconds for which processes are stopped (2)")
    parser.add_argument("--load", type=int, default=0, help="number of busy loops that run at the same time (0)")
    parser.add_argument("--report", action="store_true", help="print each process that is stopped, and the time")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.load)]
    process = subprocess.Popen(args.command)
    try:
        return Thief(args.seed, args.every, args.held, args.report).run(process)
    except KeyboardInterrupt:
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    sys.exit(main())
