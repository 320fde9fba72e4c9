"""Annotated images as for SSD."""

import nvidia.dali.fn as fn
import nvidia.dali.types as types
from nvidia.dali import pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator

found = {}
file_root = "data/coco/images"
annotations_file = "data/coco/instances.json"


@pipeline_def(num_threads=2, device_id=None)
def coco_pipeline():
    jpegs, bboxes, labels, polygons, vertices = fn.readers.coco(
        file_root=file_root,
        annotations_file=annotations_file,
        polygon_masks=True,  # load segmentation mask data as polygons
        ratio=True,  # normalize bounding boxes and polygons
        ltrb=True,  # bounding boxes in left, top, right, bottom format
        shard_id=0,
        num_shards=1,
    )
    images = fn.decoders.image(jpegs, device="cpu")
    return images, bboxes, labels, polygons, vertices


pipe = coco_pipeline(batch_size=3)
pipe.build()
outputs = pipe.run()
for name, output in zip(("images", "bboxes", "labels", "polygons", "vertices"), outputs, strict=True):
    found[name] = [output.at(index) for index in range(len(output))]
    found[f"{name} layout"] = output.layout()


@pipeline_def(batch_size=3, num_threads=2, device_id=None, seed=5)
def augmented():
    inputs, bboxes, labels = fn.readers.coco(
        file_root=file_root,
        annotations_file=annotations_file,
        skip_empty=True,
        shard_id=0,
        num_shards=1,
        ratio=True,
        ltrb=True,
        random_shuffle=False,
        shuffle_after_epoch=False,
        name="Reader",
    )
    images = fn.decoders.image(inputs, device="cpu", output_type=types.RGB)
    flip = types.Constant(1)
    flipped = fn.flip(images, horizontal=flip)
    flipped_boxes = fn.bb_flip(bboxes, horizontal=flip, ltrb=True)
    ratio = types.Constant(2.0)
    paste_x, paste_y = types.Constant(0.25), types.Constant(0.5)
    pasted = fn.paste(images, ratio=ratio, paste_x=paste_x, paste_y=paste_y, fill_value=(104, 117, 123))
    pasted_boxes = fn.bbox_paste(bboxes, ratio=ratio, paste_x=paste_x, paste_y=paste_y, ltrb=True)
    return flipped, flipped_boxes, pasted, pasted_boxes, labels


pipe = augmented()
pipe.build()
for name, output in zip(("flipped", "flipped boxes", "pasted", "pasted boxes", "labels"), pipe.run(), strict=True):
    found[f"augmented, {name}"] = [output.at(index) for index in range(len(output))]


@pipeline_def(batch_size=2, num_threads=2, device_id=None, seed=42)
def ssd():
    inputs, bboxes, labels = fn.readers.coco(
        file_root=file_root,
        annotations_file=annotations_file,
        skip_empty=True,
        ratio=True,
        ltrb=True,
        random_shuffle=True,
        name="Reader",
    )
    images = fn.decoders.image(inputs, device="cpu", output_type=types.RGB)
    crop_begin, crop_size, bboxes, labels = fn.random_bbox_crop(
        bboxes,
        labels,
        device="cpu",
        aspect_ratio=[0.5, 2.0],
        thresholds=[0, 0.1, 0.3, 0.5, 0.7, 0.9],
        scaling=[0.3, 1.0],
        bbox_layout="xyXY",
        allow_no_crop=True,
        num_attempts=50,
    )
    images = fn.slice(images, crop_begin, crop_size, device="cpu", out_of_bounds_policy="trim_to_shape")
    flip_coin = fn.random.coin_flip(probability=0.5)
    images = fn.resize(
        images, device="cpu", resize_x=30, resize_y=30, min_filter=types.DALIInterpType.INTERP_TRIANGULAR
    )
    saturation = fn.random.uniform(range=[0.5, 1.5])
    contrast = fn.random.uniform(range=[0.5, 1.5])
    brightness = fn.random.uniform(range=[0.875, 1.125])
    hue = fn.random.uniform(range=[-0.5, 0.5])
    images = fn.hsv(images, device="cpu", dtype=types.FLOAT, hue=hue, saturation=saturation)
    images = fn.brightness_contrast(
        images,
        device="cpu",
        contrast_center=128,  # input is in float, but in 0..255 range
        dtype=types.UINT8,
        brightness=brightness,
        contrast=contrast,
    )
    bboxes = fn.bb_flip(bboxes, ltrb=True, horizontal=flip_coin)
    images = fn.crop_mirror_normalize(
        images,
        device="cpu",
        crop=(30, 30),
        mean=[0.485 * 255, 0.456 * 255, 0.406 * 255],
        std=[0.229 * 255, 0.224 * 255, 0.225 * 255],
        mirror=flip_coin,
        dtype=types.FLOAT,
        output_layout="CHW",
        pad_output=False,
    )
    bboxes = fn.coord_transform(bboxes, M=[30, 0, 0, 0, 0, 30, 0, 0, 0, 0, 30, 0, 0, 0, 0, 30])
    return images, bboxes, labels


pipe = ssd()
pipe.build()
images, boxes, labels = pipe.run()
found["ssd"] = [images.as_array().shape, images.as_array().dtype.name, images.layout()]
for index in range(2):
    one, its = boxes.at(index), labels.at(index)
    found[f"ssd {index}"] = [
        *(one.dtype.name, one.ndim, one.shape[1], its.dtype.name, its.ndim, len(one) == len(its), len(one) > 0),
        bool((one[:, :2] < one[:, 2:]).all() and one.min() >= 0 and one.max() <= 30.01),
    ]


@pipeline_def(batch_size=3, num_threads=1, device_id=None)
def ragged_boxes():
    _, bboxes, labels = fn.readers.coco(file_root=file_root, annotations_file=annotations_file, name="Reader")
    return fn.pad(bboxes, fill_value=-1), fn.pad(labels, fill_value=-1)


iterator = DALIGenericIterator(ragged_boxes(), ["bboxes", "labels"], reader_name="Reader")
for data in iterator:
    found["padded"] = [data[0]["bboxes"].numpy(), data[0]["labels"].numpy()]
