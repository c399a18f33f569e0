#!/bin/sh
# Compares the packet rates of `gradlane loopback --mode io` and dpdk-testpmd: the same devices, bursts and core, in
# turn.
# Usage: lab/compare_loopback.sh [GRADLANE [ROUNDS [SECONDS]]]    (build/tools/gradlane, 5 rounds, 3 s)
# Rates are packets per second of CPU time of the thread that forwards, so that other programs on the machine do not
# count. The exit status is 0 if the median of the ratios is at least 0.85.
set -eu
case "${1:-}" in -h | --help) sed -n '2,${/^#/!q;s/^# //p}' "$0" && exit ;; esac
gradlane=${1:-$(dirname "$0")/../build/tools/gradlane}
rounds=${2:-5}
seconds=${3:-3}

command -v dpdk-testpmd > /dev/null || \
  { echo "compare_loopback.sh: dpdk-testpmd is missing; install the package dpdk-dev" >&2; exit 2; }
[ -x "$gradlane" ] || \
  { echo "compare_loopback.sh: there is no $gradlane; build it, or give its path as GRADLANE" >&2; exit 2; }

exec /usr/bin/python3 - "$gradlane" "$rounds" "$seconds" << 'PYTHON'
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

gradlane, rounds, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
cores = sorted(os.sched_getaffinity(0))
if len(cores) < 2:
    sys.exit("compare_loopback.sh: testpmd needs two cores, one of them for its command line")
MARGIN = 0.85


def cpu_seconds(pid):
    """Returns the CPU seconds of the busiest thread of a process."""
    ticks = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks.append(int(fields[11]) + int(fields[12]))
    return max(ticks) / os.sysconf("SC_CLK_TCK")


def testpmd():
    """Returns the Mpps of both ports together."""
    eal = ["--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", "128", "-l", f"{cores[0]},{cores[-1]}"]
    devices = ["--vdev", "net_ring0", "--vdev", "net_ring1"]
    run = ["--forward-mode=io", "--burst=32", "--tx-first", "--stats-period=1", "--nb-cores=1"]
    process = subprocess.Popen(
        ["dpdk-testpmd", *eal, *devices, "--", *run, "--total-num-mbufs=8192"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(seconds + 0.5)  # half a second to start
    process.send_signal(signal.SIGINT)
    cpu = 0  # seconds of the thread that forwards: it does nothing else, and sleeps before and after
    while process.poll() is None:
        try:
            cpu = max(cpu, cpu_seconds(process.pid))
        except (OSError, ValueError):
            pass  # the process has just ended
        time.sleep(0.005)
    text, _ = process.communicate(timeout=30)
    total = re.search(r"statistics for all ports\++\s+RX-packets:\s+(\d+)", text)
    if total is None:
        sys.exit("compare_loopback.sh: testpmd did not forward:\n" + text[-2000:])
    return int(total.group(1)) / cpu / 1e6


def loopback():
    result = subprocess.run(
        [gradlane, "loopback", "--mode", "io", "--burst", "32", "--core", str(cores[-1]),
         "--seconds", str(seconds), "--json"], stdout=subprocess.PIPE, check=True, text=True)
    figures = json.loads(result.stdout)
    return figures["received"] / figures["cpu_seconds"] / 1e6


ratios = []
print("round   testpmd  gradlane  ratio   (Mpps of both ports)")
for number in range(rounds):
    # The order alternates, because the machine may get slower or faster meanwhile.
    if number % 2 == 0:
        theirs, ours = testpmd(), loopback()
    else:
        ours, theirs = loopback(), testpmd()
    ratios.append(ours / theirs)
    print(f"{number + 1:5} {theirs:9.1f} {ours:9.1f} {ratios[-1]:6.2f}", flush=True)
median = statistics.median(ratios)
print(f"median ratio {median:.2f} ({'at least' if median >= MARGIN else 'BELOW'} {MARGIN})")
sys.exit(0 if median >= MARGIN else 1)
PYTHON
