"""The page of `view` in Chromium: what people do with it, and that nothing of a cache becomes markup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sample_declarations
from report_browser import Browser, opened_browser
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from view_pages import ATTACK, hostile, media, served, texts

from beam_pipes.cache import FeatureSpec, write_cache
from beam_pipes.loader import Loader, pack
from beam_pipes.recipes import open_tokenizer
from beam_pipes.runners import LocalOptions, build
from beam_pipes.view.server import Viewer


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with opened_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(scope="module")
def page(base: Path) -> Iterator[str]:
    """Texts with tokens, and a run that packs them."""
    cache = texts(base / "texts")
    packed = pack(cache["train"], sequence_length={"tokens": 64, "loss_mask": 64}, overlong="split")
    run = Loader(packed, batch_size=4, seed=1, epochs=2)
    with served(Viewer(cache.path, vocabulary=open_tokenizer("bytes"), loader=run)) as address:
        yield address


@pytest.fixture(scope="module")
def media_page(base: Path) -> Iterator[str]:
    with served(Viewer(media(base / "media").path)) as address:
        yield address


def until(browser: Browser, script: str, *arguments: Any) -> Any:
    """The value of a function body, once it is true; asserted to come within a minute."""
    return WebDriverWait(browser.driver, 60, 0.02).until(lambda _: browser.run(script, *arguments))


def opened(browser: Browser, address: str, view: str = "Rows", **options: Any) -> None:
    browser.open(address, **options)
    until(browser, "return document.querySelector('#views [aria-current]')?.textContent === 'Rows' && told.textContent")
    if view != "Rows":
        browser.run("[...views.children].find(each => each.textContent === arguments[0]).click()", view)


def first_rows(browser: Browser, count: int = 3) -> list[str]:
    return browser.run(
        "return [...document.querySelectorAll('.body .row')].slice(0, arguments[0]).map(row => row.innerText)", count
    )


def asked(browser: Browser, told: str, **fields: str) -> None:
    """Fills in the form, and waits for what the page tells then."""
    for name, value in fields.items():
        browser.run("document.getElementById(arguments[0]).value = arguments[1]", name, value)
    browser.run("document.querySelector('#asking button').click()")
    until(browser, "return told.textContent.startsWith(arguments[0])", told)


def test_rows_are_chosen_sorted_searched_and_opened(browser: Browser, page: str) -> None:
    opened(browser, page)
    assert browser.run("return told.textContent") == "500 of 500 records"

    asked(browser, "16 of 500", where="n > 484")
    asked(browser, "16 of 500", sort="n")
    assert [row.splitlines()[0] for row in first_rows(browser)] == ["15", "14", "13"]
    asked(browser, "1 of 500 records; searched 16 of 16 records (lang, text)", search="whales")
    browser.run("document.querySelector('.body .row').click()")
    until(browser, "return !panel.hidden && panel.innerText.includes('record 7 is about Whales')")
    assert browser.run(
        "return [...document.querySelectorAll('.token.out')].map(each => each.textContent).join('')"
    ) == ("record 7 is ")
    asked(browser, "", where="n >")
    until(browser, "return told.className === 'bad'")
    assert "condition" in browser.run("return told.textContent")
    assert [line for line in browser.complaints() if "404" not in line] == []


def test_the_keyboard_walks_through_rows_and_opens_one(browser: Browser, page: str) -> None:
    opened(browser, page)
    browser.run("document.querySelector('.grid').focus()")
    keys = browser.driver.switch_to.active_element
    keys.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    active = "const grid = document.querySelector('.grid'); return grid.getAttribute('aria-activedescendant')"
    assert browser.run(active) == "row-2"
    keys.send_keys(Keys.END)
    until(browser, "return document.getElementById('row-499')?.innerText.includes('record 499')")
    assert browser.run(active) == "row-499"
    keys.send_keys(Keys.ENTER)
    until(browser, "return document.activeElement === panel && panel.innerText.includes('train, record 499')")
    browser.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert browser.run("return panel.hidden && document.activeElement.className === 'grid'")
    keys.send_keys(Keys.HOME)
    until(browser, "return document.getElementById('row-0')?.innerText.includes('record 0 ')")


def test_more_rows_than_an_element_is_high_are_scrolled_and_only_those_seen_are_read(
    browser: Browser, base: Path
) -> None:
    total = 400_000  # higher than the tallest element would be
    features = {"n": FeatureSpec("uint8")}
    write_cache(base / "many", {"train": ({"n": number % 251} for number in range(total))}, features=features)
    with served(Viewer(str(base / "many"))) as address:
        opened(browser, address)
        heights = browser.run("const grid = document.querySelector('.grid'); return [grid.scrollHeight, innerHeight]")
        assert heights[0] < 8_100_000
        browser.requests()
        browser.run("const grid = document.querySelector('.grid'); grid.scrollTop = grid.scrollHeight")
        last = f"return document.getElementById('row-{total - 1}')?.innerText.split('\\n')"
        until(browser, f"{last.replace('return ', 'return (')} ?? []).length === 2")
        assert browser.run(last) == [f"{total - 1:,}", str((total - 1) % 251)]
        assert len([each for each in browser.requests() if "/api/rows" in each]) <= 2
        # By less than a window, it moves by the rows that it shows.
        moved = "const [first] = document.querySelectorAll('.body .row'); return Number(first.id.slice(4))"
        before = browser.run(moved)
        browser.run("document.querySelector('.grid').scrollTop -= 280")
        until(browser, f"return (() => {{ {moved} }})() !== {before}")
        assert before - browser.run(moved) == pytest.approx(10, abs=1)


def test_a_brushed_histogram_chooses_rows(browser: Browser, page: str) -> None:
    opened(browser, page, "Charts")
    until(browser, "return document.querySelectorAll('.bars').length === 6")
    bars = "const bars = document.querySelector('[aria-label=\"Histogram of n\"]').children;"
    browser.run(
        bars + "const send = (bar, kind) => bar.dispatchEvent(new PointerEvent(kind, {bubbles: true}));"
        "send(bars[1], 'pointerdown'); send(bars[2], 'pointerenter'); send(bars[2], 'pointerup');"
    )
    until(browser, "return where.value")
    chosen = browser.run("return where.value")
    assert chosen.startswith("n >= ") and " and n < " in chosen
    until(browser, "return document.querySelectorAll('.bars').length === 6")
    browser.run("document.querySelector('[aria-label=\"Histogram of lang\"]').children[0].focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    until(
        browser, "return where.value.endsWith(\"and (lang == 'de')\") || where.value.endsWith(\"and (lang == 'en')\")"
    )


def test_pictures_with_boxes_and_masks_and_sound(browser: Browser, media_page: str) -> None:
    opened(browser, media_page, "Pictures")
    until(browser, "return document.querySelectorAll('.tiles > li').length === 4")
    until(
        browser,
        "const all = [...document.querySelectorAll('.tiles img')];"
        "return all.length === 8 && all.every(each => each.complete && each.naturalWidth)",
    )
    rectangle = "const one = document.querySelectorAll('.tiles rect')[1].getBoundingClientRect(),"
    rectangle += "picture = document.querySelector('.tiles img').getBoundingClientRect();"
    rectangle += "return [(one.x - picture.x) / picture.width, one.width / picture.width]"
    assert browser.run(rectangle) == pytest.approx([100 / 300, 100 / 300], abs=0.02)
    browser.run(
        "const boxes = document.querySelector('#stage > label select');"
        "boxes.value = 'left, top, width, height'; boxes.dispatchEvent(new Event('change'))"
    )
    until(browser, "return document.querySelectorAll('.tiles rect')[1]?.getAttribute('width') === '200'")
    until(browser, "return document.querySelectorAll('svg.wave path').length === 4")
    assert browser.secs_of_sound() == pytest.approx(0.5)
    assert browser.complaints() == []


def test_the_batch_of_a_step_leads_to_a_row_and_back(browser: Browser, page: str) -> None:
    opened(browser, page, "Batches")
    until(browser, "return document.querySelectorAll('#stage section').length === 4")
    assert browser.run("return told.textContent") == "step 0, epoch 0: 4 rows"
    row = browser.run("return document.querySelector('#stage section').innerText")
    assert "segment 1: " in row and "segment 2: " in row
    record_id = browser.run("return document.querySelector('#stage section button').textContent").split(": ")[1]
    browser.run("document.querySelector('#stage section button').click()")
    until(browser, f"return panel.innerText.includes({record_id!r})")
    browser.run("[...panel.querySelectorAll('button')].find(each => each.textContent.startsWith('Which')).click()")
    until(browser, "return [...panel.querySelectorAll('button')].some(each => each.textContent === '0')")


@pytest.fixture(scope="module")
def built(base: Path) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(sample_declarations.INPUT_VARIABLE, str(base / "in"))
        (base / "in").mkdir()
        (base / "in/a.txt").write_text(f"to be or not\nboom {ATTACK}\n" * 3)
        build(sample_declarations.words_with_dead_letters(), base / "words", options=LocalOptions(workers=1))
    with served(Viewer(str(base / "words"), named="job:declaration")) as address:
        yield address


def test_dead_letters_have_a_traceback_and_a_command(browser: Browser, built: str, base: Path) -> None:
    opened(browser, built, "Dead letters")
    until(browser, "return document.querySelectorAll('#stage section').length === 3")
    letter = browser.run("return document.querySelector('#stage section').innerText")
    assert "boom" in letter and "Traceback" in letter or ".py" in letter
    assert f"beam-pipes replay-dead {base / 'words'} job:declaration" in letter
    assert browser.run("return window.ran") is None


def test_a_build_is_seen_while_it_runs(browser: Browser, base: Path) -> None:
    (base / "empty").mkdir()
    with served(Viewer(str(base / "empty"))) as address:
        browser.open(address)
        until(browser, "return stage.innerText.includes('nothing is published')")
        texts(base / "empty", 10)
        until(browser, "return [...stage.querySelectorAll('button')].some(each => each.textContent.startsWith('Open'))")
        browser.run("stage.querySelector('button').click()")
        until(browser, "return told.textContent === '10 of 10 records'")


def test_nothing_of_a_hostile_cache_becomes_markup(browser: Browser, base: Path) -> None:
    with served(Viewer(hostile(base / "hostile").path)) as address:
        opened(browser, address)
        before = browser.run("return [...document.querySelectorAll('script, b, img, a')].length")
        assert before == 1  # our script
        browser.run("document.querySelector('.body .row').click()")
        until(browser, "return panel.innerText.includes(arguments[0])", ATTACK)
        assert "\\x1b[31m" in browser.run("return panel.innerText")
        assert browser.run("return panel.innerText.length") < 40_000
        for view in ("Pictures", "Charts", "Files", "Dead letters", "Duplicates", "Build"):
            browser.run("[...views.children].find(each => each.textContent === arguments[0]).click()", view)
            until(browser, "return stage.childElementCount > 0")
        assert browser.run("return [window.ran, document.querySelectorAll('script').length]") == [None, 1]
        browser.run("try { stage.innerHTML = '<img src=x>' } catch (error) { window.refused = error.name }")
        assert browser.run("return window.refused") == "TypeError"  # trusted types: not even our own script can


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1400, "dark")])
def test_everybody_can_use_it_on_any_screen(
    browser: Browser, page: str, media_page: str, width: int, scheme: str
) -> None:
    for address, views in ((page, ("Rows", "Charts", "Batches", "Files")), (media_page, ("Pictures", "Build"))):
        opened(browser, address, width=width, scheme=scheme)
        browser.run("document.querySelector('.body .row').click()")
        until(browser, "return !panel.hidden")
        for view in views:
            browser.run("[...views.children].find(each => each.textContent === arguments[0]).click()", view)
            until(
                browser,
                "return stage.childElementCount > 0 && stage.innerText.length > 20 || stage.querySelector('.bars')",
            )
            assert browser.overflow() == 0, view
            assert browser.violations() == [], view
    # axe asks for the style sheet anew, and Chromium has pictures of its own for players.
    outside = [each for each in browser.requests() if not each.startswith((page, media_page, "about:", "data:"))]
    assert outside == []
