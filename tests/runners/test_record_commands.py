"""why, trace, who, when and takedown, as a user runs them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from test_cli import beam_pipes

from beam_pipes.cache import Cache
from beam_pipes.loader import Loader, Mixture


@pytest.fixture
def cache(text_input: Path, tmp_path: Path) -> Cache:
    path = tmp_path / "cache"
    beam_pipes("build", "sample_declarations:words_with_dead_letters", "--to", str(path))
    return Cache.open(path)


def test_a_record_is_followed_from_its_source_to_its_steps_and_taken_down(cache: Cache, tmp_path: Path) -> None:
    record = cache["train"].record_ids([3])[0]
    why = beam_pipes("why", record, cache.path).stdout
    assert why.startswith(f"{record}: written (record ")
    assert "train[3]: words-train.tfrecord-00000-of-" in why
    assert json.loads(beam_pipes("why", record, cache.path, "--json").stdout)["fate"]["status"] == "written"

    traced = beam_pipes("why", record, cache.path, "sample_declarations:words").stdout
    assert traced.startswith(why)
    assert all(stage in traced for stage in ("SplitWords", "CountLetters", "RandomPartition", "write"))
    assert "lines: 1" in traced
    traced = beam_pipes("trace", record, "sample_declarations:words", "--cache", cache.path).stdout
    assert "train: 1 record, " in traced

    loader = Loader(cache["train"], batch_size=8, seed=4)
    iterator = iter(loader)
    next(iterator)
    state = tmp_path / "state.json"
    state.write_bytes(loader.get_state())
    options = ("--batch-size", "8", "--state", str(state))
    when = json.loads(beam_pipes("when", record, cache.path, *options, "--json").stdout)
    assert [place["step"] for place in when] == [place.step for place in loader.when_record(record)]
    step = str(when[0]["step"])
    assert record in beam_pipes("who", cache.path, "--step", step, *options).stdout
    plain = ("--batch-size", "8", "--seed", "4", "--split", "train", "--json")
    who = json.loads(beam_pipes("who", cache.path, "--step", step, *plain).stdout)
    assert [each["record_id"] for each in who] == [each.record_id for each in loader.who(int(step))]
    assert "delivered 1 time in epoch 0." in beam_pipes("when", record, cache.path, *options).stdout
    part = Loader(cache["train"].where("len(text) > 20"), batch_size=8, seed=4)
    state.write_bytes(part.get_state())
    for chosen in (options, plain[:-1]):
        output = beam_pipes("who", cache.path, "--step", "0", *chosen, "--where", "len(text) > 20", "--json").stdout
        assert [each["record_id"] for each in json.loads(output)] == [each.record_id for each in part.who(0)]
    state.write_bytes(loader.get_state())
    mixed = (cache.path, cache.path, "--rate", "2", "--rate", "1", "--batch-size", "8", "--split", "train")
    places = beam_pipes("when", record, *mixed, "--last-step", "200").stdout
    loader = Loader(Mixture([(cache["train"], 2), (cache["train"], 1)]), batch_size=8, epochs=None)
    found = loader.when_record(record, last_step=200)
    sources = [int(line.split("source ")[1].split(" (")[0]) for line in places.splitlines()[:-1]]
    assert sources == [place.source for place in found]
    assert set(sources) == {0, 1}
    assert places.endswith(f"{record}: delivered {len(found)} times in steps 0 to 200.\n")
    output = beam_pipes("who", *mixed, "--step", str(found[0].step)).stdout
    assert "┃ source ┃ split" in output
    assert f"source 1: {cache.path}" in output

    ids = tmp_path / "ids.txt"
    ids.write_text(f"# a request\n{record}\n\nnowhere.txt@3\n")
    taken = beam_pipes("takedown", cache.path, str(ids), "--reason", "request 1").stdout
    assert "takedown 1 (revision 1): 2 ids, 1 source records matched." in taken
    assert "matches nothing yet: nowhere.txt@3" in taken
    output = beam_pipes("who", cache.path, "--step", step, *options).stdout
    assert "taken down; in its place" in output
    assert "8 records in 8 rows, 1 of them taken down." in output
    assert (
        "delivered 0 times in epoch 0; 1 more before it was taken down."
        in beam_pipes("when", record, cache.path, *options).stdout
    )
    assert "(taken down)" in beam_pipes("why", record, cache.path).stdout
    verified = beam_pipes("verify", cache.path).stdout
    assert "no problem" in verified
    assert "any other reader of TFRecords sees them" in verified
    assert ", request 1" in beam_pipes("takedown", cache.path, "--list").stdout
    assert json.loads(beam_pipes("takedown", cache.path, "--list", "--json").stdout)[0]["reason"] == "request 1"
    assert "undo 1 (revision 2)" in beam_pipes("takedown", cache.path, "--undo", "1").stdout
    assert beam_pipes("takedown", cache.path, "--resolve").stdout.startswith("resolve (revision 3)")


PEOPLE = """
import dataclasses
from pathlib import Path
from beam_pipes import Declaration, FeatureSpec, Pipeline
from beam_pipes.sources import TextLines

