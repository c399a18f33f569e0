#!/usr/bin/python3
"""Measures elastic trainings on this machine: failures, steps without failures, and joining. Nodes are processes.

The model is the study's GPT, trained on text. Each step has V shards, and n nodes share them. Each process has one
thread. The tables have medians of all repetitions.

1. failures: SIGKILL of a node (trainer and daemon) or of the trainer alone, at a random time of a step. "s" is the time
   from SIGKILL until the last survivor has completed its next step, minus a step before. "lost" is the work of
   survivors that is thrown away, in steps. "bits" says whether the weights equal those of a training without failures;
   for elastic() that training has one node.
2. torchft: the same with torchft's DistributedDataParallel, on a python that has torchft and numpy. One row has the
   timeouts of torchft's train_ddp.py, the other a heartbeat timeout of 1 s, as gradlane has.
3. steps: seconds per step of elastic() and of DistributedDataParallel with as many micro-batches. Runs alternate, and
   ratios are between runs of the same round.
4. joining: a process joins 2 others on links with a rate, and takes over --state MB more than the model. "s" is the
   time from the call of elastic(), after imports, until its first step is complete. "pause" is the longest step of the
   others, minus a median step. Needs root.
"""

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # imports are written from the root

from tests.scripts.fixtures.ports import free_port  # noqa: E402

LIMIT_S = 120  # limit of all waiting
PARTS = ("failures", "torchft", "steps", "joining")
WARM_UP = 5  # steps that are not timed


class Failed(Exception):
    """A trainer ended or did not answer. The text has the end of what it printed."""


# ---- A trainer


def say(**words):
    print(json.dumps(words), flush=True)


def train_by_elastic(words, model, optimizer, loss):
    import torch

    import gradlane.torch

    more = torch.nn.Module()
    more.register_buffer("data", torch.ones(words["state"] * 250_000))
    training = gradlane.torch.elastic(model, optimizer, shards=words["shards"], nodes=words["nodes"],
                                      state={"more": more})
    for step in training.steps(words["steps"]):
        done = []
        for shard in step:
            done.append(shard)
            loss(model, step.number, shard).backward()
        yield {"step": training.step, "shards": done}
    training.close()


def compute_gradients(net, loss, step, words):
    """Sets gradients to the mean over this rank's shards. The last backward() sets them to the mean over all ranks."""
    mine = range(words["rank"], words["shards"], words["nodes"])
    for shard in mine:
        with net.no_sync() if shard != mine[-1] else contextlib.nullcontext():
            (loss(net, step, shard) / len(mine)).backward()


def train_by_ddp(words, model, optimizer, loss):
    import torch
    import torch.distributed as dist

    if words["kind"] == "gradlane":
        import gradlane.torch  # noqa: F401 - registers the backend
    dist.init_process_group(words["kind"])
    net = torch.nn.parallel.DistributedDataParallel(model)
    for step in range(words["steps"]):
        optimizer.zero_grad()
        compute_gradients(net, loss, step, words)
        optimizer.step()
        yield {"step": step + 1}
    dist.destroy_process_group()


def train_by_torchft(words, model, optimizer, loss):
    import torch
    import torchft

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    parts = {"model": model, "optim": optimizer}
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=5)), min_replica_size=2,
        load_state_dict=lambda state: [it.load_state_dict(state[name]) for name, it in parts.items()],
        state_dict=lambda: {name: it.state_dict() for name, it in parts.items()},
        replica_id=f"replica_{words['rank']}", timeout=datetime.timedelta(seconds=30), rank=0, world_size=1,
        store_addr="127.0.0.1", store_port=store.port, lighthouse_addr=words["lighthouse"], hostname="127.0.0.1")
    wait_for_go()

    class Ddp(torchft.DistributedDataParallel):
        """Without this, survivors of a failure end: torchft 0.2's hook asserts a future that wait() has not made."""

        @staticmethod
        def _comm_hook(manager, bucket):
            manager.allreduce(bucket.buffer()).wait()
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

    net = Ddp(manager, model)
    wrapped = torchft.Optimizer(manager, optimizer)
    while manager.current_step() < words["steps"]:
        before = manager.current_step()
        wrapped.zero_grad()
        compute_gradients(net, loss, before, words)
        wrapped.step()
        yield {"step": manager.current_step(), "lost": manager.current_step() == before}
    say(sha=weights_of(model))  # before shutdown(), which may wait for others
    manager.shutdown(wait=False)
    os._exit(0)


