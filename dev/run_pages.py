#!/usr/bin/python3
"""Runs the commands of README.md and docs/: all blocks of the pages whose first line is exactly ```sh.

    dev/run_pages.py                  # all pages
    dev/run_pages.py docs/plan.md     # these pages
    dev/run_pages.py --list           # prints the blocks; fails if a block that is skipped has no reason

The blocks of a page run in order in one shell, in this checkout. PATH has the programs of build/ and of build-pytorch/.
A page has namespaces of its own: its network is a loopback interface, the files that it writes in the checkout vanish
with it, and so do its processes. It also has its own HOME, TMPDIR and sockets. A page fails if a command fails, or
after --seconds.

A block "```sh skip" does not run. The line above it says why: <!-- skip: REASON -->. Another word after "sh" names the
test that runs the block.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST_LINE = re.compile(r"^( *)```sh(?: (.*))?$")
REASON = re.compile(r" *<!-- skip: (.+) -->$")
LAST_LINES = 20  # lines that are shown of the output of a page that fails

# The first line of a page's script. It writes the line number and the text of each command before the command runs.
TRACE = r"""trap 'echo "$LINENO $BASH_COMMAND" >>{}' DEBUG"""
# Runs in the page's namespaces: changes of the checkout go to memory, and /run is empty. $1 is the checkout.
APART = """ip link set lo up
mount -t tmpfs none /run
mkdir /run/page /run/page/upper /run/page/work
mount -t overlay none -o "lowerdir=$1,upperdir=/run/page/upper,workdir=/run/page/work" "$1"
cd "$1"
shift
exec "$@\""""


@dataclasses.dataclass(frozen=True)
class Block:
    line: int  # number of the first line in the block
    words: str  # the words after "sh"
    reason: str  # why it does not run; empty if it runs, or if the page does not say why
    lines: tuple

    @property
    def runs(self):
        return not self.words

    @property
    def fault(self):
        if "skip" in self.words.split() and not self.reason:
            return "the line above does not say why it is skipped: <!-- skip: REASON -->"
        return None


def blocks(text):
    """Yields the sh blocks of a page."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        start = FIRST_LINE.match(lines[number])
        fence = re.match(r" *```", lines[number])
        number += 1
        if not fence:
            continue
        first = number
        while number < len(lines) and not re.match(r" *```$", lines[number]):
            number += 1
        if start:
            indent, words = start[1], start[2] or ""
            reason = REASON.match(lines[first - 2]) if first > 1 else None
            yield Block(first + 1, words, reason[1] if reason else "" if "skip" in words.split() else words,
                        tuple(line.removeprefix(indent) for line in lines[first:number]))
        number += 1


def script(text, trace):
    """Returns a shell script with the blocks of a page that run. Each command has the line number of the page."""
    lines = [TRACE.format(trace)] + [""] * text.count("\n")
    for block in blocks(text):
        if block.runs:
            lines[block.line - 1 : block.line - 1 + len(block.lines)] = block.lines
    return "\n".join(lines) + "\n"


def environment(folder, build, pytorch):
    """Returns the variables of a user who has just logged in, made gradlane's build usable, and activated PyTorch."""
    places = {name: folder / name for name in ("home", "tmp", "run")}
    for place in places.values():
        place.mkdir(mode=0o700)
    return {
        "PATH": f"{build}/tools:{pytorch}/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": f"{ROOT}/client/python", "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPYCACHEPREFIX": f"{pytorch}/pycache",
        "TORCH_EXTENSIONS_DIR": os.environ.get("TORCH_EXTENSIONS_DIR", f"{pytorch}/extensions"),
        "HOME": str(places["home"]), "TMPDIR": str(places["tmp"]), "XDG_RUNTIME_DIR": str(places["run"]),
        "LANG": "C.UTF-8", "TERM": "dumb", "OMP_NUM_THREADS": "1",
    }


def run_page(name, text, args):
    """Runs a page. Returns the fault, or None, and the number of commands that ran."""
    with tempfile.TemporaryDirectory(prefix="pages-", ignore_cleanup_errors=True) as scratch:
        folder = pathlib.Path(scratch)
        trace, program, log = folder / "trace", folder / "page.sh", folder / "output"
        program.write_text(script(text, trace))
        rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", *rights, "--net", "--pid", "--mount-proc", "--fork", "--kill-child", "bash", "-ec", APART,
                   "page", str(ROOT), "bash", "--norc", "-e", "-o", "pipefail", str(program)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                env=environment(folder, args.build.absolute(), args.pytorch.absolute()))
            try:
                status = process.wait(args.seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                if process.poll() is None:  # otherwise its namespace has ended, too
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        commands = re.findall(r"^(\d+) (.*)", trace.read_text(), re.MULTILINE) if trace.exists() else []
        count = len({line for line, _ in commands})
        if args.verbose:
            print(log.read_text(errors="replace"), end="")
        if status == 0:
            return None, count
        line, last = commands[-1] if commands else ("1", "nothing")
        what = f"still runs after {args.seconds:.0f} s" if status is None else f"exit status {status}"
        shown = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return f"{name}:{line}: {what}: {last}" + "".join(f"\n    {each}" for each in shown), count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="show what commands print")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--pytorch", type=pathlib.Path, default=ROOT / "build-pytorch")
    parser.add_argument("--seconds", type=float, default=600, help="time limit of a page")
    args = parser.parse_args()
    needed = [args.build / "tools/gradlane", args.build / "tools/gradlaned", args.pytorch / "bin/python"]
    lacking = [str(path) for path in needed if not path.exists()]
    if lacking and not args.list:
        parser.error(f"there is no {', '.join(lacking)}; tools/test.sh builds them")
    faults, ran, left_out = [], 0, 0
    for page in args.pages or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text, name = page.read_text(), os.path.relpath(page, ROOT)
        found = list(blocks(text))
        for block in found:
            if block.fault:
                faults.append(f"{name}:{block.line}: {block.fault}")
            if not block.runs or args.list:
                print(f"{name}:{block.line}: {f'not run: {block.reason}' if not block.runs else ' '.join(block.lines)}")
        left_out += sum(not block.runs for block in found)
        if args.list or not any(block.runs for block in found):
            continue
        started = time.monotonic()
        fault, count = run_page(name, text, args)
        ran += count
        print(f"{name}: {count} commands in {sum(block.runs for block in found)} blocks, "
              f"{time.monotonic() - started:.0f} s: {'FAILED' if fault else 'passed'}", flush=True)
        if fault:
            faults.append(fault)
    for fault in faults:
        print(fault, file=sys.stderr)
    if not args.list:
        print(f"{ran} commands ran, {left_out} blocks were not run, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
