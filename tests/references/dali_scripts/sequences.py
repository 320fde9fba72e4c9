"""Frames of a film, and warps of sequences and images."""

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.types as types
from nvidia.dali import pipeline_def

found = {}
batch_size = 2
sequence_length = 4
video_files = ["data/video/clip.webm"]


@pipeline_def(batch_size=batch_size, num_threads=2, device_id=None)
def video_pipe(filenames):
    videos = fn.experimental.readers.video(
        device="cpu",
        filenames=filenames,
        sequence_length=sequence_length,
        step=3,
        stride=2,
        random_shuffle=False,
        name="Reader",
    )
    small = fn.crop(videos, crop=(8, 10), crop_pos_x=0.0, crop_pos_y=1.0)
    mirrored = fn.flip(videos)
    chw = fn.crop_mirror_normalize(videos, crop=(8, 10), mean=[128.0], std=[64.0], output_layout="FCHW")
    return videos, small, mirrored, chw


pipe = video_pipe(video_files)
pipe.build()
for step in range(2):
    for name, output in zip(("videos", "small", "mirrored", "chw"), pipe.run(), strict=True):
        found[f"{name} {step}"] = output.as_array()
        found[f"{name} layout"] = output.layout()
found["size"] = pipe.epoch_size("Reader")


@pipeline_def(batch_size=2, num_threads=2, device_id=None)
def per_frame():
    frames = fn.external_source(source=[[np.load("data/frames.npy")] * 2], cycle=True, layout="FHWC")
    angle = fn.external_source(source=lambda info: np.float32(30 * info.idx_in_batch), batch=False)
    rotated = fn.rotate(frames, angle=angle, keep_size=True, fill_value=0)
    same = fn.rotate(frames, angle=20, keep_size=True, interp_type=types.INTERP_NN, fill_value=7)
    blurred = fn.gaussian_blur(frames, sigma=1.5)
    resized = fn.resize(frames, size=(10, 9))
    brighter = fn.brightness(frames, brightness=1.25)
    return rotated, same, blurred, resized, brighter


pipe = per_frame()
pipe.build()
for name, output in zip(("rotated", "same", "blurred", "resized", "brighter"), pipe.run(), strict=True):
    found[f"per frame, {name}"] = output.as_array()
    found[f"per frame, {name} layout"] = output.layout()


@pipeline_def(batch_size=1, num_threads=2, device_id=None, seed=4)
def warps():
    encoded, _ = fn.readers.file(file_root="data/images")
    image = fn.resize(fn.decoders.image(encoded, device="cpu"), size=(24, 32))
    center = (16.0, 12.0)
    rotation = fn.transforms.rotation(angle=30.0, center=center)
    scaled = fn.transforms.scale(rotation, scale=(1.2, 0.8), center=center)
    sheared = fn.transforms.shear(angles=(5.0, 10.0), center=center)
    moved = fn.transforms.translation(offset=(3.0, -2.0))
    combined = fn.transforms.combine(scaled, sheared, moved)
    warped = fn.warp_affine(image, matrix=combined, size=(24, 32), fill_value=42, inverse_map=False)
    by_input = fn.warp_affine(image, combined, fill_value=0, interp_type=types.INTERP_LINEAR, inverse_map=False)
    points = fn.coord_transform(types.Constant(np.float32([[0, 0], [31, 23], [5, 7]])), MT=combined)
    literal = fn.warp_affine(image, matrix=(0.5, 0.1, 2.0, 0.0, 0.75, 1.0))
    plain = fn.rotate(image, angle=90.0)
    grown = fn.rotate(image, angle=30.0, fill_value=0)
    angle = fn.random.uniform(range=(-90.0, 90.0))
    random_mt = fn.transforms.rotation(angle=angle)
    return combined, warped, by_input, points, literal, plain, grown, random_mt


pipe = warps()
pipe.build()
names = ("combined", "warped", "by input", "points", "literal", "plain", "grown")
*outputs, random_mt = pipe.run()
for name, output in zip(names, outputs, strict=True):
    found[f"warps, {name}"] = output.as_array()
    if name != "combined":
        found[f"warps, {name} layout"] = output.layout()
drawn = random_mt.as_array()
found["random_mt"] = [drawn.shape, drawn.dtype.name, bool(np.allclose(np.linalg.det(drawn[0, :, :2]), 1, atol=1e-5))]
