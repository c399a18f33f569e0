#!/usr/bin/python3
"""Installs into an empty folder and builds the C example against that, as a user without a source tree does."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from tests.scripts.fixtures.paths import ROOT
from tests.scripts.fixtures.waiting import PATIENCE


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **options)
    assert result.returncode == 0, (command, result.stdout, result.stderr)
    return result.stdout


def only(folder, pattern):
    found = sorted(folder.rglob(pattern))
    assert found, f"{pattern} was not installed"
    return found[0]


def check_manual(root):
    """Checks that each subcommand of --help has a manual page with its options, and that the shell completes words."""
    gradlane = only(root, "gradlaned").parent / "gradlane"
    for name in re.findall(r"^  ([a-z]+)  ", run(str(gradlane), "--help"), re.MULTILINE):
        page = only(root, f"gradlane-{name}.1").read_text()
        for option in re.findall(r"^  (?:-., ?)?(--[\w-]+)", run(str(gradlane), name, "--help"), re.MULTILINE):
            assert option.replace("-", "\\-") in page, (name, option)
    completion = only(root, "bash-completion/completions/gradlane")
    for words, wanted in (("gradlane st", "stats"), ("gradlane run --link v", "vhost veth"), ("gradlaned --ti", "--tidy"),
                          ("gradlane bench codec --qu", "--quick")):
        script = f"source {completion}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _gradlane"
        assert run("bash", "-c", f'{script}; echo "${{COMPREPLY[*]}}"').strip() == wanted, words


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("example", type=pathlib.Path)
    parser.add_argument("python", help="one that has NumPy")
    args = parser.parse_args()
    if (args.build / "meson-private/coredata.dat").stat().st_uid != os.getuid():
        print("the build folder is somebody else's")
        return 77
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        run("meson", "install", "-C", str(args.build), "--no-rebuild", "--destdir", name)
        names = {path.name for path in root.rglob("*")}
        assert {"gradlane", "gradlaned", "gradlane.h", "gradlane.pc", "gradlaned@.service"} <= names, names
        check_manual(root)
        dissector = [path.name for path in only(root, "gradlane.lua").parent.iterdir()]
        assert sorted(dissector) == sorted(path.name for path in (ROOT / "packaging" / "wireshark").iterdir()
                                           if path.name != "meson.build"), dissector
        assert "abi.h" not in names, "the daemon's side of the interface is not for trainers"

        # pkg-config puts the folder in front of the paths in the file.
        pkg_config = {
            **os.environ,
            "PKG_CONFIG_PATH": str(only(root, "gradlane.pc").parent),
            "PKG_CONFIG_SYSROOT_DIR": name,
        }
        flags = run("pkg-config", "--cflags", "--libs", "gradlane", env=pkg_config).split()
        program = root / "all_reduce"
        run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", str(args.example), *flags, "-lm", "-o", str(program))
        run("c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "-include",
            str(only(root, "gradlane.h")), "/dev/null")

        # The library needs libc only.
        library = only(root, "libgradlane.so.0")
        needed = re.findall(r"\(NEEDED\)\s+Shared library: \[(.*)\]", run("readelf", "-d", str(library)))
        assert set(needed) <= {"libc.so.6", "ld-linux-x86-64.so.2"}, needed  # both are libc

        # The installed programs and libraries find each other.
        environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
        environment.pop("GRADLANED", None)
        gradlane = str(only(root, "gradlaned").parent / "gradlane")
        output = run(gradlane, "run", "-n", "2", "--", str(program), env=environment)
        assert output.count("wrong 0") == 2, output
        package = only(root, "__init__.py").parent.parent
        only(root, "gradlane/torch/hook.py")
        environment.update(PYTHONPATH=str(package), GRADLANE_LIBRARY=str(library))
        code = "import gradlane; gl = gradlane.open(); a = gl.zeros(8); gl.all_reduce(a); print('fine', gl.rank)"
        output = run(gradlane, "run", "-n", "2", "--", args.python, "-c", code, env=environment)
        assert output.count("fine") == 2, output
    print("what is installed works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
