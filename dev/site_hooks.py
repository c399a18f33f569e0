"""Hooks of MkDocs for the documentation site (mkdocs.yml): they make a site of the pages that are written for Git hosts.

- The navigation has the categories and links of docs/README.md; README.md is the front page.
- A link to a file that is no page becomes the name of the file.
- Comments, and the words after the language of a block, are left out.
"""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

import check_docs

ROOT = pathlib.Path(__file__).resolve().parent.parent
OTHER_PAGES = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}  # pages of the site that are not in docs/
ALL_PAGES = "README.md"  # docs/README.md
PAGE_NAMES = {path: name for name, path in OTHER_PAGES.items()}
LINK = re.compile(r"(!?)\[([^]]*)\]\(([^)\s]+)\)")
CATEGORY = re.compile(r"(?:\| *)?\*\*([^*]+)\*\*(?: *\||$)")
CODE = re.compile(r"(^ *```.*?^ *```|``.+?``|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^( *```\w+) .*", re.MULTILINE)
ITEM = re.compile(r"( *)((?:[-*+]|\d+[.)]) +)\S")
FENCE = re.compile(r" *```")
COMMENT_LINE = re.compile(r"^ *<!--.*?--> *$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def indented(markdown):
    """Returns a page with four spaces for each level of lists. MkDocs' Markdown needs them, CommonMark only as many as
    the mark of the item is wide."""
    found, widths, fenced = [], [], False  # widths[i] is the indentation of the text of level i
    for line in markdown.splitlines():
        width = len(line) - len(line.lstrip())
        item = ITEM.match(line) if not fenced else None
        if line.strip() and not fenced:
            while widths and width < widths[-1] and (item or not found[-1].strip() or FENCE.match(line)):
                widths.pop()
        deeper = max(0, width - (widths[-1] if widths else 0))  # lines of a paragraph may have less than the first one
        found.append(" " * (4 * len(widths) + deeper) + line.lstrip())
        if item and deeper < 4:  # four and more are a block of code
            widths.append(len(item[1] + item[2]))
        if FENCE.match(line):
            fenced = not fenced
    return "\n".join(found) + "\n"


def resolved(folder, target):
    """Returns the path of a relative link's file, from the root of the repository."""
    return posixpath.normpath(posixpath.join(folder, target))


def short_title(page):
    """Returns the heading of a page up to the colon."""
    return re.search(r"^# (.*)", page.read_text(), re.MULTILINE)[1].replace("`", "").partition(":")[0]


def navigation(text):
    """Returns MkDocs' navigation of the categories and links of docs/README.md. The first link to a page counts."""
    found, pages, seen = [], None, set()
    for line in text.splitlines():
        category = CATEGORY.match(line)
        if category:
            pages = []
            found.append({category[1]: pages})
        for _, _, target in LINK.findall(line) if pages is not None else []:
            path = resolved("docs", target.partition("#")[0])
            name = PAGE_NAMES.get(path) or path.removeprefix("docs/")
            if name.endswith(".md") and name not in seen and (ROOT / path).exists():
                seen.add(name)
                pages.append({short_title(ROOT / path): name})
    return ["index.md", {"All pages": ALL_PAGES}, *(each for each in found if list(each.values())[0])]


def on_config(config):
    config.nav = navigation((ROOT / "docs/README.md").read_text())
    config.mdx_configs.setdefault("toc", {})["slugify"] = lambda text, _: check_docs.anchor(text)
    return config


def on_files(files, config):
    files.get_file_from_path(ALL_PAGES).dest_uri = "pages.html"
    for name, path in OTHER_PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text()))
    files.append(File.generated(config, "assets/iframe-worker.js", abs_src_path=str(ROOT / "dev/iframe-worker.js")))
    return files


def linked(match, page, files):
    """Returns the text for a link of a page."""
    image, text, target = match.groups()
    if re.match(r"[a-z]+:|#", target):
        return match[0]
    path, _, anchor = target.partition("#")
    source = OTHER_PAGES.get(page.file.src_uri) or f"docs/{page.file.src_uri}"
    path = resolved(posixpath.dirname(source), path)
    name = PAGE_NAMES.get(path) or posixpath.relpath(path, "docs")
    if files.get_file_from_path(name):
        name = posixpath.relpath(name, posixpath.dirname(page.file.src_uri) or ".")
        return f"{image}[{text}]({name}{'#' if anchor else ''}{anchor})"
    if not (ROOT / path).exists():
        return match[0]  # MkDocs reports it
    plain = text.strip("`").rstrip("/")
    return f"`{path}`" if f"/{path}".endswith(f"/{plain}") else f"{text} (`{path}`)"


def on_page_markdown(markdown, page, config, files):
    parts = CODE.split(indented(COMMENT_LINE.sub("", markdown)))
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] = BLOCK.sub(r"\1", part)
    # Links may have code in their text, so code is hidden while links are replaced.
    text = "".join(part if i % 2 == 0 else f"\0{i}\0" for i, part in enumerate(parts))
    shown = lambda piece: re.sub(r"\0(\d+)\0", lambda match: parts[int(match[1])], piece)  # noqa: E731
    text = LINK.sub(lambda match: linked(LINK.fullmatch(shown(match[0])) or match, page, files), COMMENT.sub("", text))
    return shown(text)
