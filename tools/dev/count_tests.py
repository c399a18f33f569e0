#!/usr/bin/python3
"""Adds up the results of meson test runs, GoogleTest's cases one by one. Shows what failed, and why tests were skipped."""

import argparse
import collections
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

LAST_LINES = 30  # of a test that failed, once more: the log above is long

# GoogleTest begins the message of a skipped case with the line that skipped it.
SOURCE_LINE = re.compile(r"\S+:\d+\s+")


def skip_reason(suite, case):
    """GoogleTest's message, or the last line a skipped script printed, or else which test it was."""
    if case.get("status") == "notrun":
        return "disabled"
    message = SOURCE_LINE.sub("", case.find("skipped").get("message") or "", count=1).strip()
    output = (case.findtext("system-out") or "").strip()
    if message:
        return message.splitlines()[0]
    return output.splitlines()[-1] if output else f"{suite.get('name')} / {case.get('name')} gave no reason"


def show_failure(suite, case):
    """The end of what it printed: of the case, or of its program, where GoogleTest's cases have it together."""
    texts = [part.findtext(name) for part in (case, suite) for name in ("system-out", "system-err")]
    texts.append("\n".join(child.get("message") or "" for child in case.iter("failure")))
    lines = "\n".join(text.strip() for text in texts if text).splitlines()
    print(f"-- {suite.get('name')} {case.get('name')} ended with:", *lines[-LAST_LINES:], sep="\n   ")


def cases_of(path):
    """Yields name, result and the reason of a skip."""
    for suite in ElementTree.parse(path).iter("testsuite"):
        for case in suite.iter("testcase"):
            name = f"{case.get('classname', '')}.{case.get('name', '')}"
            if case.find("failure") is not None or case.find("error") is not None:
                show_failure(suite, case)
                yield name, "failed", None
            elif case.find("skipped") is not None or case.get("status") == "notrun":
                yield name, "skipped", skip_reason(suite, case)
            else:
                yield name, "passed", None


def slowest(junit_paths):
    """Seconds and names of tests, the longest first: of the logs in JSON lines beside those for JUnit."""
    found = []
    for path in junit_paths:
        folder = pathlib.Path(path).resolve().parent.parent.name
        for line in pathlib.Path(str(path).removesuffix(".junit.xml") + ".json").read_text().splitlines():
            test = json.loads(line)
            found.append((test["duration"], test["name"].split(" / ")[-1], folder))
    return sorted(found, reverse=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("junit", nargs="+", help="testlog.junit.xml of a build folder")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="print the N slowest tests, too")
    args = parser.parse_args()
    for seconds, name, folder in slowest(args.junit)[:args.slowest]:
        print(f"{seconds:6.1f} s  {name} ({folder})")
    count = {"passed": 0, "failed": 0, "skipped": 0}
    reasons = collections.Counter()
    for path in args.junit:
        for name, result, reason in cases_of(path):
            count[result] += 1
            if result == "failed":
                print(f"failed: {name}")
            elif result == "skipped":
                reasons[reason] += 1
    for reason, skips in reasons.most_common():
        print(f"skipped {skips}: {reason}")
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
