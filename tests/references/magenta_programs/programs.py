"""Small programs of Magenta's users. Each takes the library under the names of its document, and returns JSON."""

from __future__ import annotations

import glob
import os
from typing import Any


def _stage(magenta: Any, name: str, function: Any, input_type: Any = str, output_type: Any = str) -> Any:
    """A pipeline of a function."""

    class Stage(magenta.Pipeline):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(input_type=input_type, output_type=output_type, name=name)

        def transform(self, input_object: Any) -> Any:
            return function(self, input_object)

    return Stage()


def printed(statistics: Any) -> list[str]:
    return sorted(str(statistic).rstrip() for statistic in statistics)


def refused(function: Any, *args: Any) -> str:
    """The class of what is raised, under its name in the document; a class that it has not, by what it is of Python."""
    try:
        function(*args)
    except Exception as error:
        for cls in type(error).__mro__:
            if cls.__module__ == "builtins" or cls.__name__.endswith("Exception"):
                return cls.__name__
            if "InvalidDictionaryOutput" in cls.__name__:
                return "InvalidDictionaryOutput"
            if cls.__module__.startswith("magenta."):
                return cls.__name__.removesuffix("Error") + "Exception"
    return "nothing"


def split_words(magenta: Any) -> Any:
    def words(self: Any, line: str) -> list[str]:
        self._set_stats([magenta.Counter("words", len(line.split()))])
        return line.split()

    one = _stage(magenta, "Words", words)
    return [
        one.transform("to be or not"),
        printed(one.get_stats()),
        one.name,
        one.output_type_as_dict == {"dataset": str},
    ]


def counters(magenta: Any) -> Any:
    one, other = magenta.Counter("n"), magenta.Counter("n", 3)
    one.increment()
    one.increment(5)
    one.merge_from(other)
    copied = one.copy()
    copied.increment()
    return [str(one), one.count, str(copied)]


def histograms(magenta: Any) -> Any:
    one, other = (
        magenta.Histogram("bars", [3, 0, 1, 1]),
        magenta.Histogram("bars", [0, 1, 3], verbose_pretty_print=True),
    )
    for value in (-1, 0, 0.5, 1, 2.9, 100):
        one.increment(value)
    one.increment(3, 4)
    other.merge_from(one)
    counted = {str(lower): count for lower, count in one.counters.items()}
    return [str(one), str(other), counted, [str(bucket) for bucket in one.buckets]]


def merged(magenta: Any) -> Any:
    statistics = [magenta.Counter("a", 1), magenta.Counter("b", 2), magenta.Counter("a", 4)]
    statistics.append(magenta.Histogram("h", [0]))
    lines: list[str] = []
    magenta.log_statistics_list(magenta.merge_statistics(statistics), lines.append)
    wrong = refused(magenta.Counter("a").merge_from, magenta.Counter("b"))
    return [lines, wrong, refused(magenta.Counter("a").merge_from, magenta.Histogram("a", [0]))]


def chain(magenta: Any) -> Any:
    words, upper = _stage(magenta, "Words", lambda _, x: x.split()), _stage(magenta, "Upper", lambda _, x: [x.upper()])
    dag = magenta.DAGPipeline({words: magenta.Input(str), upper: words, magenta.Output("out"): upper})
    return [dag.transform("to be"), dag.transform(""), dag.name, sorted(dag.output_type)]


def every_combination(magenta: Any) -> Any:
    letters = _stage(magenta, "Letters", lambda _, x: list(x))
    sizes = _stage(magenta, "Sizes", lambda _, x: [len(x), -len(x)], str, int)
    join = _stage(magenta, "Join", lambda _, x: [f"{x['a']}{x['b']}"], {"a": str, "b": int}, str)
    source = magenta.Input(str)
    dag = {letters: source, sizes: source, join: {"a": letters, "b": sizes}, magenta.Output("o"): join}
    return sorted(magenta.DAGPipeline(dag).transform("xyz")["o"])


