"""Runs the `gradlane` command as a user would: help that lists all options, and errors that say what is allowed."""

import os
import pathlib
import re
import subprocess

from tests.scripts.fixtures.waiting import PATIENCE

ROOT = pathlib.Path(__file__).parents[3]
# Width of a classic terminal.
MAX_COLUMNS = 80
# Tables are wider.
MAX_TABLE_COLUMNS = 124

HELPS = [["--help"], ["bench", "--help"], ["bench", "codec", "--help"], ["bench", "exchange", "--help"],
         ["bench", "ratio", "--help"], ["bench", "auth", "--help"], ["stats", "--help"],
         ["accelerator", "--help"], ["accelerator", "up", "--help"], ["accelerator", "down", "--help"],
         ["check", "--help"], ["codecs", "--help"], ["loopback", "--help"], ["nic", "--help"], ["nic", "list", "--help"], ["nic", "setup", "--help"], ["nic", "undo", "--help"],
         ["perf", "--help"], ["plan", "--help"], ["run", "--help"], ["sim", "--help"], ["top", "--help"], ["trace", "--help"]]

BLOCKS = "must be a multiple of 4 from 4 to 1073741824 bytes"

# Arguments, environment, and words that the error must have.
ERRORS = [
    (["bench", "codec", "--codec", "fixed:99"], {}, ["fixed:99", "1 to 30", "fixed:rel=B"]),
    (["bench", "codec", "--codec", "inceptionn"], {}, ["inceptionn", "needs its parameter", "inceptionn:B[,truncate]"]),
    (["bench", "codec", "--codec", "fixed:10,foo"], {}, ["foo", "fixed:B"]),
    (["bench", "codec", "--isa", "mmx"], {}, ["mmx", "scalar", "avx512"]),
    (["bench", "codec", "--data", "noise"], {}, ["noise", "laplace-1e-3", "FILE.npy"]),
    (["bench", "codec", "--data", "/nowhere/a.npy"], {}, ["/nowhere/a.npy", "No such file"]),
    (["bench", "codec", "--data", "gauss-1", "gauss-1"], {}, ["gauss-1", "twice"]),
    (["bench", "codec", "--op", "shrink"], {}, ["shrink", "decode_add"]),
    (["bench", "codec", "--block", "1407"], {}, ["1407", BLOCKS]),
    (["bench", "codec", "--block", "abc"], {}, ["abc", BLOCKS]),
    (["bench", "codec", "--block", "-5"], {}, ["-5", BLOCKS]),
    (["bench", "codec", "--block", "4294967300"], {}, ["4294967300", BLOCKS]),
    (["bench", "codec", "--block"], {}, ["--block", "gradlane bench codec --help"]),
    (["bench", "codec", "--codec", "raw", "--op", "hop_feedback"], {}, ["hop_feedback", "raw", "fixed:10"]),
    (["bench", "codec", "--isa", "scalar"], {"GRADLANE_ISA": "sse9"}, ["GRADLANE_ISA=sse9", "scalar"]),
    (["bench", "codec", "--speed"], {}, ["--speed", "gradlane bench codec --help"]),
    (["bench", "--speed"], {}, ["--speed", "gradlane bench --help"]),
    (["bench", "codec", "foo"], {}, ["foo", "gradlane bench codec --help"]),
    (["bench", "foo"], {}, ["foo", "codec"]),
    (["bench"], {}, ["subcommand", "codec"]),
    (["codecs"], {"GRADLANE_ISA": "sse9"}, ["GRADLANE_ISA=sse9", "scalar"]),
    (["codecs", "foo"], {}, ["foo", "gradlane codecs --help"]),
    (["bench", "ratio", "--speed"], {}, ["--speed", "gradlane bench ratio --help"]),
    (["perf"], {"GRADLANE_SOCKET": "/nowhere/n0.sock"}, ["no daemon at /nowhere/n0.sock"]),
    (["perf", "-b", "1X"], {}, ["1X", "64K"]),
    (["perf", "--op", "foo"], {}, ["foo", "allreduce"]),
    (["perf", "--type", "int32", "--codec", "fixed:10"], {}, ["int32", "float32"]),
    (["perf", "--strategy", "star"], {}, ["star", "aggregator:R"]),
    (["perf", "--strategy", "ring", "--codec", "fixed:10/raw"], {}, ["fixed:10/raw", "aggregators"]),
    (["perf", "--reduction", "max", "--codec", "fixed:10"], {}, ["fixed:10", "maxima", "raw"]),
    (["perf", "--reduction", "mean"], {}, ["mean", "min"]),
    (["perf", "--format", "csv"], {}, ["csv", "osu"]),
    (["perf", "--background-load", "1"], {}, ["--background-load '1'", "1.1 to 10"]),
    (["perf", "--concurrent", "100"], {}, ["100", "1 to 64"]),
    (["run", "-n", "0"], {}, ["-n", "1"]),
    (["run", "-n", "2", "python3", "train.py"], {}, ["python3", "after '--'"]),
    (["run", "--strategy", "direct"], {}, ["unknown option '--strategy', did you mean '--strategies'?"]),
    (["run", "-n", "2", "--strategies", "auto"], {}, ["ring,direct", "--codec auto"]),
    (["stats", "--jsn=1"], {}, ["unknown option '--jsn', did you mean '--json'?"]),
    (["stats", "--socket", "/run/gradlane/node0.admin"], {}, ["--socket", "--admin"]),
    (["stats", "--freeze", "--json"], {}, ["--freeze", "--json"]),
    (["stats", "--freeze", "--watch"], {}, ["--freeze", "--watch"]),
    (["foo"], {}, ["foo", "bench", "codecs"]),
    (["--speed"], {}, ["--speed", "gradlane --help"]),
    ([], {}, ["subcommand", "bench", "codecs"]),
]


