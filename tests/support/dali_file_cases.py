"""Cases of sound operators, and of readers with their files."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import wave
from pathlib import Path

import numpy as np
from dali_samples import CLOSE, Case, draw

REFERENCES = Path(__file__).parents[1] / "references"
NAMES = REFERENCES / "dali_files"
CLIP = REFERENCES / "clip.webm"  # 20 frames of VP9, 16×12, a key frame every 7

WAVES = [draw(16, 300, dtype="float32") / 4, draw(17, 120, dtype="float32") / 4]
QUIET = [
    np.concatenate([np.zeros(50), np.sin(np.arange(100) / 3) * 8000, np.zeros(80)]).astype(np.int16),
    np.concatenate([np.zeros(5), np.linspace(1, 9000, 60)]).astype(np.int16),
]


def _noisy(seed: int) -> np.ndarray:
    draws = np.random.default_rng(seed)
    count = int(draws.integers(800, 6000))
    start, end = sorted(draws.integers(0, count, 2))
    sound = np.zeros(count)
    sound[start:end] = 0.3
    return (draws.normal(size=count) * sound + draws.normal(size=count) * 1e-4).astype(np.float32)


NOISY = [_noisy(seed) for seed in range(40)]
BINS = [draw(18, 6, 4, dtype="float32"), draw(19, 9, 2, dtype="float32")]

SOUND = {
    "preemphasis_filter": Case(
        lambda m, x, y: (
            m.fn.preemphasis_filter(x),
            m.fn.preemphasis_filter(x, border="zero", preemph_coeff=0.5),
            m.fn.preemphasis_filter(y, border="reflect", preemph_coeff=0.5),
            m.fn.preemphasis_filter(y, dtype=m.types.INT16),
        ),
        [WAVES, QUIET],
        **CLOSE,
    ),
    "nonsilent_region": Case(
        lambda m, x, y: [
            made
            for options in (
                {"window_length": 10},
                {"window_length": 10, "cutoff_db": -20.0},
                {"window_length": 1, "cutoff_db": -10.0, "reference_power": 1e6},
                {},
            )
            for made in m.fn.nonsilent_region(x, **options)
        ],
        [QUIET, WAVES],
    ),
    "nonsilent_region.cutoff": Case(  # noise at the cutoff: the errors of sums in float32 decide
        lambda m, x: [
            made
            for options in (
                {},
                {"window_length": 1024},
                {"cutoff_db": -30.0, "window_length": 64},
                {"reset_interval": 512, "window_length": 128},
                {"reset_interval": -1, "window_length": 100},
            )
            for made in m.fn.nonsilent_region(x, **options)
        ],
        [NOISY],
    ),
    "power_spectrum": Case(
        lambda m, x, y: (
            m.fn.power_spectrum(x),
            m.fn.power_spectrum(x, nfft=512, power=1),
            m.fn.power_spectrum(y, axis=0, nfft=8),
        ),
        [WAVES, BINS],
        rtol=1e-4,
        atol=1e-5,
    ),
    "mfcc": Case(
        lambda m, x: [
            m.fn.mfcc(x, **options)
            for options in (
                {"n_mfcc": 4},
                {},
                {"n_mfcc": 4, "normalize": True},
                {"n_mfcc": 4, "lifter": 3.0},
                {"n_mfcc": 4, "dct_type": 1},
                {"n_mfcc": 4, "dct_type": 3},
                {"n_mfcc": 4, "dct_type": 3, "normalize": True},
                {"n_mfcc": 4, "dct_type": 4, "normalize": True},
                {"n_mfcc": 2, "axis": 1},
            )
        ],
        [BINS],
        atol=1e-5,
    ),
    "audio_resample": Case(
        lambda m, x, y: (
            m.fn.audio_resample(x, scale=1.5),
            m.fn.audio_resample(x, in_rate=44100, out_rate=16000),
            m.fn.audio_resample(x, out_length=77, quality=0),
            m.fn.audio_resample(x, scale=2.1, quality=100),
            m.fn.audio_resample(m.fn.stack(x, x * 0.5, axis=1), scale=0.55),
        ),
        [WAVES, QUIET],
        atol=5e-4,
    ),
    "audio_resample.ints": Case(
        lambda m, x, y: (m.fn.audio_resample(y, scale=1.3), m.fn.audio_resample(x, scale=0.8, dtype=m.types.INT16)),
        [WAVES, QUIET],
        atol=1,
    ),
}


def write_files(root: Path) -> None:
    """The files for the readers' cases: an archive, images with annotations, waves with a manifest."""
    with tarfile.open(root / "a.tar", "w") as archive:
        for name, content in (
            *(("0.jpg", b"abc"), ("0.cls", b"1"), (".hidden.jpg", b"z"), ("1.png", b"xyzw"), ("1.cls", b"22")),
            *(("dir/2.cls", b"333"), ("dir/2.a.jpg", b"q"), ("3.JPG", b"up")),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    for name in "abc":
        (root / f"{name}.jpg").write_bytes(name.encode())
    boxes = [
        (5, 7, [10, 5, 20, 10], 0),
        (20, 3, [1, 2, 3, 0.05], 0),
        (5, 3, [0, 0, 50, 50], 1),
        (20, 3, [1, 2, 3, 4], 0),
    ]
    told = {
        "images": [
            {"id": 5, "width": 100, "height": 50, "file_name": "b.jpg"},
            {"id": 20, "width": 10, "height": 20, "file_name": "a.jpg"},
            {"id": 9, "width": 10, "height": 20, "file_name": "c.jpg"},
        ],
        "categories": [{"id": 7, "name": "x"}, {"id": 3, "name": "y"}],
        "annotations": [
            {"id": at, "image_id": image, "category_id": category, "bbox": box, "iscrowd": crowd, "area": 1}
            | {"segmentation": [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12, 13, 14]][: 1 + at % 2]}
            for at, (image, category, box, crowd) in enumerate(boxes)
        ],
    }
    (root / "boxes.json").write_text(json.dumps(told))
    runs = [{"size": [10, 12], "counts": [5, 10, 20, 30, 55]}, {"size": [10, 12], "counts": "P146000000000l0"}]
    polygons = [[[2, 2, 8, 2, 8, 7, 2, 7], [0.5, 0.5, 3.7, 1.2, 2.2, 3.9]], [[5, 4, 11, 4, 11, 9, 5, 9]]]
    drawn = [(1, 7, polygons[0]), (1, 3, polygons[1]), (1, 9, [[3, 3, 6, 3, 6, 6]]), (2, 3, runs[0]), (2, 7, runs[1])]
    masks = {
        "images": [
            {"id": at, "width": 12, "height": 10, "file_name": f"{name}.jpg"} for at, name in ((1, "a"), (2, "b"))
        ],
        "categories": told["categories"] + [{"id": 9, "name": "z"}],
        "annotations": [
            {"id": at, "image_id": image, "category_id": category, "bbox": [0, 0, 9, 9], "segmentation": segmentation}
            for at, (image, category, segmentation) in enumerate(drawn)
        ],
    }
    (root / "masks.json").write_text(json.dumps(masks))
    (root / "clips" / "b").mkdir(parents=True)
    for clip in ("clips/clip.webm", "clips/b/again.webm"):
        shutil.copy(CLIP, root / clip)
    for stream, count in (("walk", 4), ("run", 7)):
        (root / "streams" / stream).mkdir(parents=True)
        for at in range(count):
            pixels = draw(20 + at, 5, 6, 3).tobytes()
            (root / "streams" / stream / f"{at}.ppm").write_bytes(b"P6\n6 5\n255\n" + pixels)
    (root / "arrays").mkdir()
    for at in range(3):
        np.save(root / "arrays" / f"{at}.npy", draw(40 + at, 6, 8, dtype="int32"))
    lines = []
    for name, channels, rate in (("x", 1, 8000), ("y", 2, 16000)):
        with wave.open(str(root / f"{name}.wav"), "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes((np.sin(np.arange(400 * channels) / 5) * 9000).astype("<i2").tobytes())
        lines.append({"audio_filepath": str(root / f"{name}.wav"), "duration": 400 / rate, "text": f"{name} wörd"})
    lines[1] |= {"offset": 0.0005, "duration": 0.01}
    (root / "speech.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


READERS = {
    "readers.numpy.regions": Case(
        lambda m: [
            m.fn.readers.numpy(file_root=f"{m.files}/arrays", **options)
            for options in (
                {"roi_start": [1, 2], "roi_shape": [2, 3]},
                {"roi_start": [1], "roi_end": [3], "roi_axes": [1]},
                {"rel_roi_start": [0.3, 0.3], "rel_roi_shape": [0.5, 0.4]},
                {"rel_roi_start": [0.3, 0.3], "rel_roi_end": [0.5, 0.45], "roi_axes": [1, 0]},
                {"roi_shape": [1, 2]},
                {"roi_end": [1, 2]},
                {"roi_start": [4, -1], "roi_shape": [3, 3], "out_of_bounds_policy": "pad", "fill_value": -7},
                {"roi_start": [4, -1], "roi_shape": [3, 3], "out_of_bounds_policy": "trim_to_shape"},
            )
        ],
        size=3,
    ),
    "readers.webdataset": Case(
        lambda m: (
            *m.fn.readers.webdataset(paths=f"{m.files}/a.tar", ext=["jpg;png", "cls"]),
            *m.fn.readers.webdataset(paths=f"{m.files}/a.tar", ext=["jpg", "cls"], case_sensitive_extensions=False),
            *m.fn.readers.webdataset(
                paths=f"{m.files}/a.tar", ext=["a.jpg", "cls"], dtypes=[m.types.UINT8, m.types.INT8]
            ),
        ),
        size=4,
    ),
    "readers.webdataset.skip": Case(
        lambda m: m.fn.readers.webdataset(
            paths=f"{m.files}/a.tar", ext=["jpg;png", "cls"], missing_component_behavior="skip"
        ),
        size=2,
    ),
    "readers.coco": Case(
        lambda m: m.fn.readers.coco(file_root=m.files, annotations_file=f"{m.files}/boxes.json"), size=3
    ),
    "readers.coco.options": Case(
        lambda m: (
            *m.fn.readers.coco(
                file_root=m.files,
                annotations_file=f"{m.files}/boxes.json",
                **{"ratio": True, "ltrb": True, "skip_empty": True, "avoid_class_remapping": True},
                **{"image_ids": True, "include_iscrowd": False, "polygon_masks": True},
            ),
            *m.fn.readers.coco(
                file_root=m.files,
                annotations_file=f"{m.files}/boxes.json",
                images=["c.jpg", "b.jpg"],
                size_threshold=20.0,
            ),
        ),
        size=2,
        atol=1e-7,
    ),
    "readers.coco.masks": Case(
        lambda m: (
            *m.fn.readers.coco(
                file_root=m.files, annotations_file=f"{m.files}/masks.json", pixelwise_masks=True, image_ids=True
            ),
            *m.fn.readers.coco(
                file_root=m.files,
                annotations_file=f"{m.files}/masks.json",
                pixelwise_masks=True,
                avoid_class_remapping=True,
            ),
        ),
        size=2,
    ),
    "readers.sequence": Case(
        lambda m: (
            m.fn.readers.sequence(file_root=f"{m.files}/streams", sequence_length=2),
            m.fn.readers.sequence(file_root=f"{m.files}/streams", sequence_length=3, stride=2, step=2),
            m.fn.readers.sequence(file_root=f"{m.files}/streams", sequence_length=1, step=2, image_type=m.types.GRAY),
        ),
        size=3,
    ),
    **{
        f"readers.video.{name}": Case(
            lambda m, options=options: getattr(m.fn, "experimental", m.fn).readers.video(
                **({"filenames": [f"{m.files}/clips/clip.webm"]} if "file_root" not in options else {}),
                **{key: f"{m.files}/clips" if key == "file_root" else value for key, value in options.items()},
            ),
            size=size,
            atol=1,
        )
        for name, size, options in (
            ("plain", 1, {"sequence_length": 6, "stride": 2, "step": 9, "labels": [7], "enable_frame_num": "scalar"}),
            ("constant", 4, {"sequence_length": 6, "pad_mode": "constant", "fill_value": [1, 2, 3]}),
            ("edge", 4, {"sequence_length": 2, "stride": 3, "pad_mode": "edge", "enable_frame_num": "sequence"}),
            ("reflect", 2, {"sequence_length": 11, "pad_mode": "reflect", "enable_frame_num": "sequence"}),
            ("symmetric", 2, {"sequence_length": 11, "pad_mode": "symmetric", "enable_timestamps": True}),
            ("root", 1, {"sequence_length": 4, "step": 16, "file_root": ""}),
        )
    },
    "readers.nemo_asr": Case(
        lambda m: (
            *m.fn.readers.nemo_asr(manifest_filepaths=f"{m.files}/speech.json"),
            *m.fn.readers.nemo_asr(
                manifest_filepaths=f"{m.files}/speech.json",
                **{"read_idxs": True, "read_sample_rate": False, "dtype": m.types.INT16, "max_duration": 1.0},
            ),
        ),
        size=2,
        atol=1e-6,
    ),
    "readers.nemo_asr.channels": Case(
        lambda m: m.fn.readers.nemo_asr(
            manifest_filepaths=f"{m.files}/speech.json", downmix=False, min_duration=0.02, read_text=False
        ),
        size=1,
        atol=1e-6,
    ),
    "io.file.read": Case(lambda m: m.fn.io.file.read(np.frombuffer(f"{m.files}/a.jpg".encode(), np.uint8)), size=1),
}