def keys(magenta: Any) -> Any:
    both = _stage(magenta, "Both", lambda _, x: {"a": [x], "b": [len(x)], "c": []}, str, {"a": str, "b": int, "c": int})
    twice = _stage(magenta, "Twice", lambda _, x: [x, x], int, int)
    dag = {both: magenta.Input(str), twice: both["b"], magenta.Output("n"): twice, magenta.Output("a"): both["a"]}
    other = _stage(magenta, "Other", lambda _, x: {"a": [x]}, str, {"a": str})
    every = magenta.DAGPipeline({other: magenta.Input(str), magenta.Output(): other})
    return [magenta.DAGPipeline(dag).transform("abc"), every.transform("x")]


def nested(magenta: Any) -> Any:
    def count(self: Any, line: str) -> list[str]:
        self._set_stats([magenta.Counter("seen", 1)])
        return [line]

    inner_stage = _stage(magenta, "Count", count)
    inner = magenta.DAGPipeline(
        {inner_stage: magenta.Input(str), magenta.Output("lines"): inner_stage}, pipeline_name="Inner"
    )
    outer = magenta.DAGPipeline({inner: magenta.Input(str), magenta.Output(): inner}, pipeline_name="Outer")
    return [outer.transform("a"), printed(outer.get_stats())]


def dictionaries_into_dictionaries(magenta: Any) -> Any:
    both = _stage(magenta, "Both", lambda _, x: {"a": [x], "b": [x * 2, x * 3]}, str, {"a": str, "b": str})
    pairs = _stage(magenta, "Pairs", lambda _, x: [x["a"] + "+" + x["b"]], {"a": str, "b": str}, str)
    dag = {
        both: magenta.Input(str),
        pairs: {"a": both["a"], "b": both["b"]},
        magenta.Output(): {"pairs": pairs, "b": both["b"]},
    }
    pipeline = magenta.DAGPipeline(dag)
    return [pipeline.transform("x"), sorted(pipeline.output_type), pipeline.input_type is str]


def statistics_of_a_dag(magenta: Any) -> Any:
    def counted(self: Any, line: str) -> list[str]:
        length = magenta.Histogram("length", [0, 2, 4])
        length.increment(len(line))
        self._set_stats([magenta.Counter("seen", 1), length])
        return line.split()

    one, two = _stage(magenta, "One", counted), _stage(magenta, "Two", counted)
    dag = magenta.DAGPipeline({one: magenta.Input(str), two: one, magenta.Output("o"): two})
    dag.transform("a bc def")
    return printed(magenta.merge_statistics(dag.get_stats()))


def load(magenta: Any) -> Any:
    words = _stage(magenta, "Words", lambda _, x: x.split())
    dag = magenta.DAGPipeline({words: magenta.Input(str), magenta.Output("words"): words})
    return dict(magenta.load_pipeline(dag, iter(["to be", "", "or not"])))


def partition(magenta: Any) -> Any:
    """What may be said of any drawing: everything is in one output, and probabilities 0 and 1 leave no choice."""
    never = magenta.RandomPartition(str, ["eval", "train"], [0.0])
    always = magenta.RandomPartition(str, ["eval", "train"], [1.0])
    either = magenta.RandomPartition(str, ["a", "b", "c"], [0.2, 0.5])
    made = [either.transform(str(number)) for number in range(300)]
    shares = [sum(len(one[name]) for one in made) for name in "abc"]
    return [
        *[never.transform("x"), printed(never.get_stats()), always.transform("x"), printed(always.get_stats())],
        *[sorted(either.output_type), sum(shares), [30 < shares[0] < 95, 110 < shares[1] < 190, 50 < shares[2] < 130]],
        refused(magenta.RandomPartition, str, ["a", "b", "c"], [0.2]),
    ]


def sequence_examples(magenta: Any) -> Any:
    made = [
        magenta.make_sequence_example([[0.0, 1.0], [0.5, -1.0]], [1, 0]),
        magenta.make_sequence_example([], []),
        magenta.make_sequence_example([[1.0]], [[3, 4]]),
    ]
    return [one.SerializeToString(deterministic=True).hex() for one in made]


