"""Rows that break the laboratory itself: it must end, and say what happened."""

import os
import signal
import time

from tests.vm.guest import GuestFailed
from tests.vm.ring import expect
from tests.vm.row import Row


def _fails(stage, script, timeout, pattern, after=lambda guest: None):
    guest = stage.prepare()
    stage.boot(guest)
    after(guest)
    begun = time.monotonic()
    try:
        guest.run(script, timeout=timeout)
    except GuestFailed as error:
        expect(pattern, str(error))
        assert time.monotonic() - begun < timeout + 30, "it took too long to see it"
        return " ".join(str(error).split())[:100]
    raise AssertionError(f"'{script}' did not fail")


def killed(stage):
    return _fails(stage, "sleep 100", 60, r"g0: QEMU has ended.*\(status -9\)",
                  lambda guest: os.kill(guest.pid, signal.SIGKILL))


def hung(stage):
    return _fails(stage, "echo begun; while :; do :; done", 5, r"(?s)no end of 'echo begun.*so far: begun")


def panic(stage):
    return _fails(stage, "echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger; sleep 50", 60,
                  r"(?s)QEMU has ended.*Kernel panic")


def full_disk(stage):
    return _fails(stage, "dd if=/dev/zero of=/tmp/big bs=1M count=2000", 120, r"(?s)ended with 1.*No space left on device")


ROWS = [
    Row("lab-qemu-killed", killed),
    Row("lab-guest-hangs", hung),
    Row("lab-guest-panics", panic),
    Row("lab-disk-full", full_disk),
]
