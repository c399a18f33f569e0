#!/usr/bin/python3
"""Reads the documentation site in headless Chromium, as a reader does.

usage: python3 -m tests.scripts.docs.site_test [FOLDER]    after dev/site.sh, which makes build-site/html/

Follows the navigation from the front page to every page. Each page must have the title of its Markdown page, all of its
images, no error in the console and no request to another host. Then the search must find pages, from a web server and
from files.
"""

import functools
import http.server
import pathlib
import re
import sys
import threading

from tests.scripts.docs import browser

ROOT = pathlib.Path(__file__).resolve().parents[3]
SEARCHES = ("residual", "GRADLANE_SOCKET", "troubleshooting")

LINKS = 'Array.from(document.querySelectorAll(".md-nav--primary a.md-nav__link"))'
RESULTS = 'document.querySelectorAll(".md-search-result__link")'
# Brings lazy images into view and returns those that do not load.
BROKEN_IMAGES = """(async () => {
  const broken = [];
  for (const image of document.querySelectorAll("article img")) {
    image.loading = "eager";
    await image.decode().catch(() => broken.push(image.src));
  }
  return broken;
})()"""
# Text that a reader sees and that looks like Markdown, apart from code.
MARKDOWN = """(() => {
  const article = document.querySelector("article").cloneNode(true);
  article.querySelectorAll("pre").forEach(each => each.remove());
  article.querySelectorAll("code").forEach(each => each.replaceWith("code"));
  return Array.from(article.querySelectorAll("p, li, td")).map(each => each.textContent)
    .filter(text => /(^|\\n) *([-*] |\\d+\\. |\\|)|```|\\*\\*|<!--|\\]\\(|`/.test(text)).map(text => text.slice(0, 200));
})()"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def headings():
    """Returns the heading of each Markdown page: the page's path from the root of the site, and the text."""
    pages = {"index.html": ROOT / "README.md", "changelog.html": ROOT / "CHANGELOG.md", "pages.html": ROOT / "docs/README.md"}
    for page in (ROOT / "docs").rglob("*.md"):
        if page != ROOT / "docs/README.md":
            pages[str(page.relative_to(ROOT / "docs").with_suffix(".html"))] = page
    return {name: re.search(r"^# (.*)", page.read_text(), re.MULTILINE)[1].replace("`", "") for name, page in pages.items()}


def check_page(chromium, name, heading):
    """Raises AssertionError if the page that Chromium shows has faults."""
    found = chromium.value('document.querySelector("article h1").textContent').removesuffix("\u00b6").strip()
    assert found == heading, f"the heading is '{found}' and not '{heading}'"
    title = chromium.value("document.title")
    short = heading.partition(":")[0]
    assert title in ("gradlane", "All pages - gradlane", f"{short} - gradlane"), f"the title is '{title}'"
    broken = chromium.value(BROKEN_IMAGES)
    assert not broken, f"images do not load: {broken}"
    left = chromium.value(MARKDOWN)
    assert not left, f"the site does not understand this Markdown: {left}"


def visit_pages(chromium, base):
    """Clicks on each link of the navigation. Returns the faults of pages, and the number of pages."""
    wanted, seen, faults = headings(), set(), []
    chromium.open(f"{base}index.html")
    for target in chromium.value(f"{LINKS}.map(each => each.href)"):
        if "#" in target:
            continue  # a heading of the page itself
        if target != chromium.value("location.href"):
            chromium.load(lambda: chromium.value(f"{LINKS}.find(each => each.href == {target!r}).click()"))
        name = chromium.value("location.href").removeprefix(base)
        seen.add(name)
        try:
            assert base + name == target, f"the link to {target} leads here"
            assert name in wanted, "no Markdown page is its source"
            check_page(chromium, name, wanted[name])
        except AssertionError as fault:
            faults.append(f"{name}: {fault}")
        faults += [f"{name}: the console has: {error}" for error in chromium.errors]
        chromium.errors.clear()
    faults += [f"{name}: the navigation does not have it" for name in sorted(set(wanted) - seen)]
    foreign = {url for url in chromium.requests if not url.startswith((base, "data:", "blob:"))}
    return faults + [f"a page loads {url}" for url in sorted(foreign)], len(seen)


def search(chromium, base, word):
    """Types a word into the search field and follows the first result. Returns the fault, or None."""
    chromium.open(f"{base}index.html")
    chromium.value('document.querySelector(".md-search__input").focus()')
    chromium.call("Input.insertText", text=word)
    try:
        chromium.wait_for(f"{RESULTS}.length > 0")
    except RuntimeError:
        return f"the search for '{word}' finds nothing"
    chromium.load(lambda: chromium.value(f"{RESULTS}[0].click()"))
    name = chromium.value("location.href").removeprefix(base)
    if word.lower() not in chromium.value('document.querySelector("article").textContent').lower():
        return f"the search for '{word}' finds {name}, which does not have it"
    print(f"the search for '{word}' finds {name}")
    return None


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build-site/html")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/"
    with browser.Browser() as chromium:
        faults, count = visit_pages(chromium, base)
        faults += filter(None, (search(chromium, base, word) for word in SEARCHES))
        faults += filter(None, [search(chromium, f"{pathlib.Path(folder).resolve().as_uri()}/", SEARCHES[0])])
        faults += chromium.errors
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{count} pages, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
