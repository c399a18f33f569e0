# busy.py - CPU time of the complete machine, for samples and for a warning about other work

import os
import time


def idle_seconds():
    """Returns the idle seconds of all cores together since the start of the machine. Time that was stolen from a
    virtual machine counts as idle."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:]]
    return (fields[3] + fields[4] + fields[7]) / os.sysconf("SC_CLK_TCK")


def busy_cores():
    """Returns how many cores are busy with work of other programs, when it is called between jobs. The lower of two
    measurements counts, as the kernel may still clean up after a job."""
    looks = []
    for _ in range(2):
        idle, start = idle_seconds(), time.monotonic()
        time.sleep(0.5)
        looks.append(os.cpu_count() - (idle_seconds() - idle) / (time.monotonic() - start))
    return max(0.0, min(looks))
