#!/usr/bin/python3
"""Packs a wheel from a static build: the Python package, the library and the programs.

The same input gives the same bytes. setuptools is not needed: a wheel is an archive of the files to install and of
their description.
"""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "client" / "python"
# Names of the built files for ninja.
TARGETS = ("tools/gradlane", "tools/gradlaned", "client/libgradlane.so.0.1.0")
EXECUTABLE, PLAIN = 0o755, 0o644


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def python_files(project):
    """Yields the Python package's own files: name in the wheel, path."""
    tables = project["tool"]["setuptools"]
    for module in [*tables["py-modules"], "gradlane_programs"]:
        yield f"{module}.py", SOURCE / f"{module}.py"
    for package in tables["packages"]:
        folder = package.replace(".", "/")
        patterns = ["*.py", *tables["package-data"].get(package, [])]
        for path in sorted(path for pattern in patterns for path in (SOURCE / folder).glob(pattern) if path.is_file()):
            yield str(path.relative_to(SOURCE)), path


def stripped(path, scratch):
    made = scratch / path.name
    subprocess.run(["strip", "--strip-unneeded", "-o", made, path], check=True)
    return made


def built_files(build, scratch):
    """Yields the files of the static build, and libisal: name in the wheel, path."""
    for name in ("gradlane", "gradlaned"):
        yield f"gradlane/bin/{name}", stripped(build / "tools" / name, scratch)
    yield "gradlane/lib/libgradlane.so.0", stripped((build / "client/libgradlane.so.0").resolve(), scratch)
    shared = output("ldd", str(build / "tools/gradlaned"))
    yield "gradlane/lib/libisal.so.2", pathlib.Path(re.search(r"libisal\.so\.2 => (/\S+)", shared)[1]).resolve()


def dissector_files():
    """Yields the files for Wireshark: name in the wheel, path."""
    for path in sorted((ROOT / "packaging/wireshark").iterdir()):
        if path.suffix == ".lua" or path.name == "coloring_rules":
            yield f"gradlane/share/wireshark/{path.name}", path


def native_file(python, scratch):
    """Builds the part in C++ for the PyTorch of this Python. Returns its name in the wheel and its path."""
    code = "from gradlane.torch import extension as e; print(e.build(e.folder()), e.prebuilt_path(), sep='\\n')"
    folder = scratch / "torch-extensions"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TORCH_EXTENSIONS_DIR": str(folder)}
    made, place = output(python, "-c", code, env=environment).splitlines()[-2:]
    into = scratch / pathlib.Path(place).parent.name
    into.mkdir()
    return str(pathlib.Path(place).relative_to(SOURCE)), stripped(pathlib.Path(made), into)


def glibc(paths):
    """Returns the oldest version of glibc that has all symbols that these files need, such as (2, 36)."""
    symbols = (output("readelf", "--version-info", "--wide", str(path)) for path in paths)
    return max((int(major), int(minor)) for text in symbols for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", text))


def licences(build, scratch):
    """Yields the bill of materials, and the licences of packages whose code is in the wheel: name, path."""
    made = scratch / "gradlane.spdx.json"
    subprocess.run([sys.executable, ROOT / "packaging/deb/sbom.py", build, made, *TARGETS], check=True)
    content = json.loads(made.read_text())
    inside = {it["relatedSpdxElement"] for it in content["relationships"] if it["relationshipType"] == "STATIC_LINK"}
    names = {it["name"] for it in content["packages"] if it["SPDXID"] in inside} | {"libisal2"}
    yield "sboms/gradlane.spdx.json", made
    yield "licenses/LICENSE", ROOT / "LICENSE"
    for package in sorted(names):
        yield f"licenses/{package}", pathlib.Path(f"/usr/share/doc/{package}/copyright").resolve()


def described(project, tag):
    """Yields the files that describe the wheel: name, lines."""
    about = project["project"]
    lines = ["Metadata-Version: 2.1", f"Name: {about['name']}", f"Version: {about['version']}",
             f"Summary: {about['description']}", f"License: {about['license']['text']}",
             f"Requires-Python: {about['requires-python']}"]
    lines += [f"Classifier: {text}" for text in about["classifiers"]]
    lines += [f"Requires-Dist: {name}" for name in about["dependencies"]]
    for extra, names in about["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {name}; extra == "{extra}"' for name in names)]
    yield "METADATA", lines
    yield "WHEEL", ["Wheel-Version: 1.0", "Generator: packaging/wheel/pack.py", "Root-Is-Purelib: false", f"Tag: {tag}"]
    yield "entry_points.txt", [
        "[console_scripts]", *(f"{name} = gradlane_programs:{name}" for name in ("gradlane", "gradlaned")),
        *(f"[{group}]\n{name} = {place}" for group, points in about["entry-points"].items()
          for name, place in points.items())]


def write(path, files):
    """Writes an archive of {name: (bytes, mode)}. The content of RECORD, the list of files, is made here."""
    record = next(name for name in files if name.endswith("/RECORD"))
    lines = []
    for name, (data, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{name},," if name == record else f"{name},sha256={digest},{len(data)}")
    files[record] = ("\n".join(lines) + "\n").encode(), PLAIN
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (data, mode) in sorted(files.items()):
            entry = zipfile.ZipInfo(name)  # the date is always in 1980
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def pack(build, out, pythons, scratch):
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())
    built = dict(built_files(build, scratch))
    own = glibc(built.values())
    for python in pythons:
        name, path = native_file(python, scratch)
        built[name] = path
        if glibc([path]) > own:
            sys.exit(f"pack.py: {name} needs a newer glibc than the programs")
    tag = f"py3-none-manylinux_{own[0]}_{own[1]}_x86_64"
    about = f"gradlane-{project['project']['version']}"
    files = {name: (path.read_bytes(), EXECUTABLE if name in built else PLAIN)
             for name, path in [*python_files(project), *dissector_files(), *built.items()]}
    files |= {f"{about}.dist-info/{name}": (path.read_bytes(), PLAIN) for name, path in licences(build, scratch)}
    files |= {f"{about}.dist-info/{name}": ("\n".join(lines).encode() + b"\n", PLAIN)
              for name, lines in described(project, tag)}
    files[f"{about}.dist-info/RECORD"] = b"", PLAIN
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{about}-{tag}.whl"
    write(wheel, files)
    for name in built:
        print(f"{len(files[name][0]) / 1e6:7.2f} MB  {name}")
    print(f"{wheel.stat().st_size / 1e6:7.2f} MB  {wheel}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path, help="a build with -Dstatic=true")
    parser.add_argument("out", type=pathlib.Path, help="the folder for the wheel")
    parser.add_argument("--torch", metavar="PYTHON", action="append", default=[],
                        help="Python whose PyTorch 2 the C++ part is built for (repeatable)")
    args = parser.parse_args()
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="gradlane-wheel-"))
    try:
        pack(args.build, args.out, args.torch, scratch)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
