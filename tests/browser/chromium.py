"""A headless Chromium that asks for nothing, for the tests of the HTML report."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # collected also where it is not installed: these tests are deselected by default
    from selenium import webdriver

INSTALL = "apt-get update && apt-get install -y chromium chromium-driver"
KEYS = {"tab": "\ue004", "enter": "\ue007", "end": "\ue010", "home": "\ue011", "left": "\ue012", "up": "\ue013",
        "right": "\ue014", "down": "\ue015"}  # fmt: skip
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1280,900",
)


@contextmanager
def chromium(profile: Path) -> "Iterator[webdriver.Chrome]":
    """One browser with a profile of its own; a missing browser fails the test: a skipped one proves nothing."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        pytest.fail("selenium is not installed: pip install -e '.[browser]'", pytrace=False)
    programs = {
        "chromium": shutil.which("chromium") or shutil.which("google-chrome"),  # GitHub's machines have the latter
        "chromedriver": shutil.which("chromedriver"),
    }
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        pytest.fail(f"{' and '.join(missing)} not found: {INSTALL}", pytrace=False)
    options = Options()
    options.binary_location = str(programs["chromium"])
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(programs["chromedriver"])))
    driver.set_script_timeout(60)
    try:
        yield driver
    finally:
        driver.quit()


class Window:
    """The browser's one window: sizes and media to emulate, and what it logged."""

    def __init__(self, driver: "webdriver.Chrome") -> None:
        self.driver = driver

    def emulate(self, *, width: int = 1280, theme: str = "light", media: str = "") -> None:
        """A viewport of ``width`` CSS pixels, the system's theme, and ``print`` or nothing."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def open(self, page: Path, place: str = "") -> None:
        """Load a page from the start and wait until it can be used, and the first detail is there."""
        self.driver.get("about:blank")
        self.drain()
        self.driver.get(f"{page.as_uri()}{place}")
        self.wait("return document.documentElement.dataset.ready !== undefined")

    def wait(self, script: str) -> Any:
        """Wait until a script returns something true; it is asked again with each frame."""
        body = script.removeprefix("return ")
        return self.driver.execute_async_script(
            "const done = arguments[0]; const ask = () => { const v = " + body + ";"
            "if (v) done(v); else requestAnimationFrame(ask); }; ask();"
        )

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def click(self, element: Any) -> None:
        """A real click, with the element in the middle of the window."""
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def press(self, *keys: str) -> None:
        """Keys on what has the focus: names of ``KEYS`` or characters."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*(KEYS.get(key, key) for key in keys)).perform()

    def point_at(self, element: Any) -> None:
        """The pointer over the middle of an element, which is in the middle of the window."""
        from selenium.webdriver import ActionChains

        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        ActionChains(self.driver).move_to_element_with_offset(element, 0, 0).perform()

    def choose(self, selector: str, value: str) -> None:
        """An option of a select element."""
        from selenium.webdriver.support.ui import Select

        Select(self.one(selector)).select_by_value(value)

    def drain(self) -> None:
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)

    def messages(self) -> list[str]:
        """What the console holds since the page was opened: errors, warnings, broken policies."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address that was asked for since the page was opened."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(str(message["params"]["request"]["url"]))
        return found
