"""jobs.py - one `gradlane run` of an experiment, and the lines that its rank 0 prints"""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile

MARK = b"result: "  # begins a line of JSON for the experiment
PATIENCE = 240  # seconds without output, after which a job has failed
ENDING = 20


def _end(process):
    """Ends `gradlane run`, which ends and removes all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDING)
    process.stdout.close()


def _lines_of(process):
    """Yields lines of the standard output as they come. Raises RuntimeError if none comes for PATIENCE seconds."""
    rest = b""
    while True:
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE)
        if not readable:
            raise RuntimeError(f"gradlane run printed nothing for {PATIENCE} s")
        piece = os.read(process.stdout.fileno(), 65536)
        if not piece:
            break
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _with_strategies(command):
    """Returns the words of a command. A `gradlane run` that names no strategies gets the ring alone: the default allows
    direct, too, whose links daemons would poll."""
    words = [str(word) for word in command]
    if words[1:2] == ["run"] and "--strategies" not in words[:words.index("--")]:
        words[2:2] = ["--strategies", "ring"]
    return words


def output(context, command, timeout):
    """Runs a command and returns its standard output. Raises RuntimeError, with what it said, if it fails."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(_with_strategies(command), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                   stderr=said, env=context.environment(), start_new_session=True)
        try:
            found = process.communicate(timeout=timeout)[0]
        finally:
            _end(process)
        if process.returncode != 0:
            said.seek(0)
            raise RuntimeError(f"{command[0]} ended with status {process.returncode}: {said.read()}")
        return found.decode()


def results(context, options, module, spec):
    """Runs `python -m MODULE FILE` as trainers of `gradlane run OPTIONS`, FILE having `spec` as JSON. `spec["folder"]`
    is set to a folder for files of the job. Yields what rank 0 prints behind MARK. Raises RuntimeError if the job
    fails."""
    with tempfile.TemporaryDirectory(prefix="gradlane-lab-") as folder:
        file = pathlib.Path(folder, "spec.json")
        file.write_text(json.dumps(spec | {"folder": folder}))
        command = [context.gradlane, "run", *options, "--no-prefix", "--", context.python, "-u", "-m", module, file]
        # The process has a session of its own: Ctrl-C reaches only this program, which then ends it in order.
        process = subprocess.Popen(_with_strategies(command), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                   env=context.environment(), bufsize=0, start_new_session=True)
        try:
            for line in _lines_of(process):
                if line.startswith(MARK):
                    context.note()
                    yield json.loads(line.removeprefix(MARK))
                elif line.strip():
                    print(line.decode(errors="replace"), file=sys.stderr, flush=True)
            status = process.wait(ENDING)
        finally:
            _end(process)
        if status != 0:
            raise RuntimeError(f"gradlane run ended with status {status}")
