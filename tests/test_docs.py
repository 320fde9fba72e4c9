"""The documentation runs: the blocks of every page, in order, in an empty directory; links lead somewhere.

A block of Python runs, one with `title="file.py"` is written to that file, a shell block that says `run` is executed;
other shell blocks are read, and what they name has to exist. A page whose first words are "The code continues" finds
the files of that page.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from page_commands import commands, complaint, mention_complaint
from pages import ROOT, Block, anchors, blocks, page_before, run_blocks, run_page, without_blocks

PAGES = sorted(
    path
    for pattern in ("README.md", "*/README.md", "beam_pipes/*/README.md", "docs/**/*.md", "*.md")
    for path in ROOT.glob(pattern)
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
PAGES = list(dict.fromkeys(PAGES))

LANGUAGES = {"python", "sh", "text", "dockerfile", ""}
HADOLINT = Path(sys.executable).with_name("hadolint")
# Pages that quote code of a library that is not installed; everywhere else Python runs.
QUOTING = {"docs/migrate-from-streaming.md"}
MENTION = re.compile(r"`(beam-pipes [a-z][^`]*)`")
LINK = re.compile(r"\[[^\]\n]*\]\(<?(?P<target>[^)\s>]+)>?[^)\n]*\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def module_name_of(page: Path) -> str:
    return "docs_" + re.sub(r"\W", "_", name_of(page))


def links(text: str) -> list[str]:
    """The relative link targets of a page, without those inside of code."""
    prose = "\n".join(without_blocks(text))
    prose = re.sub(r"`[^`\n]*`", "", prose)
    targets = [found["target"] for found in LINK.finditer(prose)]
    return [target for target in targets if not re.match(r"[a-z][a-z0-9+.-]*:|//", target)]


@pytest.fixture(scope="session")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """The directory that a page leaves behind, made once."""
    made: dict[Path, Path] = {}

    def directory_of(page: Path) -> Path:
        if page not in made:
            made[page] = tmp_path_factory.mktemp(module_name_of(page))
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(made[page])
                run_page(page, module_name_of(page), before=directory_of)
        return made[page]

    return directory_of


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_the_page_runs(page: Path, left_behind: Callable[[Path], Path]) -> None:
    assert left_behind(page).is_dir()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_of_the_page_exists(page: Path) -> None:
    complaints = []
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.runs or (block.language != "sh" and not block.text.startswith("beam-pipes ")):
            continue
        for words in commands(block):
            if block.language == "sh" or words[0] == "beam-pipes":
                complaints += [f"line {block.line}: {found}" for found in [complaint(words)] if found]
    assert complaints == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_that_prose_mentions_exists(page: Path) -> None:
    prose = "\n".join(without_blocks(page.read_text(encoding="utf-8")))
    mentions = [" ".join(mention.split()) for mention in MENTION.findall(prose)]
    assert [found for mention in mentions for found in [mention_complaint(mention)] if found] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_of_the_page_is_code_in_disguise(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        assert block.language in LANGUAGES, f"line {block.line}: nobody runs {block.language!r}"
        if "quoted" in block.info.split():
            assert name_of(page) in QUOTING and ast.parse(block.text).body, f"line {block.line}: quoted"
        if block.language in ("text", ""):
            assert not is_python(block.text), f"line {block.line}: Python that does not run; call it python"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_dockerfile_of_the_page_is_one(page: Path, tmp_path: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "dockerfile":
            (tmp_path / "Dockerfile").write_text(block.text)
            assert subprocess.run([HADOLINT, str(tmp_path / "Dockerfile")], text=True).returncode == 0


def is_python(text: str) -> bool:
    """Whether a text is Python that does something: imports, assigns, calls."""
    try:
        parsed = ast.parse(text)
    except SyntaxError:
        return False
    does = (ast.Import, ast.ImportFrom, ast.Assign, ast.Call, ast.FunctionDef, ast.ClassDef)
    return any(isinstance(node, does) for node in ast.walk(parsed))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_of_the_page_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = []
    for target in links(text):
        path, _, fragment = target.partition("#")
        found = page.parent / path if path else page
        if not found.exists():
            broken.append(target)
        elif fragment and found.suffix == ".md" and fragment not in anchors(found.read_text(encoding="utf-8")):
            broken.append(target)
    assert broken == []


def test_every_page_is_found_by_following_links() -> None:
    found, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in found or page.suffix != ".md":
            continue
        found.add(page)
        left += [
            (page.parent / target.partition("#")[0]).resolve() for target in links(page.read_text(encoding="utf-8"))
        ]
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - found == set()
    assert len(found) > 50


def test_the_readme_leads_from_install_to_a_loaded_batch_in_sixty_lines() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    start, end = (
        lines.index("## Two commands"),
        next(n for n, line in enumerate(lines) if 'print(batch["tokens"]' in line),
    )
    assert end - start + 1 <= 60


class TestTheReaderOfPages:
    PAGE = """# One `two` three!
