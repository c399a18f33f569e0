#!/usr/bin/python3
"""Tests a log file in place of standard error: SIGHUP reopens it after a rotation, and a start that fails writes to
both.

Also tests daemons that end with other processes and then remove their files, what a daemon leaves in folders that users
share, its warning without a key, and metrics at a Unix socket. Needs no rights.
"""

import argparse
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
import tempfile

from tests.scripts.fixtures import ports, rings


def write_config(folder, **settings):
    config = folder / "node.yaml"
    settings = {"rank": 0, "nodes": "[{rank: 0, ip: 10.77.0.1}]", "socket": f"{folder}/n.sock", **settings}
    config.write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    return str(config)


class Daemon:
    def __init__(self, gradlaned, config, **variables):
        self.process = subprocess.Popen([gradlaned, "--config", config], stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **variables})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def end(self, number):
        """Sends a signal. Returns the exit status, and the text on standard error."""
        self.process.send_signal(number)
        _, text = self.process.communicate(timeout=rings.PATIENCE)
        return self.process.returncode, text


def has(path, text):
    return lambda: path.exists() and text in path.read_text()


def rotated(gradlaned, folder):
    log, old = folder / "gradlane.log", folder / "gradlane.log.1"
    log.write_text("before\n")
    with Daemon(gradlaned, write_config(folder, log_file=log)) as daemon:
        rings.wait_for(has(log, "node 0 of 1"), "a start")
        assert log.read_text().startswith("before\n")
        log.rename(old)
        daemon.process.send_signal(signal.SIGHUP)
        rings.wait_for(has(log, f"SIGHUP: reopened log file {log}"), "a new file")
        # The log file cannot be opened again. The daemon continues, and writes to the old file.
        log.rename(folder / "other")
        log.mkdir()
        daemon.process.send_signal(signal.SIGHUP)
        rings.wait_for(has(folder / "other", "still writing to the old log file"), "a warning")
        status, text = daemon.end(signal.SIGTERM)
        assert status == 0 and text == "", (status, text)
    assert (folder / "other").read_text().endswith("ended\n") and "SIGHUP" not in old.read_text()


def a_start_that_fails(gradlaned, folder):
    """Checks that the reason for a start that fails is on standard error and in the log file."""
    log = folder / "gradlane.log"
    config = write_config(folder, log_file=log, workers="{cores: [1023]}")
    result = subprocess.run([gradlaned, "--config", config], capture_output=True, text=True, timeout=rings.PATIENCE)
    assert result.returncode == 2 and result.stderr.startswith("gradlaned: "), result
    assert log.read_text().endswith(result.stderr), log.read_text()
    config = write_config(folder, log_file=folder / "none" / "x.log")
    result = subprocess.run([gradlaned, "--config", config], capture_output=True, text=True, timeout=rings.PATIENCE)
    assert result.returncode == 2 and "log_file: cannot open" in result.stderr, result


def files_that_are_refused(gradlaned, folder):
    """Checks that the log goes to no file that a link names, at the start and later, and that no pipe stops the start.
    """
    target, link, pipe = folder / "target", folder / "link", folder / "pipe"
    target.write_text("precious\n")
    link.symlink_to(target)
    os.mkfifo(pipe)
    for path, says in ((link, "is a symbolic link"), (pipe, "No such device or address"), (folder, "Is a directory")):
        result = subprocess.run([gradlaned, "--config", write_config(folder, log_file=path)], capture_output=True,
                                text=True, timeout=rings.PATIENCE)
        assert result.returncode == 2 and says in result.stderr and str(path) in result.stderr, result
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    result = subprocess.run([gradlaned, "--config", write_config(folder, log_file=pipe)], capture_output=True, text=True,
                            timeout=rings.PATIENCE)
    os.close(reader)
    assert result.returncode == 2 and f"{pipe} is not a regular file" in result.stderr, result
    log = folder / "gradlane.log"
    with Daemon(gradlaned, write_config(folder, log_file=log)) as daemon:
        rings.wait_for(has(log, "node 0 of 1"), "a start")
        log.rename(folder / "old")
        log.symlink_to(target)
        daemon.process.send_signal(signal.SIGHUP)
        rings.wait_for(has(folder / "old", f"{log} is a symbolic link"), "a warning")
        assert daemon.end(signal.SIGTERM)[0] == 0
    assert target.read_text() == "precious\n"
    # The folder of the log may be a link, and devices are taken.
    (folder / "logs").symlink_to(folder)
    for path in (folder / "logs" / "other.log", pathlib.Path("/dev/null")):
        with Daemon(gradlaned, write_config(folder, log_file=path)) as daemon:
            rings.wait_for((folder / "n.sock").exists, "a start")
            assert daemon.end(signal.SIGTERM) == (0, ""), path
    assert has(folder / "other.log", "ended")()


