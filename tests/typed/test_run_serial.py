"""`run_pipeline_serial`, `load_pipeline`, and the iterators over files and records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_pipes.errors import (
    CorruptRecordError,
    DeclarationError,
    InvalidTransformOutputException,
    InvalidTypeSignatureException,
    SourceError,
)
from beam_pipes.format.framing import RecordWriter, read_records
from beam_pipes.format.messages import Example, SequenceExample
from beam_pipes.typed import (
    Counter,
    DAGPipeline,
    Input,
    Output,
    Pipeline,
    TypeMismatchException,
    file_iterator,
    load_pipeline,
    make_sequence_example,
    run_pipeline_serial,
    tf_record_iterator,
)


class Encode(Pipeline):
    """One message a word; statistics on a word that is too long; 'fail' fails."""

    input_type = str
    output_type = SequenceExample

    def transform(self, input_object: str) -> list[Any]:
        if input_object == "fail":
            raise ValueError("no such word")
        if len(input_object) > 5:
            self._set_stats([Counter("too_long", 1)])
            return self.drop("too_long")
        return [make_sequence_example([[float(len(word))] for word in input_object.split()], [1])]


class Text:
    def __init__(self, text: str) -> None:
        self.text = text

    def SerializeToString(self) -> bytes:
        return self.text.encode()


class Texts(Pipeline):
    input_type, output_type = str, Text

    def transform(self, input_object: str) -> list[Text]:
        return [Text(input_object)]


class Split(Pipeline):
    input_type = str
    output_type = {"even": SequenceExample, "odd": SequenceExample}

    def transform(self, input_object: str) -> dict[str, list[Any]]:
        message = make_sequence_example([], [len(input_object)])
        even = len(input_object) % 2 == 0
        return {"even": [message] * even, "odd": [message] * (not even)}


def labels(path: Path) -> list[int]:
    return [
        message.feature_lists.feature_list["labels"].feature[0].int64_list.value[0]
        for message in tf_record_iterator(path, SequenceExample)
    ]


class TestLoadPipeline:
    def test_a_single_output_type_gives_a_list_with_statistics(self) -> None:
        loaded = load_pipeline(Encode(), ["ab", "too long", "c"])
        assert loaded == [make_sequence_example([[2.0]], [1]), make_sequence_example([[1.0]], [1])]
        assert [str(stat) for stat in loaded.statistics] == ["Encode_too_long: 1"]

    def test_a_dict_gives_a_dict_of_lists_with_statistics(self) -> None:
        encode = Encode()
        dag = DAGPipeline({encode: Input(str), Output("words"): encode, Output("lines"): Input(str)}, "D")
        loaded = load_pipeline(dag, ["ab", "too long"])
        assert loaded == {"words": [make_sequence_example([[2.0]], [1])], "lines": ["ab", "too long"]}
        assert [str(stat) for stat in loaded.statistics] == ["D_Encode_too_long: 1"]

    def test_no_input_gives_nothing(self) -> None:
        assert load_pipeline(Encode(), []) == []
        loaded = load_pipeline(Split(), iter(()))
        assert (loaded, loaded.statistics) == ({"even": [], "odd": []}, [])

    def test_an_input_of_another_type_is_named(self) -> None:
        with pytest.raises(TypeMismatchException, match=r"^Encode: as input 1, expected str, got int: 5\.$"):
            load_pipeline(Encode(), ["a", 5])

    def test_a_failing_record_raises_what_the_stage_raised(self) -> None:
        with pytest.raises(ValueError) as caught:
            load_pipeline(Encode(), ["fail"])
        assert str(caught.value) == "no such word"
        # Notes exist from Python 3.11 on.
        assert getattr(caught.value, "__notes__", ["raised by stage 'Encode'"]) == ["raised by stage 'Encode'"]


class TestRunPipelineSerial:
    def test_a_single_output_type_is_named_after_the_pipeline(self, tmp_path: Path) -> None:
        statistics = run_pipeline_serial(Encode(), ["ab", "too long", "c d"], tmp_path / "new" / "dir", "base")

        path = tmp_path / "new" / "dir" / "base_Encode.tfrecord"
        assert list(path.parent.iterdir()) == [path]
        assert list(tf_record_iterator(path, SequenceExample)) == [
            make_sequence_example([[2.0]], [1]),
            make_sequence_example([[1.0], [1.0]], [1]),
        ]
        assert [str(stat) for stat in statistics] == ["Encode_too_long: 1"]

    def test_each_key_of_a_dict_is_a_file(self, tmp_path: Path) -> None:
        assert run_pipeline_serial(Split(), ["a", "bb", "ccc"], tmp_path, "base") == []
        assert sorted(path.name for path in tmp_path.iterdir()) == ["base_even.tfrecord", "base_odd.tfrecord"]
        assert labels(tmp_path / "base_even.tfrecord") == [2]
        assert labels(tmp_path / "base_odd.tfrecord") == [1, 3]

    def test_without_a_base_the_names_stand_alone_and_empty_outputs_are_files(self, tmp_path: Path) -> None:
        run_pipeline_serial(Split(), ["a"], str(tmp_path))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["even.tfrecord", "odd.tfrecord"]
        assert labels(tmp_path / "even.tfrecord") == []

    def test_the_bytes_are_the_same_every_time(self, tmp_path: Path) -> None:
        for base in ("one", "two"):
            run_pipeline_serial(Encode(), ["a", "b c"], tmp_path, base)
        assert (tmp_path / "one_Encode.tfrecord").read_bytes() == (tmp_path / "two_Encode.tfrecord").read_bytes()

    @pytest.mark.parametrize("failure", ["in the pipeline", "in the input", "in the type of an input"])
    def test_an_exception_leaves_nothing_or_what_was_there(self, tmp_path: Path, failure: str) -> None:
        def inputs() -> Iterator[Any]:
            yield "a"
            if failure == "in the input":
                raise OSError("disk gone")
            yield "fail" if failure == "in the pipeline" else 3

        for _ in range(2):
            with pytest.raises((ValueError, OSError, TypeError)):
                run_pipeline_serial(Encode(), inputs(), tmp_path, "base")
            assert list(tmp_path.iterdir()) == []

        run_pipeline_serial(Encode(), ["old"], tmp_path, "base")
        old = (tmp_path / "base_Encode.tfrecord").read_bytes()
        with pytest.raises((ValueError, OSError, TypeError)):
            run_pipeline_serial(Encode(), inputs(), tmp_path, "base")
        assert [path.name for path in tmp_path.iterdir()] == ["base_Encode.tfrecord"]
        assert (tmp_path / "base_Encode.tfrecord").read_bytes() == old

    def test_what_is_not_a_protocol_buffer_is_refused(self, tmp_path: Path) -> None:
        message = (
            "DAGPipeline: run_pipeline_serial saves protocol buffers, and the output 'o' is str, which has no "
            "SerializeToString. Use load_pipeline, or build a cache, which stores examples too."
        )
        with pytest.raises(DeclarationError, match=f"^{re.escape(message)}$"):
            run_pipeline_serial(DAGPipeline({Output("o"): Input(str)}), ["a"], tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_any_object_with_serialize_to_string_is_saved(self, tmp_path: Path) -> None:
        run_pipeline_serial(Texts(), ["ab", "c"], tmp_path)

        assert list(read_records(tmp_path / "Texts.tfrecord")) == [b"ab", b"c"]

    def test_serialize_to_string_has_to_give_bytes(self, tmp_path: Path) -> None:
        class Wrong(Text):
            def SerializeToString(self) -> Any:
                return self.text

        class Wrongs(Pipeline):
            input_type, output_type = str, Wrong

            def transform(self, input_object: str) -> list[Wrong]:
                return [Wrong(input_object)]

        message = (
            "Wrongs: SerializeToString of the output 'Wrongs' (Wrong) should give bytes, got str: 'ab'. Encode it: "
            "text.encode()."
        )
        with pytest.raises(InvalidTransformOutputException, match=f"^{re.escape(message)}$"):
            run_pipeline_serial(Wrongs(), ["ab"], tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_an_output_that_would_leave_the_directory_is_refused(self, tmp_path: Path) -> None:
        message = "DAGPipeline: the output '../o' names a file and should hold no path separator. Rename it."
        with pytest.raises(DeclarationError, match=f"^{re.escape(message)}$"):
            run_pipeline_serial(DAGPipeline({Output("../o"): Input(Example)}), [], tmp_path)


class TestFileIterator:
    def test_files_come_in_sorted_order_of_their_paths(self, tmp_path: Path) -> None:
        for name in ("b.txt", "a/z.txt", "a.txt", "a/b/c.txt", "a-b/x.txt", "c.bin"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(name)

        every = [b"a/b/c.txt", b"a/z.txt", b"a-b/x.txt", b"a.txt", b"b.txt", b"c.bin"]
        assert list(file_iterator(tmp_path)) == every
        assert list(file_iterator(str(tmp_path), "txt")) == every[:-1]
        assert list(file_iterator(tmp_path, ".bin")) == [b"c.bin"]
        assert list(file_iterator(tmp_path, "")) == every
        assert list(file_iterator(tmp_path, "txt", recurse=False)) == [b"a.txt", b"b.txt"]

    def test_the_case_of_an_extension_does_not_count(self, tmp_path: Path) -> None:
        for name in ("A.MID", "b.mid", "c.Mid", "d.midi", "e.mid.bak", "mid"):
            (tmp_path / name).write_bytes(name.encode())

        for extension in ("mid", ".mid", "MID", ".Mid"):
            assert list(file_iterator(tmp_path, extension)) == [b"A.MID", b"b.mid", b"c.Mid"]

    def test_bytes_are_raw(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"\xff\r\n\x00")
        assert list(file_iterator(tmp_path)) == [b"\xff\r\n\x00"]

    def test_a_directory_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        message = f"file_iterator expects a directory, and {str(tmp_path / 'no')!r} is not one. Check root_dir."
        with pytest.raises(SourceError, match=f"^{re.escape(message)}$"):
            next(file_iterator(tmp_path / "no"))


class TestTfRecordIterator:
    def test_a_damaged_file_is_named_with_its_offset(self, tmp_path: Path) -> None:
        run_pipeline_serial(Encode(), ["a", "b"], tmp_path)
        path = tmp_path / "Encode.tfrecord"
        data = bytearray(path.read_bytes())
        data[-6] ^= 1
        path.write_bytes(data)

        messages = tf_record_iterator(path, SequenceExample)
        next(messages)
        with pytest.raises(CorruptRecordError, match="Encode.tfrecord") as caught:
            next(messages)
        assert caught.value.offset == len(data) // 2

    def test_a_record_of_another_kind_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "x.tfrecord"
        with RecordWriter(path) as writer:
            writer.write(make_sequence_example([], [1]).SerializeToString())
            writer.write(b"\xff\xff")
        messages = tf_record_iterator(path, SequenceExample)
        next(messages)
        with pytest.raises(SourceError) as caught:
            next(messages)
        assert str(caught.value).startswith(
            f"record 1 of {path} should be a SequenceExample, but cannot be parsed as one: "
        )
        assert str(caught.value).endswith(" Pass the message class that the file was written with.")
        assert (caught.value.position, caught.value.path) == (1, str(path))

    def test_records_are_the_bytes_that_were_written(self, tmp_path: Path) -> None:
        run_pipeline_serial(Encode(), ["a"], tmp_path)
        (record,) = read_records(tmp_path / "Encode.tfrecord")
        assert SequenceExample.FromString(record) == make_sequence_example([[1.0]], [1])


class TestMakeSequenceExample:
    def test_steps_become_features(self) -> None:
        example = make_sequence_example([[0.0, 1.0], [1.0, 0.0]], [1, 0])
        lists = example.feature_lists.feature_list
        assert [list(step.float_list.value) for step in lists["inputs"].feature] == [[0, 1], [1, 0]]
        assert [list(step.int64_list.value) for step in lists["labels"].feature] == [[1], [0]]

    def test_a_step_may_have_several_labels(self) -> None:
        lists = make_sequence_example([], [[1, 2], (3,)]).feature_lists.feature_list
        assert [list(step.int64_list.value) for step in lists["labels"].feature] == [[1, 2], [3]]

    def test_both_lists_are_there_when_they_are_empty(self) -> None:
        assert sorted(make_sequence_example([], []).feature_lists.feature_list) == ["inputs", "labels"]


def test_what_is_run_is_an_instance_with_its_types(tmp_path: Path) -> None:
    class Forgetful(Pipeline):
        def __init__(self) -> None:
            pass  # without super().__init__

        def transform(self, input_object: str) -> list[str]:
            return [input_object]

    for run in (lambda stage: load_pipeline(stage, ["a"]), lambda stage: run_pipeline_serial(stage, ["a"], tmp_path)):
        with pytest.raises(DeclarationError, match=r"takes an instance of a Pipeline, got the class Encode. Write Enc"):
            run(Encode)
        with pytest.raises(DeclarationError, match=r"takes a Pipeline, got list: \[.*Join stages with a DAGPipeline"):
            run([Encode(), Encode()])
        with pytest.raises(InvalidTypeSignatureException, match=r"Forgetful.input_type is not declared. Call super"):
            run(Forgetful())
