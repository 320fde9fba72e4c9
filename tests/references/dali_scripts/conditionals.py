"""Conditions, arithmetic, indices, joining."""

import numpy as np
from nvidia.dali import fn, newaxis, pipeline_def, types
from nvidia.dali import math as dmath
from nvidia.dali.types import DALIDataType

found = {}
images_dir = "data/images"


@pipeline_def(enable_conditionals=True)
def random_rotate():
    jpegs, _ = fn.readers.file(device="cpu", file_root=images_dir)
    images = fn.decoders.image(jpegs, device="cpu")
    do_rotate = fn.random.coin_flip(probability=0.25, dtype=DALIDataType.BOOL)
    if do_rotate:
        result = fn.rotate(images, angle=fn.random.uniform(range=(10, 30)), fill_value=0)
    else:
        result = images
    return result, images, do_rotate


pipe = random_rotate(batch_size=10, num_threads=4, device_id=None, seed=1)
pipe.build()
result, images, do_rotate = pipe.run()
found["rotate"] = [bool(do_rotate.at(i)) != np.array_equal(result.at(i), images.at(i)) for i in range(len(images))]
found["flags"] = [do_rotate.dtype == types.BOOL, do_rotate.shape(), result.layout(), result.dtype == types.UINT8]


def rotate_augment(image):
    return fn.rotate(image, angle=90.0, keep_size=True, fill_value=0)


def brighten(image):
    return fn.brightness(image, brightness=1.5)


@pipeline_def(enable_conditionals=True, batch_size=10, num_threads=2, device_id=None)
def by_label():
    jpegs, labels = fn.readers.file(file_root=images_dir)
    images = fn.decoders.image(jpegs, device="cpu")
    label = labels[0]
    if label == 0:
        images = rotate_augment(images)
        weight = 1.0
    elif label == 1:
        images = brighten(images)
        weight = 2.5
    else:
        images = 255 - images
        images = fn.cast(images, dtype=types.UINT8)
        weight = 0.5
    is_wide = images.shape()[1] > images.shape()[0]
    if is_wide and not label == 2:
        side = fn.cast(images.shape()[0], dtype=types.INT32)
    else:
        side = fn.cast(images.shape()[1], dtype=types.INT32)
    return images, label, weight, side, is_wide


pipe = by_label()
pipe.build()
outputs = pipe.run()
for name, output in zip(("images", "label", "weight", "side", "is_wide"), outputs, strict=True):
    found[f"by label, {name}"] = [np.array(output.at(index)) for index in range(len(output))]


@pipeline_def(enable_conditionals=True, batch_size=10, num_threads=2, device_id=None, seed=8)
def one_of_three():
    jpegs, labels = fn.readers.file(file_root=images_dir)
    images = fn.resize(fn.decoders.image(jpegs), size=(16, 16))
    choice = fn.random.uniform(values=[0, 1, 2], dtype=types.INT32)
    if choice == 0:
        out = fn.flip(images)
    else:
        if choice == 1:
            out = fn.flip(images, vertical=1, horizontal=0)
        else:
            out = images
    return images, out, choice


pipe = one_of_three()
pipe.build()
images, out, choice = pipe.run()
kinds = [lambda one: one[:, ::-1], lambda one: one[::-1], lambda one: one]
found["one of three"] = [np.array_equal(kinds[choice.at(i)](images.at(i)), out.at(i)) for i in range(10)]
found["choice"] = [choice.as_array().dtype.name, choice.as_array().shape]


@pipeline_def(batch_size=4, num_threads=2, device_id=None)
def arithmetic():
    jpegs, labels = fn.readers.file(file_root=images_dir)
    images = fn.decoders.image(jpegs, device="cpu")
    red = images[:, :, 0]
    corner = images[2:10, -12:-2]
    luma = 0.299 * images[:, :, 0] + 0.587 * images[:, :, 1] + 0.114 * images[:, :, 2]
    half = images / 2
    whole = images // 2
    inverted = types.Constant(255, dtype=types.UINT8) - images
    mask = (images > 100) & (images < 200)
    shape = images.shape()
    area = shape[0] * shape[1]
    root = dmath.sqrt(fn.cast(area, dtype=types.FLOAT))
    planes = fn.stack(corner[:, :, 0], corner[:, :, 1], axis=0)
    joined = fn.cat(corner, fn.cast(255 - corner, dtype=types.UINT8), axis=1)
    batch_axis = red[newaxis, :, :]
    dtype_tour = -labels, labels * 2.5, labels % 2, labels == 1, dmath.clamp(labels, 0, 1), 1 + labels, labels**2
    scaled = (images - np.float32([123.0, 117.0, 104.0])) * types.Constant(np.float32([1 / 58.0, 1 / 57.0, 1 / 57.0]))
    return (red, corner, luma, half, whole, inverted, mask, area, root, planes, joined, batch_axis, scaled, *dtype_tour)


pipe = arithmetic()
pipe.build()
for number, output in enumerate(pipe.run()):
    found[f"arithmetic {number}"] = [output.at(index) for index in range(len(output))]
    found[f"arithmetic layout {number}"] = output.layout()


@pipeline_def(batch_size=4, num_threads=2, device_id=None)
def stacked():
    jpegs, labels = fn.readers.file(file_root=images_dir)
    images = fn.resize(fn.decoders.image(jpegs, device="cpu"), size=(12, 10))
    views = [fn.flip(images, horizontal=h, vertical=v) for h in (0, 1) for v in (0, 1)]
    multi = fn.stack(*views, axis=0, axis_name="N")
    grid = fn.cat(fn.cat(*views[:2], axis_name="W"), fn.cat(*views[2:], axis_name="W"), axis_name="H")
    hot = fn.one_hot(labels, num_classes=3)
    pooled = fn.reductions.mean(images, axis_names="HW"), fn.reductions.max(images), fn.reductions.sum(images, axes=2)
    return (multi, grid, hot, fn.squeeze(hot[newaxis], axes=0), fn.transpose(images, perm=[2, 0, 1]), *pooled)


pipe = stacked()
pipe.build()
for number, output in enumerate(pipe.run()):
    found[f"stacked {number}"] = output.as_array()
    found[f"stacked layout {number}"] = output.layout()

mistakes = {
    "a python if": (TypeError, lambda image, label: image if label else image + 1),
    "other shapes": (RuntimeError, lambda image, label: fn.stack(image, image[:2])),
    "other dtypes": (RuntimeError, lambda image, label: fn.cat(image, image + 1)),
    "an index too far": (RuntimeError, lambda image, label: image[1000]),
    "a required argument": (RuntimeError, lambda image, label: fn.rotate(image)),
}


@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def mistaken(wrong):
    jpegs, labels = fn.readers.file(file_root=images_dir)
    return wrong(fn.decoders.image(jpegs), labels)


for name, (error, wrong) in mistakes.items():
    try:
        pipe = mistaken(wrong)
        pipe.build()
        pipe.run()
    except error:
        found[name] = error.__name__
