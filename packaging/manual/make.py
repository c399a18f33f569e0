#!/usr/bin/python3
"""Writes man pages and bash completion of `gradlane` and `gradlaned` from the output of `--help`, their only source.

Each subcommand has a page. Subcommands of it, such as `bench codec`, are sections of that page. The pages must be those
that --pages names, so that no new subcommand is forgotten in the list of pages to install.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

HEADING = re.compile(r"^[A-Z][\w ]*:$")
ENTRY = re.compile(r"^  (?=\S)")
NAME = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
# Matches words to choose from, such as "vhost, memif, ring (vhost)".
CHOICES = re.compile(r"^([\w.-]+(?:, [\w.-]+)+)(?: \(.*\))?$")


class Help:
    """The help text of a program or a subcommand, in parts."""

    def __init__(self, program, words=()):
        self.words = [program.name, *words]
        text = subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True,
                              env={**os.environ, "NO_COLOR": "1"}).stdout
        title, usage, *lines = text.splitlines()
        self.title = title.removeprefix(f"{program.name}: ")
        self.usage = usage.removeprefix("Usage: ")
        self.groups, self.subcommands, self.remarks = {}, [], []
        target = None
        for line, following in zip(lines, [*lines[1:], ""]):
            if HEADING.match(line) and ENTRY.match(following):
                target = self.subcommands if line == "Subcommands:" else self.groups.setdefault(line[:-1], [])
            elif target is not None and ENTRY.match(line):
                names, _, about = line.strip().partition("  ")
                target.append([names, [about.strip()] if about.strip() else []])
            elif target and line.startswith("   "):
                target[-1][1].append(line.strip())
            else:
                if line:
                    target = None
                self.remarks.append(line)
        self.options = [entry for group in self.groups.values() for entry in group]
        self.below = [Help(program, (*words, name)) for name, _ in self.subcommands]

    def pages(self):
        """Yields the name of each page, and the Help that is on it."""
        yield "-".join(self.words), self
        if len(self.words) == 1:
            for each in self.below:
                yield "-".join(each.words), each


def names_of(entry):
    """Returns the names of an option, without the remarks that CLI11 adds."""
    return entry[0].partition(" Excludes:")[0].removesuffix(" REQUIRED")


def about(entry):
    excluded = entry[0].partition(" Excludes:")[2].split()
    notes = ["required"] * (" REQUIRED" in entry[0]) + [f"not with {', '.join(excluded)}"] * bool(excluded)
    return " ".join(entry[1]) + "".join(f" ({note})" for note in notes)


# ---- man pages

def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti").replace("'", "\\(aq")
    return "\\&" + text if text.startswith((".", "\\(aq")) else text


def section(title):
    return f'.SH "{roff(title.upper())}"'


def body(it):
    """Yields the lines on options, subcommands and remarks."""
    for title, entries in it.groups.items():
        if len(it.groups) > 1:
            yield f".SS \"{roff(title)}\""
        for entry in entries:
            yield from (".TP", f".B {roff(names_of(entry))}", roff(about(entry)) or "\\&")
    for name, text in it.subcommands:
        page = "-".join([*it.words, name]) if len(it.words) == 1 else None
        yield from (".TP", f".BR {roff(page)} (1)" if page else f".B {roff(name)}", roff(" ".join(text)))
    for paragraph in re.split(r"\n\n+", "\n".join(it.remarks).strip()):
        if paragraph:
            yield from (".PP", *map(roff, paragraph.splitlines()))


def page(it, number, version, date):
    name = "-".join(it.words)
    yield f'.TH "{roff(name.upper())}" "{number}" "{date}" "gradlane {version}" "gradlane"'
    yield from (".SH NAME", f"{roff(name)} \\- {roff(it.title)}")
    yield from (section("synopsis"), f".B {roff(it.usage)}")
    yield from (section("options"), *body(it))
    for each in it.below if len(it.words) > 1 else ():
        yield from (section(" ".join(each.words)), roff(each.title) + ".", ".PP", f".B {roff(each.usage)}", *body(each))
    others = {1: "gradlaned (8)", 8: "gradlane (1)"}[number]
    yield from (section("see also"), f".BR {others}", ".PP",
                roff("All pages of docs/ are in the package gradlane-doc: /usr/share/doc/gradlane-doc/."))


# ---- completion

def complete_by(entry):
    """Returns the argument of compgen that completes the value of an option: a kind of value, or words; None if
    unknown."""
    names = names_of(entry)
    if re.search(r"\b(FILE|PATH)\b", names) or re.match(r"FILE\b", " ".join(entry[1])):
        return "-f"
    if re.search(r"\bDIR\b", names):
        return "-d"
    choices = CHOICES.match(" ".join(entry[1]))
    return f'-W "{choices[1].replace(",", "")}"' if choices else None


def tables(it, options, values, below):
    path = " ".join(it.words)
    options[path] = " ".join(name for entry in it.options for name in NAME.findall(names_of(entry)))
    below[path] = " ".join(name for name, _ in it.subcommands)
    for entry in it.options:
        how = complete_by(entry)
        for name in NAME.findall(names_of(entry)) if how else ():
            values[f"{path} {name}"] = how
    for each in it.below:
        tables(each, options, values, below)


def table(name, content):
    yield f"declare -gA {name}=("
    yield from (f"  ['{key}']='{value}'" for key, value in content.items() if value)
    yield ")"


def completion(programs):
    options, values, below = {}, {}, {}
    for it in programs:
        tables(it, options, values, below)
    yield "# bash completion of gradlane and gradlaned, made from their --help"
    yield from table("_gradlane_options", options)
    yield from table("_gradlane_values", values)
    yield from table("_gradlane_below", below)
    yield r"""
