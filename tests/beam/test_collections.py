"""`WriteToCache` and `ReadFromCache`: any collection ends in a cache, and a cache begins any pipeline."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
from apache_beam.io import source_test_utils
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.yaml.main import run as run_yaml
from built_files import built_files
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes import Loader
from beam_pipes.beam import YAML_PROVIDERS, ReadFromCache, ReadFromSource, WriteToCache, lower
from beam_pipes.beam import write_to_cache as written_by
from beam_pipes.beam.encode import Encode, Encoded, Key
from beam_pipes.building.leftovers import collect as collect_garbage
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.takedown import take_down
from beam_pipes.cache import Cache, ExampleCodec, ExampleSpec, FeatureSpec
from beam_pipes.errors import DeclarationError, ReconciliationError, SourceError
from beam_pipes.publication.terms import Terms
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
from beam_pipes.runners.servers import find_prism, running_prism
from beam_pipes.sources import JSONLines, TextLines
from beam_pipes.typed import stage

FEATURES = {"user": FeatureSpec("str"), "counts": FeatureSpec("int64", shape=(None,))}
CLICKS = [(f"user{number % 50}", number) for number in range(500)]


@pytest.fixture(autouse=True)
def no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["pytest"])


def run(define: Callable[[Any], Any], runner: str = IN_PROCESS_RUNNER) -> Any:
    with beam.Pipeline(runner=runner, options=PipelineOptions([])) as pipeline:
        return define(pipeline)


def grouped(pipeline: Any, clicks: Iterable[tuple[str, int]]) -> Any:
    return (
        pipeline
        | beam.Create(list(clicks))
        | beam.GroupByKey()
        | beam.Map(lambda pair: {"user": pair[0], "counts": sorted(pair[1])})
    )


def write(to: Path, clicks: Iterable[tuple[str, int]] = CLICKS, **options: Any) -> None:
    given = {"features": FEATURES, "key": "user", "num_shards": 4, **options}
    run(lambda pipeline: grouped(pipeline, clicks) | WriteToCache(to, **given))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["pytest"])
        path = tmp_path_factory.mktemp("collections") / "cache"
        write(path, splits={"train": 0.8, "test": 0.2})
    return path


def test_a_grouping_ends_in_a_cache_that_a_loader_reads(cache: Path) -> None:
    opened = Cache.open(cache)
    rows = {row["user"]: row["counts"].tolist() for split in ("train", "test") for row in opened[split]}

    assert rows == {f"user{user}": list(range(user, 500, 50)) for user in range(50)}
    assert len(opened["train"]) > len(opened["test"]) > 0
    batch = next(iter(Loader(cache / "train", batch_size=4)))
    assert batch["counts"].shape == (4, 10)
    assert opened.verify().problems == ()


@pytest.mark.parametrize("seed", [1, 2])
def test_neither_order_nor_bundles_show(cache: Path, tmp_path: Path, seed: int) -> None:
    shuffled = random.Random(seed).sample(CLICKS, len(CLICKS))

    def define(pipeline: Any) -> Any:
        parts = [pipeline | f"Part {i}" >> beam.Create(shuffled[i::3]) for i in range(3)]
        clicks = parts | beam.Flatten() | beam.Reshuffle() | beam.GroupByKey()
        rows = (
            clicks | beam.Map(lambda pair: beam.Row(counts=sorted(pair[1]), user=pair[0])) | "Again" >> beam.Reshuffle()
        )
        return rows | WriteToCache(
            tmp_path / "other", features=FEATURES, key="user", num_shards=4, splits={"train": 0.8, "test": 0.2}
        )

    run(define)

    assert built_files(tmp_path / "other") == built_files(cache)


def test_records_that_a_runner_sorts_through_files_are_the_same(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_by, "_SORTED_BYTES", 200)
    monkeypatch.setattr(written_by, "_PART_RECORDS", 3)

    write(tmp_path / "spilled", splits={"train": 0.8, "test": 0.2})

    assert built_files(tmp_path / "spilled") == built_files(cache)


def test_without_a_number_there_are_as_many_shards_as_the_bytes_need(tmp_path: Path) -> None:
    def rows(pipeline: Any, numbers: Sequence[int], **options: Any) -> Any:
        made = [
            pipeline | f"Part {part}" >> beam.Create([f"{n:04}".encode() * 20 for n in numbers[part::3]])
            for part in range(3)
        ]
        return made | beam.Flatten() | WriteToCache(tmp_path / "c", keep=None, **options)

    def shards() -> tuple[list[int], set[int]]:
        split = Cache.open(tmp_path / "c").manifest.splits["train"]
        return list(split.bytes), set(split.crc32c)

    run(lambda p: rows(p, range(2000)))
    assert shards()[0] == [2000 * 96]  # much less than the 32 MiB of one
    run(lambda p: rows(p, range(2000), target_shard_bytes=20_000))
    sizes, before = shards()
    assert len(sizes) == 16 and sum(sizes) == 2000 * 96 and max(sizes) < 20_000
    run(lambda p: rows(p, random.Random(1).sample(range(2001), 2001), target_shard_bytes=20_000))
    sizes, after = shards()
    assert len(sizes) == 16 and len(after - before) == 1  # the number stays, so one record changes one shard


def test_the_same_records_again_change_nothing_and_a_new_one_changes_one_shard(tmp_path: Path) -> None:
    write(tmp_path)
    before = built_files(tmp_path)
    write(tmp_path)
    assert built_files(tmp_path) == before

    first = Cache.open(tmp_path).manifest.snapshot
    write(tmp_path, [*CLICKS, ("new", 1)])
    second = Cache.open(tmp_path).manifest.snapshot

    def inodes(snapshot: str) -> set[int]:
        return {path.stat().st_ino for path in (tmp_path / "snapshots" / snapshot).glob("*.tfrecord-*-of-00004")}

    assert first != second and len(Cache.open(tmp_path)["train"]) == 51
    assert len(inodes(first) & inodes(second)) == 3


def test_a_key_stays_in_its_split_and_shard_when_data_is_added(cache: Path, tmp_path: Path) -> None:
    more = [*CLICKS, *((f"other{number}", 1) for number in range(30))]
    write(tmp_path, more, splits={"train": 0.8, "test": 0.2})

    def splits(path: Path) -> dict[str, str]:
        return {row["user"]: split for split in ("train", "test") for row in Cache.open(path)[split]}

    after = splits(tmp_path)
    assert {user: after[user] for user in splits(cache)} == splits(cache)


def test_record_ids_are_keys_and_take_records_down(tmp_path: Path) -> None:
    write(tmp_path, [("ann", 1), ("bob", 2), ("eve", 3)], num_shards=1)
    train = Cache.open(tmp_path)["train"]
    assert train.record_ids([0, 1, 2]) == ["ann@0", "bob@0", "eve@0"]

    take_down(tmp_path, ["bob@0"])
    assert {row["user"] for row in Cache.open(tmp_path)["train"]} == {"ann", "eve"}

    write(tmp_path, [("abe", 0), ("ann", 1), ("bob", 2), ("eve", 3)], num_shards=1)
    assert {row["user"] for row in Cache.open(tmp_path)["train"]} == {"abe", "ann", "eve"}
    found = run(
        lambda pipeline: collect(pipeline | ReadFromCache(tmp_path / "train", columns=["user"]), tmp_path / "out")
    )
    assert sorted(lines(found)) == ["{'user': 'abe'}", "{'user': 'ann'}", "{'user': 'eve'}"]


def collect(rows: Any, path: Path) -> Path:
    rows | "To text" >> beam.Map(str) | beam.io.WriteToText(str(path), shard_name_template="")
    return path


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_equal_records_are_kept_and_numbered(tmp_path: Path) -> None:
    run(
        lambda pipeline: (
            pipeline | beam.Create([b"same", b"other", b"same", b"same"]) | WriteToCache(tmp_path, num_shards=1)
        )
    )
    train = Cache.open(tmp_path)["train"]
    ids = train.record_ids([0, 1, 2, 3])

    assert sorted(train) == [b"other", b"same", b"same", b"same"]
    same = hashlib.sha256(b"same").hexdigest()[:16]
    assert {f"{same}@0", f"{same}@1", f"{same}@2"} < set(ids)


def test_messages_and_examples_are_stored(tmp_path: Path) -> None:
    example = tf.train.Example()
    example.features.feature["user"].bytes_list.value.append(b"ann")
    example.features.feature["counts"].int64_list.value.extend([3, 5])

    run(lambda pipeline: pipeline | beam.Create([example]) | WriteToCache(tmp_path / "a", features=FEATURES))
    run(lambda pipeline: pipeline | beam.Create([example]) | WriteToCache(tmp_path / "b", proto=tf.train.Example))
    as_bytes = [example.SerializeToString()]  # as `WriteToTFRecord` takes it
    run(lambda pipeline: pipeline | beam.Create(as_bytes) | WriteToCache(tmp_path / "c", features=FEATURES))

    for name in ("a", "c"):
        (row,) = Cache.open(tmp_path / name)["train"]
        assert (row["user"], row["counts"].tolist()) == ("ann", [3, 5])
    assert list(Cache.open(tmp_path / "b")["train"]) == [example]


def test_bytes_that_are_no_example_say_so(tmp_path: Path) -> None:
    with pytest.raises(
        Exception, match=r"the element bytes: b'no example' cannot be stored: expected a serialized Example"
    ):
        run(lambda pipeline: pipeline | beam.Create([b"no example"]) | WriteToCache(tmp_path, features=FEATURES))


def test_a_function_may_name_the_split(tmp_path: Path) -> None:
    write(tmp_path, splits=["even", "odd"], split_by=lambda row: ("even", "odd")[len(row["user"]) % 2])

    assert {len(row["user"]) % 2 for row in Cache.open(tmp_path)["odd"]} == {1}
    with pytest.raises(Exception, match=r"split_by gave 'none'; the splits are a, b\."):
        write(tmp_path / "x", splits=["a", "b"], split_by=lambda row: "none")


BAD = [{"user": "ann", "counts": [1]}, {"user": "bob", "counts": [0.5]}, {"user": "eve"}]


def test_what_cannot_be_stored_is_a_dead_letter(tmp_path: Path) -> None:
    def define(pipeline: Any) -> Path:
        made = pipeline | beam.Create(BAD) | WriteToCache(tmp_path / "c", features=FEATURES, on_error="dead_letter")
        return collect(made.dead_letters | beam.Map(lambda letter: letter.error_type), tmp_path / "letters")

    assert lines(run(define)) == ["SpecError", "SpecError"]
    opened = Cache.open(tmp_path / "c")
    letters = list(opened.dead_letters())
    assert [row["user"] for row in opened["train"]] == ["ann"]
    assert {letter.stage for letter in letters} == {"write"} and "0.5" in str([letter.record for letter in letters])
    assert opened.manifest.accounting["dead"] == 2 and opened.manifest.accounting["read"] == 3


def test_dropped_elements_are_counted_and_too_many_are_refused(tmp_path: Path) -> None:
    run(lambda p: p | beam.Create(BAD) | WriteToCache(tmp_path / "c", features=FEATURES, on_error="drop"))
    assert Cache.open(tmp_path / "c").manifest.accounting["dropped"] == 2

    with pytest.raises(Exception, match="2 records failed, and max_bad allows 1"):
        run(
            lambda p: p | beam.Create(BAD) | WriteToCache(tmp_path / "d", features=FEATURES, on_error="drop", max_bad=1)
        )
    assert not (tmp_path / "d" / "manifest.json").exists()


def test_by_default_it_ends_the_job_with_the_element(tmp_path: Path) -> None:
    with pytest.raises(
        Exception, match=r"cannot be stored: (.|\n)*Correct the step before WriteToCache or the features"
    ):
        run(lambda p: p | beam.Create(BAD) | WriteToCache(tmp_path / "c", features=FEATURES))


def test_what_is_not_a_row_is_named_in_whole_sentences(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="the element int: 5 cannot be stored: .*[^.]\\. Correct the step before"):
        run(lambda p: p | beam.Create([5]) | WriteToCache(tmp_path / "c", features=FEATURES, key=None))


def test_other_records_after_the_shuffle_are_noticed(tmp_path: Path) -> None:
    """A step that draws without a seed gives other elements when a runner repeats it."""
    ends = WriteToCache(tmp_path, num_shards=1)
    handle = DeclarationHandle(ends._declaration)
    encode, write = Encode(handle, Key(None), 1), written_by._WriteShard(handle)
    encode.setup()
    write.setup()
    records = [record for element in (b"a", b"b") for _, record in encode.process(element)]
    add = written_by._AddDigests()
    totals = add.create_accumulator()
    for record in records:
        totals = add.add_input(totals, (0, record))
    [planned] = written_by._Plan(handle, str(tmp_path), 1, 1, Terms()).process(add.extract_output(totals))

    [(_, other)] = encode.process(b"c")
    for found in ([records[0]], [records[0], other]):
        words = f"2 records were counted before the shuffle, and {len(found)}, or different ones, came out of it"
        with pytest.raises(ReconciliationError, match=words):
            list(write.process((0, found), planned))
    assert not list(tmp_path.glob("snapshots/*/*.tfrecord*"))
    assert list(write.process((0, records), planned)) == [0]


def test_an_empty_key_is_a_key(tmp_path: Path) -> None:
    write(tmp_path, [("", 1), ("ann", 2)], num_shards=1)
    assert Cache.open(tmp_path)["train"].record_ids([0, 1]) == ["@0", "ann@0"]


@pytest.mark.parametrize("encoding", ["raw", "list"])
def test_examples_of_other_caches_are_the_same_values(tmp_path: Path, encoding: Any) -> None:
    """Also where numbers are kept in fewer bytes than their dtype has."""
    features = {
        "label": FeatureSpec("int64", minimum=0, maximum=9),
        "weights": FeatureSpec("float32", shape=(None,)),
        "grid": FeatureSpec("int32", shape=(2, 2)),
        "id": FeatureSpec("uint64"),
    }
    row = {"label": 7, "weights": np.float32([0.1, 2]), "grid": np.arange(4).reshape(2, 2), "id": 2**63 + 1}
    kept = {
        name: feature if name == "id" else dataclasses.replace(feature, encoding=encoding)
        for name, feature in features.items()
    }
    example = tf.train.Example.FromString(ExampleCodec(ExampleSpec(kept)).encode(row))
    if encoding == "raw":
        assert len(example.features.feature["label"].bytes_list.value[0]) == 1

    run(lambda pipeline: pipeline | beam.Create([example]) | WriteToCache(tmp_path, features=features))

    [found] = Cache.open(tmp_path)["train"]
    assert {name: np.asarray(value).tolist() for name, value in found.items()} == {
        name: np.asarray(value).tolist() for name, value in row.items()
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"proto": tf.train.Example}, "features describe examples, while proto names messages. Give only one of them."),
        ({"num_shards": 0}, "num_shards should be an integer of at least 1, got 0."),
        (
            {"num_shards": 2, "target_shard_bytes": 1},
            "got num_shards=2 and target_shard_bytes=1. Leave one out: either says how large the files are.",
        ),
        ({"key": "id"}, "key='id' is not a feature. There are: counts, user. Give the name of one, or a function"),
        ({"splits": ["a", "b"]}, "Give shares, splits={'a': 0.5, 'b': 0.5}, or split_by=function."),
    ],
)
def test_options_are_checked_when_it_is_made(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        WriteToCache(tmp_path, **{"features": FEATURES, **options})
    assert words in str(caught.value)


def test_a_key_is_a_text_or_a_number(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"a key should be a str, bytes or an int, got float: 0\.5 for bytes: b'a'"):
        run(lambda p: p | beam.Create([b"a"]) | WriteToCache(tmp_path, key=lambda element: 0.5))


def test_the_two_sides_meet(cache: Path, tmp_path: Path) -> None:
    def define(pipeline: Any) -> Any:
        rows = pipeline | ReadFromCache(cache, "train")
        return rows | WriteToCache(tmp_path / "copy", features=FEATURES, key="user", num_shards=4)

    run(define)

    def rows(split: Any) -> list[tuple[str, list[int]]]:
        return sorted((row["user"], row["counts"].tolist()) for row in split)

    assert rows(Cache.open(tmp_path / "copy")["train"]) == rows(Cache.open(cache)["train"])


def test_rows_have_a_schema_and_columns_are_chosen(cache: Path, tmp_path: Path) -> None:
    def define(pipeline: Any) -> Path:
        rows = pipeline | ReadFromCache(cache / "test", columns=["user"], as_rows=True)
        return collect(rows | beam.Map(lambda row: row.user), tmp_path / "users")

    assert sorted(lines(run(define))) == sorted(row["user"] for row in Cache.open(cache)["test"])
    with pytest.raises(DeclarationError, match=r"has no feature 'name'. It has: counts, user\."):
        ReadFromCache(cache / "test", columns=["name"])


def test_its_source_can_be_cut_before_and_while_it_is_read(cache: Path) -> None:
    source = ReadFromCache(cache / "test", columns=["user"], as_rows=True)._source
    parts = list(source.split(desired_bundle_size=source.estimate_size() // 5))

    assert len(parts) >= 5
    source_test_utils.assert_sources_equal_reference_source(
        (source, None, None), [(part.source, part.start_position, part.stop_position) for part in parts]
    )
    source_test_utils.assert_split_at_fraction_exhaustive(source)


@settings(max_examples=50, deadline=None)
@given(records=st.lists(st.tuples(st.binary(max_size=3), st.sampled_from("ab"), st.binary(max_size=3)), max_size=40))
def test_sums_of_digests_and_order_do_not_depend_on_the_order(records: list[tuple[bytes, str, bytes]]) -> None:
    encoded = [Encoded(key, split, payload, (), None) for key, split, payload in records]
    add = written_by._AddDigests()

    def total(some: Sequence[Encoded], cut: int) -> Any:
        parts = [some[:cut], some[cut:]]
        sums = []
        for part in parts:
            accumulator = add.create_accumulator()
            for record in part:
                accumulator = add.add_input(accumulator, (len(record.key), tuple(record)))
            sums.append(accumulator)
        return add.extract_output(add.merge_accumulators(sums))

    shuffled = random.Random(7).sample(encoded, len(encoded))
    assert total(encoded, len(encoded) // 2) == total(shuffled, len(encoded) // 3)
    assert list(written_by._in_order(shuffled)) == sorted(encoded)


# Beam cannot read the fields of a class whose annotations are text.
FIELDS = {"user": str, "seconds": float, "pages": Sequence[int], "referrer": bytes | None}
Visit = NamedTuple("Visit", FIELDS.items())
VISITS = [Visit("ann", 1.5, [1, 2], b"a"), Visit("bob", 0.5, [], b"b")]


@pytest.mark.parametrize("kind", ["named_tuples", "rows"])
def test_a_schema_says_the_features(tmp_path: Path, kind: str) -> None:
    def define(pipeline: Any) -> Any:
        visits = pipeline | beam.Create(VISITS).with_output_types(Visit)
        if kind == "rows":
            schema = RowTypeConstraint.from_fields(list(FIELDS.items()))
            visits |= beam.Map(lambda visit: beam.Row(**visit._asdict())).with_output_types(schema)
        return visits | WriteToCache(tmp_path, key="user", num_shards=1)

    run(define)

    train = Cache.open(tmp_path)["train"]
    assert dict(train.spec) == {
        "user": FeatureSpec("str"),
        "seconds": FeatureSpec("float64"),
        "pages": FeatureSpec("int64", shape=(None,)),
        "referrer": FeatureSpec("bytes"),
    }
    assert [(row["user"], row["pages"].tolist()) for row in train] == [("ann", [1, 2]), ("bob", [])]


def test_a_field_that_cannot_become_a_feature_is_named(tmp_path: Path) -> None:
    words = r"the field 'tags' of the rows is .*Mapping.* which has no feature type\. Give features=… for all"
    with pytest.raises(DeclarationError, match=words):
        fields = RowTypeConstraint.from_fields([("user", str), ("tags", Mapping[str, str])])
        run(lambda pipeline: pipeline | beam.Create([]).with_output_types(fields) | WriteToCache(tmp_path))


def test_rows_that_are_read_have_the_schema_of_the_cache(cache: Path, tmp_path: Path) -> None:
    def define(pipeline: Any) -> Any:
        rows = pipeline | ReadFromCache(cache, "train", as_rows=True)
        return rows | WriteToCache(tmp_path / "copy", key="user", num_shards=4)

    run(define)

    copy, train = Cache.open(tmp_path / "copy")["train"], Cache.open(cache)["train"]
    assert dict(copy.spec) == dict(train.spec)
    assert {row["user"]: row["counts"].tolist() for row in copy} == {
        row["user"]: row["counts"].tolist() for row in train
    }


YAML = """
pipeline:
  transforms:
    - type: Create
      config:
        elements:
          - {user: ann, score: 3}
          - {user: bob, score: 5}
          - {user: eve, score: 700}
