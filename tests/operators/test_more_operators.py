"""Operators whose answers DALI cannot give here, as they draw or decode, and what the newer ones say is wrong."""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from dali_file_cases import CLIP
from operator_runs import on_device, run
from PIL import Image as Pillow

from beam_pipes.errors import BeamPipesError
from beam_pipes.graph import Pipeline, types
from beam_pipes.transforms import fn
from beam_pipes.transforms.operators.readers.frames import VideoFile, to_rgb

IMAGE = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
GREY = np.full((200, 300, 3), 100, np.uint8)
ROWS = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
BOXES = np.array([[0.1, 0.1, 0.4, 0.5], [0.5, 0.5, 0.9, 0.8]], np.float32)


def one(call: Any, *samples: Any, layout: str = "") -> Any:
    return run(call, *[[sample] for sample in samples], layout=layout)[0]


def encoded(kind: str, *, orientation: int = 1) -> Any:
    file = io.BytesIO()
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    Pillow.fromarray(IMAGE).save(file, kind, exif=exif)
    return np.frombuffer(file.getvalue(), np.uint8)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_fused_decoders_are_the_decoder_and_what_follows(kind: str) -> None:
    file = encoded(kind)
    whole = one(lambda x: fn.decoders.image(x), file)

    cropped = one(lambda x: fn.decoders.image_crop(x, crop=(20, 30), crop_pos_x=0.2), file)
    assert np.array_equal(cropped, one(lambda x: fn.crop(x, crop=(20, 30), crop_pos_x=0.2), whole, layout="HWC"))
    sliced = one(lambda x: fn.decoders.image_slice(x, start=(10, 5), shape=(30, 20)), file)
    assert np.array_equal(sliced, whole[5:25, 10:40])
    anchored = one(lambda x, y, z: fn.decoders.image_slice(x, y, z), file, np.float32([0.5, 0]), np.float32([0.5, 0.5]))
    assert np.array_equal(anchored, whole[:30, 45:])
    drawn = run(lambda x: fn.decoders.image_random_crop(x, random_area=(0.2, 0.4)), [file] * 8)
    assert all(0.15 < one.shape[0] * one.shape[1] / 5400 < 0.45 for one in drawn) and len({x.shape for x in drawn}) > 4


@pytest.mark.parametrize(("orientation", "shape"), [(1, [60, 90, 3]), (6, [90, 60, 3])])
def test_the_shape_of_an_image_is_read_from_its_head(orientation: int, shape: list[int]) -> None:
    file = encoded("JPEG", orientation=orientation)[:1200]
    assert one(lambda x: fn.peek_image_shape(x), file).tolist() == shape
    assert one(lambda x: fn.peek_image_shape(x, image_type=types.GRAY, dtype=types.INT32), file).tolist() == shape[
        :2
    ] + [1]
    assert one(lambda x: fn.peek_image_shape(x, adjust_orientation=False), file).tolist() == [60, 90, 3]


def test_jpeg_distorts_less_the_higher_its_quality() -> None:
    smooth = one(lambda x: fn.gaussian_blur(x, sigma=3), IMAGE)
    apart = [
        np.abs(one(lambda x, q=q: fn.jpeg_compression_distortion(x, quality=q), smooth).astype(int) - smooth).mean()
        for q in (5, 50, 95)
    ]
    assert apart[0] > 2 * apart[1] > 3 * apart[2] > 0 and apart[2] < 1.5


def test_noise_has_the_moments_that_were_asked_for() -> None:
    wide = GREY.astype(np.float32)
    noisy = one(lambda x: fn.noise.gaussian(x, mean=5, stddev=3), wide) - wide
    assert abs(noisy.mean() - 5) < 0.05 and abs(noisy.std() - 3) < 0.05
    shot = one(lambda x: fn.noise.shot(x, factor=4.0), wide)
    assert abs(shot.mean() - 100) < 0.3 and abs(shot.var() - 400) < 10 and not (shot % 4).any()
    assert np.array_equal(one(lambda x: fn.noise.shot(x, factor=0.0), GREY), GREY)
    salted = one(lambda x: fn.noise.salt_and_pepper(x, prob=0.1, salt_vs_pepper=0.25), GREY, layout="HWC")
    assert set(np.unique(salted)) == {0, 100, 255} and (salted == salted[..., :1]).all()
    assert abs((salted == 255).mean() - 0.025) < 0.004 and abs((salted == 0).mean() - 0.075) < 0.006


