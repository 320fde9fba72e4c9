"""TFRecords with an index, functions of Python, and iterators of JAX."""

import os.path

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.tfrecord as tfrec
import nvidia.dali.types as types
from nvidia.dali import Pipeline, pipeline_def
from nvidia.dali.plugin.jax import DALIGenericIterator, data_iterator

found = {}
tfrecord = "data/records/train.tfrecord"
tfrecord_idx = "data/records/train.idx"
assert os.path.isfile(tfrecord_idx)  # tfrecord2idx data/records/train.tfrecord data/records/train.idx


@pipeline_def
def tfrecord_reader_pipeline(pad_last_batch=False):
    inputs = fn.readers.tfrecord(
        path=tfrecord,
        index_path=tfrecord_idx,
        features={
            "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
            "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
            "image/class/text": tfrec.FixedLenFeature([], tfrec.string, ""),
            "image/object/bbox/xmin": tfrec.VarLenFeature(tfrec.float32, 0.0),
            "image/object/bbox/ymin": tfrec.VarLenFeature([1], tfrec.float32, 0.0),
            "image/hist": tfrec.FixedLenFeature([2, 2], tfrec.int64, 0),
        },
        pad_last_batch=pad_last_batch,
        name="R",
    )
    jpegs = inputs["image/encoded"]
    images = fn.decoders.image(jpegs, device="cpu", output_type=types.RGB)
    resized = fn.resize(images, device="cpu", resize_shorter=20.0)
    output = fn.crop_mirror_normalize(
        resized, dtype=types.FLOAT, crop=(16, 16), mean=[0.0, 0.0, 0.0], std=[1.0, 1.0, 1.0]
    )
    return (
        *(output, inputs["image/class/label"], inputs["image/class/text"]),
        *(inputs["image/object/bbox/xmin"], inputs["image/object/bbox/ymin"], inputs["image/hist"]),
    )


names = ["images", "label", "text", "xmin", "ymin", "hist"]
pipe = tfrecord_reader_pipeline(batch_size=4, num_threads=2, device_id=None)
pipe.build()
for step in range(2):
    for name, output in zip(names, pipe.run(), strict=True):
        found[f"{name} {step}"] = [output.at(index) for index in range(len(output))][: 2 if step else 4]
        found[f"{name} layout"] = output.layout()
found["meta"] = [pipe.epoch_size("R"), pipe.reader_meta("R")["epoch_size_padded"]]
for one in found["text 0"]:
    assert one.tobytes().decode("utf-8").startswith("class")

pipe = tfrecord_reader_pipeline(batch_size=4, num_threads=2, device_id=None, pad_last_batch=True)
pipe.build()
outputs = [pipe.run() for _ in range(2)]
found["padded"] = [output[1].as_array() for output in outputs]


def edit_images(image1, image2):
    assert image1.shape == image2.shape
    h, w, c = image1.shape
    y, x = np.ogrid[0:h, 0:w]
    mask = (x - w / 2) ** 2 + (y - h / 2) ** 2 > h * w / 9
    result1 = np.copy(image1)
    result1[mask] = image2[mask]
    result2 = np.copy(image2)
    result2[mask] = image1[mask]
    return result1, result2


class PythonFuncPipeline(Pipeline):
    def __init__(self, batch_size, num_threads, device_id):
        super().__init__(batch_size, num_threads, device_id, exec_async=False, exec_pipelined=False, seed=99)

    def define_graph(self):
        image1, _ = fn.readers.file(file_root="data/images")
        image2, _ = fn.readers.file(files=["data/images/dog/0.png", "data/images/cat/1.jpg"])
        image1, image2 = (fn.resize(fn.decoders.image(one), size=(20, 20)) for one in (image1, image2))
        result1, result2 = fn.python_function(image1, image2, function=edit_images, num_outputs=2)
        total = fn.python_function(
            result1, function=lambda image: np.array(image.astype(np.int64).shape), num_outputs=1
        )
        whole = fn.python_function(
            image1, function=lambda images: [image[::2] for image in images], batch_processing=True
        )
        return result1, result2, total, whole


pipe = PythonFuncPipeline(2, 2, None)
pipe.build()
for name, output in zip(("result1", "result2", "total", "whole"), pipe.run(), strict=True):
    found[name] = output.as_array()


def small(output):
    return {name: [str(value.dtype), np.asarray(value)] for name, value in output.items()}


@pipeline_def(batch_size=3, num_threads=2, device_id=None)
def for_jax():
    files, labels = fn.readers.file(file_root="data/images", name="Reader", pad_last_batch=True)
    return fn.resize(fn.decoders.image(files), size=(6, 5)), fn.cast(labels, dtype=types.FLOAT) / 2, labels


iterator = DALIGenericIterator([for_jax()], ["image", "half", "label"], reader_name="Reader", auto_reset=True)
found["jax"] = [[small(batch) for batch in iterator] for epoch in range(2)]
found["jax length"] = len(iterator)


@data_iterator(output_map=["image", "label"], reader_name="Reader", auto_reset=True)
def training_iterator(data_dir):
    files, labels = fn.readers.file(file_root=data_dir, name="Reader", pad_last_batch=True)
    return fn.resize(fn.decoders.image(files), size=(6, 5)), labels


iterator = training_iterator("data/images", batch_size=3, num_threads=2, device_id=None)
found["data_iterator"] = [[small(batch) for batch in iterator] for epoch in range(2)]
