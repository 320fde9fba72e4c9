"""The evaluator: loads the examples of a task or mixture once, and evaluates models on them repeatedly.

One evaluation in one call.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from beam_pipes.errors import EvaluationError, logger
from beam_pipes.evaluation.eval_data import (
    AllMetrics,
    AllMetricsFuture,
    AllOutputs,
    Converter,
    EnumeratedExamples,
    EvalData,
    LoadEvalOptions,
    ModelFn,
    check_model_functions,
    get_valid_eval_tasks,
    load_eval_data,
    metrics_of,
)
from beam_pipes.evaluation.loggers.logger import Logger
from beam_pipes.evaluation.model_outputs import ModelOutputType, ordered_outputs
from beam_pipes.evaluation.task_metrics import TaskEvaluation
from beam_pipes.extras import TfDataset
from beam_pipes.tasks.providers.by_name import get_subtasks, maybe_get_mixture_or_task
from beam_pipes.tasks.providers.mixture import Mixture
from beam_pipes.tasks.providers.task import Task
from beam_pipes.tasks.steps.features import SequenceLength

_log = logger(__name__)


class Evaluator:
    """Evaluates models on a task, or on each task of a mixture separately, regardless of rates.

    The examples of the split are loaded and converted once. Model functions get an enumerated dataset and return
    outputs with the indices they belong to, in any order, from any number of hosts:

    * `predict_fn(dataset) -> [(index, token_ids), …]`, for metrics of `targets` and `predictions`;
    * `predict_with_aux_fn(dataset) -> ([(index, token_ids), …], {name: [value, …]})`, for those of `aux_values` too;
    * `score_fn(dataset) -> [(index, score), …]`, for metrics of `targets` and `scores`.

    Token ids may differ in length from example to example; several sequences per example (top-k) are each decoded.

    Args:
        mixture_or_task_name: a registered name, or a task or mixture.
        feature_converter: makes model features of task features; it must not pack.
        eval_split: tasks without this split, or without metrics, are skipped.
        use_cached: read the cache instead of preprocessing.
        seed: for sources and steps that draw.
        sequence_length: feature → length; longer sequences are cut. None for the longest that occurs.
        num_examples: evaluate on this many examples of each task, from the beginning.
        shuffle: load the examples in an order shuffled by `seed`.
        logger_cls: classes of `Logger`, or functions that make one; each is called with `output_dir=log_dir`.
        log_dir: where loggers write.
        use_memory_cache: keep preprocessed examples in memory; False preprocesses them again for every evaluation.
        async_compute_metrics: compute metrics in a thread while the caller continues. Pass False if a metric uses the
            accelerator: `evaluate` then returns when they are computed. Failures are reported by the future either way.
        target_field_name: the feature that holds the targets.
        framework: "tensorflow" gives model functions a `tf.data.Dataset` of `(index, example)`, "numpy" an
            `EnumeratedExamples`, and imports TensorFlow only if a task needs it.
        host_index: only host 0 logs if several hosts call `evaluate` with the joined outputs.

    Raises:
        EvaluationError: packing, loggers without a directory, a preprocessor that needs lengths that were not given.
    """

    def __init__(
        self,
        mixture_or_task_name: str | Task | Mixture,
        feature_converter: Converter,
        eval_split: str = "validation",
        use_cached: bool = False,
        seed: int | None = 42,
        sequence_length: SequenceLength | None = None,
        num_examples: int | None = None,
        shuffle: bool = False,
        logger_cls: Sequence[Callable[..., Logger]] = (),
        log_dir: str | None = None,
        use_memory_cache: bool = True,
        async_compute_metrics: bool = True,
        target_field_name: str = "targets",
        *,
        framework: Literal["tensorflow", "numpy"] = "tensorflow",
        host_index: int = 0,
    ) -> None:
        self._executor: concurrent.futures.ThreadPoolExecutor | None = None
        self._metrics_future: AllMetricsFuture | None = None
        if getattr(feature_converter, "pack", False):
            raise EvaluationError(
                "During evaluation, packing can't be used. Make the feature converter with pack=False, so that every "
                "output belongs to one example."
            )
        if logger_cls and not log_dir:
            raise EvaluationError("'log_dir' must be provided to `Evaluator` if `logger_cls` is non-empty.")
        _log.info("Initializing Evaluator for '%s'", mixture_or_task_name)
        provider = maybe_get_mixture_or_task(mixture_or_task_name)
        self._async = async_compute_metrics
        self._target_field_name = target_field_name
        self._host_index = host_index
        self._eval_tasks: list[Task] = get_valid_eval_tasks(get_subtasks(provider), eval_split)
        self._evaluations = {task.name: TaskEvaluation(task, target_field_name) for task in self._eval_tasks}
        if not self._eval_tasks:
            _log.warning("No eval task with valid split and metric fn found. Skipping eval.")
        options = LoadEvalOptions(
            split=eval_split,
            use_cached=use_cached,
            seed=seed,
            sequence_length=sequence_length,
            num_examples=num_examples,
            shuffle=shuffle,
            use_memory_cache=use_memory_cache,
            framework=framework,
        )
        self._data: dict[str, EvalData] = load_eval_data(self._eval_tasks, feature_converter, options)
        if not logger_cls:
            _log.warning("'logger_cls' is empty so Evaluator will not log its results.")
        self._loggers = tuple(cls(output_dir=str(log_dir)) for cls in logger_cls)

    @property
    def eval_tasks(self) -> Sequence[Task]:
        """The tasks that are evaluated."""
        return self._eval_tasks

    @property
    def cached_task_datasets(self) -> Mapping[str, Any]:
        """Task → dataset of task features."""
        return {name: data.task_dataset for name, data in self._data.items()}

    @property
    def cached_model_datasets(self) -> Mapping[str, TfDataset | EnumeratedExamples]:
        """Task → enumerated dataset of model features: what model functions get."""
        return {name: data.model_dataset for name, data in self._data.items()}

    @property
    def model_feature_shapes(self) -> Mapping[str, tuple[int | None, ...]]:
        """Model feature → shape; features without axes are left out."""
        return {name: shape for data in self._data.values() for name, shape in data.model_feature_shapes.items()}

    @property
    def loggers(self) -> tuple[Logger, ...]:
        return self._loggers

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits until metrics are computed and logged; the end of the program waits for them too."""
        if self._executor is not None:
            self._executor.shutdown(wait=True)
            self._executor = None

    def evaluate(
        self,
        *,
        compute_metrics: bool,
        step: int | None = None,
        predict_fn: ModelFn | None = None,
        score_fn: ModelFn | None = None,
        predict_with_aux_fn: ModelFn | None = None,
        model_fns: Mapping[ModelOutputType, ModelFn] | None = None,
    ) -> tuple[AllMetricsFuture, AllOutputs]:
        """Calls the model functions that the tasks' metrics need, then computes and logs the metrics.

        Returns a future of task → metric → value (of None with `compute_metrics=False`), and the outputs: task →
        `ModelOutputType` → one per example, in order. Waits for the metrics of the previous call.

        A failing metric does not affect the others: those of all tasks are computed and logged, then the future raises
        `EvaluationError`, with the computed values in its attribute `metrics`. The next call starts afresh.

        Raises `EvaluationError` for a missing model function, before anything is predicted, and for outputs that do
        not answer every example.
        """
        named = {
            ModelOutputType.PREDICTION: predict_fn,
            ModelOutputType.SCORE: score_fn,
            ModelOutputType.PREDICTION_WITH_AUX: predict_with_aux_fn,
        }
        functions = {**(model_fns or {}), **{output_type: fn for output_type, fn in named.items() if fn is not None}}
        check_model_functions(self._eval_tasks, functions)

        all_outputs: AllOutputs = {}
        for task in self._eval_tasks:
            _log.info("Evaluating %s", task.name)
            data = self._data[task.name]
            outputs = all_outputs.setdefault(task.name, {})
            for output_type in dict.fromkeys(metric.output_type for metric in metrics_of(task)):
                where = f"task '{task.name}', output '{ModelOutputType.to_str(output_type)}'"
                returned = functions[output_type](data.model_dataset)
                outputs[output_type] = ordered_outputs(returned, data.num_examples, where)
        return self._start_metrics(all_outputs, step, compute_metrics), all_outputs

    def _start_metrics(self, all_outputs: AllOutputs, step: int | None, compute_metrics: bool) -> AllMetricsFuture:
        future: AllMetricsFuture = concurrent.futures.Future()
        if not compute_metrics:
            future.set_result(None)
            return future
        self._wait_for_previous()
        if not self._async:
            try:
                future.set_result(self._compute_all(all_outputs, step))
            except Exception as error:
                future.set_exception(error)
            self._metrics_future = future
            return future
        if self._executor is None:
            self._executor = concurrent.futures.ThreadPoolExecutor(
                max_workers=1, thread_name_prefix="evaluation metrics"
            )
        self._metrics_future = self._executor.submit(self._compute_all, all_outputs, step)
        return self._metrics_future

    def _wait_for_previous(self) -> None:
        previous, self._metrics_future = self._metrics_future, None
        if previous is None:
            return
        started = time.monotonic()
        failure = previous.exception()
        _log.info("Time waiting for previous metrics run: %.3f secs.", time.monotonic() - started)
        if failure is not None:
            # The holder of that future sees the error there; this is another evaluation.
            _log.error("The metrics of the previous evaluation failed: %s", failure)

    def _compute_all(self, all_outputs: AllOutputs, step: int | None) -> AllMetrics:
        started = time.monotonic()
        all_metrics: AllMetrics = {}
        failures: list[EvaluationError] = []
        for task in self._eval_tasks:
            _log.info("Computing metrics for %s", task.name)
            data = self._data[task.name]
            made = self._evaluations[task.name].compute(all_outputs[task.name], data.examples())
            all_metrics[task.name] = made.values
            failures += made.failures
            for log_metrics in self._loggers if self._host_index == 0 else ():
                try:
                    log_metrics(
                        task_name=task.name,
                        step=step,
                        metrics=made.metric_values,
                        dataset=data.task_dataset,
                        targets=made.targets,
                        inferences=made.inferences,
                    )
                except Exception as error:
                    kind = type(log_metrics).__name__
                    failure = EvaluationError(
                        f"logger {kind} failed on task '{task.name}': {type(error).__name__}: {error}",
                        task=task.name,
                    )
                    failure.__cause__ = error
                    failures.append(failure)
        _log.info("Time computing metrics: %.3f secs.", time.monotonic() - started)
        if failures:
            first = failures[0]
            more = "".join(f"; {failure}" for failure in failures[1:])
            raise EvaluationError(
                f"Failed to evaluate task {first.task}: {first}{more}",
                task=first.task,
                metric=first.metric,
                metrics=all_metrics,
            ) from first.__cause__
        return all_metrics