%(more)s
    - type: WriteToCache
      input: Create
      config:
        path: %(cache)s
        key: user
        num_shards: 2
        features: {user: str, score: {dtype: uint8}}
        error_handling: {output: failed}
    - type: MapToFields
      name: Messages
      input: WriteToCache.failed
      config:
        language: python
        fields: {msg: msg}
    - type: WriteToText
      name: Letters
      input: Messages
      config: {path: %(letters)s}
providers:
  - include: %(providers)s
"""

YAML_BACK = """
pipeline:
  type: chain
  transforms:
    - type: ReadFromCache
      config: {path: %(cache)s, columns: [user, score]}
    - type: Filter
      config: {language: python, keep: score > 3}
    - type: WriteToCache
      config: {path: %(other)s, key: user, num_shards: 1, splits: {all: 1.0}}
providers:
  - include: %(providers)s
"""


def test_a_pipeline_in_yaml_writes_and_reads_caches(tmp_path: Path) -> None:
    places = {"providers": YAML_PROVIDERS}
    places |= {name: str(tmp_path / name) for name in ("cache", "letters", "other")}
    # More than a tenth: who names an output for them wants the others published.
    places["more"] = "\n".join(f"          - {{user: eve{number}, score: 700}}" for number in range(30))

    for text in (YAML, YAML_BACK):
        run_yaml(["--yaml_pipeline", text % places, "--runner", IN_PROCESS_RUNNER])

    [letters] = tmp_path.glob("letters*")
    assert letters.read_text().count("expected values that are exact in uint8, got 700") == 31
    assert {row["user"]: int(row["score"]) for row in Cache.open(tmp_path / "cache")["train"]} == {"ann": 3, "bob": 5}
    assert [(row["user"], int(row["score"])) for row in Cache.open(tmp_path / "other")["all"]] == [("bob", 5)]
    limited = YAML.replace("{output: failed}", "{output: failed}\n        max_bad: 30") % places
    with pytest.raises(Exception, match="31 records failed, and max_bad allows 30"):
        run_yaml(["--yaml_pipeline", limited, "--runner", IN_PROCESS_RUNNER])


@stage
def click(line: str) -> tuple:
    user, number = line.split()
    return user, int(number)


@stage
def counted(group: tuple) -> dict:
    return {"user": group[0], "counts": sorted(group[1])}


@pytest.fixture
def clicks_file(tmp_path: Path) -> TextLines:
    (tmp_path / "clicks.txt").write_text("".join(f"{user} {number}\n" for user, number in CLICKS))
    return TextLines(tmp_path / "clicks.txt")


@pytest.fixture
def prism() -> Iterator[list[str]]:
    with running_prism(find_prism()) as endpoint:
        yield [f"--job_endpoint={endpoint}", "--environment_type=LOOPBACK"]


def write_grouped(pipeline: Any, source: TextLines, to: Path, **options: Any) -> Any:
    rows = pipeline | ReadFromSource(source, **options) | lower(click) | beam.GroupByKey() | lower(counted)
    shares = {"train": 0.8, "test": 0.2}
    return rows | WriteToCache(to, features=FEATURES, key="user", num_shards=4, splits=shares)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_job_server_writes_the_same_bytes(
    cache: Path, clicks_file: TextLines, prism: list[str], tmp_path: Path
) -> None:
    with beam.Pipeline(runner="PortableRunner", options=PipelineOptions(prism)) as pipeline:
        write_grouped(pipeline, clicks_file, tmp_path / "other", target_shard_bytes=200)

    assert built_files(tmp_path / "other") == built_files(cache)


@pytest.mark.parametrize("target_shard_bytes", [200, 1 << 20])
def test_stages_stand_before_and_after_a_grouping(
    cache: Path, clicks_file: TextLines, tmp_path: Path, target_shard_bytes: int
) -> None:
    """The bytes depend neither on source shards nor on how records came to the grouping."""

    run(
        lambda pipeline: write_grouped(pipeline, clicks_file, tmp_path / "other", target_shard_bytes=target_shard_bytes)
    )

    assert built_files(tmp_path / "other") == built_files(cache)


def test_the_ids_of_a_source_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("to be\nor not\n")
    features = {"id": FeatureSpec("str"), "text": FeatureSpec("str")}

    def define(pipeline: Any) -> Any:
        lines = pipeline | ReadFromSource(TextLines(tmp_path / "a.txt"), with_ids=True)
        rows = lines | beam.MapTuple(lambda id_, text: {"id": id_, "text": text})
        return rows | WriteToCache(tmp_path / "c", features=features, key="id", num_shards=1)

    run(define)

    train = Cache.open(tmp_path / "c")["train"]
    assert train.record_ids([0, 1]) == ["a.txt@0@0", "a.txt@6@0"]
    assert [row["text"] for row in train] == ["to be", "or not"]


def test_a_record_that_a_source_cannot_parse_fails_is_kept_or_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a":\n{"a": 3}\n')
    source = JSONLines(tmp_path / "a.jsonl")

    def keep(pipeline: Any) -> Path:
        values, failed = pipeline | ReadFromSource(source, on_error="dead_letter")
        output = failed | beam.Map(lambda one: {"a": (one.element, one.stage)})
        return collect((values, output) | beam.Flatten(), tmp_path / "kept")

    assert sorted(lines(run(keep))) == ["{'a': (b'{\"a\":', 'source')}", "{'a': 1}", "{'a': 3}"]
    dropped = run(lambda p: collect(p | ReadFromSource(source, on_error="drop"), tmp_path / "dropped"))
    assert sorted(lines(dropped)) == ["{'a': 1}", "{'a': 3}"]
    with pytest.raises(Exception, match=r"the source cannot parse record 'a.jsonl@9'"):
        run(lambda p: collect(p | ReadFromSource(source), tmp_path / "failed"))


def test_a_source_is_checked_when_the_pipeline_is_made(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"expected a source, such as TextLines\('texts'\), got str: 'a.txt'"):
        ReadFromSource("a.txt")
    with pytest.raises(DeclarationError, match=r"on_error should be one of fail, drop, dead_letter, got 'ignore'"):
        ReadFromSource(TextLines(tmp_path), on_error="ignore")
    with pytest.raises(SourceError, match="nowhere"):
        ReadFromSource(TextLines(tmp_path / "nowhere.txt"))


def test_a_transform_needs_no_lower() -> None:
    with pytest.raises(
        DeclarationError, match=r"A PTransform needs no lower\(\); combine several stages in a DAGPipeline"
    ):
        lower(beam.GroupByKey())


def test_old_snapshots_and_leftovers_go_as_they_do_after_builds(tmp_path: Path) -> None:
    for night in range(5):
        write(tmp_path / "kept", CLICKS[: night + 10])
        write(tmp_path / "all", CLICKS[: night + 10], keep=None, num_shards=1)
        if not night:
            (first,) = (tmp_path / "kept" / "snapshots").iterdir()
            (first / ".tmp-1-deadbeef-shard").write_text("left by a worker that was killed")

    assert len(list((tmp_path / "kept" / "snapshots").iterdir())) == 3
    assert len(list((tmp_path / "all" / "snapshots").iterdir())) == 5
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith((".tmp-", "writer."))]
    with pytest.raises(DeclarationError, match="WriteToCache: keep should be an integer of at least 0, got -1"):
        write(tmp_path / "kept", keep=-1)


def test_a_collection_that_is_written_is_left_alone_by_gc(tmp_path: Path) -> None:
    """As a job on other machines looks like from here: planned, one shard written, the next half."""
    write(tmp_path, num_shards=2)
    handle = DeclarationHandle(WriteToCache(tmp_path, features=FEATURES, key="user")._declaration)
    (planned,) = written_by._Plan(handle, str(tmp_path), 2, 1, Terms()).process({0: (1, 1, 9), 1: (2, 1, 9)})
    half = Path(planned.header.directory, ".tmp-1-abc-shard")
    half.write_text("half")

    collected = collect_garbage(tmp_path, keep=0)

    assert collected.kept == (planned.header.snapshot,) and half.exists()
