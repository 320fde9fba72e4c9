"""The data of a network as DALI's examples for ImageNet give it, in two epochs."""

import math

import nvidia.dali.fn as fn
import nvidia.dali.types as types
import torch
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIClassificationIterator, DALIGenericIterator

found = {}


@pipeline_def
def create_dali_pipeline(data_dir, crop, size, shard_id, num_shards, dali_cpu=False, is_training=True):
    images, labels = fn.readers.file(
        file_root=data_dir,
        shard_id=shard_id,
        num_shards=num_shards,
        random_shuffle=is_training,
        pad_last_batch=True,
        name="Reader",
    )
    dali_device = "cpu" if dali_cpu else "gpu"
    decoder_device = "cpu" if dali_cpu else "mixed"
    # ask HW NVJPEG to allocate memory ahead for the biggest image in the data set to avoid reallocations in runtime
    preallocate_width_hint = 5980 if decoder_device == "mixed" else 0
    preallocate_height_hint = 6430 if decoder_device == "mixed" else 0
    if is_training:
        images = fn.decoders.image_random_crop(
            images,
            device=decoder_device,
            output_type=types.RGB,
            preallocate_width_hint=preallocate_width_hint,
            preallocate_height_hint=preallocate_height_hint,
            random_aspect_ratio=[0.8, 1.25],
            random_area=[0.1, 1.0],
            num_attempts=100,
        )
        images = fn.resize(
            images, device=dali_device, resize_x=crop, resize_y=crop, interp_type=types.INTERP_TRIANGULAR
        )
        mirror = fn.random.coin_flip(probability=0.5)
    else:
        images = fn.decoders.image(images, device=decoder_device, output_type=types.RGB)
        images = fn.resize(
            images, device=dali_device, size=size, mode="not_smaller", interp_type=types.INTERP_TRIANGULAR
        )
        mirror = False

    images = fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT,
        output_layout="CHW",
        crop=(crop, crop),
        mean=[0.485 * 255, 0.456 * 255, 0.406 * 255],
        std=[0.229 * 255, 0.224 * 255, 0.225 * 255],
        mirror=mirror,
    )
    return images, labels


def loader(is_training, **options):
    pipe = create_dali_pipeline(
        batch_size=4,
        num_threads=2,
        device_id=None,
        seed=12,
        data_dir="data/images",
        crop=24,
        size=28,
        dali_cpu=True,
        shard_id=0,
        num_shards=1,
        is_training=is_training,
    )
    pipe.build()
    return DALIClassificationIterator(
        pipe, reader_name="Reader", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=True, **options
    )


train_loader = loader(True)
for epoch in range(2):
    seen = []
    for i, data in enumerate(train_loader):
        images = data[0]["data"]
        labels = data[0]["label"].squeeze(-1).long()
        found[f"train {epoch} {i}"] = [str(images.dtype), tuple(images.shape), str(labels.dtype), tuple(labels.shape)]
        found[f"raw {epoch} {i}"] = [str(data[0]["label"].dtype), str(images.device), images.is_contiguous()]
        found[f"range {epoch} {i}"] = bool(((images > -2.2) & (images < 2.7)).all())
        seen += labels.tolist()
    found[f"seen {epoch}"] = sorted(seen)
found["batches"] = [len(train_loader), math.ceil(train_loader._size / 4)]

val_loader = loader(False)
val_loader_len = int(len(val_loader))
correct = torch.zeros(3)
for epoch in range(2):
    for i, data in enumerate(val_loader):
        found[f"val {epoch} {i}"] = [data[0]["data"].numpy(), data[0]["label"].numpy()]
        correct.index_add_(0, data[0]["label"].squeeze(-1).long(), torch.ones(len(data[0]["label"])))
found["correct"] = correct.numpy()

for policy in (LastBatchPolicy.FILL, LastBatchPolicy.DROP):
    pipe = create_dali_pipeline("data/images", 24, 28, 0, 1, True, False, batch_size=4, num_threads=2, device_id=None)
    generic = DALIGenericIterator([pipe], ["images", "labels"], reader_name="Reader", last_batch_policy=policy)
    epochs = []
    for _ in range(2):
        epochs.append([sorted(data[0]) + [data[0]["labels"].squeeze().tolist()] for data in generic])
        generic.reset()
    found[str(policy)] = epochs
