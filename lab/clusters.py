#!/usr/bin/python3
"""Runs the recipes of docs/launchers.md on two hosts in network namespaces, as far as one machine can be a cluster.

Each recipe ends with a training of two or four ranks, which must print the same sum of parameters. Needs root and the
programs of the recipe; missing packages are named. All processes that it starts end with it.
"""

import argparse
import contextlib
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from lab.net.spaces import Spaces, can_run, end_orderly_on_sigterm  # noqa: E402

HOSTS = ("node-a", "node-b")
NAMES = "127.0.0.1 localhost\n" + "".join(f"10.77.0.{i + 1} {name}\n" for i, name in enumerate(HOSTS))
VENV = ROOT / "build-pytorch"  # made by tools/setup.sh --test
PYTHON = str(VENV / "bin/python")
TRAIN = ROOT / "examples/kubernetes/train.py"
SKIPPED = 77  # exit status
PATIENCE = 120  # s; time limit of a command
PACKAGES = {"sshd": "openssh-server", "mpirun": "openmpi-bin", "slurmctld": "slurmctld", "slurmd": "slurmd",
            "srun": "slurm-client", "munged": "munge"}
SLURM = """\
ClusterName=gradlane
SlurmctldHost=node-a
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
NodeName=node-a,node-b CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:4
"""


class Broken(Exception):
    """A recipe that does not work; the message says why."""


