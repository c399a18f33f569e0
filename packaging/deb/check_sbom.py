#!/usr/bin/python3
"""Checks that the installed package has the contents that its bill of materials lists. usage: check_sbom.py FILE"""

import json
import pathlib
import re
import subprocess
import sys


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def owner(path):
    names = [path, path.removeprefix("/usr")]
    found = subprocess.run(["dpkg-query", "--search", *names], capture_output=True, text=True).stdout
    return found.partition(":")[0]


def needed(program):
    """Returns the packages of the libraries that the program needs by name."""
    names = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", program)))
    paths = re.findall(r"^\s*(\S+) (?:=> (\S+) )?\(0x", output("ldd", program), re.MULTILINE)
    return {owner(str(pathlib.Path(path or name).resolve())) for name, path in paths if pathlib.Path(name).name in names}


def main():
    content = json.loads(pathlib.Path(sys.argv[1]).read_text())
    packages = {it["SPDXID"]: it for it in content["packages"]}
    texts = {it["licenseId"] for it in content["hasExtractedLicensingInfos"] if it["extractedText"].strip()}

    def related(program, kind):
        return {packages[it["relatedSpdxElement"]]["name"] for it in content["relationships"]
                if it["relationshipType"] == kind and packages.get(it["spdxElementId"], {}).get("name") == program}

    library = pathlib.Path(output("gcc", "-print-file-name=libgradlane.so.0").strip()).resolve()
    for program in ("/usr/bin/gradlane", "/usr/bin/gradlaned", str(library)):
        name = pathlib.Path(program).name
        said, found = related(name, "DYNAMIC_LINK"), needed(program)
        assert said == found, (name, said ^ found)
        inside = related(name, "STATIC_LINK")
        assert {"libc6-dev", "libgcc-12-dev"} <= inside, inside
        print(f"{name}: shared libraries of {len(said)} packages; compiled in: {' '.join(sorted(inside))}")
    assert "libcli11-dev" in related("gradlane", "STATIC_LINK") and "libdpdk-dev" in related("gradlaned", "STATIC_LINK")
    own = {it["versionInfo"] for it in packages.values() if "supplier" not in it}
    assert own == {output("dpkg-query", "-W", "-f", "${Version}", "gradlane")}, own
    for it in packages.values():
        licence = it["licenseDeclared"]
        assert it["versionInfo"] and (licence in texts or re.fullmatch(r"[A-Z][A-Za-z0-9.-]+", licence)), it
        assert not licence.startswith("LicenseRef-") or licence in texts, it
    shared = {name for program in ("gradlane", "gradlaned", library.name) for name in related(program, "DYNAMIC_LINK")}
    later = [name for name in sorted(shared) if output("dpkg-query", "-W", "-f", "${Version}", name) !=
             next(it["versionInfo"] for it in packages.values() if it["name"] == name)]
    print(f"{len(packages)} packages with versions and licences; of another version here: {' '.join(later) or 'none'}")


if __name__ == "__main__":
    main()