def records(magenta: Any, root: str) -> Any:
    """The document's way to disk: an encoder that declares TensorFlow's message, partitioned, written and read."""
    import tensorflow as tf

    def encode(_: Any, line: str) -> list[Any]:
        return [magenta.make_sequence_example([[float(len(word))] for word in line.split()], range(len(line.split())))]

    encoder = _stage(magenta, "Encoder", encode, str, tf.train.SequenceExample)
    partitioner = magenta.RandomPartition(tf.train.SequenceExample, ["eval_melodies", "training_melodies"], [0.0])
    dag = {encoder: magenta.Input(str), partitioner: encoder, magenta.Output(): partitioner}
    magenta.run_pipeline_serial(magenta.DAGPipeline(dag), ["to be", "or"], root, "base")
    files = sorted(os.path.basename(path) for path in glob.glob(f"{root}/*"))
    path = os.path.join(root, "base_training_melodies.tfrecord")
    read = list(magenta.tf_record_iterator(path, tf.train.SequenceExample))
    wrong = refused(magenta.run_pipeline_serial, _stage(magenta, "Text", lambda _, x: [x]), [], root)
    return [files, [one.SerializeToString(deterministic=True).hex() for one in read], wrong]


def files(magenta: Any, root: str) -> Any:
    os.mkdir(os.path.join(root, "sub"))
    for name in ("a.mid", "b.MID", "c.txt", "sub/d.mid"):
        with open(os.path.join(root, name), "wb") as file:
            file.write(name.encode())
    read = [
        magenta.file_iterator(root, "mid"),
        magenta.file_iterator(root, ".mid", recurse=False),
        magenta.file_iterator(root),
    ]
    return [sorted(content.decode() for content in one) for one in read]


def refused_dags(magenta: Any) -> Any:
    def make(name: str, takes: Any = str, gives: Any = str) -> Any:
        return _stage(magenta, name, lambda _, x: [x], takes, gives)

    a, b, c = make("A"), make("B"), make("C", {"x": str, "y": str})
    ints, same, dicts = make("Ints", int), make("A"), make("D", str, {"k": str})
    entry, out = magenta.Input(str), magenta.Output
    dags = {
        "types differ": {a: entry, ints: a, out("o"): ints},
        "one name": {a: entry, same: a, out("o"): same},
        "a cycle": {a: entry, c: {"x": a, "y": b}, b: c, out(): {"b": b, "c": c}},
        "nothing feeds": {a: entry, out("o"): b},
        "feeds nothing": {a: entry, b: a, out("o"): a},
        "no output": {a: entry},
        "no input": {a: b, b: a, out("o"): a},
        "two inputs": {a: entry, ints: magenta.Input(int), out(): {"a": a, "i": ints}},
        "a dict for a name": {a: entry, b: a, out("o"): {"a": a, "b": b}},
        "no dict without a name": {a: entry, out(): a},
        "an input is no destination": {entry: a, out("o"): a},
        "a dict of keys for a name": {dicts: entry, out("o"): dicts},
        "good": {a: entry, b: entry, out(): {"a": a, "b": b}},
    }
    return {told: refused(magenta.DAGPipeline, dag) for told, dag in dags.items()}


def refused_outputs(magenta: Any) -> Any:
    wrong = _stage(magenta, "Wrong", lambda _, x: [len(x)])
    missing = _stage(magenta, "Missing", lambda _, x: {"a": [x]}, str, {"a": str, "b": str})
    told = []
    for one, output in ((wrong, magenta.Output("o")), (missing, magenta.Output())):
        dag = magenta.DAGPipeline({one: magenta.Input(str), output: one})
        told.append(refused(dag.transform, "abc"))
    told.append(refused(_stage, magenta, "Type", None, "no class"))
    told.append(refused(_stage(magenta, "S", None)._set_stats, ["hello"]))
    return [*told, refused(_stage(magenta, "S", None).__getitem__, "key") != "nothing"]


