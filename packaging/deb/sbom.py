#!/usr/bin/python3
"""Writes an SPDX 2.3 bill of materials for built programs.

It lists Debian's packages whose headers and archives are in the programs, and whose shared libraries they load. Nothing
is listed by hand. The headers are those that the compiler has read, as ninja knows. The archives and objects are those
that the linker takes when it links once more. The shared libraries are those that the result needs. dpkg knows their
packages.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Debian's names of licences that have another name in SPDX. Other licences are quoted.
SPDX = {"Apache-2.0": "Apache-2.0", "BSD-2-clause": "BSD-2-Clause", "BSD-3-clause": "BSD-3-Clause",
        "BSD-3-Clause": "BSD-3-Clause", "Expat": "MIT", "GPL-2": "GPL-2.0-only", "ISC": "ISC", "LGPL-2.1": "LGPL-2.1-only"}
# Kinds of use of a package by a program. A key is a method of Build. A value is SPDX's relationship and a comment.
WAYS = {"headers": ("STATIC_LINK", "its headers are compiled in"), "static": ("STATIC_LINK", "archives or objects of it"),
        "shared": ("DYNAMIC_LINK", "a shared library, by name")}
FIELDS = ("Package", "Version", "Architecture", "Homepage", "source:Package", "source:Version")


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


# ---- Files

class Build:
    """A build folder of meson's."""

    def __init__(self, folder):
        self.folder = folder
        self.links = {entry["output"]: entry["command"] for entry in json.loads(self.ninja("compdb", "-x"))}
        self.read = {}
        for block in self.ninja("deps").split("\n\n"):
            head, *lines = block.splitlines() or [""]
            self.read[head.partition(":")[0]] = [line.strip() for line in lines]

    def ninja(self, *words):
        return output("ninja", "-t", *words, cwd=self.folder)

    def outside(self, names):
        """Returns the paths of `names` that are outside this tree."""
        paths = {(self.folder / name).resolve() for name in names}
        return {path for path in paths if ROOT not in path.parents and self.folder not in path.parents}

    def headers(self, target):
        return self.outside(name for it in self.ninja("inputs", target).splitlines() for name in self.read.get(it, ()))

    def static(self, target):
        command = shlex.split(self.links[target])
        with tempfile.TemporaryDirectory() as folder:
            command[command.index("-o") + 1] = f"{folder}/again"
            said = output(*command, "-Wl,--trace", cwd=self.folder)
        found = self.outside(line.strip("()").partition(")")[0] for line in said.splitlines())
        return {path for path in found if path.suffix in (".a", ".o")}

    def shared(self, target):
        program = self.folder / target
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", program)))
        found = re.findall(r"^\s*(\S+) (?:=> (\S+) )?\(0x", output("ldd", program), re.MULTILINE)
        paths = {pathlib.Path(name).name: path or name for name, path in found}
        return self.outside(paths[name] for name in needed)


# ---- Packages

def names_of(path):
    """Returns the names by which dpkg may know the path. Older packages have /lib in place of /usr/lib."""
    return [str(path), str(path).removeprefix("/usr")]


def owners(paths):
    """Returns the package of each path. Exits if there is none."""
    result = subprocess.run(["dpkg-query", "--search", *sorted({name for path in paths for name in names_of(path)})],
                            capture_output=True, text=True)
    known = {}
    for line in result.stdout.splitlines():
        packages, _, name = line.rpartition(": ")
        if not line.startswith("diversion "):
            known[name] = packages.split(", ")[0].partition(":")[0]
    found = {path: next((known[name] for name in names_of(path) if name in known), None) for path in paths}
    strange = sorted(str(path) for path, owner in found.items() if not owner)
    if strange:
        sys.exit(f"sbom.py: no package contains {', '.join(strange[:5])}")
    return found


def paragraphs(text):
    """Yields the paragraphs of a file in Debian's format as {field: value}. A value may have several lines."""
    for block in re.split(r"\n\s*\n", text):
        yield {key: value.strip() for key, value in re.findall(r"^([\w-]+):((?:.*)(?:\n[ \t].*)*)", block, re.MULTILINE)}


