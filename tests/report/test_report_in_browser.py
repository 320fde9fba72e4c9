"""The pages in Chromium: what they ask for and complain of, who can use them, and that nothing sticks out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import report_browser
import sample_declarations
import sample_media
from report_browser import Browser, installed_browser, opened_browser
from sample_lines import make_lines
from selenium.webdriver.common.keys import Keys

from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.loader import Loader, Mixture
from beam_pipes.report import loader_html, write_overview, write_report
from beam_pipes.runners import LocalOptions, build

LONG = "x" * 300

# A4 less the margins that Chromium leaves, in CSS pixels.
PAPER_WIDTH = 718


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with opened_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """`first`: of a first snapshot. `second`: with dead letters, changes, long words, traces. `many`, `loader`."""
    base = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(sample_declarations.INPUT_VARIABLE, str(base / "in"))
        (base / "in").mkdir()
        (base / "in/a.txt").write_text(make_lines(0, 150))
        caches, one = base / "caches", LocalOptions(workers=1)
        build("sample_declarations:inferred", caches / "part/inferred", options=one)
        declaration = sample_declarations.words_with_dead_letters()
        build(declaration, caches / "words", options=one)
        first = write_report(caches / "words", declaration=declaration, run_stages=False)
        (base / "in/b.txt").write_text(f"boom {LONG}\n{LONG} {LONG}\n" + "one two\n" * 400)
        features = {split: dict(declared) for split, declared in (declaration.features or {}).items()}  # type: ignore[union-attr, call-overload]
        features["train"]["lengths"] = FeatureSpec("int64", shape=(None,))
        changed = dataclasses.replace(declaration, features=features)
        build(changed, caches / "words", options=one, accept_code_change=True)
        second = write_report(caches / "words", declaration=changed)
        many = write_overview(caches)
        assert Cache.open(caches / "words").directory in second
        split = Cache.open(caches / "words")["train"]
        mixture = Mixture([(split, 3), (split.where("n > 0"), 1)]) if "n" in split.spec else Mixture([(split, 1)])
        loader = base / "loader.html"
        loader.write_text(loader_html(Loader(mixture, batch_size=4, epochs=None)), encoding="utf-8")
        media = Path(write_report(sample_media.cache(base / "media").path))
        made = {"first": first, "second": second, "many": many, "loader": loader, "media": media}
        yield {name: Path(page) for name, page in made.items()}


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["first", "second", "many", "loader", "media"])
def test_a_page_loads_nothing_complains_of_nothing_and_everybody_can_use_it(
    browser: Browser, pages: dict[str, Path], name: str, scheme: str, width: int
) -> None:
    browser.show(pages[name], scheme=scheme, width=width)

    assert [each for each in browser.requests() if not each.startswith("data:")] == [pages[name].as_uri()]
    assert browser.complaints() == []
    assert browser.overflow() == 0
    assert browser.violations() == []
    ink, paper = browser.run(
        "const style = getComputedStyle(document.body); return [style.color, style.backgroundColor];"
    )
    assert (sum(brightness(ink)) < sum(brightness(paper))) == (scheme == "light")


def test_pictures_are_seen_and_sound_can_be_played(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["media"])

    sizes = browser.run(
        "return [...document.querySelectorAll('img')].map(each => [each.naturalWidth, each.naturalHeight])"
    )
    assert sizes == [[128, 64], [30, 20]] * 2
    assert browser.secs_of_sound() == pytest.approx(0.5)
    assert browser.complaints() == []


def brightness(color: str) -> list[int]:
    """`rgb(27, 31, 36)` → [27, 31, 36]."""
    return [int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]


@pytest.mark.parametrize("name", ["first", "second", "many", "loader"])
def test_on_paper_nothing_is_cut_off_and_it_is_dark_on_light(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.show(pages[name], scheme="dark", media="print", width=PAPER_WIDTH)

    assert browser.overflow() == 0
    hidden = "return [...document.querySelectorAll('.wide, svg')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert browser.run(hidden) == 0
    paper = browser.run("return getComputedStyle(document.documentElement).getPropertyValue('--paper')")
    assert paper == "#fff"
    assert browser.run("return [...document.querySelectorAll('nav')].every(nav => nav.offsetParent === null)")
    assert browser.pdf().startswith(b"%PDF-")


def test_the_keyboard_reaches_everything_in_order_and_shows_where_it_is(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.show(pages["second"], width=1280)
    body = browser.driver.find_element("tag name", "body")
    reachable = browser.run(
        "window.stops = [...document.querySelectorAll('a, summary, [tabindex]')];"
        "window.seen = []; document.addEventListener('focusin', e => window.seen.push(window.stops.indexOf(e.target)));"
        "return window.stops.length;"
    )
    for _ in range(reachable):
        body.send_keys(Keys.TAB)
        outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"

    assert reachable > 20 and browser.run("return window.seen") == list(range(reachable))
    browser.run("document.querySelector('summary').focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.run("return document.querySelector('details').open")
    browser.run("document.querySelector('nav a:last-child').focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.run("return location.hash") == "#changes" and browser.run("return scrollY") > 900


def test_the_number_of_dead_records_leads_to_one_of_them(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["second"], width=1280)
    followed = browser.run(
        "const link = document.querySelector('td.bad a'); link.click(); const row = document.querySelector(':target');"
        "return [link.closest('tr').querySelector('th').innerText, row.querySelector('td').innerText];"
    )
    assert followed[0] == followed[1]


def test_what_is_read_out_tells_what_is_drawn(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["second"])

    nodes = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]  # type: ignore[attr-defined]
    spoken = [
        (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
    ]
    roles = [role for role, _ in spoken]
    assert roles.count("banner") == roles.count("main") == roles.count("navigation") == 1
    images = [name for role, name in spoken if role in ("image", "img")]
    assert images and all(images)
    graph = "Stages and splits, with the number of values on each edge source to SplitWords: "
    assert any(name.startswith(graph) for name in images)
    assert any(name.startswith("Lengths of lengths: [1,") for name in images)
    headings = [name for role, name in spoken if role == "heading"]
    assert headings[:2] == ["words", "Graph"] and "Changes since the previous snapshot" in headings
    assert {"Splits", "Drift", "Before", "After"} <= {name for role, name in spoken if role == "group"}


def test_the_overview_leads_to_the_pages(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["many"])

    links = {link.text: link for link in browser.driver.find_elements("css selector", "tbody a")}
    assert list(links) == ["words"]  # the other has no report yet
    links["words"].click()
    assert browser.driver.title.startswith("words, snapshot ")
    assert browser.driver.current_url == pages["second"].as_uri()


def test_a_script_would_be_stopped(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    text = pages["first"].read_text().replace("</main>", "<script>window.ran = true</script></main>")
    page = tmp_path / "page.html"
    page.write_text(text)

    browser.show(page)

    assert browser.run("return window.ran === undefined")
    assert [line for line in browser.complaints() if "Content Security Policy" in line]
    assert browser.requests() == [page.as_uri()]


def test_without_a_browser_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        AssertionError, match="Chromium and chromedriver not found on PATH: .* `make browser` installs it"
    ):
        installed_browser()
    driver = tmp_path / "chromedriver"
    driver.touch(mode=0o755)
    with pytest.raises(AssertionError, match="^Chromium not found on PATH"):
        installed_browser()
    assert set(report_browser.BROWSERS) > {"chromium"}
