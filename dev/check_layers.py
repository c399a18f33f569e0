#!/usr/bin/python3
"""Checks include directions between folders, and style that a script can see (docs/design.md, "Folders")."""

import argparse
import ast
import pathlib
import re
import sys

# The folders that each folder may include from. A sub-folder counts as its folder; tools and tests may include
# anything.
MAY_INCLUDE = {
    "base": set(),
    "compress": {"base"},
    "collectives": {"base", "compress"},
    "sim": {"base", "compress", "collectives"},
    "config": {"base", "collectives", "compress"},
    "client": set(),
    "dataplane": {"base", "collectives", "compress", "config", "client"},
}

# C files that the library and the daemon share. All folders may include them; they may include only each other.
SHARED = ("client/abi.h", "client/tuner/")

# The sub-folders that each sub-folder of a folder may include from, in the order in which they build on each other. All
# of them may include files that lie in the folder itself.
MAY_INCLUDE_WITHIN = {
    "compress": {
        "kit": set(),
        "codecs": {"kit"},
        "scalar": {"kit", "codecs"},
        "avx2": {"kit", "codecs"},
        "avx512": {"kit", "codecs"},
        "neon": {"kit", "codecs"},
        "rows": {"kit", "codecs", "scalar", "avx2", "avx512", "neon"},
    },
    "collectives": {
        "link": set(),
        "strategy": set(),
        "cost": {"strategy"},
        "exchange": {"link", "strategy"},
    },
    "client": {
        "tuner": set(),
        "library": {"tuner"},
        "nccl": set(),
        "examples": set(),
        "python/gradlane/torch/kernels": set(),
        "python/gradlane/torch/native": set(),
    },
    "dataplane": {
        "frame": set(),
        "secure": set(),
        "kernel": {"frame"},
        "poll": set(),
        "trainer": set(),
        "device": {"frame", "kernel"},
        "udp": {"frame", "kernel", "device"},
        "lane": {"frame", "secure", "kernel", "device", "poll", "trainer"},
        "watch": {"frame", "lane"},
        "node": {"frame", "secure", "kernel", "poll", "trainer", "device", "udp", "lane", "watch"},
        "status": {"trainer", "device", "watch", "node"},
        "daemon": {"kernel", "device", "node", "status"},
        "loopback": {"frame", "poll", "device"},
        "accelerator/engine": {"frame"},
        "accelerator/kernel": {"accelerator/engine", "frame", "kernel"},
        "accelerator/packet": {"frame", "kernel", "device"},
        "accelerator/commands": set(),
        "accelerator": {"accelerator/engine", "accelerator/kernel", "accelerator/packet", "frame", "kernel", "poll", "device", "lane", "watch", "status", "daemon"},
    },
}

# Files of a folder that depend on each other in one direction: each may include those before it.
IN_ORDER = {
    "client/library": ("clock", "waits", "base", "context", "squares", "rounding", "hash", "checksum", "message", "find", "loss", "verify", "requests", "staging", "report", "choices", "queue",
                       "progress", "daemon_calls", "codecs", "strategies", "buffers", "kinds", "choice_sets", "coding",
                       "check", "wait", "submit", "tasks", "open"),
}

# Commands of accelerator mode: like tools/, they may include anything.
COMMANDS = "dataplane/accelerator/commands"

# Folders that are installed unchanged and built by their users. Their files include each other by their names alone.
ALONE = ("client/python/gradlane/torch/kernels", "client/python/gradlane/torch/native")

# System headers that only some folders may include.
DPDK = ("device", "udp", "accelerator/packet", "poll", "lane", "node", "status", "daemon", "loopback", "accelerator")
SYSTEM_ONLY_IN = [
    (re.compile(r"rte_"), tuple(f"dataplane/{folder}/" for folder in DPDK) + ("tests/dataplane/cluster", "tests/dataplane/daemon/device_list", "tests/dataplane/udp/udp_queue", "tests/dataplane/udp/long_packets", "tests/stack/network")),
    (re.compile(r"yaml-cpp/"), ("config/",)),
    (re.compile(r"(immintrin|x86intrin)\.h"), ("compress/avx",)),
    (re.compile(r"arm_neon\.h"), ("compress/neon/", "client/library/squares", "client/library/rounding")),
    (re.compile(r"arm_acle\.h"), ("collectives/crc32c",)),
    (re.compile(r"hwy/"), ("compress/kit/", "compress/codecs/")),
    (re.compile(r"CLI/"), ("tools/", f"{COMMANDS}/")),
    (re.compile(r"gtest/|gmock/"), ("tests/",)),
    (re.compile(r"(spdlog|fmt)/"), ("tools/", "tests/", "dataplane/", "config/")),
    (re.compile(r"openssl/"), ("dataplane/secure/", "dataplane/accelerator/engine/", "dataplane/node/key_file", "tools/",
                               "tests/")),
]

# Folders that neither do I/O nor read a clock. Their callers pass in what they need.
PURE = ("compress/", "collectives/", "dataplane/frame/", "dataplane/accelerator/engine/")
IMPURE = re.compile(r"(sys/(socket|ioctl|stat|mman|epoll|time)|unistd|fcntl|poll|time|net/.*|netinet/.*|linux/.*)\.h$"
                    r"|(chrono|thread|fstream|iostream|filesystem)$")

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
SOURCES = (".h", ".cc", ".c", ".cu")


