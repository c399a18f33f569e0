#!/usr/bin/python3
"""Runs README's lines for PyTorch, unchanged, by `gradlane run`. All ranks must print the same.

usage: readme_test.py GRADLANE README
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile


def main():
    gradlane, readme = sys.argv[1:]
    blocks = re.findall(r"```python\n(.*?)```", pathlib.Path(readme).read_text(), re.DOTALL)
    lines = [block for block in blocks if "gradlane.torch" in block]
    assert len(lines) == 1 and lines[0].count("\n") == 6, lines
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "train.py"
        script.write_text(lines[0])
        command = [os.path.abspath(gradlane), "run", "-n", "3", "--no-prefix", "--", sys.executable, script]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    printed = [line for line in done.stdout.splitlines() if line.startswith("the same on all ranks")]
    assert len(printed) == 3 and len(set(printed)) == 1, done.stdout
    assert float(printed[0].rsplit(" ", 1)[1]) != 0, printed
    print(printed[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
