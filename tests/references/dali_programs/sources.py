"""Readers, sources in Python, what is fed."""

import os

import numpy as np
from nvidia.dali import Pipeline, fn, ops, pipeline_def, types


def write_files(root):
    """`cat/0.jpg` … `dog/2.jpg`, of as many bytes as no other has, and an array of each."""
    for label, name in enumerate(("cat", "dog")):
        os.makedirs(os.path.join(root, name))
        for index in range(3):
            content = np.arange(4 * (index + 1) + label, dtype=np.uint8)
            content.tofile(os.path.join(root, name, f"{index}.jpg"))
            np.save(os.path.join(root, name, f"{index}.npy"), content.astype(np.float32))


def batches(pipe, count):
    pipe.build()
    found = []
    for _ in range(count):
        found.append([[np.array(output.at(i)).tolist() for i in range(len(output))] for output in pipe.run()])
    return found


def files_and_their_labels(root):
    write_files(root)

    @pipeline_def(batch_size=3, num_threads=1, device_id=None)
    def reading():
        files, labels = fn.readers.file(file_root=root, name="Reader")
        return files.shape(), labels, labels * 10.0

    pipe = reading()
    found = batches(pipe, 2)
    return [found, pipe.epoch_size("Reader"), pipe.epoch_size(), labels_of(pipe)]


def labels_of(pipe):
    output = pipe.run()[1]
    return [output.is_dense_tensor(), list(output.as_array().shape), output.as_array().dtype.name, output.shape()[0]]


def a_reader_with_all_its_arguments(root):
    write_files(root)

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def reading():
        files, labels = fn.readers.file(
            file_root=root,
            random_shuffle=False,
            initial_fill=1024,
            pad_last_batch=True,
            read_ahead=True,
            lazy_init=True,
            dont_use_mmap=True,
            shuffle_after_epoch=False,
            prefetch_queue_depth=2,
            stick_to_shard=True,
            tensor_init_bytes=1048576,
            skip_cached_images=False,
            bytes_per_sample_hint=[64, 4],
            file_filters=["*.jpg"],
            seed=12,
            name="Reader",
        )
        return files.shape()[0], labels

    return batches(reading(), 4)


def a_list_of_files(root):
    write_files(root)
    with open(os.path.join(root, "list.txt"), "w") as file:
        file.write("dog/1.jpg 7\ncat/2.jpg 9\n")

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def reading():
        listed, labels = fn.readers.file(file_root=root, file_list=os.path.join(root, "list.txt"))
        names = [os.path.join(root, "cat/0.jpg"), os.path.join(root, "dog/0.jpg")]
        named, numbers = fn.readers.file(files=names)
        _, given = fn.readers.file(files=names, labels=[5, 3])
        return listed.shape(), labels, named.shape(), numbers, given

    return batches(reading(), 1)


def arrays_of_numpy(root):
    write_files(root)

    @pipeline_def(batch_size=3, num_threads=1, device_id=None)
    def reading():
        return fn.readers.numpy(file_root=os.path.join(root, "dog"), file_filter="*.npy", cache_header_information=True)

    return batches(reading(), 1)


def shards_together_are_the_epoch(root):
    write_files(root)
    found = []
    for shard in range(3):
        pipe = Pipeline(batch_size=2, num_threads=1, device_id=None)
        with pipe:
            files, _ = fn.readers.file(file_root=root, shard_id=shard, num_shards=3, stick_to_shard=True)
            pipe.set_outputs(files.shape()[0])
        found += batches(pipe, 1)[0][0]
    return sorted(found)


def shuffled_epochs_hold_every_file_once(root):
    write_files(root)

    @pipeline_def(batch_size=6, num_threads=1, device_id=None, seed=3)
    def reading():
        files, _ = fn.readers.file(file_root=root, random_shuffle=True, initial_fill=6)
        return files.shape()[0]

    found = batches(reading(), 2)
    return [sorted(batch[0]) for batch in found]


def old_classes(root):
    write_files(root)

    class Simple(Pipeline):
        def __init__(self, batch_size, num_threads, device_id):
            super().__init__(batch_size, num_threads, device_id, seed=12)
            self.input = ops.readers.File(file_root=root)
            self.flip = ops.Flip(device="cpu", vertical=1)
            self.cast = ops.Cast(dtype=types.FLOAT)

        def define_graph(self):
            files, labels = self.input()
            images = ops.Reshape(shape=[2, 2, 1], layout="HWC")(files[:4])
            return self.cast(self.flip(images, horizontal=0)), labels

    return batches(Simple(3, 1, None), 2)


def a_callable_of_samples():
    def sample(info):
        if info.iteration >= 2:
            raise StopIteration
        return np.array([info.idx_in_epoch, info.idx_in_batch, info.iteration, info.epoch_idx], np.int64)

    @pipeline_def(batch_size=3, num_threads=1, device_id=None)
    def reading():
        return fn.external_source(source=sample, batch=False)

    pipe = reading()
    pipe.build()
    found = []
    for _ in range(2):
        try:
            while True:
                found.append(pipe.run()[0].as_array().tolist())
        except StopIteration:
            found.append("end")
            pipe.reset()
    return found


def a_list_that_goes_round():
    data = [[np.float32([number])] * 2 for number in range(3)]

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def reading():
        images, labels = fn.external_source(source=lambda: (data[0], data[1]), num_outputs=2)
        return fn.external_source(source=data, cycle=True), images, labels

    return batches(reading(), 5)


def batches_that_are_fed():
    pipe = Pipeline(batch_size=2, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipe:
        node = fn.external_source(name="images", dtype=types.UINT8, ndim=1)
        pipe.set_outputs(node + 1)
    pipe.build()
    found = []
    for number in range(3):
        pipe.feed_input("images", np.full((2, 3), number, np.uint8))
        found.append(pipe.run()[0].as_array().tolist())
    found.append(pipe.run(images=[np.uint8([7]), np.uint8([8, 9])])[0].shape())
    return found


def iter_setup_feeds_a_subclass():
    class Fed(Pipeline):
        def __init__(self):
            super().__init__(batch_size=2, num_threads=1, device_id=None)
            self.input = ops.ExternalSource()
            self.number = 0

        def define_graph(self):
            self.images = self.input(name="images")
            return self.images * 2

        def iter_setup(self):
            if self.number == 3:
                raise StopIteration
            self.number += 1
            self.feed_input(self.images, [np.float32([self.number])] * 2)

    pipe = Fed()
    pipe.build()
    found = []
    try:
        while True:
            found.append(pipe.run()[0].as_array().tolist())
    except StopIteration:
        return found


def a_graph_as_text(root):
    write_files(root)

    @pipeline_def(batch_size=3, num_threads=1, device_id=None)
    def reading():
        files, labels = fn.readers.file(file_root=root)
        return fn.cast(files[:4], dtype=types.FLOAT) / 2, labels

    text = reading().serialize()
    filled = Pipeline(batch_size=2, num_threads=1, device_id=None)
    filled.deserialize_and_build(text)
    return [batches(Pipeline.deserialize(text), 1), batches(filled, 1)]


def what_a_reader_tells(root):
    write_files(root)

    @pipeline_def(batch_size=4, num_threads=1, device_id=None)
    def reading():
        files, labels = fn.readers.file(file_root=root, name="R", shard_id=1, num_shards=2, stick_to_shard=True)
        return files.shape(), labels

    pipe = reading()
    pipe.build()
    meta = pipe.reader_meta("R")
    return [meta[key] for key in ("epoch_size", "number_of_shards", "shard_id", "stick_to_shard")]
