"""Runs the tests in virtual machines, which are called rows, and prints a line for each. lab/vm-test.sh starts it."""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
import traceback

from lab.net.spaces import can_run, end_orderly_on_sigterm
from tests.vm import image, kernels
from tests.vm.row import PREFIX
from tests.vm.rows import ROWS
from tests.vm.stage import Stage

CLEAR = "\r\033[K" if sys.stdout.isatty() else ""


class Player:
    """Plays rows, several at a time, and prints their results."""

    def __init__(self, options, kernel, archive, folder):
        self._options, self._kernel, self._archive, self._folder = options, kernel, archive, folder
        self._stages, self._running = {}, {}
        self.cut_short = ""  # rows in which the run was interrupted, and how many were done
        self._root = can_run()

    def play_all(self, rows):
        """Plays all rows. Returns the results in the order of the rows."""
        width = max(len(row.name) for row in rows)
        results = {}
        with concurrent.futures.ThreadPoolExecutor(self._options.jobs) as pool:
            try:
                waiting = {pool.submit(self._play, number, row): row for number, row in enumerate(rows)}
                while waiting:
                    done, _ = concurrent.futures.wait(waiting, 1, concurrent.futures.FIRST_COMPLETED)
                    for future in done:
                        row = waiting.pop(future)
                        results[row.name] = future.result()
                        self._print(results[row.name], width, len(results), len(rows))
                    self._print_running()
            except BaseException:
                self.cut_short = f"in {', '.join(self._running) or 'no row'}; {len(results)} of {len(rows)} rows were done"
                pool.shutdown(wait=False, cancel_futures=True)
                self.close()
                raise
        return [results[row.name] for row in rows]

    def close(self):
        """Ends all commands and guests that run."""
        kernels.end_commands()
        for stage in list(self._stages.values()):
            stage.close()

    def _play(self, number, row):
        result = {"row": row.name, "state": "OK", "said": "", "reason": ""}
        begun = self._running[row.name] = time.monotonic()
        try:
            if row.root and self._root:
                raise kernels.Missing(self._root)
            row.fetch()
            with Stage(self._folder, number, self._kernel, self._archive, row.limit, self._options.build) as stage:
                self._stages[number] = stage
                result["said"] = row.play(stage) or ""
        except kernels.Missing as error:
            result |= {"state": "skipped", "reason": str(error)}
        except AssertionError as error:
            result |= {"state": "FAILED", "reason": str(error) or traceback.format_exc()}
        except Exception:  # a mistake in a row must not end the others
            result |= {"state": "FAILED", "reason": traceback.format_exc()}
        finally:
            del self._running[row.name]
            self._stages.pop(number, None)
        if not self._options.keep:
            shutil.rmtree(self._folder / f"row{number}", ignore_errors=True)
        return {**result, "seconds": round(time.monotonic() - begun, 1)}

    @staticmethod
    def _print(result, width, number, rows):
        text = result["said"] or result["reason"]
        lines = text.strip().splitlines() or [""]
        print(f"{CLEAR}[{number}/{rows}] {result['row']:{width}} {result['seconds']:6.1f} s  {result['state']:7} {lines[0]}",
              *(f"      {line}" for line in lines[1:]), sep="\n", flush=True)

    def _print_running(self):
        if sys.stdout.isatty():
            now = time.monotonic()
            text = ", ".join(f"{name} {now - begun:.0f} s" for name, begun in list(self._running.items()))
            print(f"{CLEAR}{text[:100]}", end="\r", flush=True)


def remove_leftovers():
    """Removes folders of runs that were killed."""
    for path in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        found = re.match(PREFIX + r"(\d+)-", path.name)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            shutil.rmtree(path, ignore_errors=True)


def summarize(results, seconds):
    """Prints how many rows ended how. Returns the exit status, which is 77 if no row could be played."""
    counts = {state: sum(result["state"] == state for result in results) for state in ("OK", "FAILED", "skipped")}
    print(f"{len(results)} rows in {seconds:.0f} s: {counts['OK']} OK, {counts['FAILED']} failed, "
          f"{counts['skipped']} skipped")
    return 1 if counts["FAILED"] else 0 if counts["OK"] else 77


def play(options, rows):
    begun = time.monotonic()
    try:
        if not shutil.which("qemu-system-x86_64"):
            raise kernels.Missing("no qemu-system-x86_64; lab/vm-test.sh installs it as root")
        kernel = kernels.debian()
        archive = image.build(kernel, options.build)
    except kernels.Missing as error:
        print(f"skipped: {error}")
        return 77
    remove_leftovers()
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    player = Player(options, kernel, archive, folder)
    try:
        results = player.play_all(rows)
    finally:
        player.close()
        if player.cut_short:
            print(f"{CLEAR}interrupted {player.cut_short}", flush=True)
        if options.keep:  # a new name, so that the next run does not remove the folder
            folder = folder.rename(folder.with_name(folder.name.replace(PREFIX, f"{PREFIX}kept-")))
            print(f"transcripts and consoles are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"kernel": kernel.version, "rows": results}, indent=2) + "\n")
    return summarize(results, time.monotonic() - begun)


def main():
    parser = argparse.ArgumentParser(prog="lab/vm-test.sh", add_help=False)
    parser.add_argument("--build", default="build")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--row", action="append", default=[])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: at least 1")
    rows = [row for row in ROWS if (row.short or not options.short)
            and (not options.row or any(fnmatch.fnmatch(row.name, pattern) for pattern in options.row))]
    if not rows:
        parser.error(f"no row is called {' or '.join(options.row)}; --list has all")
    if options.list:
        print(*(row.name for row in rows), sep="\n")
        return 0
    end_orderly_on_sigterm()
    try:
        return play(options, rows)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