class Licence:
    """The licence of a package: `declared` is that of most of its files, `others` are further ones in Debian's
    copyright file."""

    def __init__(self, package, source):
        path = pathlib.Path(f"/usr/share/doc/{package}/copyright")
        text = path.read_text(errors="replace")
        self.extracted = {}
        self.others = []
        if not text.startswith("Format:"):
            self.declared = self.quoted(f"copyright-{source}", f"the copyright file of Debian's {source}", text)
            return
        parts = list(paragraphs(text))
        licensed = [part for part in parts if part.get("License")]
        of_files = [(part["Files"].split(), part["License"].splitlines()) for part in licensed if "Files" in part]
        texts = {part["License"].splitlines()[0]: part["License"] for part in licensed if "Files" not in part}
        general = next((lines for files, lines in of_files if "*" in files), of_files[0][1])
        name = general[0].strip()
        self.declared = SPDX.get(name) or self.quoted(f"{source}-{name}", name, texts.get(name) or "\n".join(general))
        self.others = sorted({lines[0].strip() for _, lines in of_files} - {name})

    def quoted(self, words, name, text):
        reference = "LicenseRef-" + re.sub(r"[^A-Za-z0-9.-]+", "-", words)
        self.extracted[reference] = {"licenseId": reference, "name": name, "extractedText": text}
        return reference


def identity(*words):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", "-".join(words).replace("+", "plus"))


def described(package):
    """Returns a description of Debian's package, and the texts of licences that have no name in SPDX."""
    values = output("dpkg-query", "-W", "-f", "\t".join(f"${{{field}}}" for field in FIELDS) + "\n", package)
    name, version, architecture, home, source, source_version = values.splitlines()[0].split("\t")
    licence = Licence(package, source)
    locator = f"pkg:deb/debian/{urllib.parse.quote(name)}@{urllib.parse.quote(version)}?arch={architecture}"
    about = {
        "SPDXID": identity("package", name),
        "name": name,
        "versionInfo": version,
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "sourceInfo": f"built from Debian's source package {source} {source_version}",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence.declared,
        "copyrightText": f"see /usr/share/doc/{name}/copyright of that package",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}],
    }
    if home:
        about["homepage"] = home
    if licence.others:
        about["licenseComments"] = "some files of the source, of which not all are used, have: " + "; ".join(licence.others)
    return about, licence.extracted


# ---- The document

def project():
    """Returns name, version and licence from meson.build."""
    text = (ROOT / "meson.build").read_text()
    return [re.search(pattern, text)[1] for pattern in (r"project\('(.*?)'", r"version: '(.*?)'", r"license: '(.*?)'")]


def document(build, targets):
    name, version, licence = project()
    own = {"downloadLocation": "NOASSERTION", "filesAnalyzed": False, "versionInfo": version, "licenseConcluded": licence,
           "licenseDeclared": licence, "copyrightText": "2026, the gradlane authors"}
    packages = [{"SPDXID": identity(name), "name": name, **own}]
    relations, used, texts = [], set(), {}

    def relate(one, kind, other, comment=None):
        relations.append({"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
                         | ({"comment": comment} if comment else {}))

    relate("SPDXRef-DOCUMENT", "DESCRIBES", identity(name))
    for target in targets:
        program = pathlib.Path(target).name
        packages.append({"SPDXID": identity("program", program), "name": program, **own})
        relate(identity(name), "CONTAINS", identity("program", program))
        for way, (kind, comment) in WAYS.items():
            for package in sorted(set(owners(getattr(build, way)(target)).values())):
                used.add(package)
                relate(identity("program", program), kind, identity("package", package), comment)
    for package in sorted(used):
        about, extracted = described(package)
        packages.append(about)
        texts |= extracted
    made = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{name}-{version}",
        "packages": packages,
        "relationships": relations,
        "hasExtractedLicensingInfos": [texts[key] for key in sorted(texts)],
    }
    # The same content has the same name, so that builds are reproducible.
    digest = hashlib.sha256(json.dumps(made).encode()).hexdigest()
    made["documentNamespace"] = f"https://spdx.org/spdxdocs/{name}-{version}-{digest[:32]}"
    at = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", 315532800)), datetime.timezone.utc)
    made["creationInfo"] = {"created": at.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: gradlane sbom.py"]}
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path, help="a build folder")
    parser.add_argument("out", type=pathlib.Path, help="the file to write")
    parser.add_argument("target", nargs="+", help="as ninja knows it: tools/gradlaned")
    args = parser.parse_args()
    made = document(Build(args.build.resolve()), args.target)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