_gradlane() {
  local word=${COMP_WORDS[COMP_CWORD]} path=${COMP_WORDS[0]##*/} i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      if declare -F _command_offset >/dev/null; then
        _command_offset $((i + 1))
      else
        mapfile -t COMPREPLY < <(compgen -c -f -- "$word")
      fi
      return
    fi
    [[ " ${_gradlane_below[$path]} " == *" ${COMP_WORDS[i]} "* ]] && path+=" ${COMP_WORDS[i]}"
  done
  local kind=${_gradlane_values["$path ${COMP_WORDS[COMP_CWORD - 1]}"]}
  if [[ -n $kind && $word != -* ]]; then
    [[ $kind == -W* ]] || compopt -o filenames 2>/dev/null
    eval "mapfile -t COMPREPLY < <(compgen $kind -- \"\$word\")"
  elif [[ $word == -* || -z ${_gradlane_below[$path]} ]]; then
    mapfile -t COMPREPLY < <(compgen -W "${_gradlane_options[$path]}" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -W "${_gradlane_below[$path]}" -- "$word")
  fi
}
complete -F _gradlane gradlane gradlaned"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gradlane", type=pathlib.Path)
    parser.add_argument("gradlaned", type=pathlib.Path)
    parser.add_argument("version")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--pages", nargs="+", required=True, help="names of the pages that there must be")
    args = parser.parse_args()
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    programs = [Help(args.gradlane), Help(args.gradlaned)]
    made = {}
    for program, number in zip(programs, (1, 8)):
        for name, it in program.pages():
            made[f"{name}.{number}"] = "\n".join(page(it, number, args.version, date)) + "\n"
    if set(made) != set(args.pages):
        sys.exit(f"make.py: packaging/manual/meson.build lists {sorted(set(args.pages) - set(made))} without a command, and lacks "
                 f"{sorted(set(made) - set(args.pages))}")
    made["gradlane"] = made["gradlaned"] = "\n".join(completion(programs)) + "\n"
    for name, text in made.items():
        (args.out / name).write_text(text)


if __name__ == "__main__":
    main()