def song(notes: Any, *, meter: tuple[int, int] = (4, 4), tempi: Any = (120,), velocity: int = 80) -> Any:
    """Notes are (instrument, pitch, start, end), in quarters."""
    from note_seq.protobuf import music_pb2

    made = music_pb2.NoteSequence()
    made.time_signatures.add(numerator=meter[0], denominator=meter[1])
    for at, tempo in enumerate(tempi):
        made.tempos.add(qpm=tempo, time=at * 8)
    for instrument, pitch, start, end in notes:
        made.notes.add(instrument=instrument, pitch=pitch, start_time=start / 2, end_time=end / 2, velocity=velocity)
    made.total_time = max((note.end_time for note in made.notes), default=0)
    return made


def scale(quarters: int, *, instrument: int = 0, first: int = 0) -> list[tuple[int, int, float, float]]:
    return [(instrument, 60 + at % 7, first + at, first + at + 1) for at in range(quarters)]


def quantized(magenta: Any) -> Any:
    quantizer = magenta.Quantizer(steps_per_quarter=4)
    songs = [
        song([(0, 60, 0.1, 1), (0, 62, 1.13, 1.4), (0, 64, 2, 2.01)]),
        song(scale(2), tempi=(120, 90)),
        song(scale(2), meter=(3, 5)),
        song([]),
    ]
    told = []
    for one in songs:
        made = quantizer.transform(one)
        told.append([[(n.quantized_start_step, n.quantized_end_step) for n in each.notes] for each in made])
    bad = magenta.Quantizer(steps_per_quarter=4)
    bad.transform(songs[1])
    seconds = magenta.Quantizer(steps_per_second=10).transform(songs[0])[0]
    return [
        *[told, printed(bad.get_stats()), quantizer.name, [n.quantized_end_step for n in seconds.notes]],
        refused(magenta.Quantizer),
    ]


def melodies(magenta: Any) -> Any:
    """The document's example, and what the extractor says of songs of every kind."""
    from note_seq.protobuf import music_pb2

    songs = {
        "a scale": song(scale(32)),
        "too short": song(scale(20)),
        "two instruments": song(scale(28) + scale(30, instrument=3)),
        "a gap": song(scale(28) + scale(29, first=40)),
        "two notes at once": song([*scale(32), (0, 72, 4, 5)]),
        "one pitch": song([(0, 60, at, at + 1) for at in range(32)]),
        "octaves of one pitch": song([(0, 36 + 12 * (at % 5), at, at + 1) for at in range(32)]),
        "very long": song(scale(200)),
        "silent": song(scale(32), velocity=0),
        "bars of no whole number": song(scale(32), meter=(1, 32)),
        "in three": song(scale(24), meter=(3, 4)),
        "nothing": song([]),
    }
    told = {}
    for name, one in songs.items():
        quantizer = magenta.Quantizer(steps_per_quarter=4)
        extractor = magenta.MonophonicMelodyExtractor(
            min_bars=7, min_unique_pitches=5, gap_bars=1.0, ignore_polyphonic_notes=False
        )
        dag = {quantizer: magenta.Input(music_pb2.NoteSequence), extractor: quantizer, magenta.Output("m"): extractor}
        pipeline = magenta.DAGPipeline(dag)
        found = pipeline.transform(one)["m"]
        told[name] = [[list(each), each.start_step, each.end_step] for each in found], printed(pipeline.get_stats())
    return told


def other_melodies(magenta: Any) -> Any:
    quantizer = magenta.Quantizer(steps_per_quarter=2)
    sequence = quantizer.transform(song([*scale(16), (0, 72, 4, 5), (2, 50, 3, 9)]))[0]
    options = [
        {"min_bars": 1, "min_unique_pitches": 1, "ignore_polyphonic_notes": True},
        {"min_bars": 1, "min_unique_pitches": 1, "ignore_polyphonic_notes": True, "max_steps": 9},
        {"min_bars": 0, "min_unique_pitches": 0, "gap_bars": 0.5, "ignore_polyphonic_notes": True},
    ]
    told = []
    for one in options:
        extractor = magenta.MelodyExtractor(**one)
        told.append([[list(each) for each in extractor.transform(sequence)], printed(extractor.get_stats())])
    return told