def nothing_of_dpdk(gradlaned, folder):
    """Checks that DPDK makes no folder where other users could have made it first, and leaves none."""
    runtime = folder / "runtime"
    runtime.mkdir()
    with Daemon(gradlaned, write_config(folder), RUNTIME_DIRECTORY=str(runtime)) as daemon:
        rings.wait_for((folder / "n.sock").exists, "a start")
        left = [*runtime.iterdir(), *pathlib.Path("/tmp").glob(f"gradlane-dpdk-{daemon.process.pid}-*")]
        assert not left, left
        assert daemon.end(signal.SIGTERM)[0] == 0


def a_warning_without_a_key(gradlaned, folder):
    """Checks that a daemon says at its start that others may send it packets, unless the user has decided so."""
    says = "packets are neither authenticated nor encrypted"
    nodes = "[{rank: 0, ip: %s}, {rank: 1, ip: %s}]"
    for first, second, settings, warned in (
            ("192.0.2.1", "192.0.2.2", {}, True), ("192.0.2.1", "192.0.2.2", {"security": "none"}, False),
            ("127.0.0.1", "127.0.0.2", {}, False)):
        config = write_config(folder, ports="[{udp: any}]", udp_port=ports.free_port(), nodes=nodes % (first, second),
                              **settings)
        with Daemon(gradlaned, config) as daemon:
            rings.wait_for((folder / "n.admin").exists, "a start")
            status, text = daemon.end(signal.SIGTERM)
        assert status == 0 and text.count(says) == warned, text


def metrics_at_a_socket(gradlaned, folder):
    path = folder / "n.metrics"
    with Daemon(gradlaned, write_config(folder, metrics=path)) as daemon:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(rings.PATIENCE)
            rings.wait_for(lambda: client.connect_ex(str(path)) == 0, "a start")
            assert stat.S_IMODE(path.stat().st_mode) == 0o660, oct(path.stat().st_mode)
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            text = b"".join(iter(lambda: client.recv(65536), b""))
        assert text.startswith(b"HTTP/1.1 200 OK") and b"gradlane_ring_whole" in text, text
        status, text = daemon.end(signal.SIGTERM)
        assert status == 0 and f"metrics at {path}" in text, text
    assert [it.name for it in folder.iterdir()] == ["node.yaml"], list(folder.iterdir())


def without_a_file(gradlaned, folder):
    """Checks that SIGHUP without a log file ends the daemon as SIGTERM does, and leaves no files."""
    with Daemon(gradlaned, write_config(folder)) as daemon:
        rings.wait_for((folder / "n.sock").exists, "a start")
        status, text = daemon.end(signal.SIGHUP)
        assert status == 0 and "SIGHUP: shutting down" in text, (status, text)
    assert [path.name for path in folder.iterdir()] == ["node.yaml"], list(folder.iterdir())


def with_processes(gradlaned, folder):
    """Checks that the daemon ends with the last of the given processes, although this process, which started it, goes
    on.

    With `--tidy`, the daemon removes its files and their folder, unless the folder has other files.
    """
    own = folder / "own"
    own.mkdir()
    words = [gradlaned, "--nodes", "127.0.0.1", "--set", f"socket={own}/n.sock", "--set", f"log_file={own}/log", "--tidy"]
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    gone = subprocess.Popen(["true"])
    gone.wait()
    numbers = [it.pid for it in (*sleepers, gone)]
    daemon = subprocess.Popen([*words, "--for", ",".join(map(str, numbers))], stderr=subprocess.PIPE, text=True)
    try:
        rings.wait_for(has(own / "log", "node 0 of 1"), "a start")
        sleepers[0].kill()
        sleepers[0].wait()
        assert daemon.poll() is None, "one is left"
        sleepers[1].kill()  # not waited for: a zombie counts as ended
        _, text = daemon.communicate(timeout=rings.PATIENCE)
    finally:
        for it in (*sleepers, daemon):
            it.kill()
            it.wait()
    assert (daemon.returncode, text) == (0, ""), (daemon.returncode, text)
    assert not own.exists(), list(own.iterdir())
    own.mkdir()
    (own / "other").write_text("")
    done = subprocess.run([*words, "--for", str(gone.pid)], capture_output=True, text=True, timeout=rings.PATIENCE)
    assert done.returncode == 0 and [path.name for path in own.iterdir()] == ["other"], (done, list(own.iterdir()))
    for wrong in (["--for", "0"], ["--for", "x"], ["--tidy"]):
        done = subprocess.run([gradlaned, "--nodes", "127.0.0.1", *wrong], capture_output=True, text=True, timeout=rings.PATIENCE)
        assert done.returncode == 2 and wrong[0] in done.stderr, done


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    args = parser.parse_args()
    for case in (rotated, a_start_that_fails, files_that_are_refused, without_a_file, with_processes, nothing_of_dpdk,
                 a_warning_without_a_key, metrics_at_a_socket):
        with tempfile.TemporaryDirectory() as folder:
            case(args.gradlaned, pathlib.Path(folder))
        print(f"ok {case.__name__}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
