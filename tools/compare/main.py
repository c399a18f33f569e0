# main.py - compares gradlane with what else all-reduces, in one run (tools/compare.sh starts it; docs/benchmarks.md)

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import data
import plan

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
JOB = pathlib.Path(__file__).resolve().parent / "job.py"


def say(text):
    print(text, file=sys.stderr, flush=True)


def machine():
    with open("/proc/cpuinfo") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    import matplotlib
    import numpy
    import torch

    return {"cpu": models[0] if models else "unknown", "cores": os.cpu_count(), "kernel": platform.release(),
            "python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__,
            "matplotlib": matplotlib.__version__}


class Progress:
    """What is done, and roughly how long the rest takes."""

    def __init__(self, jobs, effort):
        self.effort = effort
        self.begin = time.monotonic()
        self.jobs = jobs
        self.points = sum(len(job.points) for job in jobs)
        self.at = 0
        self.weights = [plan.guess_start(job) for job in jobs]
        self.left = sum(self.weights) + sum(plan.guess_seconds(job, point, effort) for job in jobs
                                            for point in job.points)
        self.gone = 0.0  # of what was guessed

    def past(self, seconds):
        self.gone += seconds
        self.left -= seconds

    def text(self):
        spent = time.monotonic() - self.begin
        rate = spent / self.gone if self.gone > 20 else 1.0
        left = max(0.0, self.left * rate)
        return f"{self.at} of {self.points}, {spent / 60:.1f} min spent, about {left / 60:.0f} left"

    def point(self, job, point):
        self.at += 1
        say(f"{job.name()}: {plan.size_text(point.size)} {point.data}: {self.text()}")


