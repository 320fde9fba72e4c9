"""Tasks whose inputs end, and whose targets begin, with sentinels: the form of span corruption. Needs TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from beam_pipes.tasks.features import Feature
from beam_pipes.tasks.in_tensorflow.concurrency import map_parallelism
from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow
from beam_pipes.tasks.registry import TaskRegistry
from beam_pipes.tasks.task import Task


def add_task_with_sentinels(task_name: str, num_sentinels: int | None = 1) -> Task:
    """Registers `{task_name}_{n}_sentinel`: sentinels are appended to inputs and put before targets.

    With a vocabulary of 262 ids and two sentinels: inputs `[5, 6]` → `[5, 6, 261, 260]`, targets `[7, 1]` → `[261,
    260, 7, 1]`. Where
    there is a sequence length, room is made for them, and the EOS is kept. The text of the sentinels is taken out
    of model outputs
    before the task's postprocessor sees them.
    """
    task = TaskRegistry.get(task_name)
    number = num_sentinels or 1

    def add_sentinels(
        dataset: Any, sequence_length: Mapping[str, int] | None, output_features: Mapping[str, Feature]
    ) -> Any:
        tf = tensorflow("add_task_with_sentinels")

        def add(example: Mapping[str, Any]) -> dict[str, Any]:
            inputs = tf.cast(_sentinels(output_features["inputs"], number), example["inputs"].dtype)
            targets = tf.cast(_sentinels(output_features["targets"], number), example["targets"].dtype)
            room = {name: length - number for name, length in (sequence_length or {}).items() if length is not None}
            before = example["inputs"][: room["inputs"]] if "inputs" in room else example["inputs"]
            behind = example["targets"]
            if "targets" in room:
                behind = _keep_last(tf, behind, room["targets"], output_features["targets"].add_eos)
            return {
                **example,
                "inputs": tf.concat([before, inputs], 0),
                "targets": tf.concat([targets, behind], 0),
            }

        return dataset.map(add, num_parallel_calls=map_parallelism())

    return TaskRegistry.add(
        f"{task_name}_{number}_sentinel",
        source=task.source,
        preprocessors=[*task.preprocessors, add_sentinels],
        output_features=task.output_features,
        postprocess_fn=_without_sentinels(task, number),
        metric_fns=task.metric_fns,
        metric_objs=task.metric_objs,
        shuffle_buffer_size=task.shuffle_buffer_size,
    )


def _sentinels(feature: Feature, number: int) -> list[int]:
    last = feature.vocabulary.vocab_size - 1
    return [last - index for index in range(number)]


def _keep_last(tf: Any, value: Any, length: int, keep: bool) -> Any:
    if not keep:
        return value[:length]
    return tf.cond(tf.size(value) > length, lambda: tf.concat([value[: length - 1], value[-1:]], 0), lambda: value)


def _without_sentinels(task: Task, number: int) -> Callable[..., Any]:
    feature = task.output_features["targets"]

    def strip(decoded: Any, **kwargs: Any) -> Any:
        if isinstance(decoded, str):
            for sentinel in _sentinels(feature, number):
                text = str(feature.vocabulary.decode([sentinel]))
                decoded = decoded.replace(text, "") if text else decoded
            decoded = decoded.strip()
        return task.postprocess_fn(decoded, **kwargs)

    return strip
