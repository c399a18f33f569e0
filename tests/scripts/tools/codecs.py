"""Runs `gradlane codecs`, and checks what it says of every codec. The table in docs/codecs.md must have the same
codecs.
"""

import json
import pathlib
import re
import subprocess
import tempfile

from tests.scripts.fixtures.paths import ROOT
from tests.scripts.fixtures.waiting import PATIENCE

PAGE = ROOT / "docs" / "codecs.md"
MARK = "<!-- gradlane codecs --write-docs docs/codecs.md: "
RECORDING = ROOT / "tools" / "bench" / "recordings" / "digits-late.npy"
WAYS = ("any", "links", "owners")
SAME = ("buckets", "ways", "ranks")
FIGURES = ("ratio", "encode", "decode", "merge", "look")

# Arguments, and words that the error must have.
ERRORS = [
    (["--codec", "fixed:99"], ["fixed:99", "1 to 30"]),
    (["--data", "noise"], ["noise", "laplace-1e-3", "FILE.npy"]),
    (["--no-measure", "--measure"], ["--no-measure", "--measure"]),
    (["--no-measure", "--data", "gauss-1"], ["--no-measure", "--data"]),
    (["--write-docs", "/nowhere/page.md"], ["/nowhere/page.md", "cannot be read"]),
    (["--write-docs", str(ROOT / "README.md")], ["README.md", "has no lines"]),
    (["--write-docs", str(PAGE), "--codec", "raw"], ["--write-docs", "all codecs"]),
]


def run(gradlane, *arguments, status=0):
    result = subprocess.run([gradlane, "codecs", *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == status, (arguments, result)
    return result


def check_json(gradlane):
    """Checks that the JSON of each codec is consistent. Returns the usage texts of all codecs."""
    result = json.loads(run(gradlane, "--json", "--data", str(RECORDING), "gauss-0.01").stdout)
    codecs = result["codecs"]
    for codec in codecs:
        assert codec["ways"] in WAYS and codec["same_bytes"] in SAME, codec
        assert codec["adds"] == (codec["ways"] != "owners"), codec
        assert codec["exact_sums"] or codec["same_bytes"] == "ranks", codec
        assert codec["word"] and codec["promise"] and codec["codec"].startswith(codec["word"]), codec
        # The recording has single contributions, and their sums.
        assert [figures["data"] for figures in codec["figures"]] == ["digits-late", "digits-late x4", "gauss-0.01"], codec
        for figures in codec["figures"]:
            assert all(figures[name] > 0 for name in FIGURES[:4]), codec
            assert (figures["look"] > 0) == (codec["passes"] > 0), codec
            assert figures["ratio"] > 0.9 and set(figures) == {"data", *FIGURES}, codec
    by_word = {codec["codec"]: codec for codec in codecs}
    assert by_word["raw"]["figures"][0]["ratio"] == 1 and not by_word["raw"]["exact_sums"], by_word["raw"]
    assert by_word["fixed:10"]["same_bytes"] == "buckets" and by_word["fixed:10"]["states"] == 1, by_word["fixed:10"]
    assert len(by_word) == len(codecs) == len({codec["id"] for codec in codecs}), by_word.keys()
    return [codec["usage"] for codec in codecs]


def names_of(page):
    """Returns the first column of the table between the two marks."""
    table = page.split(MARK + "begin -->\n")[1].split(MARK + "end -->\n")[0]
    return re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)


def check_page(gradlane, usages):
    assert names_of(PAGE.read_text()) == usages, "docs/codecs.md is not up to date: gradlane codecs --write-docs " \
        "docs/codecs.md"
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder, "page.md")
        page.write_text(f"before\n{MARK}begin -->\nold\n{MARK}end -->\nbehind\n")
        run(gradlane, "--write-docs", str(page))
        text = page.read_text()
        assert names_of(text) == usages and "old" not in text, text
        assert text.startswith("before\n") and text.endswith("end -->\nbehind\n"), text


def check_tables(gradlane, usages):
    text = run(gradlane, "--no-measure").stdout
    assert "ratio" not in text and all(usage in text for usage in usages), text
    some = run(gradlane, "--codec", "raw,fixed:7", "--measure").stdout
    assert "fixed:7" in some and "bf16" not in some and "ratio" in some, some


def check(gradlane):
    usages = check_json(gradlane)
    check_page(gradlane, usages)
    check_tables(gradlane, usages)
    for arguments, names in ERRORS:
        result = run(gradlane, *arguments, status=2)
        assert all(name in result.stderr for name in names), (arguments, result.stderr)
