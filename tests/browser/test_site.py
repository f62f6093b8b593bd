"""The site of the docs opens from the disk: its pages ask the network for nothing, and its search finds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

WebDriverWait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


def test_no_page_loads_anything_from_elsewhere(site: Path):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        html = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"', html)
        remote = [address for pair in loaded for address in pair if re.match(r"(?:[a-z]+:)?//", address)]
        assert remote == [], page.name


def test_the_search_finds_without_a_server(chromium, site: Path):
    chromium.get(f"{(site / 'index.html').as_uri()}?q=ownership")
    found = WebDriverWait(chromium, 30).until(
        lambda driver: (
            re.search(r"\d+ matching documents", driver.find_element("tag name", "body").text)
            and driver.find_elements("css selector", ".md-search-result__item a[href*='ownership']")
        )
    )
    found[0].click()
    WebDriverWait(chromium, 30).until(lambda driver: "explanation/ownership.html" in driver.current_url)


def test_the_picture_of_a_report_is_drawn(chromium, site: Path):
    chromium.get((site / "index.html").as_uri())
    width = "return document.querySelector('article img').naturalWidth"
    WebDriverWait(chromium, 30).until(lambda driver: driver.execute_script(width) > 500)