@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Keep(Pipeline):
    input_type = str
    output_type = dict

    def transform(self, line):
        return [{"text": line}]

declaration = Declaration(
    name="people",
    source=TextLines(str(Path(__file__).parent / "input")),
    pipeline=Keep(),
    features={"text": FeatureSpec("str")},
)
"""


def test_who_was_taken_down_stays_hidden_when_lines_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "people_to_hide.py").write_text(PEOPLE)
    (tmp_path / "input").mkdir()
    lines = tmp_path / "input" / "u.txt"
    lines.write_text("ann\nbob\ncat\ndan\neve\n")
    cache, ids = str(tmp_path / "cache"), tmp_path / "ids.txt"
    ids.write_text("u.txt@8\n")
    monkeypatch.syspath_prepend(tmp_path)
    build = ["build", "people_to_hide:declaration", "--to", cache]

    beam_pipes(*build)
    beam_pipes("takedown", cache, str(ids), "--reason", "request 1")
    subprocess.run(["sed", "-i", "1d", str(lines)], check=True)
    beam_pipes(*build)

    assert {str(example["text"]) for example in Cache.open(cache)["train"]} == {"bob", "dan", "eve"}
    listed = beam_pipes("takedown", cache, "--list").stdout
    assert "1 ids, request 1; hides 1 source records of the published snapshot\n" in listed
    assert "  the content of u.txt@8 is at u.txt@4\n1 of 1 takedowns are in force.\n" in listed

    subprocess.run(["sed", "-i", "2d", str(lines)], check=True)  # cat leaves; dan stands at u.txt@4 now
    refused = beam_pipes(*build, check=False)
    assert refused.returncode == 1
    assert f"say so (`beam-pipes takedown {cache} --gone 1`) and build again" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "gone 1 (revision 2): 1 ids" in beam_pipes("takedown", cache, "--gone", "1").stdout
    beam_pipes(*build)
    assert {str(example["text"]) for example in Cache.open(cache)["train"]} == {"bob", "dan", "eve"}
    listed = beam_pipes("takedown", cache, "--list").stdout
    assert (
        "hides 0 source records of the published snapshot\n  not found: u.txt@8 (1 record, noted as gone 20" in listed
    )
    assert "1 of 1 takedowns are in force.\n" in listed

    ids.write_text("u.txt\nw.txt@0\n")
    taken = beam_pipes("takedown", cache, str(ids), "--next").stdout
    assert "2 ids, 0 source records matched.\n" in taken and "matches nothing yet: u.txt\n" in taken
    listed = beam_pipes("takedown", cache, "--list").stdout
    assert "  matches nothing yet: w.txt@0\n" in listed
    assert "2 of 2 takedowns are in force; 1 of them did not find all of their records.\n" in listed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["why", "large.txt@1", "CACHE"], "no record that starts at 1. Did you mean large.txt@0 or large.txt@"),
        (["trace", "large@0", "sample_declarations:words"], "Did you mean large.txt@0"),
        (["who", "CACHE", "--step", "0", "--batch-size", "2"], "has the splits eval, train, words: choose one with"),
        (["who", "CACHE", "--step", "0", "--batch-size", "2", "--state", "none.json"], "no such file"),
        (
            ["who", "CACHE", "--step", "0", "--batch-size", "2", "--where", "a > 1", "--where", "a > 2"],
            "pass one --where for each of the 1 caches, got 2",
        ),
        (
            "who CACHE --split train --step 0 --batch-size 2 --windows past=1 --windows past=1".split(),
            "pass one --windows for each of the 1 caches, got 2",
        ),
        (
            "who CACHE --split train --step 0 --batch-size 2 --windows past=1 --plan p".split(),
            "--plan packs records and --windows cuts them: pass the one that the run used",
        ),
        (
            ["who", "CACHE", "CACHE", "--split", "train", "--step", "0", "--batch-size", "2"],
            "one --rate for each, got 0",
        ),
        (
            "when large.txt@0 CACHE CACHE --split train --batch-size 2 --rate 1 --rate 1 --epochs 3".split(),
            "expected epoch 0, got epoch 2: a mixture with exhausted='repeat' is one epoch without end",
        ),
        (["takedown", "CACHE"], "give a file of ids, or one of --list, --undo NUMBER, --gone NUMBER, --resolve"),
        (["takedown", "CACHE", "--list", "--next"], "--next says what the ids in a file refer to: give the file too."),
        (["takedown", "CACHE", "--gone", "3"], "expected the number of a takedown in force, one of [], got 3"),
        (["takedown", "nowhere", "--list"], "'nowhere' does not exist: nothing was built there."),
        (["takedown", "CACHE", "none.txt"], "expected a text file with one record id per line"),
        (["takedown", "CACHE", "--undo", "3"], "expected the number of a takedown in force, one of [], got 3"),
    ],
)
def test_mistakes_end_in_one_message(cache: Cache, arguments: list[str], message: str) -> None:
    done = beam_pipes(*(cache.path if each == "CACHE" else each for each in arguments), check=False)

    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
