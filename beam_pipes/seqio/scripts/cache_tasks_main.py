"""`seqio_cache_tasks`, with its flags: `python -m beam_pipes.seqio.scripts.cache_tasks_main --tasks=wmt_.*,squad ...`.

    --tasks=my_task_.*,your_task --excluded_tasks=my_task_5 --output_cache_dir=/path/to/caches --module_import=my.tasks

`main` builds with `beam_pipes.tasks.caches.cache_tasks`: the local runner unless `--pipeline_options` names another,
finished work is kept, and a cache appears complete or not at all. `run_pipeline` adds the same work to the caller's
Beam pipeline, as SeqIO does: a cache in SeqIO's layout only.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence

from beam_pipes.checks import choice
from beam_pipes.errors import DeclarationError, UnsupportedFormatError, logger
from beam_pipes.extras import require
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.tasks import Task, TaskRegistry, add_global_cache_dirs
from beam_pipes.tasks.caches.cache_tasks import cache_tasks, matching_names
from beam_pipes.tasks.sources.places import (
    COMPLETED,
    get_cached_info_path,
    get_cached_stats_path,
    get_cached_tfrecord_prefix,
    get_task_dir_from_name,
)
from beam_pipes.tasks.sources.tfds import set_tfds_data_dir_override

flags = require("absl.flags", purpose="cache_tasks_main")

FLAGS = flags.FLAGS

flags.DEFINE_list("tasks", None, "Regular expressions of the tasks to cache, divided by commas; all without it.")
flags.DEFINE_list("excluded_tasks", None, "Regular expressions of tasks to leave out.")
flags.DEFINE_string("output_cache_dir", None, "The directory of the caches.")
flags.DEFINE_list("tasks_additional_cache_dirs", [], "Further directories in which tasks may be cached already.")
flags.DEFINE_multi_string("module_import", [], "A module that registers tasks; may be given several times.")
flags.DEFINE_list(
    "pipeline_options", ["--runner=DirectRunner"], "Beam's options, divided by commas. DirectRunner is this machine."
)
flags.DEFINE_boolean("ignore_other_caches", False, "Cache also what is cached in another directory.")
flags.DEFINE_boolean("overwrite", False, "Replace caches that are there.")
flags.DEFINE_integer("min_shards", 64, "At least this many files a split.")
flags.DEFINE_integer("max_shards", 0, "At most this many files a split; 0 for as many as there are.")
flags.DEFINE_string("tfds_data_dir", None, "Directory of the data sets of TFDS, whatever the tasks say.")
flags.DEFINE_integer("base_seed", None, "Seed of what is drawn before the cut.")
flags.DEFINE_boolean("enable_char_counts", False, "Count characters too.")
flags.DEFINE_enum("output_format", "tfrecord", ["tfrecord", "arrayrecord"], "Format of the files: tfrecord.")
flags.DEFINE_boolean("preserve_random_access", False, "Of ArrayRecord, which is not written here: taken, not used.")

_log = logger(__name__)
_RUNNERS = {"DataflowRunner": "dataflow", "FlinkRunner": "flink", "PortableRunner": "portable", "PrismRunner": "prism"}


def run_pipeline(
    pipeline: object,
    task_names: Sequence[str] | None,
    cache_dir: str,
    excluded_tasks: Sequence[str] | None = None,
    modules_to_import: Sequence[str] = (),
    overwrite: bool = False,
    ignore_other_caches: bool = False,
    completed_file_contents: str = "",
    store_metadata_proto: bool = False,
    output_format: str = "tfrecord",
) -> list[str]:
    """Adds the caching of tasks to a Beam pipeline: records, `info`, `stats` and `COMPLETED` for each.

    Does what SeqIO does with these arguments and the flags `min_shards`, `max_shards`, `base_seed`, `tfds_data_dir` and
    `enable_char_counts`. Returns the directories that the pipeline will fill.

    Raises:
        UnsupportedFormatError: another format than tfrecord.
    """
    _check_format(output_format)
    output_dirs = []
    for task, output_dir in _chosen(task_names, cache_dir, excluded_tasks, overwrite, ignore_other_caches):
        _log.info("Caching task '%s' with splits: %s", task.name, task.splits)
        output_dirs.append(output_dir)
        _add_task(pipeline, task, output_dir, modules_to_import, completed_file_contents)
    return output_dirs


def _chosen(
    task_names: Sequence[str] | None,
    cache_dir: str,
    excluded_tasks: Sequence[str] | None,
    overwrite: bool,
    ignore_other_caches: bool,
) -> Iterator[tuple[Task, str]]:
    from beam_pipes.extras import tensorflow

    names = matching_names(task_names or ".*", excluded_tasks or ())
    if not names:
        _log.warning("No tasks have been selected from the task registry: check --tasks and --excluded_tasks.")
    for task in map(TaskRegistry.get, names):
        output_dir = os.path.join(cache_dir, get_task_dir_from_name(task.name))
        cached = task.cache_dir
        if not task.supports_caching:
            _log.info("Skipping task that does not support caching: '%s'", task.name)
        elif cached and not (overwrite or ignore_other_caches):
            _log.info("Skipping task '%s', which exists in cache dir: %s", task.name, cached)
        elif cached and not ignore_other_caches and os.path.abspath(cached) != os.path.abspath(output_dir):
            _log.warning("Not overwriting task '%s', which is cached elsewhere: %s", task.name, cached)
        else:
            if cached and not ignore_other_caches:
                tensorflow("cache_tasks_main").io.gfile.rmtree(output_dir)
            yield task, output_dir


def _add_task(pipeline: object, task: Task, output_dir: str, modules: Sequence[str], completed: str) -> None:
    from beam_pipes.seqio import beam_utils

    beam = require("apache_beam", purpose="cache_tasks_main")
    written = []
    for split in task.splits:
        label = f"{task.name}_{split}"
        shards = beam_utils.PreprocessTask(
            task,
            split,
            preprocessors_seed=_seed_of(task.name),
            modules_to_import=modules,
            tfds_data_dir=FLAGS.tfds_data_dir,
        )
        num_shards = _num_shards(len(shards.shards))
        examples = pipeline | f"{label}_pat" >> shards | f"{label}_global_example_shuffle" >> beam.Reshuffle()
        records = beam_utils.WriteExampleTfRecord(get_cached_tfrecord_prefix(output_dir, split), num_shards=num_shards)
        info = examples | f"{label}_info" >> beam_utils.GetInfo(num_shards)
        stats = beam_utils.GetStats(task.output_features, enable_char_counts=FLAGS.enable_char_counts)
        written += [
            examples | f"{label}_write_tfrecord" >> records,
            info | f"{label}_write_info" >> beam_utils.WriteJson(get_cached_info_path(output_dir, split)),
            examples
            | f"{label}_stats" >> stats
            | f"{label}_write_stats" >> beam_utils.WriteJson(get_cached_stats_path(output_dir, split)),
        ]
    # Written after all splits: readers do not accept a directory without it as a cache.
    _ = (
        written
        | f"{task.name}_flatten_completion_values" >> beam.Flatten()
        | f"{task.name}_discard_completion_values" >> beam.Filter(_nothing)
        | f"{task.name}_write_completed_file"
        >> beam.io.WriteToText(
            os.path.join(output_dir, COMPLETED),
            append_trailing_newlines=False,
            num_shards=1,
            shard_name_template="",
            header=completed,
        )
    )


def _nothing(_: object) -> bool:
    return False


def _seed_of(task_name: str) -> int | None:
    if not FLAGS.base_seed or FLAGS.base_seed == -1:
        return None
    return int.from_bytes(hashlib.md5(task_name.encode()).digest(), "little") + int(FLAGS.base_seed)


def _num_shards(source_shards: int) -> int:
    num_shards: int = max(source_shards, FLAGS.min_shards)
    return min(num_shards, FLAGS.max_shards) if FLAGS.max_shards > 0 else num_shards


def _check_format(output_format: str) -> None:
    if output_format != "tfrecord":
        raise UnsupportedFormatError(
            f"tasks are cached as tfrecord, got output_format={output_format!r}: leave it out. "
            "Files of ArrayRecord are not written."
        )


def main(_: object = None) -> None:
    """Caches the tasks that the flags select.

    Raises:
        DeclarationError: no directory, no task, or options that the runner does not know.
        BuildError: some tasks failed; the others are cached.
    """
    if FLAGS.output_cache_dir is None:
        raise DeclarationError("name the directory of the caches: --output_cache_dir=DIR")
    _check_format(FLAGS.output_format)
    modules = [module for module in FLAGS.module_import if module]
    for module in modules:
        importlib.import_module(module)
    add_global_cache_dirs([FLAGS.output_cache_dir, *FLAGS.tasks_additional_cache_dirs])
    if FLAGS.tfds_data_dir:
        set_tfds_data_dir_override(FLAGS.tfds_data_dir)
    base_seed = 0 if FLAGS.base_seed in (None, -1) else FLAGS.base_seed
    results = cache_tasks(
        FLAGS.tasks or [".*"],
        FLAGS.output_cache_dir,
        excluded_tasks=FLAGS.excluded_tasks or (),
        modules_to_import=modules,
        overwrite=FLAGS.overwrite,
        ignore_other_caches=FLAGS.ignore_other_caches,
        base_seed=base_seed,
        enable_char_counts=FLAGS.enable_char_counts,
        min_shards=max(FLAGS.min_shards, 1),
        max_shards=FLAGS.max_shards or None,
        options=_options(FLAGS.pipeline_options, bool(modules)),
    )
    for result in results:
        print(result)


def _options(pipeline_options: Sequence[str], in_workers: bool) -> LocalOptions | BeamOptions:
    """`["--runner=DataflowRunner", "--project=p"]` → the options of that runner; DirectRunner is the local one."""
    from beam_pipes.commands.options import Running

    named = [option.partition("=")[2] for option in pipeline_options if option.startswith("--runner=")]
    others = [option for option in pipeline_options if not option.startswith("--runner=")]
    runner = named[-1] if named else "DirectRunner"
    choice(runner, of=("DirectRunner", *_RUNNERS), what="--runner")
    if runner == "DirectRunner":
        # Beam's own options set the number of workers; tasks that no module registers cannot leave this process.
        workers = [option.partition("=")[2] for option in others if option.startswith("--direct_num_workers=")]
        count = int(workers[-1]) if workers and workers[-1] != "0" else None
        return Running(workers=count if in_workers else 1).options(())
    return Running(runner=_RUNNERS[runner]).options(others)


def console_entry_point() -> None:
    """The command: reads the flags, then `main`."""
    require("absl.app", purpose="cache_tasks_main").run(main, argv=sys.argv)


if __name__ == "__main__":
    console_entry_point()
