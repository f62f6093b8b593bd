"""Measure the page of a report of 5,000 calls: `PYTHONPATH=tests python tests/browser/measure.py [CALLS]`.

Prints the time to render it, its size, and how long headless Chromium takes to open it, to switch the metric, to zoom
and to search. Times depend on the machine, so no test asserts them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from browser.conftest import FLAGS, find
from core.report_builder import deep_report
from torchscan.report.formats import RenderOptions
from torchscan.report.html import render

REPEATS = 5
STEPS = {
    "switch the metric": "document.querySelector('input[name=metric][value=dmas]').click()",
    "zoom in": "chart.zoom(chart.sectors[1])",
    "zoom out": "chart.out()",
    "move the selection": "chart.select(chart.sectors[2])",
    "search": "searchBox.value = 'layer3'; search()",
}


def main(calls: int) -> None:
    report = deep_report(calls)
    rendered = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        page = render(report, RenderOptions())
        rendered.append(time.perf_counter() - start)
    print(f"calls               {len(report.layers)}")
    print(f"render, first       {rendered[0]:.2f} s")
    print(f"render, median      {statistics.median(rendered):.2f} s")
    print(f"size                {len(page.encode()) / 1e6:.2f} MB")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(page, encoding="utf-8")
        options = webdriver.ChromeOptions()
        options.binary_location = find("chromium", "chromium-browser", "google-chrome")
        for flag in (*FLAGS, f"--user-data-dir={folder}/profile"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(find("chromedriver")))
        try:
            opened = []
            for _ in range(REPEATS):
                driver.get("about:blank")
                start = time.perf_counter()
                driver.get(file.as_uri())
                assert driver.execute_script("return document.documentElement.dataset.ready") == "true"
                opened.append(time.perf_counter() - start)
            print(f"open, first         {opened[0]:.2f} s")
            print(f"open, median        {statistics.median(opened):.2f} s")
            for name, code in STEPS.items():
                spent = driver.execute_script(
                    f"const start = performance.now(); {code}; return performance.now() - start"
                )
                print(f"{name:20}{spent / 1000:.2f} s")
        finally:
            driver.quit()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
