"""The pages of the project, and the code blocks on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

#: Everything a reader is shown, by its path in the repository.
PAGES = tuple(sorted(path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"))))

_INFO = re.compile(r'^(?P<language>[\w-]+)(?:.*?\btitle="(?P<title>[^"]+)")?')
_NOT_RUN = re.compile(r"^<!--\s*not run:\s*(?P<reason>.+?)\s*-->$", re.DOTALL)


@attrs.frozen
class Block:
    """One fenced block.

    Args:
        language: the first word behind the fence; empty where there is none.
        title: the file it is, where it is one.
        text: what stands in it.
        line: where it stands in its page, from 1.
        follows: the language of the block directly before it, without anything between; empty where there is none.
        not_run: why it is not run, as the comment before it says: `<!-- not run: reason -->`.

    """

    language: str
    title: str
    text: str
    line: int
    follows: str
    not_run: str


def blocks(page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page in order.

    Args:
        page: one of `PAGES`.

    """
    before = not_run = ""
    for token in MarkdownIt("commonmark").parse((ROOT / page).read_text(encoding="utf-8")):
        if token.type == "fence":
            found = _INFO.match(token.info)
            language = found["language"] if found else ""
            line = token.map[0] + 1 if token.map else 0
            yield Block(language, (found and found["title"]) or "", token.content, line, before, not_run)
            before, not_run = language, ""
        else:
            comment = _NOT_RUN.match(token.content.strip()) if token.type == "html_block" else None
            before, not_run = "", comment["reason"] if comment else ""


def text(page: str) -> str:
    """Return what stands in a file of the repository."""
    return (ROOT / page).read_text(encoding="utf-8")


def sections(page: str, level: int = 2) -> dict[str, str]:
    """Return heading to text of the sections of one level."""
    parts = re.split(rf"^{'#' * level} (.+)$", text(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def first_cells(section: str) -> list[str]:
    """Return the code in the first column of a section's tables, headings left out."""
    rows = re.findall(r"^\| (`.+?) \|.*\n(?!\| ?---)", section, re.MULTILINE)
    return [code for row in rows for code in re.findall(r"`([^`]+)`", row)]


def prose(page: str) -> str:
    """Return a page without its blocks."""
    return re.sub(r"```.*?```", "", text(page), flags=re.DOTALL)


def anchors(page: str) -> set[str]:
    """Return the anchors of a page, as the site makes them from its headings."""
    headings = (heading.replace("`", "").lower() for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE))
    return {re.sub(r"[^\w -]", "", heading).strip().replace(" ", "-") for heading in headings}
