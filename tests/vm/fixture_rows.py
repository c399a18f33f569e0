"""Rows that break the laboratory itself: it must end, and report what happened."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from tests.scripts.fixtures.paths import ROOT
from tests.vm.guest import GuestFailed
from tests.vm.ring import expect
from tests.vm.row import PREFIX, Row
from lab.net.spaces import can_run

BOOTS = 6  # seconds, after which the guest is booting or up


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


def interrupted(stage):
    """Interrupts another run of a row with Ctrl-C while its guest boots or works. Nothing of that run may be left."""
    row = "steering-2-lanes" if can_run() is None else "e1000e"
    # Programs in the background of a script ignore Ctrl-C, and so would the run. `env` restores the default.
    words = ["env", "--default-signal=INT", sys.executable, "-P", "-m", "tests.vm", "--row", row, "--build", str(stage.build), "--jobs", "1"]
    with open(stage.folder / "player.log", "w+", encoding="utf-8") as log:
        player = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        try:
            folder = _until(player, lambda: next(pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}{player.pid}-*"), None))
            _until(player, lambda: _guests_of(folder))
            time.sleep(BOOTS)
            os.killpg(player.pid, signal.SIGINT)
            status = player.wait(60)
        finally:
            if player.poll() is None:
                player.kill()
                player.wait()
        log.seek(0)
        text = log.read()
    assert status == 130, f"exit status {status}: {text}"
    said = expect(rf"interrupted in {row}; 0 of 1 rows were done", text)[0]
    assert "Traceback" not in text, text
    assert not folder.exists(), f"{folder} is left"
    assert not _guests_of(folder), "guests are left"
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=60, check=False).stdout
    assert f"-{player.pid}-" not in spaces, spaces
    return f"'{said}'; no guest, namespace or folder is left"


def _until(player, what):
    end = time.monotonic() + 60
    while not (found := what()):
        assert player.poll() is None, f"the player of rows has ended, with {player.returncode}"
        assert time.monotonic() < end, "the player of rows does not begin"
        time.sleep(0.1)
    return found


def _guests_of(folder):
    """Returns the numbers of the processes that have this folder in their command line."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it may have ended
            if f"{folder}/".encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


ROWS = [
    Row("lab-interrupted", interrupted),
    Row("lab-qemu-killed", killed),
    Row("lab-guest-hangs", hung),
    Row("lab-guest-panics", panic),
    Row("lab-disk-full", full_disk),
]