def subfolder(path):
    """Returns the sub-folder of a file: "lane" for dataplane/lane/worker.h, "" for collectives/wire.h."""
    return "/".join(path.parts[1:-1])


def check_own(path, own):
    folder, target = path.parts[0], pathlib.PurePosixPath(own)
    if str(path.parent) in ALONE:
        return None if len(target.parts) == 1 else f'"{own}" must be a file of the same folder, named without a path'
    if len(target.parts) == 1:
        return f'"{own}": write the path from the root of the repository'
    if folder not in MAY_INCLUDE or str(path.parent) == COMMANDS:
        return None
    if str(path).startswith(SHARED) and not own.startswith(SHARED):
        return f"{path} is for all layers, so it must not include {own}"
    if target.parts[0] != folder:
        return None if own.startswith(SHARED) or target.parts[0] in MAY_INCLUDE[folder] else f"{folder} must not include from {target.parts[0]}"
    order = IN_ORDER.get(str(path.parent))
    if order and target.parent == path.parent and order.index(target.stem) > order.index(path.stem):
        return f"{path.name} comes before {target.name} in {path.parent} (IN_ORDER), so it must not include it"
    subfolders = MAY_INCLUDE_WITHIN.get(folder, {})
    here, there = subfolder(path), subfolder(target)
    if there and here and there != here and there not in subfolders[here]:
        return f"{folder}/{here} must not include from {folder}/{there}"
    return None


def check_system(path, system):
    for pattern, folders in SYSTEM_ONLY_IN:
        if pattern.match(system) and not str(path).startswith(folders):
            return f"<{system}> is for {', '.join(folders)} only"
    if str(path).startswith(PURE) and IMPURE.match(system):
        return f"<{system}>: I/O and clocks are not allowed in {path.parent}"
    return None


def check_includes(path, lines):
    if path.parts[0] in MAY_INCLUDE_WITHIN and subfolder(path) not in {"", *MAY_INCLUDE_WITHIN[path.parts[0]]}:
        yield f"{path}: unknown folder {path.parent}; add it to MAY_INCLUDE_WITHIN in dev/check_layers.py"
        return
    if path.stem not in IN_ORDER.get(str(path.parent), (path.stem,)):
        yield f"{path}: not listed for {path.parent}; add it to IN_ORDER in dev/check_layers.py"
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        own, system = match.groups()
        fault = check_own(path, own) if own else check_system(path, system)
        if fault:
            yield f"{path}:{number}: {fault}"


def check_style(path, text, lines):
    if not lines or not lines[0].startswith(f"// {path.name} - "):
        yield f"{path}:1: the first line must be '// {path.name} - what it is (who runs it)'"
    if path.suffix == ".h" and "#pragma once" not in text:
        yield f"{path}: #pragma once is missing"
    if not text.isascii():
        yield f"{path}: has characters that are not ASCII"


# ---- Python: no import cycles, even of imports for types only

PACKAGES = ("client/python/gradlane", "lab", "dev", "tests")


def modules(base):
    """Returns {module: the modules of the package that it imports}. Imports under TYPE_CHECKING count, too."""
    names = {path: (path.parent if path.name == "__init__.py" else path.with_suffix("")).relative_to(base.parent)
             for path in base.rglob("*.py")}
    known = {".".join(name.parts) for path, name in names.items() if path.name != "__init__.py"}
    found = {}
    for path, name in names.items():
        folder = path.parent.relative_to(base.parent).parts
        imports = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imports |= {alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom) and not node.level:
                imports |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.ImportFrom):
                there = (*folder[: len(folder) - node.level + 1], *(node.module.split(".") if node.module else ()))
                imports |= {".".join(there), *(".".join((*there, alias.name)) for alias in node.names)}
        found[".".join(name.parts)] = sorted(imports & known)
    return found


def circle(graph):
    """Returns the modules of one import cycle; [] if there is none."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name):]
        if name in done:
            return []
        path.append(name)
        for other in graph.get(name, ()):
            found = visit(other)
            if found:
                return found
        path.pop()
        done.add(name)
        return []

    return next(filter(None, map(visit, graph)), [])


def sources(root):
    for path in sorted(root.rglob("*")):
        if path.suffix in SOURCES and not path.relative_to(root).parts[0].startswith(("build", ".")):
            yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[1], type=pathlib.Path)
    parser.add_argument("--list", action="store_true", help="print the source files and check nothing")
    args = parser.parse_args()
    faults = []
    for path in sources(args.root):
        relative = path.relative_to(args.root)
        if args.list:
            print(relative)
            continue
        text = path.read_text()
        lines = text.splitlines()
        faults += check_includes(relative, lines)
        faults += check_style(relative, text, lines)
    around = [] if args.list else next(filter(None, (circle(modules(args.root / each)) for each in PACKAGES)), [])
    if around:
        faults.append(f"import cycle: {' imports '.join([*around, around[0]])}; replace one import of a type with a Protocol")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
