"""Tasks that the evaluation tests share: bytes of text, read without TensorFlow."""

from __future__ import annotations

import numpy as np

from beam_pipes.evaluation import Evaluator
from beam_pipes.evaluation.loggers import Logger
from beam_pipes.evaluation.metrics import Scalar
from beam_pipes.tasks import ByteVocabulary, Feature, FunctionDataSource, Task, python_map
from beam_pipes.transforms.converters import EncDecFeatureConverter

PADDED = EncDecFeatureConverter(pack=False)
VOCABULARY = ByteVocabulary()
QUESTIONS = {"validation": [("2+2", "four"), ("1+1", "two"), ("1+2", "three")], "empty": []}


class PythonSource(FunctionDataSource):
    """A function that returns Python examples, read as they are."""

    reads_without_tensorflow = True


@python_map
def tokenized(example):
    return {
        "inputs": [*VOCABULARY.encode(example["question"].decode()), VOCABULARY.eos_id],
        "targets": [*VOCABULARY.encode(example["answer"].decode()), VOCABULARY.eos_id],
        "targets_pretokenized": example["answer"],
    }


@python_map
def without_text(example):
    return {name: value for name, value in example.items() if not name.endswith("_pretokenized")}


def questions(split, shuffle_files):
    return [{"question": question, "answer": answer} for question, answer in QUESTIONS[split]]


def accuracy(targets, predictions):
    return {"accuracy": float(np.mean([t == p for t, p in zip(targets, predictions, strict=True)]))}


def arithmetic(name="arithmetic", *, metric_fns=(accuracy,), preprocessors=(tokenized,), **options):
    return Task(
        name,
        PythonSource(questions, splits=["validation", "empty"]),
        output_features={"inputs": Feature(VOCABULARY), "targets": Feature(VOCABULARY)},
        preprocessors=preprocessors,
        metric_fns=metric_fns,
        **options,
    )


def echo_targets(dataset):
    """A perfect model: it returns the target tokens, last example first."""
    pairs = [
        (int(index), np.trim_zeros(np.asarray(example["decoder_target_tokens"]), "b"))
        for index, example in dataset.as_numpy_iterator()
    ]
    return pairs[::-1]


def evaluator_of(task, converter=PADDED, **options):
    return Evaluator(task, converter, framework="numpy", **options)


def scores_of(dataset):
    return [(index, float(index)) for index, _ in dataset]


def mean_score(targets, scores):
    return {"mean_score": Scalar(float(np.mean(scores)))}


def best_beam(targets, predictions, aux_values):
    return {"best_beam": max(aux_values["beam"])}


class RecordingLogger(Logger):
    """Keeps what it is given, by output directory."""

    calls: list[dict] = []

    def __call__(self, **call):
        self.calls.append({**call, "output_dir": self.output_dir})
