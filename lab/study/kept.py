"""kept.py - settings and results of a study, and their files in its folder"""

import datetime
import json
import os
import subprocess

SPLIT = 3  # seed of the split into training and tests, as in the demo
TRAINING = {"batch": 32, "rate": 0.05, "momentum": 0.9}


def version_of_torch(python):
    """Returns the version of the trainers' PyTorch. Raises SystemExit if there is none."""
    said = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    if said.returncode != 0:
        raise SystemExit(f"lab/study.sh: {python} has no PyTorch; tools/setup.sh --all installs one in build-pytorch/")
    return said.stdout.strip()


def prepare_data(path):
    """Writes the digits to a file, and returns how many there are to train on."""
    import numpy

    from tools.demo import digits

    images, labels, test_images, test_labels = digits.load_digits(SPLIT)
    numpy.savez(path, images=images, labels=labels, test_images=test_images, test_labels=test_labels)
    return len(labels)


def settings_of(args, images):
    nodes = 4
    return TRAINING | {
        "nodes": nodes,
        "link_rate": args.link_rate,
        "seeds": args.seeds,
        "epochs": args.epochs,
        "steps": images // (nodes * TRAINING["batch"]),
        "quick": args.quick,
        "models": args.models,
        "only": args.only,
        "mode": args.mode,
        "cores": len(os.sched_getaffinity(0)),
        "python": args.python,
        "torch": version_of_torch(args.python),
        "date": datetime.date.today().isoformat(),
        "idle_cores": [],
    }


def save_settings(settings, out):
    fresh = out / "settings.new"
    fresh.write_text(json.dumps(settings, indent=1) + "\n")
    fresh.rename(out / "settings.json")


def load(out):
    """Returns settings and trainings of earlier runs. Leaves out a last line that was cut off."""
    settings = json.loads((out / "settings.json").read_text())
    trainings = []
    for line in (out / "trainings.jsonl").read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            trainings.append(json.loads(line))
    return settings, trainings


def begin(args, settings):
    """Writes the settings, and returns the trainings that are kept. Raises SystemExit if --resume finds other settings
    in the folder."""
    if args.resume and (args.out / "trainings.jsonl").exists():
        before, trainings = load(args.out)
        for name in ("mode", "torch", "nodes", "link_rate", "epochs", "steps", "batch", "rate", "momentum", "cores"):
            before_that, now = before.get(name), settings[name]
            if before_that != now:
                raise SystemExit(f"lab/study.sh: --resume: {args.out} has {name} {before_that}, not {now}; use "
                                 "the same options, or another --out")
        settings["idle_cores"] = before.get("idle_cores", [])
    else:
        trainings = []
    save_settings(settings, args.out)
    (args.out / "trainings.jsonl").write_text("".join(json.dumps(training) + "\n" for training in trainings))
    return trainings
