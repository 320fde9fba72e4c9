"""Files, decoded, and what can be asked of a batch."""

from timeit import default_timer as timer

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.types as types
from nvidia.dali import pipeline_def
from nvidia.dali.pipeline import Pipeline

image_dir = "data/images"
max_batch_size = 4
found = {}


@pipeline_def
def simple_pipeline():
    jpegs, labels = fn.readers.file(file_root=image_dir)
    images = fn.decoders.image(jpegs, device="cpu")

    return images, labels


pipe = simple_pipeline(batch_size=max_batch_size, num_threads=1, device_id=None)
pipe.build()
pipe_out = pipe.run()
print(pipe_out)

images, labels = pipe_out
found["dense"] = [images.is_dense_tensor(), labels.is_dense_tensor()]
found["lengths"] = [len(pipe_out), len(images), len(labels)]
found["shapes"] = [images.shape(), labels.shape()]
labels_tensor = labels.as_tensor()
found["labels_tensor.shape"] = labels_tensor.shape()
found["labels_tensor"] = np.array(labels_tensor)
found["labels"] = labels.as_array()
found["images"] = [images.at(index) for index in range(max_batch_size)]
found["images by index"] = [np.array(images[index]) for index in range(len(images))]
found["images in a loop"] = [np.array(image).shape for image in images]
found["images on the host"] = [np.array(image) for image in images.as_cpu()]
found["dtypes"] = [images.dtype == types.UINT8, labels.dtype == types.INT32, images.dtype == types.FLOAT]
found["layouts"] = [images.layout(), labels.layout()]
try:
    images.as_array()
except RuntimeError:
    found["images of many shapes"] = "RuntimeError"


@pipeline_def
def shuffled_pipeline():
    jpegs, labels = fn.readers.file(file_root=image_dir, random_shuffle=True, initial_fill=21)
    images = fn.decoders.image(jpegs, device="cpu")

    return images, labels


pipe = shuffled_pipeline(batch_size=5, num_threads=1, device_id=None, seed=1234)
pipe.build()
(images, labels), (_, others) = pipe.run(), pipe.run()
found["shuffled"] = sorted(np.concatenate([labels.as_array(), others.as_array()]).ravel().tolist())


@pipeline_def
def rotated_pipeline():
    jpegs, labels = fn.readers.file(file_root=image_dir)
    images = fn.decoders.image(jpegs, device="cpu")
    rotated_images = fn.rotate(images, angle=10.0, fill_value=0)

    return rotated_images, labels


pipe = rotated_pipeline(batch_size=max_batch_size, num_threads=1, device_id=None, seed=1234)
pipe.build()
images, labels = pipe.run()
found["rotated"] = [images.at(index) for index in range(max_batch_size)]


@pipeline_def
def random_rotated_pipeline():
    jpegs, labels = fn.readers.file(file_root=image_dir, random_shuffle=True, initial_fill=21)
    images = fn.decoders.image(jpegs, device="cpu")
    angle = fn.random.uniform(range=(-10.0, 10.0))
    rotated_images = fn.rotate(images, angle=angle, fill_value=0)

    return rotated_images, labels, angle


pipe = random_rotated_pipeline(batch_size=max_batch_size, num_threads=1, device_id=None, seed=1234)
pipe.build()
images, labels, angle = pipe.run()
found["angles"] = [angle.as_array().dtype.name, angle.as_array().shape, bool((abs(angle.as_array()) < 10).all())]


@pipeline_def
def fused_pipeline():
    jpegs, labels = fn.readers.file(file_root=image_dir)
    cropped = fn.decoders.image_crop(jpegs, device="cpu", crop=(16, 18), crop_pos_x=0.25)
    sliced = fn.decoders.image_slice(jpegs, [0.1, 0.2], [0.5, 0.4], device="cpu", axis_names="WH")
    images = fn.decoders.image(jpegs, device="cpu", memory_stats=False, hw_decoder_load=0.65)
    distorted = fn.jpeg_compression_distortion(images, quality=30)
    return cropped, sliced, distorted, fn.peek_image_shape(jpegs)


pipe = fused_pipeline(batch_size=max_batch_size, num_threads=1, device_id=None)
pipe.build()
for name, output in zip(("cropped", "sliced", "distorted", "peeked"), pipe.run(), strict=True):
    found[name] = [output.at(index) for index in range(max_batch_size)]


def speedtest(pipeline, batch, n_threads):
    pipe = pipeline(batch_size=batch, num_threads=n_threads, device_id=None)
    pipe.build()
    n_warmup, n_test = 1, 2
    for _ in range(n_warmup):
        pipe.run()
    t_start = timer()
    for _ in range(n_test):
        pipe.run()
    t = timer() - t_start
    print(f"Speed: {(n_test * batch) / t} imgs/s")


speedtest(shuffled_pipeline, max_batch_size, 4)

pipe = Pipeline(batch_size=2, num_threads=2, device_id=None)
with pipe:
    files, labels = fn.readers.file(files=["data/images/dog/0.png", "data/images/dog/1.jpg"], name="Reader")
    pipe.set_outputs(fn.decoders.image(files, output_type=types.GRAY), labels)
pipe.build()
images, labels = pipe.run()
found["gray"] = [images.at(0), images.at(1)]
found["gray labels"] = labels.as_array()
found["sizes"] = [pipe.epoch_size("Reader"), pipe.max_batch_size, pipe.reader_meta()["Reader"]["epoch_size_padded"]]
