"""store.py - files of samples, and whether samples are stale"""

import dataclasses
import functools
import hashlib
import importlib
import json
import sys

from lab.results.experiment import ROOT


def _load_same_code():
    """Returns dev/same_code.py, which knows what is code and what is a comment."""
    sys.path.insert(0, str(ROOT / "dev"))
    try:
        return importlib.import_module("same_code")
    finally:
        sys.path.pop(0)


same_code = _load_same_code()
DATA = ROOT / "docs" / "results" / "data"
PARSED = (".cc", ".h", ".c", ".py", ".sh", ".build", ".toml", ".yaml")


@functools.cache
def digest(path):
    """Returns a hash of a file's code without comments; of other files, of all bytes."""
    if path.suffix not in PARSED:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return hashlib.sha256(repr(same_code.code_of(path.name, path.read_text())).encode()).hexdigest()


@functools.cache
def sources_hash(patterns):
    """Returns a hash of the code of all files that match the patterns. Raises ValueError if a pattern has no file."""
    whole = hashlib.sha256()
    for pattern in patterns:
        files = [path for path in sorted(ROOT.glob(pattern + "/*" if pattern.endswith("**") else pattern))
                 if path.is_file() and "__pycache__" not in path.parts]
        if not files:
            raise ValueError(f"sources: no file matches {pattern}")
        for path in files:
            whole.update(f"{path.relative_to(ROOT)} {digest(path)}\n".encode())
    return whole.hexdigest()[:16]


@dataclasses.dataclass
class Sample:
    """One run of one key, with the circumstances: `load` is what Watch.load() returned."""

    key: str
    values: object
    when: str  # UTC, "2026-11-27T15:30"
    commit: str
    hash: str  # sources_hash() at that time
    machine: dict
    command: str
    load: dict


class Store:
    """The samples of one experiment, in its file. Raises SystemExit if the file is damaged."""

    def __init__(self, experiment, folder=DATA):
        self.experiment = experiment
        self.path = folder / f"{experiment.name}.json"
        self.samples = []
        if self.path.exists():
            try:
                document = json.loads(self.path.read_text())
                machines = document["machines"]
                self.samples = [Sample(**{**each, "machine": machines[each["machine"]]}) for each in document["samples"]]
            except (ValueError, KeyError, IndexError, TypeError) as error:
                raise SystemExit(f"{self.path}: is damaged: {error!r}; repair it, or restore what was committed "
                                 f"by git checkout -- {self.path}") from error

    @property
    def hash(self):
        return sources_hash(self.experiment.sources)

    def stale(self):
        """Returns the samples that were measured with other code."""
        return [sample for sample in self.samples if sample.hash != self.hash]

    def values(self, fresh=False):
        """Returns {key: [values of each run]}. With `fresh`, without stale samples."""
        found = {}
        for sample in self.samples:
            if not fresh or sample.hash == self.hash:
                found.setdefault(sample.key, []).append(sample.values)
        return found

    def add(self, sample):
        """Adds a sample and writes the file. Stale samples of the same key are dropped."""
        self.samples = [each for each in self.samples if each.key != sample.key or each.hash == self.hash]
        self.samples.append(sample)
        self.save()

    def save(self):
        machines = []
        lines = []
        for sample in sorted(self.samples, key=lambda each: each.key):
            if sample.machine not in machines:
                machines.append(sample.machine)
            fields = {**dataclasses.asdict(sample), "machine": machines.index(sample.machine)}
            lines.append(json.dumps(fields))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text('{"experiment": %s,\n "machines": %s,\n "samples": [\n%s\n]}\n' % (
            json.dumps(self.experiment.name), json.dumps(machines), ",\n".join(lines)))
        fresh.rename(self.path)

    def about(self):
        """Returns one paragraph about the origin of the samples, for pages."""
        return _origin([self])


class Combined:
    """The samples of the experiments of a Combination, for pages."""

    def __init__(self, combination, stores):
        self.experiment = combination
        self.stores = [stores[name] for name in combination.of]

    @property
    def samples(self):
        """All samples; none if an experiment has none."""
        found = [store.samples for store in self.stores]
        return [sample for samples in found for sample in samples] if all(found) else []

    def stale(self):
        return [sample for store in self.stores for sample in store.stale()]

    def values(self):
        return {store.experiment.name: store.values() for store in self.stores}

    def about(self):
        return _origin(self.stores)


def _origin(stores):
    """Returns the command, days, commits and machines of the samples of experiments."""
    names = ",".join(store.experiment.name for store in stores)
    samples = [sample for store in stores for sample in store.samples]
    if not samples:
        return f"Nothing has been measured yet. `lab/reproduce.sh --only {names}` does it."
    days = sorted(sample.when[:10] for sample in samples)
    commits = sorted({sample.commit.removesuffix("-dirty") for sample in samples})
    dirty = sum(sample.commit.endswith("-dirty") for sample in samples)
    machines = sorted({"{cpu}, {cores} cores, Linux {kernel}, PyTorch {torch}".format(**each.machine) for each in samples})
    text = (f"{len(samples)} {'sample' if len(samples) == 1 else 'samples'} by `lab/reproduce.sh --only {names}`, "
            f"{' to '.join(dict.fromkeys((days[0], days[-1])))}, at {'commit' if len(commits) == 1 else 'commits'} "
            f"{', '.join(commits)}{f' ({dirty} samples with uncommitted changes)' if dirty else ''}, on "
            f"{'; '.join(machines)}. Raw samples: "
            + ", ".join(f"`docs/results/data/{store.experiment.name}.json`" for store in stores) + ".")
    stale = sum(len(store.stale()) for store in stores)
    if stale:
        text += (f" **Stale: {stale} of {len(samples)} samples were measured before the code changed; newer code may give "
                 "other figures.**")
    return text
