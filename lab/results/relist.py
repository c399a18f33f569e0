"""relist.py - gives samples their hash by another list of sources, after Experiment.sources has changed

    python3 -m lab.results.relist COMMIT        # the last commit with the old lists

A sample says by which commit it was measured. If the sources of that commit have the sample's hash by the old list, it
gets their hash by the new one. Others keep theirs, and are stale.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest.mock

from lab.results import store
from lab.results.experiment import ROOT, experiments


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def tree_of(commit):
    """Yields a folder with the files of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        git("worktree", "add", "--detach", "--force", folder, commit)
        try:
            yield pathlib.Path(folder)
        finally:
            git("worktree", "remove", "--force", folder)


def hash_in(folder, patterns):
    """Returns sources_hash() of a folder's files; "" if it lacks some."""
    store.sources_hash.cache_clear()
    try:
        with unittest.mock.patch.object(store, "ROOT", folder):
            return store.sources_hash(tuple(patterns))
    except ValueError:
        return ""
    finally:
        store.sources_hash.cache_clear()


def old_lists(commit):
    """Returns {experiment: sources} of a commit."""
    script = ("import json\nfrom lab.results.experiment import experiments\n"
              "print(json.dumps({name: each.sources for name, each in experiments().items()}))")
    with tree_of(commit) as folder:
        said = subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, capture_output=True, text=True)
    return json.loads(said.stdout)


def main():
    parser = argparse.ArgumentParser(prog="python3 -m lab.results.relist", description=__doc__.split("\n\n")[2])
    parser.add_argument("commit", help="the last commit with the old lists of sources")
    lists = old_lists(parser.parse_args().commit)
    stores = [store.Store(each) for name, each in experiments().items() if name in lists]
    stores = [each for each in stores if list(each.experiment.sources) != lists[each.experiment.name]]
    changed = {}
    for commit in {sample.commit.removesuffix("-dirty") for each in stores for sample in each.samples}:
        with tree_of(commit) as folder:
            for each in stores:
                old = hash_in(folder, lists[each.experiment.name])
                new = hash_in(folder, each.experiment.sources)
                for sample in each.samples:
                    if sample.commit.removesuffix("-dirty") == commit and new and sample.hash == old:
                        changed[id(sample)] = new
    for each in stores:
        for sample in each.samples:
            sample.hash = changed.get(id(sample), sample.hash)
        each.save()
        print(f"{each.experiment.name}: {sum(id(sample) in changed for sample in each.samples)} of {len(each.samples)} "
              f"samples have another hash; {len(each.stale())} are stale")
    return 0


if __name__ == "__main__":
    sys.exit(main())
