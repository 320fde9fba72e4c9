"""Loops over DALI's iterators."""

import os

import numpy as np
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIClassificationIterator, DALIGenericIterator, LastBatchPolicy


@pipeline_def(num_threads=1, device_id=None)
def reading(root, shard_id=0, num_shards=1):
    files, labels = fn.readers.file(
        file_root=root,
        name="Reader",
        shard_id=shard_id,
        num_shards=num_shards,
        pad_last_batch=True,
        stick_to_shard=True,
    )
    return files[:1], labels


def write_files(root):
    for label in range(2):
        os.makedirs(os.path.join(root, str(label)))
        for index in range(5 - label):
            np.full(3, 10 * label + index, np.uint8).tofile(os.path.join(root, str(label), f"{index}.png"))


def values(data, name):
    return [np.asarray(one[name]).tolist() for one in data]


def epochs(iterator, name="data", count=2):
    found = []
    for _ in range(count):
        found.append([values(data, name) for data in iterator])
        iterator.reset()
    return found


def ends_of_epochs(root):
    write_files(root)
    found = []
    for policy in (LastBatchPolicy.FILL, LastBatchPolicy.DROP, LastBatchPolicy.PARTIAL):
        pipe = reading(root, batch_size=4)
        iterator = DALIGenericIterator([pipe], ["data", "label"], reader_name="Reader", last_batch_policy=policy)
        found.append([len(iterator), epochs(iterator)])
    return found


def ends_of_epochs_as_older_programs_say_them(root):
    write_files(root)
    found = []
    for fills in (False, True):
        pipe = reading(root, batch_size=4)
        iterator = DALIGenericIterator(pipe, ["data", "label"], reader_name="Reader", fill_last_batch=fills)
        found.append([len(iterator), [[len(label) for label in step] for step in epochs(iterator, "label")[0]]])
    return found


def epochs_that_begin_by_themselves(root):
    write_files(root)
    iterator = DALIGenericIterator(
        reading(root, batch_size=3), ["data", "label"], reader_name="Reader", auto_reset=True
    )
    return [[values(data, "label") for data in iterator] for _ in range(3)]


def several_pipelines(root):
    write_files(root)
    pipes = [reading(root, shard_id=shard, num_shards=3, batch_size=3) for shard in range(3)]
    iterator = DALIClassificationIterator(pipes, reader_name="Reader", auto_reset="yes", dynamic_shape=True)
    steps = [values(data, "data") for data in iterator]
    return [len(iterator), len(steps), sorted(np.array(steps).ravel().tolist())]


def next_and_the_end(root):
    write_files(root)
    iterator = DALIGenericIterator(reading(root, batch_size=9), ["data", "label"], reader_name="Reader")
    first = values(next(iterator), "label")
    try:
        next(iterator)
    except StopIteration:
        iterator.reset()
    return [first, sorted(next(iterator)[0].keys()), iterator.size]


def a_size_instead_of_a_reader():
    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def fed():
        return fn.external_source(source=lambda info: np.float32([info.idx_in_epoch]), batch=False)

    iterator = DALIGenericIterator(fed(), ["data"], size=6, auto_reset=True)
    return [[values(data, "data") for data in iterator] for _ in range(1)]


def a_source_that_ends():
    def sample(info):
        if info.idx_in_epoch >= 4:
            raise StopIteration
        return np.float32([info.idx_in_epoch])

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def fed():
        return fn.external_source(source=sample, batch=False)

    return epochs(DALIGenericIterator(fed(), ["data"]))