def test_random_windows_keep_boxes_as_they_are_asked_to() -> None:
    def call(boxes: Any, labels: Any) -> Any:
        return fn.random_bbox_crop(
            boxes,
            labels,
            thresholds=[0.3],
            threshold_type="overlap",
            all_boxes_above_threshold=False,
            **{"aspect_ratio": [0.5, 2.0], "scaling": [0.3, 1.0], "num_attempts": 50, "allow_no_crop": False},
        )

    anchors, shapes, boxes, labels = run(call, [BOXES] * 40, [np.array([7, 8], np.int32)] * 40)

    for anchor, shape, kept, names in zip(anchors, shapes, boxes, labels, strict=True):
        assert (anchor >= 0).all() and (anchor + shape <= 1 + 1e-6).all() and 0.499 <= shape[0] / shape[1] <= 2.001
        assert len(kept) == len(names) > 0 and (kept >= 0).all() and (kept <= 1).all()
        for name, box in zip(names, kept, strict=True):
            inside = np.clip((BOXES[name - 7].reshape(2, 2) - anchor) / shape, 0, 1)
            np.testing.assert_allclose(box.reshape(2, 2), inside, atol=1e-5)
    assert {tuple(one) for one in labels} == {(7,), (8,), (7, 8)}


def test_random_windows_of_a_given_size_are_in_pixels() -> None:
    anchors, shapes, boxes = run(
        lambda x: fn.random_bbox_crop(x, crop_shape=[50, 40], input_shape=[100, 80], bbox_prune_threshold=0.1),
        [BOXES] * 9,
    )
    assert all(
        shape.tolist() == [50, 40] and (anchor % 1 == 0).all() for anchor, shape in zip(anchors, shapes, strict=True)
    )
    assert len({tuple(anchor) for anchor in anchors}) > 4 and all(len(one) for one in boxes)


def test_a_batch_is_permuted_by_its_records() -> None:
    pipe = Pipeline(batch_size=6, seed=3)
    with pipe:
        data = fn.external_source(lambda: np.arange(6))
        order = fn.batch_permutation()
        fixed = fn.batch_permutation(no_fixed_points=True)
        many = fn.batch_permutation(allow_repetitions=True, no_fixed_points=True)
        pipe.set_outputs(fn.permute_batch(data, indices=order), order, fixed, many)
    permuted, order, fixed, many = (one.as_array().tolist() for one in pipe.run())
    assert permuted == order and sorted(order) == sorted(fixed) == list(range(6))
    assert all(a != b for a, b in enumerate(fixed)) and all(a != b for a, b in enumerate(many))


def test_properties_of_samples_come_as_bytes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS)
    pipe = Pipeline(batch_size=1)
    with pipe:
        read = fn.readers.numpy(file_root=str(tmp_path))
        pipe.set_outputs(fn.get_property(read, key="source_info"), fn.get_property(read, key="layout"))
    source, layout = pipe.run()
    assert source[0].tobytes() == b"a.npy@0" and layout[0].tobytes() == b""


@pytest.mark.parametrize("library", ["jax", "torch"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: fn.transpose(x, perm=[1, 0]),
        lambda x: fn.expand_dims(x, axes=[1]),
        lambda x: fn.squeeze(fn.expand_dims(x, axes=[0]), axes=[0]),
        lambda x: fn.element_extract(x, element_map=1),
        lambda x: fn.copy(x),
        lambda x: fn.cast_like(x, np.uint8(3)),
        lambda x: fn.math.sqrt(x),
        lambda x: fn.math.cbrt(x),
        lambda x: fn.math.clamp(x, 2, 7.5),
        lambda x: fn.math.pow(x, 2),
        lambda x: fn.math.atan2(x, 2.0),
        lambda x: fn.brightness(x, brightness=0.3),
        lambda x: fn.contrast(x, contrast=0.3),
    ],
)
def test_operators_without_libraries_run_on_devices(library: str, call: Any) -> None:
    expected = np.stack(run(call, list(ROWS)))
    found = on_device(library, call, ROWS)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_hue_of_a_device_is_that_of_the_host() -> None:
    for call in (lambda x: fn.hue(x, hue=30), lambda x: fn.hsv(x, saturation=0.3, value=0.5)):
        expected = np.stack(run(call, [IMAGE], layout="HWC"))
        assert np.abs(on_device("jax", call, IMAGE[None], layout="HWC").astype(int) - expected).max() <= 1


