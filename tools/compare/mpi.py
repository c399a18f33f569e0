# mpi.py - Open MPI beside a job: started once, told when to measure (rank 0 of a job)

import json
import os
import pathlib
import socket
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
START_S = 50
ANSWER_S = 100  # less than other ranks wait


class MpiError(Exception):
    pass


def command(kind, world, path):
    """mpirun: by TCP, by TCP and the ring algorithm, or by shared memory; in namespaces if nodes have some."""
    # A process that waits must let others run, or the kernel: what Open MPI does by itself if it sees that it has more
    # processes than cores. Here it takes nodes for machines, and would bind all processes to the first core.
    common = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--mca", "pml",
              "ob1", "--mca", "btl", "vader,self" if kind == "shm" else "tcp,self", "-n", str(world)]
    if kind == "ring":  # which Open MPI would not choose by itself, and which suits slow links better
        common += ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "4"]
    program = [sys.executable, str(HERE / "mpi_rank.py"), path]
    if "GRADLANE_NAMESPACES" not in os.environ:
        return [*common, "--oversubscribe", "--mca", "btl_tcp_if_include", "lo", *program]
    hosts = [f"10.77.1.{i + 1}" for i in range(world)]
    spread = ["-H", ",".join(hosts), "--map-by", "node", "--mca", "plm_rsh_agent", str(HERE / "mpi_agent.sh"),
              "--mca", "oob_tcp_if_include", "eth0", "--mca", "btl_tcp_if_include", "eth0"]
    words = [*common, *spread, *program]
    return ["unshare", "--uts", "sh", "-c", f'hostname {hosts[0]}; exec "$@"', "sh", *words]


class Mpi:
    """The processes of one mpirun, by rank."""

    def __init__(self, kind, world, folder):
        self.log = open(pathlib.Path(folder) / f"mpi-{kind}.log", "w+")
        path = str(pathlib.Path(folder) / f"mpi-{kind}")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(world)
            listener.settimeout(0.2)
            # Its session folder is removed with ours, however it ends.
            self.process = subprocess.Popen(command(kind, world, path), stdin=subprocess.DEVNULL, stdout=self.log,
                                            stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(folder)})
            streams = [self.accept(listener).makefile("rw") for _ in range(world)]
        hellos = [(json.loads(stream.readline()), stream) for stream in streams]
        self.streams = [stream for _, stream in sorted(hellos, key=lambda hello: hello[0]["rank"])]
        self.version = hellos[0][0]["version"].split(",")[0]

    def accept(self, listener):
        for _ in range(START_S * 5):
            try:
                connection, _ = listener.accept()
                connection.settimeout(ANSWER_S)
                return connection
            except TimeoutError:
                if self.process.poll() is not None:
                    break
        self.fail(f"mpirun did not start in {START_S} s")

    def fail(self, what):
        self.process.terminate()
        self.log.seek(0)
        raise MpiError(f"{what}: {' '.join(self.process.args)}\n{self.log.read()[-2000:]}")

    def tell(self, do, **arguments):
        """To all ranks; returns their answers."""
        try:
            for stream in self.streams:
                print(json.dumps({"do": do, **arguments}), file=stream, flush=True)
            return [json.loads(stream.readline()) for stream in self.streams]
        except (OSError, ValueError) as error:
            self.fail(f"Open MPI did not answer '{do}': {error}")

    def close(self):
        for stream in self.streams:
            try:
                print(json.dumps({"do": "end"}), file=stream, flush=True)
            except OSError:
                pass
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