def run(gradlane, arguments, env=None):
    return subprocess.run(
        [gradlane, *arguments], capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **(env or {})}
    )


def check_helps(gradlane):
    for arguments in HELPS:
        result = run(gradlane, arguments)
        lines = result.stdout.splitlines()
        assert result.returncode == 0, (arguments, result)
        assert max(map(len, lines)) <= MAX_COLUMNS, f"{arguments}: {max(map(len, lines))} columns"
    assert "-- COMMAND" in run(gradlane, ["run", "--help"]).stdout


def check_no_option_is_hidden():
    """Checks that no option is in the group "", which CLI11 leaves out of the help."""
    for file in [*(ROOT / "tools").rglob("*.cc"), *(ROOT / "dataplane").rglob("*.cc")]:
        assert not re.search(r'group\(\s*""\s*\)', file.read_text()), f"{file}: an option is hidden from --help"


def check_errors(gradlane):
    for arguments, env, names in ERRORS:
        result = run(gradlane, arguments, env)
        assert result.returncode == 2, (arguments, result)
        assert result.stdout == "", (arguments, result)
        assert result.stderr.startswith("gradlane: "), (arguments, result)
        for name in names:
            assert name in result.stderr, (arguments, name, result.stderr)


def check_table(gradlane):
    arguments = ["bench", "codec", "--quick", "--block", "1408", "--data", "laplace-1e-3", "--codec"]
    for codecs, feedback in [(["raw", "inceptionn:10,truncate", "fixed:10"], True), (["raw", "bf16"], False)]:
        result = run(gradlane, [*arguments, *codecs])
        lines = result.stdout.splitlines()
        assert result.returncode == 0, result
        assert max(map(len, lines)) <= MAX_TABLE_COLUMNS, result.stdout
        assert ("hop+fb" in result.stdout) == feedback, result.stdout
        assert any(line.startswith("memcpy about ") for line in lines), result.stdout


def check(gradlane):
    check_helps(gradlane)
    check_no_option_is_hidden()
    check_errors(gradlane)
    check_table(gradlane)
    codecs = run(gradlane, ["codecs"])
    assert codecs.returncode == 0 and "fixed:B" in codecs.stdout, codecs
    with open("/dev/full", "w") as full:
        for arguments in (["codecs"], ["plan", "--paper"], ["stats", "--help"]):
            result = subprocess.run([gradlane, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
            assert result.returncode == 2 and "No space left" in result.stderr, (arguments, result)
    assert run(gradlane, ["--version"]).stdout.startswith("gradlane "), "version"