POINTS = np.ones((3, 2), np.float32)


@pytest.mark.parametrize(
    ("call", "sample", "message"),
    [
        (lambda x: fn.transpose(x, perm=[0, 0]), POINTS, "perm should hold every axis of float32.* once, got .0, 0."),
        (lambda x: fn.squeeze(x), POINTS, "give one of axes and axis_names"),
        (lambda x: fn.squeeze(x, axes=0), POINTS, "cannot select an axis to squeeze out"),
        (
            lambda x: fn.expand_dims(x, axes=[0], new_axis_names="AB"),
            POINTS,
            "new_axis_names should name 1 axes, .*'AB'",
        ),
        (
            lambda x: fn.element_extract(x[0], element_map=[5]),
            POINTS,
            "index 5 is out of bounds",
        ),
        (lambda x: fn.get_property(x, key="name"), POINTS, "key should be 'source_info' or 'layout', got 'name'"),
        (lambda x: fn.lookup_table(x, keys=[1], values=[]), POINTS, "keys should be integers .* as many as values"),
        (lambda x: fn.lookup_table(x), POINTS, "expected integers, got float32"),
        (lambda x: fn.permute_batch(x, indices=[1]), POINTS, "indices should be 1 places in the batch, got .1."),
        (lambda x: fn.reductions.sum(x, axes=0, axis_names="A"), POINTS, "give one of axes and axis_names"),
        (lambda x: fn.reductions.variance(x, np.ones(5)), POINTS, "mean should be one number or of shape"),
        (lambda x: fn.math.max(x, np.ones(5)), POINTS, "could not be broadcast"),
        (lambda x: fn.coord_transform(x, M=2, MT=[1, 2]), POINTS, "give MT, or M and T"),
        (lambda x: fn.coord_transform(x, M=[1, 2, 3]), POINTS, "M should have rows of 2 numbers, got 3 in all"),
        (lambda x: fn.coord_transform(x, MT=[1, 2]), POINTS, "MT should have rows of 3 numbers, got 2 in all"),
        (lambda x: fn.coord_transform(x[0][0]), POINTS, r"expected points, \(…, coordinates\)"),
        (lambda x: fn.transforms.rotation(x, angle=3), POINTS, r"maps should be matrices \(d, d \+ 1\) of one d"),
        (
            lambda x: fn.transforms.rotation(angle=3, axis=[0, 0, 0]),
            POINTS,
            "axis should be three numbers, not all zero",
        ),
        (lambda x: fn.transforms.shear(), POINTS, "give one of shear and angles"),
        (lambda x: fn.transforms.shear(shear=[1, 2, 3]), POINTS, "shear should hold two numbers, or six"),
        (lambda x: fn.transforms.scale(scale=[1, 2], center=[1]), POINTS, "center should hold 2 coordinates"),
        (
            lambda x: fn.transforms.crop(from_start=[1, 2], from_end=[1, 2, 3]),
            POINTS,
            "starts and ends should hold as many",
        ),
        (lambda x: fn.bb_flip(x), np.ones((2, 3)), "cannot reshape array of size 6"),
        (lambda x: fn.bbox_paste(x, ratio=0.5), BOXES, "ratio should be at least 1, got 0.5"),
        (lambda x: fn.random_bbox_crop(x, threshold_type="area"), BOXES, "threshold_type should be 'iou' or 'overlap'"),
        (lambda x: fn.random_bbox_crop(x, bbox_layout="xyzXYZ"), BOXES, "bbox_layout should be xyXY or xyWH"),
        (lambda x: fn.random_bbox_crop(x, scaling=[1, 0.5]), BOXES, "scaling should be two numbers above 0"),
        (lambda x: fn.random_bbox_crop(x, crop_shape=[1, 2]), BOXES, "crop_shape and input_shape go together"),
        (
            lambda x: fn.random_bbox_crop(x, crop_shape=[1, 2], input_shape=[9, 9], thresholds=1, total_num_attempts=5),
            BOXES,
            "no window of crop_shape overlaps the boxes as thresholds ask",
        ),
        (lambda x: fn.gaussian_blur(x), IMAGE, "give a sigma above 0, or an odd window_size, got 0 and 0"),
        (lambda x: fn.jpeg_compression_distortion(x, quality=0), IMAGE, r"quality should be an int from 1 to 100"),
        (lambda x: fn.erase(x, axis_names="F"), IMAGE, "axis_names='F' should be axes of samples with a layout"),
        (lambda x: fn.grid_mask(x, tile=0), IMAGE, "tile should be at least 1, got 0"),
        (lambda x: fn.paste(x, ratio=0.5, fill_value=0), IMAGE, "ratio should be at least 1, got 0.5"),
        (lambda x: fn.multi_paste(x, shapes=[1, 2], shapes_rel=[1, 2]), IMAGE, "give one of shapes and shapes_rel"),
        (lambda x: fn.multi_paste(x, x, in_ids=[0]), IMAGE, "in_ids takes samples of one input, got 2 inputs"),
        (lambda x: fn.multi_paste(x, fn.cast(x, dtype="float32")), IMAGE, r"expected images \(HWC\) of one dtype, got"),
        (
            lambda x: fn.multi_paste(x, in_ids=[0, 1]),
            IMAGE,
            r"sample 0 of the batch: in_ids should be places in a batch",
        ),
        (
            lambda x: fn.multi_paste(x, x[:9]),
            IMAGE,
            r"images should have one shape where output_size is not given, got",
        ),
        (
            lambda x: fn.multi_paste(x, out_anchors=[1, 2, 3, 4]),
            IMAGE,
            "out_anchors should be a row of two numbers for each of 1 regions",
        ),
        (
            lambda x: fn.multi_paste(x, out_anchors=[1, 2]),
            IMAGE,
            r"region 0, \[60, 90\] from \[1, 2\] on, should lie within its canvas of \[60, 90\]",
        ),
        (
            lambda x: fn.multi_paste(x, shapes=[61, 2]),
            IMAGE,
            r"region 0, \[61, 2\] from \[0, 0\] on, should lie within its image of \[60, 90\]",
        ),
        (
            lambda x: fn.color_space_conversion(x, image_type=types.ANY_DATA, output_type=types.RGB),
            IMAGE,
            "image_type and output_type should be RGB, BGR, GRAY or YCbCr",
        ),
        (lambda x: fn.hue(x[:, :, :2], hue=3), IMAGE, r"3 channels \(RGB\)"),
        (lambda x: fn.mfcc(x, dct_type=5), POINTS, "dct_type should be 1 to 4, without normalize for 1, got 5"),
        (
            lambda x: fn.preemphasis_filter(x, border="wrap"),
            POINTS[:, 0],
            "border should be one of clamp, reflect, zero",
        ),
        (
            lambda x: fn.audio_resample(x, scale=2, out_length=3),
            POINTS[:, 0],
            "give scale, out_length, or in_rate and out_rate",
        ),
        (lambda x: fn.audio_resample(x, in_rate=2), POINTS[:, 0], "give scale, out_length, or in_rate and out_rate"),
        (lambda x: fn.io.file.read(x), POINTS, "expected names as bytes, uint8.·., got float32"),
    ],
)
def test_errors_say_what_is_wrong(call: Any, sample: Any, message: str) -> None:
    with pytest.raises(BeamPipesError, match=message):
        one(call, sample)


