#!/usr/bin/python3
"""Runs dev/new-codec on a copy of the tree. Its files must compile, its tests must demand what is missing, and it must
refuse bad names.

Usage: new_codec_test.py COMPILER..., a C++ compiler with its options; without clang-format or Highway it is skipped
(77).
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from tests.scripts.fixtures.paths import ROOT

SKIPPED = 77
SCRIPT = ROOT / "dev" / "new-codec"
FOLDERS = ("base", "compress", "tests/compress")
FLAGS = ["-fsyntax-only", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-DHWY_IS_DEBUG_BUILD=0",
         "-DHWY_COMPILE_ONLY_SCALAR", "-I."]


def new_codec(root, *arguments, status=0):
    result = subprocess.run([str(SCRIPT), "--root", str(root), *arguments], capture_output=True, text=True, timeout=60)
    assert result.returncode == status, (arguments, result)
    return result.stdout + result.stderr


def compiles(compiler, root, path):
    result = subprocess.run([*compiler, *FLAGS, path], cwd=root, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, (path, result.stderr)


def check(compiler, root, word, *model):
    said = new_codec(root, word, *model)
    kind = word[0].upper() + word[1:]
    number = int(re.search(r"under the id (\d+)", said)[1])
    assert f"  k{kind} = {number}," in (root / "compress" / "kernels.h").read_text(), said
    for path in re.findall(r"^  ((?:compress|tests)/\S+)", said, re.MULTILINE):
        assert (root / path).exists(), (path, said)
    own = (root / "compress" / "codecs" / f"{word}.h").read_text()
    assert f"struct {kind} " in own and own.splitlines()[0].startswith(f"// {word}.h - codec {word}"), own
    lines = [line for line in own.splitlines() if line.strip() and not line.startswith("//")]
    assert len(lines) <= 40, len(lines)
    golden = re.search(r"CODECS of (golden_\w+\.py)", said)[1]
    assert f'"{word}' in (root / "tests" / "compress" / golden).read_text(), said
    assert "ASSERT_FALSE(kFloats.empty())" in (root / "tests" / "compress" / f"{word}_test.cc").read_text()
    for path in ("compress/scalar/kit.cc", "compress/codec_table.cc", f"tests/compress/{word}_test.cc"):
        compiles(compiler, root, path)
    assert f"there is already a codec {word}" in new_codec(root, word, status=1)
    return number


def main():
    compiler = sys.argv[1:] or ["c++"]
    if not shutil.which("clang-format"):
        print("skipped: there is no clang-format")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for folder in FOLDERS:
            shutil.copytree(ROOT / folder, root / folder)
        shutil.copy(ROOT / ".clang-format", root)
        first = check(compiler, root, "sketch")
        assert check(compiler, root, "sieve2", "--family", "sparse") == first + 1
        assert check(compiler, root, "steps", "--model", "qsgd") == first + 2
        assert '"steps:4"' in (root / "tests" / "compress" / "chunks_test.cc").read_text()
        for bad in ("Sketch", "a", "1bit", "with-dash", "seventeenletters1"):
            assert f"'{bad}'" in new_codec(root, bad, status=1), bad
        # If the script does not find the lines where it adds the codec, it reports the file and does not guess.
        (root / "compress" / "codecs" / "list.h").write_text("// nothing\n")
        assert "list.h" in new_codec(root, "late", status=1)
    print("skeletons are in order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
