"""job.py - one `gradlane run` of the study, and the results that its rank 0 prints (the study's command)"""

import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile

from lab.study import plan

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MARK, ALIVE = b"result: ", b"epoch"
PATIENCE = 240  # seconds without output; trainers print a line after each epoch, and give up by themselves after 60
# Variables that would send Gloo or daemons to other links or settings than the report says. GRADLANE_LIBRARY is kept:
# it belongs to a build.
FOREIGN = ("GLOO_SOCKET_IFNAME", "OMPI_MCA_", "GRADLANE_")
KEPT = ("GRADLANE_LIBRARY",)
ENDING = 20


class Failed(Exception):
    """A job that did not finish. Results that it printed before are good."""


def command(settings, gradlane, trainings, spec):
    words = [gradlane, "run", "-n", settings["nodes"], "--link", plan.link_of(settings["mode"]), "--inside"]
    words += ["--rate", settings["link_rate"], "--strategies", ",".join(plan.strategies_of(trainings)), "--no-prefix"]
    words += ["--", settings["python"], "-u", HERE / "train.py", spec]
    return [str(word) for word in words]


def environment():
    path = os.pathsep.join([str(ROOT), str(ROOT / "client" / "python")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN) or name in KEPT}
    return {**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def end(process):
    """Ends `gradlane run`, which ends and removes all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(ENDING)
            except subprocess.TimeoutExpired:
                continue
    process.stdout.close()


def lines_of(process):
    """Yields lines of the standard output as they come. Raises Failed if none comes for PATIENCE seconds."""
    rest = b""
    while True:
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE)
        if not readable:
            raise Failed(f"gradlane run printed nothing for {PATIENCE} s")
        piece = os.read(process.stdout.fileno(), 65536)
        if not piece:
            break
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    if rest:
        yield rest


def results(settings, gradlane, trainings, data):
    """Trains, and yields the result of each training as soon as rank 0 has printed it. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix="gradlane-study-") as folder:
        spec = pathlib.Path(folder, "spec.json")
        kept = {name: settings[name] for name in ("batch", "epochs", "rate", "momentum")}
        spec.write_text(json.dumps(kept | {"data": str(data), "trainings": trainings}))
        # The process has a session of its own: Ctrl-C reaches only the study, which then ends it in order.
        process = subprocess.Popen(
            command(settings, gradlane, trainings, spec), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment(),
            bufsize=0, start_new_session=True,
        )
        missing = {plan.key(training) for training in trainings}
        try:
            for line in lines_of(process):
                if line == ALIVE:
                    continue
                if not line.startswith(MARK):
                    print(line.decode(errors="replace"), file=sys.stderr, flush=True)
                    continue
                result = json.loads(line.removeprefix(MARK))
                missing.discard(plan.key(result))
                yield result
            status = process.wait(ENDING)
        finally:
            end(process)
        if status != 0 or missing:
            raise Failed(f"gradlane run ended with status {status}, and {len(missing)} of {len(trainings)} trainings "
                         "are missing")