class Cluster:
    """Two hosts with names and one link between them. The file system is the same on both, as on clusters with NFS."""

    def __init__(self, python, programs, folder, extra):
        self.python, self.programs, self.folder, self.extra = python, programs, folder, extra
        self._stack = contextlib.ExitStack()
        self._running = []

    def __enter__(self):
        spaces = self._stack.enter_context(Spaces())
        self.spaces = [spaces.add(f"h{i}") for i in range(len(HOSTS))]
        self.spaces[0].veth("gl0", self.spaces[1], "gl0", offloads=True)
        for i, space in enumerate(self.spaces):
            space.ip("address", "add", f"10.77.0.{i + 1}/24", "dev", "gl0")
            space.ip("link", "set", "lo", "up")
        pathlib.Path(self.folder, "hosts").write_text(NAMES)
        return self

    def __exit__(self, *_):
        for process in reversed(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        self._stack.close()

    def start(self, host, command, **variables):
        """Starts a shell command on a host and returns the process. It ends with the cluster."""
        # `ip netns exec` would mount /sys again, without the cgroups that slurmd needs.
        enter = ["nsenter", f"--net=/var/run/netns/{self.spaces[host]}", "unshare", "--uts", "--mount", "sh", "-c",
                 f'mount --bind {self.folder}/hosts /etc/hosts && hostname {HOSTS[host]} && exec sh -c "$1"', "sh"]
        process = subprocess.Popen([*enter, command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   start_new_session=True, cwd=self.folder, env=self.variables(variables))
        self._running.append(process)
        return process

    def end(self, *processes):
        """Waits for the processes and returns their output. Raises Broken if one fails or takes too long."""
        said = []
        for process in processes:
            try:
                said.append(process.communicate(timeout=PATIENCE)[0])
            except subprocess.TimeoutExpired as error:
                text = error.output.decode() if isinstance(error.output, bytes) else error.output or ""
                raise Broken(f"did not end within {PATIENCE} s; it printed:\n{text}") from error
        for process, text in zip(processes, said):
            if process.returncode != 0:
                raise Broken(f"exit status {process.returncode}:\n{text}")
        return "".join(said)

    def dead(self):
        """Returns the output of the background processes that have failed."""
        failed = [each for each in self._running if each.poll() not in (None, 0) and not each.stdout.closed]
        return "".join(each.stdout.read() for each in failed)

    def run(self, host, command, **variables):
        return self.end(self.start(host, command, **variables))

    def variables(self, variables):
        path = f"{pathlib.Path(self.python).parent}:{self.programs}:{os.environ['PATH']}:/usr/sbin:/sbin"
        return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "gl0", **self.extra, **variables}


def check_training(text, ranks):
    """Checks that all ranks report backend gradlane and the same parameters. Returns a line to print. Raises Broken."""
    found = re.findall(r"rank (\d+) of (\d+): backend (\S+), loss (\S+), parameters add up to (-?[0-9.]+(?:e[-+]?[0-9]+)?)", text)
    if sorted(int(each[0]) for each in found) != list(range(ranks)):
        raise Broken(f"each of the {ranks} ranks must print one line, but they printed:\n{text}")
    if {each[1:3] for each in found} != {(str(ranks), "gradlane")} or len({each[4] for each in found}) != 1:
        raise Broken(f"ranks have different parameters, or the wrong backend or number of ranks:\n{text}")
    return f"{ranks} ranks, parameters add up to {found[0][4]} on all"


# ---- Recipes


def torchrun(cluster):
    command = (f"{cluster.python} -m torch.distributed.run --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d "
               f"--rdzv_endpoint node-a:29400 {TRAIN}")
    return check_training(cluster.end(*(cluster.start(host, command) for host in range(2))), 4)


def one_rank_each(cluster):
    """Starts one rank by hand on each host N, with the daemon at N.sock. Returns a line to print."""
    trainers = [cluster.start(host, f"exec {cluster.python} {TRAIN}", MASTER_ADDR="node-a", MASTER_PORT="29500",
                              WORLD_SIZE="2", RANK=str(host), GRADLANE_SOCKET=f"{cluster.folder}/{host}.sock")
                for host in range(len(HOSTS))]
    return check_training(cluster.end(*trainers), len(HOSTS))


def by_hand(cluster):
    """Starts a gradlaned and a rank by hand on each host."""
    daemons = [cluster.start(host, f"exec gradlaned --nodes node-a,node-b --set socket={cluster.folder}/{host}.sock")
               for host in range(len(HOSTS))]
    said = one_rank_each(cluster)
    for daemon in daemons:
        os.killpg(daemon.pid, signal.SIGTERM)
        daemon.wait(10)
    return said


@contextlib.contextmanager
def ssh_servers(cluster):
    """Starts an sshd on each host. Yields options for ssh."""
    key = pathlib.Path(cluster.folder, "key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    os.makedirs("/run/sshd", exist_ok=True)
    servers = [cluster.start(host, f"exec $(command -v sshd) -D -e -f /dev/null -h {key} -p 2222 -o PidFile=none "
                                   f"-o AuthorizedKeysFile={key}.pub -o StrictModes=no -o PermitUserEnvironment=no "
                                   f"-o PermitRootLogin=yes -o UsePAM=no") for host in range(2)]
    yield (f"-i {key} -p 2222 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "
           "-o ConnectTimeout=20 -o ConnectionAttempts=20")
    for server in servers:
        os.killpg(server.pid, signal.SIGTERM)


def remote_words(cluster):
    """Returns the variables that a shell over ssh must be given, because it does not inherit them."""
    words = {"PATH": cluster.variables({})["PATH"], "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "gl0", **cluster.extra}
    return " ".join(f"{name}={value}" for name, value in words.items())


def ssh(cluster):
    with ssh_servers(cluster) as options:
        env = remote_words(cluster)
        script = " & ".join(
            f"ssh {options} {name} env {env} MASTER_ADDR=node-a MASTER_PORT=29500 WORLD_SIZE=2 RANK={rank} LOCAL_RANK=0 "
            f"LOCAL_WORLD_SIZE=1 {cluster.python} {TRAIN}" for rank, name in enumerate(HOSTS))
        return check_training(cluster.run(0, script + " & wait"), 2)


def mpirun(cluster):
    with ssh_servers(cluster) as options:
        names = " ".join(f"-x {name}" for name in ("PATH", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", *cluster.extra))
        command = (f"mpirun --allow-run-as-root --bind-to none --host node-a:2,node-b:2 --mca plm_rsh_args '{options}' "
                   f"--mca oob_tcp_if_include gl0 --mca btl_tcp_if_include gl0 {names}")
        said = check_training(cluster.run(0, f"{command} -x MASTER_ADDR=node-a {cluster.python} {TRAIN}"), 4)
        cluster.start(0, f"{command} --map-by ppr:1:node sh -c 'exec gradlaned --nodes node-a,node-b "
                         f"--set socket={cluster.folder}/$OMPI_COMM_WORLD_RANK.sock'")
        deadline = time.monotonic() + PATIENCE
        while not pathlib.Path(cluster.folder, "1.sock").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        return f"{said}; with separate daemons: {one_rank_each(cluster)}"


def slurm(cluster):
    """Runs slurmctld on the first host, and a slurmd on both."""
    folder = pathlib.Path(cluster.folder, "slurm")
    for name in ("state", *(f"spool-{host}" for host in HOSTS)):
        (folder / name).mkdir(parents=True)
    config, key = folder / "slurm.conf", folder / "key"
    config.write_text(SLURM.format(folder=folder, cores=os.cpu_count()))
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    cluster.extra = {**cluster.extra, "SLURM_CONF": str(config)}
    cluster.start(0, f"exec munged -F --force --key-file={key} --socket={folder}/munge.socket --pid-file={folder}/munge.pid "
                     f"--log-file={folder}/munge.log --seed-file={folder}/munge.seed")
    cluster.start(0, "exec slurmctld -D")
    for host, name in enumerate(HOSTS):
        cluster.start(host, f"exec slurmd -D -N {name}")
    deadline = time.monotonic() + PATIENCE
    while "2" not in cluster.run(0, "sinfo --noheader --states idle --format %D").split():
        if time.monotonic() > deadline:
            raise Broken("Slurm's nodes did not become idle: " + cluster.run(0, "sinfo -R; scontrol show nodes"))
        time.sleep(1)
    said = check_training(
        cluster.run(0, f"srun --nodes 2 --ntasks-per-node 2 --overcommit {cluster.python} {TRAIN}"), 4)
    # A daemon runs on each machine until the job ends.
    script = folder / "job.sh"
    script.write_text(f"""#!/bin/sh
#SBATCH --nodes 2 --overcommit --output {folder}/job.txt
srun --overlap --ntasks-per-node 1 sh -c 'exec gradlaned --nodes @slurm --set socket={folder}/$SLURM_PROCID.sock' &
GRADLANE_START=0 srun --overlap --ntasks-per-node 1 \\
  sh -c 'GRADLANE_SOCKET={folder}/$SLURM_PROCID.sock exec {cluster.python} {TRAIN}'
status=$?
kill $!
wait
exit $status
""")
    try:
        cluster.run(0, f"sbatch --wait {script}")
    except Broken as error:
        raise Broken(f"{error}{(folder / 'job.txt').read_text()}") from error
    return f"{said}; with separate daemons: {check_training((folder / 'job.txt').read_text(), 2)}"


def kubernetes(_):
    """Checks that the manifests fit the API, as far as a validator without a cluster can tell."""
    import kubernetes_validate
    import yaml
    said = []
    for path in sorted((ROOT / "examples/kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            try:
                kubernetes_validate.validate(document, "1.29", strict=True)
            except kubernetes_validate.ValidationError as error:
                raise Broken(f"{path.name}: {document['kind']}: {str(error).splitlines()[0]}") from error
            said.append(f"{document['kind']} {document['metadata']['name']}")
    if not said:
        raise Broken("examples/kubernetes has no manifests (*.yaml)")
    return "valid for 1.29: " + ", ".join(said)


RECIPES = {"torchrun": (torchrun, ()), "daemons": (by_hand, ()), "ssh": (ssh, ("sshd", "ssh")),
           "mpirun": (mpirun, ("mpirun", "sshd")),
           "slurm": (slurm, ("slurmctld", "slurmd", "srun", "munged")), "kubernetes": (kubernetes, ())}


def run_recipe(name, arguments):
    """Runs a recipe. Returns "works" or "skipped", and a line about it. Raises Broken."""
    recipe, programs = RECIPES[name]
    missing = [program for program in programs if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") is None]
    if missing:
        return "skipped", "needs " + ", ".join(f"{each} (package {PACKAGES.get(each, each)})" for each in missing)
    if name == "kubernetes":
        if importlib.util.find_spec("kubernetes_validate") is None:
            return "skipped", "needs kubernetes-validate; run: pip install -c dev/pip_versions.txt kubernetes-validate"
        return "works", recipe(None)
    with tempfile.TemporaryDirectory(prefix="gradlane-clusters-") as folder:
        os.chmod(folder, 0o755)
        extra = {"PYTHONPATH": str(ROOT / "client/python"),
                 "GRADLANE_LIBRARY": str(arguments.build / "client/libgradlane.so.0"),
                 "GRADLANED": str(arguments.build / "tools/gradlaned")}
        if arguments.python == PYTHON:
            extra |= {"TORCH_EXTENSIONS_DIR": f"{VENV}/extensions", "PYTHONPYCACHEPREFIX": f"{VENV}/pycache"}
        with Cluster(arguments.python, arguments.build / "tools", folder, extra) as cluster:
            try:
                return "works", recipe(cluster)
            except Broken as error:
                raise Broken(f"{error}\noutput of failed background processes:\n{cluster.dead()}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help=f"{', '.join(RECIPES)} (default: all)")
    parser.add_argument("--python", default=PYTHON, help="a Python with PyTorch (default: %(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (default: %(default)s)")
    arguments = parser.parse_args()
    if unknown := set(arguments.recipes) - set(RECIPES):
        parser.error(f"unknown recipe {', '.join(sorted(unknown))}; there are {', '.join(RECIPES)}")
    if not (arguments.build / "tools/gradlaned").exists():
        parser.error(f"{arguments.build}/tools/gradlaned is missing; run 'meson setup build && ninja -C build'")
    if not pathlib.Path(arguments.python).exists():
        parser.error(f"{arguments.python} is missing; run 'tools/setup.sh --test'")
    if why := can_run():
        print(f"lab/clusters.py: {why}", file=sys.stderr)
        return SKIPPED
    arguments.build = arguments.build.resolve()
    end_orderly_on_sigterm()
    failed = False
    for name in arguments.recipes or RECIPES:
        print(f"{name:10}  ", end="", flush=True)
        try:
            print("{:8} {}".format(*run_recipe(name, arguments)), flush=True)
        except Broken as error:
            failed = True
            print(f"FAILED   {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
