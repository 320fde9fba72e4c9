"""Chaos for declarations of users: planted bugs of every kind are named; clean declarations pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import planted_bugs
import pytest

from beam_pipes.building import Declaration
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.errors import DeclarationError
from beam_pipes.testing import KINDS, Finding, Verdict, assert_robust, check_declaration, trial_processes
from beam_pipes.testing.trial_process import TrialProcesses
from beam_pipes.testing.trials import portability


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[TrialProcesses]:
    with trial_processes() as shared:
        yield shared


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What some of the planted stages look for in the wrong places."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLANTED_SUFFIX", " suffix")
    monkeypatch.setenv("PLANTED_DIRECTORY", str(tmp_path))
    (tmp_path / "planted_suffix.txt").write_text(" from a file", encoding="utf-8")


def only_finding(name: str, **options: Any) -> Finding:
    verdict = check_declaration(f"planted_bugs:{name}", **options)
    assert len(verdict.findings) == 1, str(verdict)
    assert not verdict.robust
    return verdict.findings[0]


ALONE = "Compute each output from its input alone."
KEYED = "Draw from self.rng(), which is keyed by record and stage"
SAME = "gives something else for the same input: "
BEFORE = "gives something else for a record, depending on the records before it: "
DECIDED = f"Which records come before is decided by shards, workers and retries. {ALONE}"
MERGED = "Shards finish in any order: _merge_from has to be associative and commutative."
CALL = "@the call"  # the finding has to say where the call stands

PLANTED = [
    ("Clock_", "clock", f"{SAME}it reads the clock (`time.time_ns`). Take times from the record, or leave them "
     "out.", CALL),
    ("Today_", "time_zone", "gives something else in another time zone: it reads `datetime.date.today`. Name the zone "
     "(datetime.timezone.utc, for one), and take the date from the record.", CALL),
    ("GlobalRandom_", "random", f"{SAME}it draws from the global generator of `random`. {KEYED}.", None),
    ("NumpyRandom_", "random", f"{SAME}it draws from the global generator of `numpy.random`. {KEYED}.", None),
    ("Identifier_", "entropy", f"{SAME}it asks the system for random bytes (`uuid.uuid4`). {KEYED}, or make ids of "
     "self.record_key().", CALL),
    ("SystemBytes_", "entropy", f"{SAME}it asks the system for random bytes (`os.urandom`). {KEYED}, or make ids of "
     "self.record_key().", CALL),
    ("ProcessId_", "process", "gives something else in another process: it asks for `os.getpid`. Leave out what "
     "belongs "
     "to one run.", CALL),
    ("MadeUpAtImport_", "process", "gives something else in another process: what it finds outside of its input is not "
     f"the same there, made up at import or left by another run. {ALONE}", None),
    ("Logs_", "process", "gives something else in another process: what it finds outside of its input is not the same "
     f"there, made up at import or left by another run. {ALONE}", None),
    ("SetOrder_", "hash_seed", "gives something else with another hash seed (PYTHONHASHSEED): it takes the "
     "elements of a "
     "set as they come. Every process has another one: sort what comes out of a set, and hash with hashlib.", None),
    ("StringHash_", "hash_seed", "gives something else with another hash seed (PYTHONHASHSEED): it uses `hash`. Every "
     "process has another one: sort what comes out of a set, and hash with hashlib.", CALL),
    ("ObjectId_", "identity", f"{SAME}it uses `id`, the address of an object in memory. Use a key that follows from "
     "the value.", CALL),
    ("Numbered_", "state", f"{BEFORE}its attribute `number` changes from record to record. {DECIDED}", None),
    ("Deduplicated_", "state", f"{BEFORE}its attribute `seen` changes from record to record. {DECIDED}", None),
    ("LeakedThroughModule_", "state", f"{BEFORE}the variable `_previous` of its module changes from record to record. "
     f"{DECIDED}", None),
    ("CachedAndChanged_", "state", f"{BEFORE}`_first_asked` of its module remembers earlier calls. {DECIDED}", None),
    ("ReadsOn_", "state", f"{BEFORE}its open file `labels` changes from record to record. {DECIDED}", None),
    ("mutates_", "mutation", "changes its input, which a retry and other branches of the graph are given too. "
     "Copy what "
     "is to be changed.", None),
    ("mutates_inside_", "mutation", "changes its input, which a retry and other branches of the graph are given "
     "too. Copy "
     "what is to be changed.", None),
    ("one_object_", "aliasing", "gives an object for one record and changes it while it processes a later one. "
     "Give a new "
     "object for every record.", None),
    ("lazy_", "lazy", "gives an iterator (`map`), which is worked out later, once, and by whoever comes first. "
     "Make a list "
     "or an array of it.", None),
    ("gives_lambda_", "not_picklable", "gives a value that cannot be pickled, so it cannot travel to another "
     "worker. Give "
     "data: numbers, strings, bytes, arrays, and what consists of them.", None),
    ("batch_mean_", "batch", "transform_batch lets the cuts between batches show: in batches of 7 it gives "
     "something else "
     f"than record by record. Runners cut where they like: {ALONE.lower()[0]}{ALONE[1:]}", None),
    ("OtherInBatches_", "batch", "transform_batch gives something else than transform. Both have to give the "
     "same, because "
     "a batch in which one record fails is done again by transform.", None),
    ("CountsBatches_", "batch", "transform_batch counts something else than transform: inputs, drops or statistics "
     "differ.", None),
    ("rounds_", "rounding", "transform_batch gives other last digits in batches of 1. The size of batches is "
     "not part of "
     "the declaration: round what is given, or compute each row by itself.", None),
    ("CountsLast_", "statistics", "the statistic 'DAGPipeline_CountsLast_last' depends on the order in which it "
     "is merged. "
     f"{MERGED}", None),
    ("TimesItself_", "statistics", "the statistic 'DAGPipeline_TimesItself_fraction' differs between two runs over the "
     "same records. Count what follows from the input alone.", None),
    ("FromVariable_", "environment", "gives something else where environment variables are not set: it reads "
     "`PLANTED_SUFFIX`. Make it a field of the stage, which counts in its fingerprint.", CALL),
    ("FromDirectory_", "working_directory", "gives something else in another working directory: it reads "
     "`os.getcwd`. Wrap "
     "files as Asset(path), which travels with the declaration and counts in its fingerprint.", CALL),
    ("FromRelativeFile_", "working_directory", "gives something else in another working directory. Wrap files as "
     "Asset(path), which travels with the declaration and counts in its fingerprint.", None),
    ("LocalTime_", "time_zone", "gives something else in another time zone. Name the zone (datetime.timezone.utc, for "
     "one), and take the date from the record.", None),
    ("LocaleEncoding_", "locale", "gives something else in another locale. Name the encoding of files, and "
     "format without "
     "the locale.", None),
    ("ordered_dict_", "key_order", "gives something else where the stages before it give equal values in "
     "another order of "
     "their keys or elements. Sort them before the order matters.", None),
    ("TakesNumbers_", "unknown", f"{SAME[:-2]}, and no trial says why. {ALONE}", None),
    ("KnowsOfTheRun_", "rebuild", "a build that was killed and run again, or retried, writes other bytes. A "
     "stage leaves "
     "something behind outside of the build.", None),
    ("Fails_", "fails", "fails on a record, and on_error='fail' would stop the build. Repair the stage or the "
     "record, or "
     "allow failures with on_error='dead_letter' or 'drop'.", None),
    ("NotStored_", "fails", "a build of the sample ends in an error.", None),
    ("Stamped_", "declaration", "is another declaration in another process, so nothing built there is reused. "
     "Configure "
     "stages with what is the same everywhere.", None),
    ("shuffled", "source", "gives other records when the same source shard is read again. Reading has to depend on the "
     "shard alone: a build that is killed reads it twice.", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "message", "place"), PLANTED, ids=[name.strip("_") for name, *_ in PLANTED])
def test_a_planted_bug_is_found_and_named(name: str, kind: str, message: str, place: str | None) -> None:
    found = only_finding(name)

    assert (found.kind, found.message) == (kind, message)
    assert kind in KINDS
    of_no_record = {"KnowsOfTheRun_", "NotStored_", "Stamped_", "CountsBatches_", "CountsLast_", "TimesItself_"}
    assert (found.record is None) == (name in of_no_record)
    assert found.found is not None
    assert (found.place is None) == (place is None)
    assert place is None or str(found.place).startswith("planted_bugs.py:")


def test_every_kind_of_finding_is_planted_or_tested_on_its_own() -> None:
    assert {kind for _, kind, _, _ in PLANTED} == KINDS.keys() - {"late", "not_importable"}


def test_the_stage_that_is_at_fault_is_named_and_not_those_after_it() -> None:
    assert only_finding("mutates_").stage == "Mutates"
    assert only_finding("lazy_").stage == "Lazy"
    assert only_finding("ordered_dict_").stage == "JoinsKeys"


def test_a_record_that_never_ends_is_reported_with_its_stage() -> None:
    found = only_finding("Never_", timeout_secs=2)

    assert (found.kind, found.message) == ("late", "gave nothing within timeout_secs=2.")
    assert found.found == "it was at: stage 'Never', in order"


@pytest.mark.parametrize("name", ["clean", "Keyed_", "Vectorised_", "DeadLetters_", "ReadsAsset_", "one_buffer_"])
def test_a_clean_declaration_passes(name: str) -> None:
    verdict = assert_robust(f"planted_bugs:{name}")

    assert verdict.findings == ()
    assert (verdict.records, verdict.shards) == (24, 3)
    assert "killed at shard/renamed and publish/snapshot-manifest-written" in verdict.trials[1]


def test_this_python_s_own_sources_pass() -> None:
    verdict = assert_robust("examples.python_source:declaration", max_records=40)

    assert verdict.stages == ("KeepProse", "ByteTokens", "RandomPartition")
    assert str(verdict).startswith("declaration 'python_source' is robust: 40 records of 4 source shards through KeepP")


def test_sample_declarations_with_graphs_draws_and_dead_letters_pass(text_input: Path) -> None:
    for name in ("words", "words_with_dead_letters", "inferred"):
        assert_robust(f"sample_declarations:{name}")


# Found here by its name, in this module, in other processes.
held = planted_bugs.of(planted_bugs.ToWords())


def test_a_declaration_that_a_module_holds_needs_no_reference() -> None:
    assert check_declaration(held).robust


def test_a_declaration_that_nobody_holds_travels_as_it_is() -> None:
    assert check_declaration(planted_bugs.clean()).robust


NAMED = "Define it at the top of a module, and give the declaration a name there: 'package.module:name'."


def portability_of(declaration: Declaration) -> tuple[str, str, str]:
    (found,) = check_declaration(declaration).findings
    return found.kind, found.stage, found.message


def test_classes_and_functions_inside_of_functions_travel_by_value() -> None:
    suffix = "!"

    class Inner(planted_bugs.ToWords):
        pass

    def closure(line: str) -> str:
        return line + suffix

    for stage in (Inner(), planted_bugs.Calls(function=lambda line: line), planted_bugs.Calls(function=closure)):
        declaration = planted_bugs.of(stage)
        assert list(portability(declaration, DeclarationHandle(declaration))) == []


def test_an_open_file_is_not_picklable(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w+b") as file:
        stage = planted_bugs.ReadsOn()
        stage.labels = file  # type: ignore[assignment]
        kind, name, message = portability_of_first(planted_bugs.of(stage))

    assert (kind, name) == ("not_picklable", "ReadsOn")
    assert message == (
        "its field 'labels' is a BufferedRandom, which cannot be pickled. Make it when it is first needed, and "
        "leave it "
        "out of __getstate__; or give the declaration a name in a module."
    )


def portability_of_first(declaration: Declaration) -> tuple[str, str, str]:
    found = check_declaration(declaration).findings[0]
    return found.kind, found.stage, found.message


def test_a_module_that_other_processes_do_not_find_is_not_importable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("import planted_bugs\ndeclaration = planted_bugs.clean()\n")
    monkeypatch.syspath_prepend(tmp_path)

    import only_here  # type: ignore[import-not-found]

    (tmp_path / "only_here.py").write_text("raise ImportError('only_here can be imported once')\n")
    (found,) = check_declaration(only_here.declaration).findings

    assert (found.kind, found.stage) == ("not_importable", "planted")
    assert found.message == "another process cannot import or run it. Import its module in a fresh interpreter to see."
    assert "only_here" in str(found.found)


def test_assert_robust_fails_with_the_whole_verdict() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_robust("planted_bugs:Numbered_")

    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "declaration 'planted' is not robust, 1 finding: 24 records of 3 source shards through Numbered."
    )
    assert lines[1].startswith(
        "Numbered [state]: gives something else for a record, depending on the records before it"
    )
    assert lines[2:] == [
        "    record lines@0",
        "    first: [{'words': '1 a bee 0 dodo e0 fox'}]",
        "    then:  [{'words': '25 a bee 0 dodo e0 fox'}]",
    ]


def test_a_verdict_tells_kinds_by_stage_and_is_json() -> None:
    finding = Finding(kind="state", stage="A", message="m")
    verdict = Verdict(declaration="d", records=1, shards=1, stages=("A", "B"), trials=("t",), findings=(finding,))

    assert (verdict.kinds(), verdict.kinds("A"), verdict.kinds("B")) == ({"state"}, {"state"}, set())
    assert verdict.to_json()["findings"][0]["kind"] == "state"
    assert verdict.to_json()["robust"] is False


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"max_records": 0}, "max_records should be an integer of at least 1, got 0", id="records"),
        pytest.param(
            {"batch_sizes": (1, 0)}, "each of batch_sizes should be an integer of at least 1, got 0.", id="sizes"
        ),
        pytest.param({"timeout_secs": 0}, "timeout_secs should be a number above 0, got 0.", id="timeout"),
        pytest.param({"kill_at": ["shard/x"]}, "kill_at: there is no step 'shard/x'", id="kill"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        check_declaration("planted_bugs:clean", **options)


def test_a_declaration_that_is_none_is_named() -> None:
    with pytest.raises(
        DeclarationError, match="'int' should be a Declaration, or a function that returns one, got int."
    ):
        check_declaration(3)
