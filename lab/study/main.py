#!/usr/bin/python3
"""main.py - trains the study's networks with every method, and writes the results; lab/study.sh calls it

The training study trains the digits classifier and a small convolutional net under PyTorch's DistributedDataParallel,
on four nodes at 1 Gb/s in network namespaces. Gloo, a worker-aggregator and gradlane with each codec average their
gradients. docs/study.md explains what is measured. Needs root.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time

from lab.compare.busy import busy_cores
from lab.study import kept
from lab.study import plan
from lab.study import report
from lab.study import summary
from lab.study import systems

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "docs" / "results"
# The page of each mode.
PAGES = {None: RESULTS / "study.md", plan.SYSTEMS_MODE: RESULTS / "systems.md", plan.PAPERS_MODE: RESULTS / "papers.md",
         plan.OBSERVATION_MODE: RESULTS / "observation.md", plan.RACE_MODE: RESULTS / "race.md"}
IMAGES = ROOT / "docs" / "images"
QUICK_EPOCHS = 2
TRIES = 2


def interrupt(*_):
    raise KeyboardInterrupt


def say(text):
    with contextlib.suppress(OSError):  # the terminal may be gone; results are in files
        print(text, file=sys.stderr, flush=True)


# ---- The command line


def whole(least, most):
    def parse(text):
        if not re.fullmatch(r"\d{1,6}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}': must be a whole number from {least} to {most}")
        return int(text)

    return parse


def methods(text):
    """Splits a list of methods. Names may contain commas, so the longest names are tried first."""
    found, rest = [], text
    while rest:
        name = next((name for name in sorted(plan.BY_NAME, key=len, reverse=True)
                     if rest == name or rest.startswith(name + ",")), None)
        if name is None:
            raise argparse.ArgumentTypeError(f"unknown method '{rest}'; there are {'; '.join(plan.BY_NAME)}")
        found.append(name)
        rest = rest[len(name) + 1 :]
    return found


def least_seeds(mode):
    return plan.SEEDS if mode in (None, plan.PAPERS_MODE) else plan.FEWER_SEEDS


def for_page(settings):
    """Returns whether these settings fit the page of their mode (docs/results/study.md or another)."""
    seeds = least_seeds(settings.get("mode"))
    return (not settings["quick"] and not settings["only"] and settings["models"] == plan.models_of(settings.get("mode"))
            and settings["seeds"] >= seeds and settings["epochs"] == plan.EPOCHS
            and settings["link_rate"] == plan.LINK_RATE)


def check_record(parser, args):
    """Reports options that do not work with --record, and --sample without --record."""
    if args.sample and not args.record:
        parser.error("--sample is for --record FOLDER")
    if not args.record:
        return
    for name in ("seeds", "only", *plan.MODES, "minutes", "resume", "report", "write_docs", "json", "gradlane"):
        if getattr(args, name):
            parser.error(f"--record trains once without daemons, so leave out --{name.replace('_', '-')}; allowed "
                         "with it: --models, --epochs, --quick, --sample")


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="lab/study.sh", allow_abbrev=False, description=__doc__.split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", default="study-results", metavar="DIR", type=pathlib.Path,
                        help="folder for results (%(default)s): trainings.jsonl gets a line after each training; "
                        "results.json, tables.md and pictures follow at the end")
    parser.add_argument("--quick", action="store_true",
                        help=f"only check that it works: few methods, one seed, {QUICK_EPOCHS} epochs")
    parser.add_argument("--seeds", type=whole(1, 99), help=f"number of seeds: trainings of each kind ({plan.SEEDS})")
    parser.add_argument("--epochs", type=whole(1, 1000), help=f"epochs of each training ({plan.EPOCHS})")
    parser.add_argument("--models", type=lambda text: text.split(","), metavar="MODEL,...",
                        help=" or ".join(plan.MODELS) + " (digits,conv; digits,conv,gpt with --race and --record)")
    parser.add_argument("--only", type=methods, metavar="METHOD,...",
                        help="only these methods, the worker-aggregator and Gloo; there are: "
                        + "; ".join(plan.BY_NAME).replace("%", "%%"))
    parser.add_argument("--systems", action="store_true",
                        help="the INCEPTIONN paper's four systems, and Gloo: gradlane's aggregator, the same with "
                        "compression on the way up, ring, ring with compression; --write-docs writes "
                        "docs/results/systems.md")
    parser.add_argument("--papers", action="store_true",
                        help="the codecs of the papers, PowerSGD above gradlane, and fp16 and bf16 over Gloo; "
                        "--write-docs writes docs/results/papers.md")
    parser.add_argument("--observation", action="store_true",
                        help="the same codecs on gradients only, on weights only, on both; --write-docs writes "
                        "docs/results/observation.md")
    parser.add_argument("--race", action="store_true",
                        help="fp32 and bf16 over Gloo compared with gradlane over udp: seconds to the same loss, "
                        "with a small GPT and FSDP2; --write-docs writes docs/results/race.md")
    parser.add_argument("--python", metavar="EXE", help="Python of the trainers (this one, that of build-pytorch/)")
    parser.add_argument("--link-rate", default=plan.LINK_RATE, metavar="R",
                        help="rate of each node's link (%(default)s)")
    parser.add_argument("--minutes", type=whole(1, 99999),
                        help="after this time, end when the current training ends; --resume continues")
    parser.add_argument("--resume", action="store_true", help="keep the trainings that are in DIR, and run the others")
    parser.add_argument("--report", action="store_true", help="train nothing; make tables and pictures of DIR")
    parser.add_argument("--write-docs", action="store_true",
                        help="also write the tables to docs/results/study.md, and the pictures to docs/images/")
    parser.add_argument("--json", action="store_true", help="print results.json at the end, not the tables")
    parser.add_argument("--record", metavar="FOLDER", type=pathlib.Path,
                        help="measure nothing; train in this process, and write gradients of each rank early, in the "
                        "middle and late as FOLDER/MODEL-STEP.npy, for gradlane bench codec --data; needs no root")
    parser.add_argument("--sample", metavar="FLOATS", type=whole(32, 999999),
                        help="with --record: keep this many floats of each gradient, spread evenly (all)")
    parser.add_argument("--gradlane", metavar="EXE", help="use this program; install and build nothing")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)  # checks the command line only
    args = parser.parse_args()
    if args.resume and args.report:
        parser.error("--resume trains, --report does not; choose one")
    modes = [mode for mode in plan.MODES if getattr(args, mode)]
    if len(modes) > 1:
        parser.error(f"--{modes[0]} and --{modes[1]} are different studies; choose one")
    args.mode = modes[0] if modes else None
    args.models = args.models or plan.models_of(plan.RACE_MODE if args.record else args.mode)
    for model in args.models:
        if model not in plan.MODELS:
            parser.error(f"--models: unknown model '{model}'; there are {', '.join(plan.MODELS)}")
    args.python = args.python or sys.executable
    if args.systems and args.only:
        parser.error("--systems has its own list of methods; leave out --only")
    if args.minutes and args.report:
        parser.error("--report trains nothing; leave out --minutes")
    check_record(parser, args)
    args.seeds = args.seeds or (1 if args.quick else least_seeds(args.mode))
    args.epochs = args.epochs or (QUICK_EPOCHS if args.quick else plan.EPOCHS)
    if args.write_docs and not for_page(vars(args)):
        parser.error(f"--write-docs: the page needs all methods, {plan.SEEDS} seeds or more (with --systems "
                     f"and --observation {plan.FEWER_SEEDS}); leave out --quick, --only, --models, --epochs, "
                     "--link-rate and fewer --seeds")
    if not args.report and not args.record and os.geteuid() != 0:
        parser.error("network namespaces need root; use sudo")
    return args


# ---- Training


def jobs_of(settings):
    return plan.jobs(settings["models"], range(1, settings["seeds"] + 1), settings["quick"], settings["only"],
                     settings.get("mode"))


class Progress:
    """Prints a line for each training, with an estimate of the time that is left: the time of start-ups, and for each
    training the mean time of earlier ones with the same model and method."""

    def __init__(self, jobs, epochs):
        self.all = [training for job in jobs for training in job]
        self.left = {plan.key(training): training for training in self.all}
        self.jobs = len(jobs)
        self.seen = collections.defaultdict(list)
        self.epochs = epochs

    def minutes(self):
        seconds = plan.START_UP * max(1, round(self.jobs * len(self.left) / max(1, len(self.all))))
        for training in self.left.values():
            took = self.seen[training["model"], training["method"]]
            guess = plan.GUESS[plan.BY_NAME[training["method"]].kind] * plan.LONGER.get(training["model"], 1)
            guess *= self.epochs / plan.EPOCHS
            seconds += sum(took) / len(took) if took else guess
        return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"

    def done(self, result, quiet=False):
        self.left.pop(plan.key(result), None)
        self.seen[result["model"], result["method"]].append(result["wall_seconds"])
        if quiet:
            return
        replicas = "replicas identical" if result["identical"] else "REPLICAS DIFFER: " + " ".join(result["hashes"])
        at = len(self.all) - len(self.left)
        say(f"[{at}/{len(self.all)}] {result['model']}, seed {result['seed']}, {result['method']}: "
            f"{result['accuracy'][-1]:.2f} %, {sum(result['epoch_seconds']):.1f} s, {replicas}; "
            + (f"about {self.minutes()} left" if self.left else "this was the last one"))


def look_around(settings, out):
    """Records how busy the machine is with other work, and warns if it is not quiet."""
    busy = busy_cores()
    settings["idle_cores"].append(busy)
    kept.save_settings(settings, out)
    if busy > plan.QUIET:
        say(f"lab/study.sh: WARNING: {busy:.1f} cores are busy with other work; do not rely on these times")


def train(args, out):
    """Runs all trainings. Returns settings, trainings and failures. Each result is written at once."""
    from lab.study import job

    data = out / "digits.npz"
    settings = kept.settings_of(args, kept.prepare_data(data))
    if any(plan.SYSTEMS["WA"] in plan.selected(model, args.quick, args.only, args.mode) for model in args.models):
        settings["add_gbps"] = systems.adding_speeds(args.gradlane, ROOT)
    trainings = kept.begin(args, settings)
    planned = jobs_of(settings)
    progress = Progress(planned, args.epochs)
    for training in trainings:
        progress.done(training, quiet=True)
    say(f"{len(progress.left)} trainings in {len(planned)} jobs: about {progress.minutes()}")
    failures = []
    end = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    try:
        for trying in range(TRIES):
            for wanted in planned:
                wanted = [training for training in wanted if plan.key(training) in progress.left]
                if not wanted or time.monotonic() > end:
                    continue
                look_around(settings, out)
                try:
                    for result in job.results(settings, args.gradlane, wanted, data):
                        with open(out / "trainings.jsonl", "a") as file:
                            file.write(json.dumps(result) + "\n")
                        trainings.append(result)
                        progress.done(result)
                        if time.monotonic() > end:
                            break
                except job.Failed as failure:
                    failures.append(f"seed {wanted[0]['seed']}: {failure}")
                    say(f"lab/study.sh: {failures[-1]}" + ("" if trying else "; missing trainings are tried once more"))
            if not progress.left or time.monotonic() > end:
                break
        if progress.left and time.monotonic() > end:
            say(f"lab/study.sh: {args.minutes} minutes are over; --resume continues with the results in {out}")
    except KeyboardInterrupt:
        failures.append("interrupted")
        say(f"lab/study.sh: interrupted; results so far are in {out}, and --resume continues with them")
    data.unlink(missing_ok=True)
    return settings, trainings, failures


def record(args):
    """Records gradients instead of running a study. Returns the exit status."""
    try:
        args.record.mkdir(parents=True, exist_ok=True)
        from lab.study import record as recorder

        with tempfile.TemporaryDirectory(prefix="gradlane-study-") as folder:
            data = pathlib.Path(folder, "digits.npz")
            kept.prepare_data(data)
            recorder.record(args.record, args.models, data, kept.TRAINING, args.epochs, args.sample, say)
    except ImportError as error:
        raise SystemExit(f"lab/study.sh: --record: {error}; tools/setup.sh installs what it needs")
    except OSError as error:
        raise SystemExit(f"lab/study.sh: --record: {error}; give a folder that can be written to")
    except KeyboardInterrupt:
        say("lab/study.sh: interrupted")
        return 130
    return 0


# ---- Results


def finish(args, settings, trainings, failures):
    done = {plan.key(training) for training in trainings}
    missing = [key for job in jobs_of(settings) for key in map(plan.key, job) if key not in done]
    result = summary.summarize(settings, trainings) | {"failures": failures, "missing": missing}
    (args.out / "results.json").write_text(json.dumps(result | {"trainings": trainings}, indent=1) + "\n")
    tables = report.document(result)
    (args.out / "tables.md").write_text(tables)
    from lab.study import plots

    pictures = plots.draw(result, args.out)
    print(json.dumps(result | {"trainings": trainings}) if args.json else tables, flush=True)
    say(f"results.json, tables.md{''.join(', ' + name for name in pictures)} are in {args.out}")
    if args.write_docs:
        mode = settings.get("mode")
        page = PAGES[mode]
        if missing or result["different"] or not for_page(settings):
            raise SystemExit(f"lab/study.sh: docs/results/{page.name} was not changed: it needs a complete study "
                             f"with {least_seeds(mode)} seeds or more, {plan.EPOCHS} epochs, {plan.LINK_RATE} and "
                             "identical replicas")
        page.write_text(report.page_of(mode, result, pictures))
        pictures = report.pictures_of(mode, pictures)
        IMAGES.mkdir(exist_ok=True)
        for name in pictures:
            (IMAGES / name).write_bytes((args.out / name).read_bytes())
        say(f"docs/results/{page.name}{' and docs/images/ are' if pictures else ' is'} written")


def main():
    args = parse_arguments()
    if args.check:
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # a signal that nohup ignores stays ignored
            signal.signal(number, interrupt)
    if args.record:
        return record(args)
    args.gradlane = args.gradlane or str(ROOT / "build" / "tools" / "gradlane")
    start = time.monotonic()
    if args.report:
        (settings, trainings), failures = kept.load(args.out), []
    else:
        args.out.mkdir(parents=True, exist_ok=True)
        settings, trainings, failures = train(args, args.out)
        say(f"trained for {(time.monotonic() - start) / 60:.1f} min")
    if not trainings:
        raise SystemExit("lab/study.sh: nothing was trained; see above")
    finish(args, settings, trainings, failures)
    different = [training for training in trainings if not training["identical"]]
    for training in different:
        say(f"lab/study.sh: REPLICAS DIFFER after {training['model']}, seed {training['seed']}, {training['method']}")
    for failure in failures:
        say(f"lab/study.sh: {failure}")
    return 130 if "interrupted" in failures else 1 if different or failures else 0


if __name__ == "__main__":
    sys.exit(main())