[a](b.md) `[not](this)` [c](https://example.org) [d](#one-two-three) ![e](f.png "title")
```python
x = 1
```
```text
[not](this either)
raise ValueError
```
1. listed
   ```python run
   y = x + 1
   ```
````python
z = "```"
````
```sh
exit 1
```
"""

    def test_blocks_have_lines_languages_and_lose_their_indent(self) -> None:
        assert list(blocks(self.PAGE)) == [
            Block(4, "python", "", "x = 1\n"),
            Block(7, "text", "", "[not](this either)\nraise ValueError\n"),
            Block(12, "python", "run", "y = x + 1\n"),
            Block(15, "python", "", 'z = "```"\n'),
            Block(18, "sh", "", "exit 1\n"),
        ]

    def test_python_blocks_share_a_namespace_and_nothing_else_runs(self) -> None:
        assert run_blocks(self.PAGE, "page", "page_module") == 3
        assert "page_module" not in sys.modules

    def test_an_error_names_the_line_of_the_page(self) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            run_blocks("\n\n```python\nx = 0\n1 / x\n```\n", "page.md", "page_module")
        assert caught.traceback[-1].lineno + 1 == 5

    def test_a_titled_block_is_a_module_that_is_forgotten_afterwards(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        page = '```python title="mine.py"\nx = {}\n```\n```python\nfrom mine import x\nassert x == {}\n```\n'
        for value in (1, 2):
            assert run_blocks(page.format(value, value), "page.md", "page_module") == 2
        assert "mine" not in sys.modules

    def test_a_shell_block_runs_where_it_says_so_and_its_failure_is_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        run_blocks("```sh run\necho one > made.txt\n```\n", "page.md", "page_module")
        assert (tmp_path / "made.txt").read_text() == "one\n"
        with pytest.raises(AssertionError, match="page.md:2: exit code 3\nsaid before"):
            run_blocks("```sh run\necho said before; exit 3\n```\n", "page.md", "page_module")

    def test_a_page_may_continue_from_another(self, tmp_path: Path) -> None:
        page = tmp_path / "second.md"
        page.write_text("# Second\n\nThe code continues the [first](first.md#part) page.\n")
        assert page_before(page) is None
        page.write_text("# Second\n\nThe code continues the [first](first.md), where it lies.\n")
        assert page_before(page) == tmp_path / "first.md"

    def test_links_are_those_of_the_prose(self) -> None:
        assert links(self.PAGE) == ["b.md", "#one-two-three", "f.png"]
        assert anchors(self.PAGE) == {"one-two-three"}

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("beam-pipes build m:d --to cache --runner dataflow -- --project=p", None),
            ("beam-pipes biuld m:d", "beam-pipes has no command ['biuld']"),
            ("beam-pipes build m:d --too cache", "No such option"),
            ("PYTHON=x make demo DEMO_DIR=y  # comment", None),
            ("make cake", "the Makefile has no target ['cake']"),
            ("pip install 'beam-pipes[gcs,tf]'", None),
            ("pip install 'beam-pipes[gsc]'", "pyproject.toml has no extra ['gsc']"),
            ("python -m benchmarks.build --json x.json", None),
            ("python -m benchmarks.built", "there is no module benchmarks.built"),
            ("python -m benchmarks.build --jason x", "benchmarks.build has no option ['--jason']"),
            ("echo x | frobnicate", "'frobnicate' is no command that is known here"),
        ],
    )
    def test_commands_are_compared_with_what_there_is(self, line: str, expected: str | None) -> None:
        found = [output for words in commands(Block(1, "sh", "", line)) for output in [complaint(words)] if output]
        assert bool(found) is (expected is not None)
        assert expected is None or expected in found[0]

    def test_a_mention_may_leave_words_out(self) -> None:
        assert mention_complaint("beam-pipes plan … --save plan.json") is None
        assert mention_complaint("beam-pipes gc --keep N") is None
        assert mention_complaint("beam-pipes plam") == "beam-pipes has no command ['plam']"
        assert mention_complaint("beam-pipes gc --keeps=2") == "beam-pipes gc has no option ['--keeps=2']"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [("x = f(1)\n", True), ("a/b  c\n", False), ("import os\n", True), ("{'a': 1}\n", False), ("word\n", False)],
    )
    def test_python_in_disguise_is_seen(self, text: str, expected: bool) -> None:
        assert is_python(text) is expected