class Run:
    """All jobs, one after the other, and what they have measured."""

    def __init__(self, args, jobs):
        self.args, self.jobs = args, jobs
        self.effort = plan.QUICK if args.quick else plan.FULL
        if args.samples:
            self.effort = dataclasses.replace(self.effort, least=args.samples, most=args.samples)
        self.deadline = time.monotonic() + args.minutes * 60
        self.progress = Progress(jobs, self.effort)
        self.results = {"about": machine(), "quick": args.quick, "mtu": args.mtu, "data": {}, "jobs": [], "notes": [],
                        "rows": []}

    def save(self):
        path = self.args.out / "results.json"
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(self.results, indent=1) + "\n")
        fresh.rename(path)

    def note(self, text):
        say(f"compare.sh: {text}")
        self.results["notes"].append(text)

    def all(self):
        with tempfile.TemporaryDirectory(prefix="gradlane-compare-", dir="/dev/shm") as folder:
            say("making data")
            self.results["data"] = data.write(folder, self.jobs, self.args.quick)
            for job in self.jobs:
                self.job(job, pathlib.Path(folder))
                self.progress.past(plan.guess_start(job))
                self.save()
        self.results["seconds"] = time.monotonic() - self.progress.begin
        self.save()

    def job(self, job, folder):
        mine = folder / f"job-{len(self.results['jobs'])}"
        mine.mkdir()
        for file in folder.glob("*.f32"):
            (mine / file.name).symlink_to(file)
        orders = {**dataclasses.asdict(job), "effort": dataclasses.asdict(self.effort), "folder": str(mine),
                  "deadline": self.deadline}
        (mine / "orders.json").write_text(json.dumps(orders))
        command = [self.args.gradlane, "run", "-n", job.nodes, "--no-prefix"]
        if job.rate != "none":
            command += ["--link", "veth", "--inside", "--rate", job.rate, "--mtu", job.mtu]
        command += ["--", sys.executable, "-u", JOB, mine / "orders.json"]
        say(f"{job.name()}: starting")
        self.results["jobs"].append({"nodes": job.nodes, "rate": job.rate, "mtu": job.mtu})
        env = {**os.environ, "PYTHONPATH": str(ROOT / "client" / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   text=True, env=env)
        try:
            for line in process.stdout:
                self.heard(job, line)
        except BaseException:
            process.send_signal(signal.SIGTERM)
            raise
        finally:
            code = process.wait(timeout=60)
        if code != 0:
            self.note(f"{job.name()}: ended with status {code}")
            self.results["failed"] = True
        shutil.rmtree(mine)

    def heard(self, job, line):
        try:
            said = json.loads(line)
            kind = said["say"]
        except (ValueError, TypeError, KeyError):
            say(line.rstrip("\n"))
            return
        if kind == "row":
            self.results["rows"].append(said["row"])
            self.save()
            row = said["row"]
            right = "" if row["wrong"] == 0 and row["same_on_all_ranks"] else "   WRONG"
            say(f"    {plan.LABELS[row['method']]:24} {row['median'] * 1e3:9.3f} ms   {row['min'] * 1e3:.3f} to "
                f"{row['max'] * 1e3:.3f}, {len(row['samples'])} samples of {row['operations']}{right}")
        elif kind == "about":
            self.results["about"].update(said["about"])
        elif kind == "idle":
            self.results["jobs"][-1]["idle_cores"] = said["busy_cores"]
        else:
            point = job.points[said["number"]]
            if said["number"] > 0:
                self.progress.past(plan.guess_seconds(job, job.points[said["number"] - 1], self.effort))
            self.progress.point(job, point)
            if kind == "late":
                self.note(f"{job.name()}: {plan.size_text(point.size)} {point.data} left out: {self.args.minutes} "
                          "minutes are over")


def parse():
    parser = argparse.ArgumentParser(prog="tools/compare.sh", allow_abbrev=False, description=(
        "Times all-reduce by gradlane, Gloo, a worker-aggregator, PyTorch's fp16 hook and Open MPI, in turn, on the "
        "same links, and checks each result. Writes results.json, tables and plots. Needs root for links with a rate; "
        "a machine that does nothing else; docs/benchmarks.md explains the rest."))
    parser.add_argument("--out", type=pathlib.Path, default="compare-results", metavar="DIR",
                        help="for results.json, report.md and PNGs (%(default)s); what is there is replaced")
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="KEY=VALUES",
                        help="nodes=2, rate=1gbit,none, size=64K,16M, data=gauss, mtu=1500, 'method=gloo,gradlane raw'")
    parser.add_argument("--quick", action="store_true", help="two nodes, small tensors, two samples: half a minute")
    parser.add_argument("--samples", type=int, metavar="N", help="of each point (7 to 21, as time allows)")
    parser.add_argument("--mtu", type=int, default=1500, help="of links with a rate (%(default)s)")
    parser.add_argument("--minutes", type=float, default=25, help="points are left out after so many (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print results.json instead of tables")
    parser.add_argument("--render", action="store_true", help="measure nothing: tables and plots of DIR/results.json")
    parser.add_argument("--write-docs", action="store_true", help="tables to docs/benchmarks.md, plots to docs/images")
    parser.add_argument("--gradlane", type=pathlib.Path, default=ROOT / "build" / "tools" / "gradlane",
                        help="build/tools/gradlane")
    args = parser.parse_args()
    try:
        args.jobs = plan.jobs(args.quick, args.mtu, plan.parse_filter(args.only))
    except ValueError as error:
        parser.error(str(error))
    if not args.jobs:
        parser.error("--only leaves nothing to measure")
    if args.samples is not None and args.samples < 1:
        parser.error(f"--samples {args.samples}; 1 or more")
    if not 576 <= args.mtu <= 9000:
        parser.error(f"--mtu {args.mtu}; 576 to 9000")
    return args


def measure(args):
    """0, 1 if something failed, 130 if it was interrupted."""
    shaped = [job for job in args.jobs if job.rate != "none"]
    if shaped and os.getuid() != 0:
        say("compare.sh: links with a rate need root: run 'sudo tools/compare.sh', or add --only rate=none")
        return 2
    if shutil.which("mpirun") is None:
        say("compare.sh: no mpirun here: run tools/setup.sh, or leave Open MPI out with --only method=...")
        return 2
    args.gradlane = args.gradlane.resolve()
    run = Run(args, args.jobs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run.all()
    except KeyboardInterrupt:
        run.note("interrupted")
        run.save()
        return 130
    wrong = [row for row in run.results["rows"] if row["wrong"] or not row["same_on_all_ranks"]]
    if wrong:
        run.note(f"{len(wrong)} of {len(run.results['rows'])} results are wrong")
        run.save()
    return 1 if wrong or run.results.get("failed") else 0


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    code = 0 if args.render else measure(args)
    path = args.out / "results.json"
    if code == 2 or not path.exists():
        return code or 1
    import report  # with Matplotlib, which takes its time

    results = json.loads(path.read_text())
    text = report.write(results, args.out)
    if args.write_docs:
        report.write_docs(results, args.out, ROOT / "docs")
    print(path.read_text() if args.json else text)
    return code


if __name__ == "__main__":
    sys.exit(main())