def _archive(path: Path, names: list[str]) -> str:
    with tarfile.open(path, "w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    return str(path)


def test_frames_behind_key_frames_are_those_of_the_whole_video(tmp_path: Path) -> None:
    path, shades = str(tmp_path / "a.mp4"), []
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"g": "5", "bf": "2"})
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        for number in range(20):
            frame = av.VideoFrame.from_ndarray(np.full((24, 32, 3), 10 * number + 20, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())

    with av.open(path) as container:
        shades = [to_rgb(frame) for frame in container.decode(video=0)]
    pipe = Pipeline(batch_size=17)
    with pipe:
        pipe.set_outputs(fn.readers.video(filenames=path, sequence_length=2, stride=2, step=1))
    (found,) = pipe.run()

    assert len(shades) == 20 and abs(int(shades[7][0, 0, 0]) - 90) < 4
    assert [np.array_equal(one, [shades[at], shades[at + 2]]) for at, one in enumerate(found)] == [True] * 17


def test_a_video_whose_end_is_missing_names_the_first_lost_frame(tmp_path: Path) -> None:
    video = dataclasses.replace(VideoFile.of(str(CLIP)), times=[*VideoFile.of(str(CLIP)).times, 10_000])

    assert video.frames({0}).keys() == {0}
    with pytest.raises(ValueError, match=r"clip.webm: 1 frames cannot be decoded, the first of them number 20"):
        video.frames({19, 20})


def test_readers_say_what_is_wrong(tmp_path: Path) -> None:
    tar = _archive(tmp_path / "a.tar", ["0.jpg", "0.cls", "1.jpg"])
    text = tmp_path / "a.txt"
    text.write_text("no archive")
    damaged = tmp_path / "damaged.tar"
    whole = Path(tar).read_bytes()
    damaged.write_bytes(whole.replace(b"1.jpg", b"2.jpg"))  # what the checksum of a later header notices
    (tmp_path / "cut.tar").write_bytes(whole[: whole.index(b"1.jpg")])  # between two members
    (tmp_path / "speech.json").write_text(json.dumps({"audio_filepath": "x.wav"}))

    def read(make: Any) -> Any:
        pipe = Pipeline(batch_size=1)
        with pipe:
            pipe.set_outputs(*make())
        return pipe.run()

    for make, message in (
        (lambda: fn.readers.webdataset(paths=str(text), ext=["jpg", "cls"]), "'.*a.txt' should be a tar archive: "),
        (
            lambda: fn.readers.webdataset(paths=str(damaged), ext=["jpg", "cls"], missing_component_behavior="empty"),
            "'.*damaged.tar' should be a tar archive: bad checksum",
        ),
        (
            lambda: fn.readers.webdataset(paths=str(tmp_path / "cut.tar"), ext=["jpg", "cls"]),
            "'.*cut.tar' should be a tar archive: it breaks off after a member, without the zeros that end an archive",
        ),
        (
            lambda: fn.readers.webdataset(paths=tar, ext=["jpg", "cls"], missing_component_behavior="error"),
            "sample '1' of '.*a.tar' has no file 'cls'",
        ),
        (
            lambda: fn.readers.webdataset(paths=tar, ext=["a", "b"], missing_component_behavior="x"),
            "should be one of empty, s",
        ),
        (
            lambda: fn.readers.webdataset(paths=tar, ext=["a", "b"], dtypes=["uint8"]),
            "dtypes should hold one for each of 2",
        ),
        (
            lambda: fn.readers.coco(file_root=".", annotations_file=str(text)),
            "'.*a.txt' should be JSON as COCO's, with im",
        ),
        (
            lambda: fn.readers.nemo_asr(manifest_filepaths=str(tmp_path / "speech.json")),
            "each line of '.*speech.json' should be JSON with audio_filepath and duration: KeyError: 'duration'",
        ),
        (
            lambda: fn.readers.coco(file_root="", annotations_file="", polygon_masks=True, pixelwise_masks=True),
            "give one of polygon_masks and pixelwise_masks",
        ),
        *(
            (lambda options=options: [fn.readers.sequence(**options)], words)
            for options, words in (
                ({"file_root": str(tmp_path), "sequence_length": 0}, "sequence_length should be an int of at least 1"),
                (
                    {"file_root": str(tmp_path / "no"), "sequence_length": 2},
                    "should be a directory of directories, got",
                ),
                (
                    {"file_root": str(tmp_path), "sequence_length": 2},
                    "no directory in '.*' holds 2 frames that are 1 ap",
                ),
            )
        ),
        *(
            (lambda options=options: [fn.readers.video(**{"sequence_length": 2, **options})], words)
            for options, words in (
                ({}, "give one of filenames and file_root"),
                (
                    {"filenames": str(text), "labels": [1, 2]},
                    "labels needs filenames, and as many of them: 2 were given",
                ),
                ({"filenames": str(text), "stride": 0}, "stride should be an int of at least 1"),
                (
                    {"filenames": str(text), "pad_mode": "wrap"},
                    "pad_mode should be one of none, constant, .*, got 'wrap'",
                ),
                (
                    {"filenames": str(text), "enable_frame_num": "all"},
                    "enable_frame_num should be one of none, scalar, sequence, True, False, got 'all'",
                ),
                ({"filenames": str(text)}, "files should be videos: InvalidDataError: "),
                ({"filenames": str(CLIP), "sequence_length": 21}, "no file holds 21 frames that are 1 apart"),
            )
        ),
    ):
        with pytest.raises(BeamPipesError, match=message):
            read(make)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            {"offset": 0.5, "duration": 0.6},
            r"speech\.json:2: 0\.6 s from 0\.5 s on are not within '.*a\.wav', which lasts 1 s",
        ),
        ({"duration": "1.0"}, r"speech\.json:2: duration and offset should be seconds, got \('1\.0', 0\)"),
        ({}, r"each line of '.*speech\.json' should be JSON with audio_filepath and duration: KeyError: 'duration'"),
    ],
)
def test_a_line_of_speech_that_does_not_fit_its_file_is_named(tmp_path: Path, line: Any, message: str) -> None:
    soundfile.write(tmp_path / "a.wav", np.full(8000, 0.5), 8000)
    rows = [{"duration": 1.0, "offset": None, "text": None}, line]
    text = "".join(json.dumps({"audio_filepath": str(tmp_path / "a.wav"), **row}) + "\n" for row in rows)
    (tmp_path / "speech.json").write_text(text)
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(*fn.readers.nemo_asr(manifest_filepaths=str(tmp_path / "speech.json")))

    with pytest.raises(BeamPipesError, match=message):
        pipe.run()
        pipe.run()


