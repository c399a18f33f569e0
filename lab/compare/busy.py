# busy.py - how busy the machine is with other work: part of what is measured

import os
import time


def idle_seconds():
    """Of all cores of the machine together, since it was started: with what was stolen from a virtual one."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:]]
    return (fields[3] + fields[4] + fields[7]) / os.sysconf("SC_CLK_TCK")


def busy_cores():
    """While nothing of ours runs: the less of two looks, as the kernel may still clear a job away."""
    looks = []
    for _ in range(2):
        idle, start = idle_seconds(), time.monotonic()
        time.sleep(0.5)
        looks.append(os.cpu_count() - (idle_seconds() - idle) / (time.monotonic() - start))
    return max(0.0, min(looks))