def wait_for_go():
    say(ready=True)
    sys.stdin.readline()


def weights_of(model):
    return hashlib.sha256(b"".join(it.detach().numpy().tobytes() for it in model.parameters())).hexdigest()


def train(words):
    import torch

    from lab.study import gpt

    torch.set_num_threads(1)
    model = gpt.Gpt(words["width"])
    model.initialize(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = gpt.text()

    def loss(net, step, shard):
        generator = torch.Generator().manual_seed(step * 1024 + shard)
        first = torch.randint(len(text) - gpt.CONTEXT - 1, (words["windows"], 1), generator=generator)
        windows = text[first + torch.arange(gpt.CONTEXT + 1)]
        return torch.nn.functional.cross_entropy(net(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())

    if words["kind"] != "torchft":
        wait_for_go()
    kinds = {"elastic": train_by_elastic, "torchft": train_by_torchft}
    for done in kinds.get(words["kind"], train_by_ddp)(words, model, optimizer, loss):
        say(at=time.monotonic(), **done)
    say(sha=weights_of(model))


# ---- All trainers


class Node:
    """The process of a trainer. `steps` has what it printed about each step, `said` all else."""

    def __init__(self, words, environment, python, prefix):
        paths = os.pathsep.join([str(ROOT), str(ROOT / "client/python"), os.environ.get("PYTHONPATH", "")])
        self._errors = tempfile.TemporaryFile("w+")
        self.steps, self.said = [], {}
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            [*prefix, str(python), __file__, "--trainer", json.dumps(words)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **environment})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                with self._news:
                    words = json.loads(line)
                    self.steps.append(words) if "step" in words else self.said.update(words)
                    self._news.notify_all()
        with self._news:
            self.said["end"] = self.process.wait()
            self._news.notify_all()

    def wait(self, condition):
        with self._news:
            good = self._news.wait_for(lambda: condition(self) or "end" in self.said, LIMIT_S)
            if not good or not condition(self):
                self._errors.seek(0)
                raise Failed(f"process {self.process.pid}: status {self.said.get('end')}, {len(self.steps)} steps: "
                             f"{self._errors.read()[-1500:]}")

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self, daemon):
        """Kills the process, and its daemon if `daemon` is true. Returns the time."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children") if daemon else []
        for pid in [*(int(child) for task in tasks for child in task.read_text().split()), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return time.monotonic()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self._reader.join()
        self.process.stdin.close()
        self._errors.close()


class Bench(contextlib.ExitStack):
    """Starts trainers, stores and lighthouses. The end of the `with` ends them."""

    def __init__(self, args):
        super().__init__()
        self.args = args

    def _serve(self, *command):
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   env={**os.environ, "PYTHONPATH": str(ROOT / "client/python")})
        self.callback(lambda: (process.kill(), process.wait(), process.stdout.close()))
        return process

    def serve_store(self, host="127.0.0.1", prefix=()):
        """Starts a store. Returns its URL."""
        address = f"{host}:{free_port()}"
        self._serve(*prefix, sys.executable, "-m", "gradlane.torch.elastic.serve_store", address).stdout.readline()
        return f"tcp://{address}"

    def start(self, kind, nodes, heartbeat_ms=5000, founders=None, steps=None, state=0, store=None, prefixes=None):
        """Starts the nodes of a training. Returns them. Nodes after the first `founders` wait for go()."""
        args = self.args
        environment = {"GRADLANED": str(args.build / "tools/gradlaned"), "MASTER_ADDR": "127.0.0.1",
                       "GRADLANE_LIBRARY": str(args.build / "client/libgradlane.so"), "MASTER_PORT": str(free_port()),
                       "WORLD_SIZE": str(nodes)}
        if kind == "elastic":
            environment["GRADLANE_STORE"] = store or self.serve_store()
        lighthouse = self._serve_lighthouse(heartbeat_ms) if kind == "torchft" else ""
        started = []
        for rank in range(nodes):
            words = {"kind": kind, "rank": rank, "nodes": founders or nodes, "steps": steps or args.steps,
                     "shards": args.shards, "width": args.width, "windows": args.windows, "state": state,
                     "lighthouse": lighthouse}
            node = Node(words, {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                        args.torchft if kind == "torchft" else sys.executable, prefixes[rank] if prefixes else [])
            self.callback(node.close)
            started.append(node)
        for node in started:
            node.wait(lambda it: "ready" in it.said)
        for node in started[:founders]:
            node.go()
        return started

    def _serve_lighthouse(self, heartbeat_ms):
        port = free_port()
        program = pathlib.Path(self.args.torchft).parent / "torchft_lighthouse"
        self._serve(program, "--min_replicas", 2, "--quorum_tick_ms", 100, "--join_timeout_ms", 10000,
                    "--heartbeat_timeout_ms", heartbeat_ms, "--bind", f"127.0.0.1:{port}")
        time.sleep(0.5)
        return f"http://127.0.0.1:{port}"


def seconds_of(steps):
    """Returns the seconds of each step but those of the warm-up."""
    return [after["at"] - before["at"] for before, after in zip(steps[WARM_UP - 1:], steps[WARM_UP:])]


def wait_for_weights(nodes):
    """Waits until these nodes have completed the training. Returns the hashes of their weights."""
    for node in nodes:
        node.wait(lambda it: "sha" in it.said)
    return {node.said["sha"] for node in nodes}


def fail(args, right, kind, daemon=False, heartbeat_ms=5000):
    """Kills one of 3 nodes in the middle of a training. Returns a row. right: hashes of weights without failures."""
    with Bench(args) as bench:
        first, victim, last = bench.start(kind, 3, heartbeat_ms)
        first.wait(lambda it: len(it.steps) >= args.steps // 2)
        normal = statistics.median(seconds_of(first.steps))
        time.sleep(random.random() * normal)
        killed = victim.kill(daemon)
        others = [first, last]
        found = wait_for_weights(others)
    after = [next(step for step in node.steps if step["at"] > killed and not step.get("lost")) for node in others]
    # A shard is lost if a survivor of elastic() has computed it, and it or the other survivor computes it again.
    done = [shard for step in after for shard in step.get("shards", [])]
    lost = statistics.mean(sum(step.get("lost", False) for step in node.steps) for node in others)
    return {"seconds": max(step["at"] for step in after) - killed - normal, "step": normal,
            "lost": lost + (len(done) - len(set(done))) / args.shards, "bits": found == right}


def measure_failures(args, kind, cases):
    """Returns rows of all cases: name -> options of fail()."""
    progress(f"{kind}: a training without failures")
    with Bench(args) as bench:
        right = wait_for_weights(bench.start(kind, 1 if kind == "elastic" else 3))
    rows = []
    for round_ in range(args.rounds):
        for name, options in cases.items():
            progress(f"{name}: round {round_ + 1}")
            rows.append({"case": name, **fail(args, right, kind, **options)})
    print(f"\n| {kind} | s | s, least to most | s per step | steps lost | bits |\n|" + "---|" * 6)
    for name in cases:
        mine = [row for row in rows if row["case"] == name]
        times = [row["seconds"] for row in mine]
        print(f"| {name} | {statistics.median(times):.2f} | {min(times):.2f} to {max(times):.2f} | "
              f"{median(mine, 'step'):.3f} | {median(mine, 'lost'):.2f} | "
              f"{'equal' if all(row['bits'] for row in mine) else 'different'} |")
    return rows


def measure_steps(args):
    rows = []
    for round_ in range(args.rounds):
        row = {}
        for kind in ("elastic", "gloo", "gradlane"):
            progress(f"steps: {kind}, round {round_ + 1}")
            with Bench(args) as bench:
                nodes = bench.start(kind, args.nodes)
                wait_for_weights(nodes)
                row[kind] = statistics.median(seconds_of(nodes[0].steps))
        rows.append(row)
    print(f"\n| {args.nodes} nodes | ms per step | elastic() / it |\n|---|---|---|")
    for kind in rows[0]:
        ratio = statistics.median(row["elastic"] / row[kind] for row in rows)
        print(f"| {kind} | {1e3 * median(rows, kind):.1f} | {ratio:.3f} |")
    return rows


def measure_joining(args):
    from tests.scripts.fixtures.networks import Network

    rows = []
    for round_ in range(args.rounds):
        progress(f"joining: round {round_ + 1}")
        with (Network(3, rate=args.rate, kernel=True, offloads=True) as network, Bench(args) as bench,
              tempfile.NamedTemporaryFile("w") as hosts):
            # A TCPStore looks up the names of peers. It would wait for a DNS server if they had none.
            hosts.write("127.0.0.1 localhost\n" + "".join(f"10.77.0.{i + 1} node{i}\n" for i in range(3)))
            hosts.flush()
            command = f'mount --bind {hosts.name} /etc/hosts && exec env GRADLANE_INTERFACE=gl0 "$@"'
            prefixes = [network.command(i, "sh", "-c", command, "sh") for i in range(3)]
            nodes = bench.start("elastic", 3, founders=2, steps=1 << 20, state=args.state,
                                store=bench.serve_store("10.77.0.1", prefixes[0]), prefixes=prefixes)
            nodes[0].wait(lambda it: len(it.steps) >= 20)
            begin = time.monotonic()
            nodes[2].go()
            nodes[2].wait(lambda it: len(it.steps) >= 1)
            first = nodes[2].steps[0]["at"]
            nodes[0].wait(lambda it: it.steps[-1]["at"] > first + 0.5)
            steps = seconds_of(nodes[0].steps)
            rows.append({"seconds": first - begin, "pause": max(steps) - statistics.median(steps)})
    print(f"\n| joining at {args.rate}, {args.state} MB | s | pause of the others, s |\n|---|---|---|")
    print(f"| median | {median(rows, 'seconds'):.2f} | {median(rows, 'pause'):.2f} |")
    return rows


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def progress(text):
    print(f"bench_elastic.py: {text} ...", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder of gradlane")
    parser.add_argument("--parts", default=",".join(PARTS), help="parts to measure (all)")
    parser.add_argument("--torchft", metavar="PYTHON", help="python with torchft 0.2; without it, part 2 is skipped")
    parser.add_argument("--rounds", type=int, default=5, help="repetitions (5)")
    parser.add_argument("--nodes", type=int, default=2, help="nodes in part 3 (2); parts 1 and 2 have 3")
    parser.add_argument("--shards", type=int, default=6, help="shards V of a step, a multiple of 3 and --nodes (6)")
    parser.add_argument("--steps", type=int, default=30, help="steps of a training in parts 1 to 3 (30)")
    parser.add_argument("--width", type=int, default=256, help="width of the model (256)")
    parser.add_argument("--windows", type=int, default=2, help="windows of text in a shard (2)")
    parser.add_argument("--state", type=int, default=100, help="MB of further state in part 4 (100)")
    parser.add_argument("--rate", default="1gbit", help="rate of links in part 4 (1gbit)")
    parser.add_argument("--json", help="write all rows to this file")
    parser.add_argument("--trainer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.trainer:
        return train(json.loads(args.trainer))
    parts, rows = args.parts.split(","), {"load": [os.getloadavg()]}
    if not set(parts) <= set(PARTS):
        parser.error(f"--parts: allowed: {', '.join(PARTS)}")
    args.build = args.build.resolve()
    measures = {
        "failures": lambda: measure_failures(args, "elastic", {"SIGKILL of node": {"daemon": True},
                                                               "SIGKILL of trainer": {}}),
        "torchft": lambda: measure_failures(args, "torchft", {"timeouts of train_ddp.py": {"heartbeat_ms": 5000},
                                                              "heartbeat of 1 s": {"heartbeat_ms": 1000}}),
        "steps": lambda: measure_steps(args),
        "joining": lambda: measure_joining(args),
    }
    skipped = {}
    if not (args.torchft and shutil.which(args.torchft)):
        skipped["torchft"] = "--torchft does not name a python"
    if os.geteuid() != 0:
        skipped["joining"] = "links with a rate need root"
    try:
        for part in (it for it in PARTS if it in parts):
            if part in skipped:
                print(f"\n{part}: skipped: {skipped[part]}")
            else:
                rows[part] = measures[part]()
    except Failed as error:
        sys.exit(f"bench_elastic.py: {error}")
    rows["load"].append(os.getloadavg())
    print(f"\nload averages of 1, 5 and 15 minutes: before {rows['load'][0]}, after {rows['load'][1]}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows))
    return None


if __name__ == "__main__":
    main()
