"""A headless Chromium that opens a report from a file, and remembers what it said and what it asked for."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path

import pytest

from torchscan.report.formats import RenderOptions
from torchscan.report.html import render

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
WIDE, NARROW = 1400, 390


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


def find(*names: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        reason = f"needs {names[0]} (Debian: apt-get install chromium chromium-driver)"
        # Where these tests are the point, their absence is a failure.
        if os.environ.get("TORCHSCAN_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    if os.environ.get("TORCHSCAN_REQUIRE_BROWSER") != "1":
        pytest.importorskip("selenium")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = find("chromium", "chromium-browser", "google-chrome")
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(find("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield driver
    finally:
        driver.quit()


class Browser:
    """One page at a time, with the few questions that the tests ask."""

    def __init__(self, driver, folder: Path) -> None:
        self.driver = driver
        self.folder = folder

    def open(self, report, *, width: int = WIDE, height: int = 1000, dark: bool = False, **options) -> Browser:
        """Render `report`, and open the file as a reader would."""
        file = self.folder / "report.html"
        file.write_text(render(report, RenderOptions(**options)), encoding="utf-8")
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        # Scrolling takes its time unless the reader prefers none of it.
        motion = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.command("Emulation.setEmulatedMedia", media="", features=[scheme, motion])
        self.messages()
        self.driver.get_log("performance")
        self.driver.get(file.as_uri())
        assert self.js("return document.documentElement.dataset.ready") == "true"
        return self

    def js(self, code: str, *arguments):
        return self.driver.execute_script(code, *arguments)

    def command(self, name: str, **parameters):
        return self.driver.execute_cdp_cmd(name, parameters)

    def one(self, selector: str):
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str):
        return self.driver.find_elements("css selector", selector)

    def text(self, selector: str) -> str:
        return " ".join(self.one(selector).text.split())

    def keys(self, *keys: str) -> None:
        """Press keys where the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def choose(self, name: str, value: str) -> None:
        """Click a radio button; it lies over its label."""
        self.one(f"input[name={name}][value='{value}']").click()

    @property
    def crumbs(self) -> list[str]:
        return [item.text for item in self.all("#crumbs li")]

    @property
    def selected(self) -> str:
        return (
            self.text("#announce")
            if self.one("#announce").text
            else self.js("return document.getElementById('announce').textContent")
        )

    def sectors(self) -> dict[str, dict]:
        """Return what is drawn, by the beginning of its hover text: its box in pixels and whether it is hatched."""
        return self.js(
            """
            const found = {};
            for (const slice of document.querySelectorAll("#chart g.slice")) {
              const surface = slice.querySelector("path.surface");
              const box = surface.getBoundingClientRect();
              const row = chart.sectors.find((sector) => sector.id === slice.__data__.data.data.id);
              const key = row.run ? `${row.run.length} calls` : chart.model.title(row.row);
              found[key] = {
                left: box.left, top: box.top, width: box.width, height: box.height,
                hatched: surface.style.fill.startsWith("url("), text: slice.textContent,
              };
            }
            return found;
            """
        )

    def click(self, title: str) -> None:
        """Click the middle of a sector, as a mouse does."""
        self.js("document.getElementById('chart').scrollIntoView({block: 'center', behavior: 'instant'})")
        box = self.sectors()[title]
        x, y = box["left"] + box["width"] / 2, box["top"] + box["height"] / 2
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def messages(self) -> list[str]:
        """Return what the console said since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Return every address that was asked for since the page was opened."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def screenshot(self, name: str) -> None:
        """Keep a picture of the whole page where TORCHSCAN_SCREENSHOTS says."""
        folder = os.environ.get("TORCHSCAN_SCREENSHOTS")
        if not folder:
            return
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 8000), "scale": 1}
        image = self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(image["data"]))


@pytest.fixture
def browser(chromium, tmp_path):
    """Return a browser; at the end of the test the page must have been silent and offline."""
    found = Browser(chromium, tmp_path)
    yield found
    assert found.messages() == []
    outside = [url for url in found.requests() if not url.startswith(("file:///", "data:", "blob:"))]
    assert outside == []
