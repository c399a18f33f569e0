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
        if not self.samples:
            return f"Nothing has been measured yet. `lab/reproduce.sh --only {self.experiment.name}` does it."
        machines = []
        for sample in self.samples:
            text = "{cpu}, {cores} cores, Linux {kernel}, PyTorch {torch}".format(**sample.machine)
            if text not in machines:
                machines.append(text)
        days = sorted({sample.when[:10] for sample in self.samples})
        text = (f"{len(self.samples)} samples, measured "
                f"{days[0] if len(days) == 1 else days[0] + ' to ' + days[-1]} by `lab/reproduce.sh --only "
                f"{self.experiment.name}` on {'; '.join(machines)}.")
        if self.experiment.timed:
            busy = max(max(sample.load["before"], sample.load["others"]) for sample in self.samples)
            steal = max(sample.load["steal"] for sample in self.samples)
            text += (f" At most {max(0, busy):.2f} cores were busy with other work, and {100 * steal:.1f} % of the time "
                     "was stolen by the hypervisor.")
        text += f" [Raw samples](data/{self.experiment.name}.json)."
        if stale := self.stale():
            text += (f" **Stale: {len(stale)} of {len(self.samples)} samples were measured before the code changed; "
                     "newer code may give other figures.**")
        return text