def evaluate_mixture(
    mixture_or_task_name: str | Task | Mixture,
    feature_converter: Converter,
    *,
    predict_fn: ModelFn | None = None,
    score_fn: ModelFn | None = None,
    predict_with_aux_fn: ModelFn | None = None,
    framework: Literal["tensorflow", "numpy"] = "numpy",
    **options: Any,
) -> AllMetrics:
    """Evaluates a model once and returns task → metric → value; `options` are other arguments of `Evaluator`.

    `evaluate_mixture("qa", EncDecFeatureConverter(pack=False), predict_fn=predict)` →
    `{"squad": {"em": 81.2, "f1": 88.4}, "trivia": {"em": 40.1}}`.

    Model functions get an `EnumeratedExamples`, and TensorFlow is imported only if a task cannot be read without it;
    with `framework="tensorflow"` they get a `tf.data.Dataset`. Raises `EvaluationError` if anything fails.
    """
    options = {"async_compute_metrics": False, **options, "framework": framework}
    with Evaluator(mixture_or_task_name, feature_converter, **options) as evaluator:
        metrics, _ = evaluator.evaluate(
            compute_metrics=True, predict_fn=predict_fn, score_fn=score_fn, predict_with_aux_fn=predict_with_aux_fn
        )
        found: AllMetrics = metrics.result()
        return found
