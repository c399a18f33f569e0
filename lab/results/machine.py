"""machine.py - the machine that measures, and what else it does meanwhile"""

import os
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
    return share * os.cpu_count()


class Watch:
    """Looks at the load before a job, and at stolen time during it."""

    def __init__(self):
        # The lower of two measurements counts, because the kernel may still clean up after another job.
        self.before = min(busy_cores(), busy_cores())
        self._start = _times()

    def load(self):
        """Returns the load since the previous call, or since the beginning."""
        start, self._start = self._start, _times()
        steal = (self._start[2] - start[2]) / max(1e-9, self._start[0] - start[0])
        return {"before": round(self.before, 3), "steal": round(steal, 4), "load": os.getloadavg()[0]}


def is_quiet(load):
    return load["before"] <= QUIET and load["steal"] <= MOST_STEAL
