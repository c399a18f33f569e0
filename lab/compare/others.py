# others.py - processes of other programs, one for each rank. Started once, they measure on command (rank 0 of a job).

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
START_S = 50
ANSWER_S = 100  # time limit of an answer in seconds; less than the time limit of other ranks


class OtherError(Exception):
    pass


def namespaces():
    """Returns the namespaces of the nodes; [] if they have none."""
    names = os.environ.get("GRADLANE_NAMESPACES", "")
    return names.split(",") if names else []


class Processes:
    """The processes that `commands` start: one for each rank, whatever the number of commands. They connect to the Unix
    socket at `path`."""

    def __init__(self, name, commands, world, folder, path):
        self.name = name
        self.log = open(f"{path}.log", "w+")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(world)
            listener.settimeout(0.2)
            # Session folders of Open MPI are in ours, and are removed with it, however Open MPI ends.
            self.processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log,
                                               stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(folder)})
                              for command in commands]
            streams = [self.accept(listener).makefile("rw") for _ in range(world)]
        hellos = [(json.loads(stream.readline()), stream) for stream in streams]
        self.streams = [stream for _, stream in sorted(hellos, key=lambda hello: hello[0]["rank"])]
        self.version = hellos[0][0]["version"].split(",")[0]

    def accept(self, listener):
        until = time.monotonic() + START_S
        while time.monotonic() < until and all(process.poll() is None for process in self.processes):
            try:
                connection, _ = listener.accept()
                connection.settimeout(ANSWER_S)
                return connection
            except TimeoutError:
                continue
        return self.fail(f"{self.name} did not start within {START_S} s")

    def fail(self, what):
        for process in self.processes:
            process.terminate()
        self.log.seek(0)
        raise OtherError(f"{what}: {' '.join(self.processes[0].args)}\n{self.log.read()[-2000:]}")

    def tell(self, do, **arguments):
        """Sends a command to all ranks and returns their answers. Raises OtherError."""
        try:
            for stream in self.streams:
                print(json.dumps({"do": do, **arguments}), file=stream, flush=True)
            return [json.loads(stream.readline()) for stream in self.streams]
        except (OSError, ValueError) as error:
            return self.fail(f"{self.name} did not answer '{do}': {error}")

    def close(self):
        for stream in self.streams:
            try:
                print(json.dumps({"do": "end"}), file=stream, flush=True)
            except OSError:
                pass
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Mpi(Processes):
    """The processes of one mpirun."""

    def __init__(self, kind, world, folder):
        path = f"{folder}/mpi-{kind}"
        super().__init__("Open MPI", [self.command(kind, world, path)], world, folder, path)

    @staticmethod
    def command(kind, world, path):
        """Returns the words of an mpirun by TCP, by TCP and the ring algorithm, or by shared memory; in namespaces if
        nodes have some."""
        # A process that waits must let other processes and the kernel run. Open MPI does that without an option only if
        # it sees more processes than cores. Here it takes nodes for separate machines, so it would not. It would also
        # bind all processes to the first core.
        common = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--mca",
                  "pml", "ob1", "--mca", "btl", "vader,self" if kind == "shm" else "tcp,self", "-n", str(world)]
        if kind == "ring":  # Open MPI would not choose the ring, but it suits slow links better
            common += ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "4"]
        program = [sys.executable, str(HERE / "other_rank.py"), path, "mpi"]
        if not namespaces():
            return [*common, "--oversubscribe", "--mca", "btl_tcp_if_include", "lo", *program]
        hosts = [f"10.77.1.{i + 1}" for i in range(world)]
        spread = ["-H", ",".join(hosts), "--map-by", "node", "--mca", "plm_rsh_agent", str(HERE / "mpi_agent.sh"),
                  "--mca", "oob_tcp_if_include", "eth0", "--mca", "btl_tcp_if_include", "eth0"]
        words = [*common, *spread, *program]
        return ["unshare", "--uts", "sh", "-c", f'hostname {hosts[0]}; exec "$@"', "sh", *words]


class OtherTorch(Processes):
    """The processes that use Gloo of another Python's PyTorch."""

    def __init__(self, python, world, folder):
        path = f"{folder}/torch"
        program = [python, str(HERE / "other_rank.py"), path, "gloo"]
        spaces = namespaces()
        commands = [[*(["ip", "netns", "exec", spaces[rank]] if spaces else []), "env",
                     f"GLOO_SOCKET_IFNAME={'eth0' if spaces else 'lo'}", *program, f"{path}.store", str(rank),
                     str(world)] for rank in range(world)]
        super().__init__("the other PyTorch", commands, world, folder, path)
