"""machine.py - the machine that measures, and what else it does meanwhile"""

import contextlib
import os
import pathlib
import platform
import subprocess
import time

QUIET = 0.3  # cores that may be busy with other work before a job
MOST_STEAL = 0.02  # share of the time of all cores that may be stolen during a job


def describe(python):
    """Returns a description of this machine. `python` is the interpreter with PyTorch; None: there is none."""
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    torch = "none"
    if python:
        said = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
        torch = said.stdout.strip() or "none"
    return {"cpu": names[0] if names else platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(), "torch": torch, "python": platform.python_version()}


def _times():
    """Returns (all, idle, stolen) seconds of all cores since the start of the machine."""
    with open("/proc/stat") as file:
        fields = [int(field) / os.sysconf("SC_CLK_TCK") for field in file.readline().split()[1:9]]
    return sum(fields), fields[3] + fields[4], fields[7]


def busy_cores(seconds=0.5):
    """Returns how many cores are busy now, stolen time included."""
    everything, idle, _ = _times()
    time.sleep(seconds)
    later, later_idle, _ = _times()
    share = 1 - (later_idle - idle) / max(1e-9, later - everything)
    return max(0.0, share) * os.cpu_count()


def _foreign_seconds():
    """Returns {process: seconds} of CPU time, its ended children included, of all processes but this one, those that it
    has started, and threads of the kernel."""
    parents, seconds = {}, {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            number = int(folder.name)
            parents[number] = int(fields[1])
            seconds[number] = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    own = {os.getpid(), 2}  # 2 is the parent of the kernel's threads
    more = True
    while more:
        found = {number for number, parent in parents.items() if parent in own} - own
        own |= found
        more = bool(found)
    return {number: value for number, value in seconds.items() if number not in own}


SHORTEST = 5  # seconds of a window


class Watch:
    """Looks at the load before a job, and at other programs and stolen time during it, in windows that end with note().
    """

    def __init__(self):
        # The lower of two measurements counts, because the kernel may still clean up after another job.
        self.before = min(busy_cores(), busy_cores())
        self._begin()

        self._windows = []

    def _begin(self):
        self._start, self._wall, self._foreign = _times(), time.monotonic(), _foreign_seconds()

    def _end(self):
        """Ends a window, and begins the next one."""
        start, wall, foreign = self._start, self._wall, self._foreign
        self._begin()
        steal = (self._start[2] - start[2]) / max(1e-9, self._start[0] - start[0])
        # The time of a process that has ended meanwhile is now in that of its parent.
        others = max(0.0, sum(self._foreign.values()) - sum(foreign.values()))
        self._windows.append((steal, others / max(1e-9, self._wall - wall)))

    def note(self):
        """Ends a window, unless it has just begun."""
        if time.monotonic() - self._wall >= SHORTEST:
            self._end()

    def load(self):
        """Returns the load of the worst window since the previous call, or since the beginning. before, others: cores
        that were busy with other work before and during the job. steal: share of the time of all cores."""
        if not self._windows or time.monotonic() - self._wall >= SHORTEST:
            self._end()
        steal, others = (max(each) for each in zip(*self._windows))
        self._windows = []
        return {"before": round(self.before, 3), "steal": round(steal, 4), "others": round(others, 3)}


def is_quiet(load):
    return load["before"] <= QUIET and load["others"] <= QUIET / 2 and load["steal"] <= MOST_STEAL