@pytest.mark.parametrize("offset", [0, 0.25], ids=["from the beginning", "a piece"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.wav", r"the sound in .*a\.wav should have 16,000 bytes of samples, as its header says, but the file ends"),
        ("a.ogg", r"the OGG file .*a\.ogg was cut short: it has no page that ends its stream"),
        ("a.flac", r"cannot decode sound from .*a\.flac"),
        ("a.mp3", r"the sound in .*a\.mp3 should have \d+ frames, as its header says, but the file ends after \d+"),
    ],
)
def test_speech_in_a_file_that_was_cut_is_refused(tmp_path: Path, name: str, message: str, offset: float) -> None:
    noise = 0.1 * np.random.default_rng(0).normal(size=8000)
    soundfile.write(tmp_path / name, noise, 8000)
    row = {"audio_filepath": str(tmp_path / name), "offset": offset, "duration": 0.25}
    (tmp_path / "speech.json").write_text(json.dumps(row))
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(*fn.readers.nemo_asr(manifest_filepaths=str(tmp_path / "speech.json"), read_text=False))
    whole, _ = soundfile.read(tmp_path / name, dtype="float32")
    start = int(offset * 8000)
    np.testing.assert_allclose(np.asarray(pipe.run()[0][0]), whole[start : start + 2000], atol=1e-6)

    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) * 3 // 4])
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(*fn.readers.nemo_asr(manifest_filepaths=str(tmp_path / "speech.json"), read_text=False))

    with pytest.raises(BeamPipesError, match=message):
        pipe.run()
