"""Headless Chromium with its own driver: the installed ones, never downloads."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from axe_core_python.base import AXE_SCRIPT
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def installed_browser() -> tuple[str, str]:
    """The paths of a browser and of its driver."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        missing = " and ".join(name for name, path in (("Chromium", browser), ("chromedriver", driver)) if path is None)
        raise AssertionError(
            f"{missing} not found on PATH: pages are tested in a real browser. `make browser` installs it "
            "(apt-get install chromium chromium-driver), or put another one of the same version there."
        )
    return browser, driver


@dataclasses.dataclass(frozen=True)
class Browser:
    """One window. What pages log and ask for is read with `complaints` and `requests`, each time since the last one."""

    driver: WebDriver

    def show(self, page: Path, *, width: int = 1280, scheme: str = "light", media: str = "screen") -> None:
        """Loads a file at a width (in CSS pixels), in a colour scheme, for a medium."""
        self.open(page.as_uri(), width=width, scheme=scheme, media=media)

    def open(self, address: str, *, width: int = 1280, scheme: str = "light", media: str = "screen") -> None:
        """Loads an address, likewise."""
        self.driver.get("about:blank")
        self.complaints()
        self.requests()
        self._cdp("Emulation.setEmulatedMedia", media=media, features=[_feature("prefers-color-scheme", scheme)])
        self._cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.driver.get(address)

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a function body returns."""
        return self.driver.execute_script(script, *arguments)

    def violations(self) -> list[str]:
        """The problems that axe finds in the current page: rule, help and the first elements of each."""
        self.driver.execute_script(AXE_SCRIPT)
        results = self.driver.execute_async_script("axe.run().then(arguments[arguments.length - 1]);")
        return [
            f"{found['id']} ({found['impact']}): {found['help']}: {[node['html'][:200] for node in found['nodes'][:3]]}"
            for found in results["violations"]
        ]

    def secs_of_sound(self) -> object:
        """How long the first sound of the page plays; the browser's message if it cannot be read."""
        return self.driver.execute_async_script(
            "const [done] = arguments, sound = document.querySelector('audio');"
            "sound.onloadedmetadata = () => done(sound.duration); sound.onerror = () => done(sound.error.message);"
            "sound.load();"
        )

    def complaints(self) -> list[str]:
        """The messages in the console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def requests(self) -> list[str]:
        """The requested URLs."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]  # type: ignore[no-untyped-call]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def overflow(self) -> int:
        """The number of pixels by which the page is wider than its window."""
        found: int = self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth;")
        return found

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        shot = self._cdp("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page, printed on A4."""
        return base64.b64decode(self._cdp("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])

    def _cdp(self, command: str, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.driver.execute_cdp_cmd(command, options)  # type: ignore[attr-defined]
        return found


@contextlib.contextmanager
def opened_browser(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, closed at the end."""
    binary, driver_path = installed_browser()
    options = Options()
    options.binary_location = binary
    arguments = ["--headless=new", f"--user-data-dir={profile}", "--disable-background-networking", "--no-first-run"]
    arguments += ["--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    for argument in arguments:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=driver_path))
    driver.set_script_timeout(120)  # for axe on a busy machine
    try:
        yield Browser(driver)
    finally:
        driver.quit()


def _feature(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}
