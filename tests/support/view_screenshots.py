"""The pictures of `docs/how-to/look-at-a-cache.md`, made anew: `python tests/support/view_screenshots.py`."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from report_browser import Browser, opened_browser
from selenium.webdriver.support.ui import WebDriverWait
from view_pages import media, served, texts

from beam_pipes.recipes import open_tokenizer
from beam_pipes.view.server import Viewer

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def shot(browser: Browser, name: str) -> None:
    """What the window shows, as a PNG of few colours."""
    import io

    from PIL import Image

    png = base64.b64decode(browser.driver.get_screenshot_as_base64())
    Image.open(io.BytesIO(png)).convert("RGB").quantize(64).save(IMAGES / name, optimize=True)


def until(browser: Browser, script: str) -> None:
    WebDriverWait(browser.driver, 60).until(lambda _: browser.run(script))


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place, opened_browser(Path(place) / "profile") as browser:
        viewer = Viewer(texts(Path(place) / "texts").path, vocabulary=open_tokenizer("bytes"))
        with served(viewer) as address:
            browser.open(address, width=1400)
            until(browser, "return document.querySelectorAll('.body .row').length > 9")
            browser.run("document.querySelectorAll('.body .row')[7].click()")
            until(browser, "return !panel.hidden")
            browser.run("about.textContent = 'gs://bucket/texts'")
            shot(browser, "view-rows.png")
        with served(Viewer(media(Path(place) / "media").path)) as address:
            browser.open(address, width=400)
            until(browser, "return told.textContent")
            browser.run("[...views.children].find(each => each.textContent === 'Pictures').click()")
            until(browser, "return document.querySelectorAll('svg.wave path').length === 4")
            until(browser, "return [...document.querySelectorAll('img')].slice(0, 4).every(each => each.complete)")
            browser.run("about.textContent = 'media'")
            shot(browser, "view-pictures.png")


if __name__ == "__main__":
    main()
