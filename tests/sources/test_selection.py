"""Which files are found, and what they are called."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path

import pytest

from beam_pipes.errors import SourceError
from beam_pipes.sources.selection import select


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a.txt", "b.py", "sub/c.txt", "sub/deep/d.txt", "sub/deep/e.py", ".hidden/f.txt", "sub/.g.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def names(*arguments, **options) -> list[str]:
    return [file.name for file in select(*arguments, **options).find()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, ["a.txt", "b.py", "sub/c.txt", "sub/deep/d.txt", "sub/deep/e.py"], id="everything"),
        pytest.param({"pattern": "**/*.txt"}, ["a.txt", "sub/c.txt", "sub/deep/d.txt"], id="any depth"),
        pytest.param({"pattern": "*.txt"}, ["a.txt"], id="top only"),
        pytest.param({"pattern": "*/*.txt"}, ["sub/c.txt"], id="one deep"),
        pytest.param({"pattern": ["*.py", "sub/*.txt"]}, ["b.py", "sub/c.txt"], id="two patterns"),
        pytest.param({"pattern": "[ab].*"}, ["a.txt", "b.py"], id="a class"),
        pytest.param({"pattern": "[!a].*"}, ["b.py"], id="not a class"),
        pytest.param({"pattern": "?.py"}, ["b.py"], id="one character"),
        pytest.param({"exclude": "**/*.py"}, ["a.txt", "sub/c.txt", "sub/deep/d.txt"], id="exclude files"),
        pytest.param({"exclude": "sub"}, ["a.txt", "b.py"], id="exclude a directory"),
        pytest.param({"exclude": "**/deep/**"}, ["a.txt", "b.py", "sub/c.txt"], id="exclude below"),
        pytest.param({"recursive": False}, ["a.txt", "b.py"], id="not recursive"),
        pytest.param(
            {"hidden": True, "pattern": "**/*.txt"},
            [".hidden/f.txt", "a.txt", "sub/.g.txt", "sub/c.txt", "sub/deep/d.txt"],
            id="hidden ones too",
        ),
    ],
)
def test_options_choose_files_of_a_directory(tree, options, expected):
    assert names(tree, **options) == expected


def test_a_file_is_named_by_itself_and_may_be_hidden(tree):
    assert names(tree / "sub/c.txt") == ["c.txt"]
    assert names(tree / "sub/.g.txt") == [".g.txt"]


def test_a_file_that_several_inputs_match_is_read_once(tree):
    assert names([tree / "sub", tree / "sub/c.txt", f"{tree}/sub/*.txt"]) == ["c.txt", "deep/d.txt", "deep/e.py"]


@pytest.mark.parametrize("other", ["sub/c.txt", "./sub/c.txt", "sub/deep/../c.txt"])
def test_the_same_input_twice_is_refused_not_read_once_without_a_word(tree, monkeypatch, other):
    monkeypatch.chdir(tree)
    expected = (
        r"paths should name each input once, found '.*/sub/c\.txt' 2 times: a file is read once, however often it is "
        r"named\. Name it once; to see its records more often than others, build it into a cache of its own and load "
        r"that at a higher rate of a Mixture"
    )
    with pytest.raises(SourceError, match=expected):
        select(["a.txt", tree / "sub/c.txt", other])


def test_a_directory_twice_is_refused_with_or_without_its_slash(tree):
    with pytest.raises(SourceError, match="found '.*/sub' 2 times"):
        select([f"{tree}/sub", f"{tree}/sub/"])


def test_two_names_of_one_input_are_refused(tree):
    (tree / "link").symlink_to("sub")
    assert names([tree / "link", tree / "sub/deep"])[:1] == ["link/c.txt"]
    with pytest.raises(SourceError, match=r"'.*/sub/c.txt' and '.*/link/c.txt' are one, because a link leads from one"):
        names([tree / "sub/c.txt", tree / "link/c.txt"])


def test_a_glob_names_files_from_its_first_wildcard_on(tree):
    assert names(f"{tree}/sub/**/*.txt") == ["c.txt", "deep/d.txt"]
    assert names(f"{tree}/s*b/c.txt") == ["sub/c.txt"]


def test_a_list_names_files_from_what_its_entries_have_in_common(tree):
    assert names([tree / "sub/c.txt", tree / "a.txt"]) == ["a.txt", "sub/c.txt"]
    assert names([tree / "sub", tree / "sub/deep"]) == ["c.txt", "deep/d.txt", "deep/e.py"]


def test_relative_to_sets_what_names_are_relative_to(tree):
    assert names(tree / "sub/c.txt", relative_to=tree) == ["sub/c.txt"]
    with pytest.raises(SourceError, match="expected all inputs to be under relative_to=.*sub.*found .*a.txt"):
        names(tree / "a.txt", relative_to=tree / "sub")


def test_a_file_whose_name_holds_wildcards_is_that_file(tree):
    (tree / "x[1].txt").write_text("x")

    assert names(tree / "x[1].txt") == ["x[1].txt"]


def test_names_and_folders_with_newlines_match_patterns(tree):
    (tree / "new\nline").mkdir()
    (tree / "new\nline" / "a\nb.txt").write_text("x")

    for pattern in ("**/*.txt", "*/*.txt", "new?line/*", "**"):
        assert "new\nline/a\nb.txt" in names(tree, pattern=pattern)
    assert "new\nline/a\nb.txt" not in names(tree, exclude="**/a*.txt")


def test_links_are_followed_and_loops_are_not(tree):
    (tree / "sub" / "loop").symlink_to(tree)
    (tree / "link.txt").symlink_to(tree / "a.txt")
    (tree / "other").symlink_to(tree / "sub" / "deep")

    found = names(tree, pattern="**/*.txt")

    assert found == ["a.txt", "link.txt", "other/d.txt", "sub/c.txt", "sub/deep/d.txt"]


def test_what_is_no_file_to_read_is_counted(tmp_path):
    for name in ("a.txt", ".hidden.txt", ".git/config", "in/.DS_Store"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "in/again").symlink_to(tmp_path)
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    os.mkfifo(tmp_path / "pipe")

    found = select([tmp_path, tmp_path / "a.*"]).find()

    assert found.names == ["a.txt"]
    assert Counter(found.left_out.values()) == {"hidden": 3, "link to itself": 2, "pipe or device": 1}
    # A glob that crosses directories may have found files in a hidden one; one that does not, has not.
    assert select(tmp_path, pattern="**/a.*").find().left_out[".git"] == "hidden"
    assert ".git" not in select(tmp_path, pattern="a.*").find().left_out


def test_pipes_are_not_files(tree):
    os.mkfifo(tree / "pipe.txt")

    assert "pipe.txt" not in names(tree)
    with pytest.raises(SourceError, match="should be a regular file or a directory"):
        names(tree / "pipe.txt")


def test_names_that_are_not_utf8_survive(tree):
    path = os.fsencode(tree) + b"/\xff.txt"
    with open(path, "w") as file:
        file.write("x")

    found = [file for file in select(tree, pattern="*.txt").find() if file.name != "a.txt"]

    assert os.fsencode(found[0].name) == b"\xff.txt"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param("gone", "input '.*gone' cannot be read: No such file or directory", id="missing"),
        pytest.param("gone/*.txt", "input '.*' does not exist: there is no directory '.*gone' to look in", id="glob"),
        pytest.param("*.csv", r"no file matches: looked in '.*\*.csv' for pattern '\*\*/\*'", id="no match"),
        pytest.param("a.txt/x", "cannot be read: Not a directory", id="below a file"),
    ],
)
def test_missing_input_is_named(tree, path, message):
    with pytest.raises(SourceError, match=message):
        names(tree / path)


def test_no_match_says_what_was_looked_for(tree):
    with pytest.raises(
        SourceError,
        match=r"pattern '\*.csv', excluding 'x'; hidden files are left out, but for one that is named itself",
    ):
        names(tree, pattern="*.csv", exclude="x")


@pytest.mark.parametrize(("path", "pattern"), [("", "*.mds"), ("*.mds", "**/*")])
def test_no_match_names_compressed_files_that_would_match(tree, path, pattern):
    (tree / "shard.0.mds.zstd").touch()
    with pytest.raises(SourceError, match=r"; 1 that match but for their suffix are compressed \('shard.0.mds.zstd'\)"):
        names(tree / path, pattern=pattern)


def test_a_link_to_nothing_is_an_error(tree):
    (tree / "dangling.txt").symlink_to(tree / "gone")

    with pytest.raises(SourceError, match="dangling.txt is a link to nothing: there is no '.*/gone'. Restore"):
        names(tree)


@pytest.mark.parametrize("paths", [[], (), 3, b"x", [3], [""], ""])
def test_paths_that_are_none_are_refused(paths):
    with pytest.raises(SourceError, match="paths should"):
        select(paths)


def test_an_empty_list_of_patterns_is_refused(tree):
    with pytest.raises(SourceError, match="pattern should be a glob such as"):
        select(tree, pattern=[])


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd"])
def test_a_name_does_not_lead_out_of_the_base(tree, name):
    with pytest.raises(SourceError, match="expected a file name relative to"):
        select(tree).path_of(name)


def test_a_directory_that_may_not_be_listed_says_what_to_do(tree, monkeypatch):
    listed = os.scandir

    def denied(path):
        if str(path).rstrip("/").endswith("deep"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", denied)  # this account may be one that may list all
    with pytest.raises(
        SourceError, match=r"deep cannot be read: Permission denied\. Give this account the right to list"
    ):
        names(tree)


def test_a_link_to_itself_is_left_out(tree):
    (tree / "loop.txt").symlink_to(tree / "loop.txt")
    (tree / "one").symlink_to(tree / "two")
    (tree / "two").symlink_to(tree / "one")

    found = names(tree, pattern="**/*.txt")
    assert "a.txt" in found and "loop.txt" not in found


def test_names_with_line_ends_and_directories_that_look_like_globs_are_read(tmp_path):
    for name in ("a\nb/c\nd.txt", "e[1]/f.txt", "e1/g.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("line\n")

    assert names(tmp_path) == ["a\nb/c\nd.txt", "e1/g.txt", "e[1]/f.txt"]
    assert names(tmp_path, pattern="**/*.txt") == ["a\nb/c\nd.txt", "e1/g.txt", "e[1]/f.txt"]
    assert names(tmp_path / "e[1]" / "*.txt") == ["f.txt"]
    assert names(tmp_path / "e[12]" / "*.txt") == ["e1/g.txt"]


@pytest.mark.parametrize(("pattern", "expected"), [("[^a]*", ["^.txt", "a.txt"]), ("[!a]*", ["^.txt", "b.txt"])])
def test_only_an_exclamation_mark_turns_a_class_round(tmp_path, pattern, expected):
    for name in ("a.txt", "b.txt", "^.txt"):
        (tmp_path / name).write_text("line\n")

    assert names(tmp_path, pattern=pattern) == expected


def test_a_class_that_is_none_is_reported(tmp_path):
    with pytest.raises(SourceError, match=r"\('\[z-a\]\*',\) should be globs: bad character range z-a"):
        select(tmp_path, pattern="[z-a]*").find()
