"""Figures on the front pages come from what benchmarks wrote, and are not older than the code that they measure."""

from __future__ import annotations

import pytest

from reference_pages import figures

QUOTED = {page: figures.quoted(page) for page in figures.PAGES}
BENCHMARKS = {benchmark for found in QUOTED.values() for benchmark, _ in found}


def test_front_pages_quote_figures() -> None:
    assert len(QUOTED["docs/README.md"]) >= 4 and len(QUOTED["docs/comparison.md"]) >= 2


@pytest.mark.parametrize("benchmark", sorted(BENCHMARKS - {*figures.DATED}))
def test_figures_are_of_the_code_of_today(benchmark: str) -> None:
    behind = figures.commits_behind(benchmark)
    assert behind <= 200, (
        f"what benchmarks.{benchmark} measures was changed {behind} commits after its figures: "
        f"python -m benchmarks.{benchmark} --json {figures.FOLDER}/{benchmark}.json, then python -m reference_pages"
    )


@pytest.mark.parametrize("benchmark", sorted(figures.DATED))
def test_figures_that_may_be_old_have_their_date_and_commit_beside_them(benchmark: str) -> None:
    pages = {page: {key for name, key in found if name == benchmark} for page, found in QUOTED.items()}

    assert tuple(page for page, keys in pages.items() if keys) == figures.DATED[benchmark]
    assert all({"date", "commit"} <= pages[page] for page in figures.DATED[benchmark])


def test_a_figure_is_put_in_between_its_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "results", lambda name: {"ratio": 1.149, "of": {"two": 2}})
    text = "<!-- figure build.ratio .2f -->0.96<!-- /figure --> and <!-- figure build.of.two d -->1<!-- /figure -->"

    made = figures._QUOTED.sub(figures._with_figure, text)

    expected = "<!-- figure build.ratio .2f -->1.15<!-- /figure --> and <!-- figure build.of.two d -->2<!-- /figure -->"
    assert made == expected
