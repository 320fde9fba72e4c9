"""Data from Python: iterables, iterators, callables of samples and batches; epochs that end."""

import random

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.types as types
from nvidia.dali import pipeline_def
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.pytorch import DALIClassificationIterator
from nvidia.dali.types import BatchInfo, SampleInfo

found = {}
batch_size = 4
images_dir = "data/listed/"


class ExternalInputIterator:
    def __init__(self, batch_size):
        self.images_dir = images_dir
        self.batch_size = batch_size
        with open(self.images_dir + "file_list.txt") as f:
            self.files = [line.rstrip() for line in f if line != ""]
        random.Random(7).shuffle(self.files)

    def __iter__(self):
        self.i = 0
        self.n = len(self.files)
        return self

    def __next__(self):
        batch = []
        labels = []
        for _ in range(self.batch_size):
            jpeg_filename, label = self.files[self.i].split(" ")
            f = open(self.images_dir + jpeg_filename, "rb")
            batch.append(np.frombuffer(f.read(), dtype=np.uint8))
            labels.append(np.array([label], dtype=np.uint8))
            self.i = (self.i + 1) % self.n
        return (batch, labels)


eii = ExternalInputIterator(batch_size)
pipe = Pipeline(batch_size=batch_size, num_threads=2, device_id=None)
with pipe:
    jpegs, labels = fn.external_source(source=eii, num_outputs=2, dtype=types.UINT8)
    decode = fn.decoders.image(jpegs, device="cpu", output_type=types.RGB)
    enhance = fn.brightness_contrast(decode, contrast=2)
    pipe.set_outputs(enhance, labels)

pipe.build()
for step in range(3):
    pipe_out = pipe.run()
    batch_cpu = pipe_out[0]
    labels_cpu = pipe_out[1]
    found[f"iterator {step}"] = [batch_cpu.at(2), labels_cpu.at(2), labels_cpu.as_array()]


class ExternalInputCallable:
    def __init__(self, batch_size):
        with open(images_dir + "file_list.txt") as f:
            self.files = [line.rstrip().split(" ") for line in f]
        self.full_iterations = len(self.files) // batch_size
        self.perm = None
        self.last_seen_epoch = None

    def __call__(self, sample_info: SampleInfo):
        if sample_info.iteration >= self.full_iterations:
            # Indicate end of the epoch
            raise StopIteration()
        if self.last_seen_epoch != sample_info.epoch_idx:
            self.last_seen_epoch = sample_info.epoch_idx
            self.perm = np.random.default_rng(seed=42 + sample_info.epoch_idx).permutation(len(self.files))
        sample_idx = self.perm[sample_info.idx_in_epoch]
        jpeg_filename, label = self.files[sample_idx]
        with open(images_dir + jpeg_filename, "rb") as f:
            encoded = np.frombuffer(f.read(), dtype=np.uint8)
        return encoded, np.int32([label])


@pipeline_def(batch_size=batch_size, num_threads=2, device_id=None)
def callable_pipeline():
    jpegs, labels = fn.external_source(
        source=ExternalInputCallable(batch_size), num_outputs=2, batch=False, dtype=[types.UINT8, types.INT32]
    )
    images = fn.decoders.image(jpegs, device="cpu")
    return fn.resize(images, size=(20, 20)), labels


pipe = callable_pipeline()
pipe.build()
found["callable"] = []
for _ in range(2):
    while True:
        try:
            _, labels = pipe.run()
            found["callable"].append(labels.as_array())
        except StopIteration:
            found["callable"].append("StopIteration")
            pipe.reset()
            break

iterator = DALIClassificationIterator(callable_pipeline(), auto_reset=True)
found["callable in an iterator"] = [
    [[data[0]["data"].numpy(), data[0]["label"].numpy()] for data in iterator] for epoch in range(2)
]


def batches(info: BatchInfo):
    if info.iteration >= 3:
        raise StopIteration
    return np.full((batch_size, 2), 10 * info.epoch_idx + info.iteration, np.float32)


@pipeline_def(batch_size=batch_size, num_threads=1, device_id=None)
def of_batches():
    return fn.external_source(source=batches, batch=True, batch_info=True, layout="C", ndim=1)


pipe = of_batches()
pipe.build()
found["batch_info"] = []
for _ in range(2):
    try:
        while True:
            (out,) = pipe.run()
            found["batch_info"].append([out.as_array(), out.shape()])
    except StopIteration:
        pipe.reset()


def generated():
    for step in range(3):
        yield [np.full((step + 1, index + 1), index, np.int64) for index in range(batch_size)]


@pipeline_def(batch_size=batch_size, num_threads=1, device_id=None)
def of_generator(cycle=None):
    data = fn.external_source(source=generated, cycle=cycle)
    return data, data.shape()


for cycle in (None, "raise", "quiet"):
    pipe = of_generator(cycle=cycle)
    pipe.build()
    steps = []
    for _ in range(5 if cycle else 4):
        try:
            data, shapes = pipe.run()
            steps.append([[np.array(one) for one in data], shapes.as_array()])
        except StopIteration:
            steps.append("StopIteration")
            if cycle:
                pipe.reset()
    found[f"generator, cycle={cycle}"] = steps

# Batches of a size that varies, fed by hand.
pipe = Pipeline(batch_size=8, num_threads=1, device_id=None, prefetch_queue_depth=1)
with pipe:
    node = fn.external_source(name="input", device="cpu", layout="HW")
    pipe.set_outputs(fn.flip(fn.expand_dims(node, axes=2, new_axis_names="C")), node)
pipe.build()
for size in (8, 3, 5):
    pipe.feed_input("input", [np.arange(6, dtype=np.uint8).reshape(2, 3) + index for index in range(size)])
    flipped, given = pipe.run()
    found[f"fed {size}"] = [flipped.as_array(), given.as_array(), flipped.layout(), given.layout()]


@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def scalars():
    numbers = fn.external_source(source=[np.int32([1, 2]), np.int32([3, 4])], cycle=True, dtype=types.INT32)
    floats = fn.external_source(source=lambda info: np.float32(info.idx_in_epoch), batch=False)
    return numbers, floats, numbers + floats


pipe = scalars()
pipe.build()
found["scalars"] = [[[out.as_array(), out.as_array().dtype.name] for out in pipe.run()] for _ in range(3)]
