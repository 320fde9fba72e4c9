"""Every example of the reference document, as it stands there but for its imports, over real images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_outputs import plain

from beam_pipes import graph
from beam_pipes.graph import GraphIterator, Pipeline, experimental, pipeline_def
from beam_pipes.graph.types import DALIDataType
from beam_pipes.transforms import fn, ops


@pytest.fixture(scope="module")
def images_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two classes of four JPEGs of different sizes, each of one colour per quarter."""
    from PIL import Image

    root: Path = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for label in ("a", "b"):
        (root / label).mkdir()
        for index in range(4):
            quarters = rng.integers(0, 256, (2, 2, 3), np.uint8)
            pixels = quarters.repeat(16, axis=0).repeat(16 + 8 * index, axis=1)
            Image.fromarray(pixels).save(root / label / f"{index}.jpg", quality=95)
    return str(root)


def test_two_readers(images_dir: str) -> None:
    @pipeline_def  # create a pipeline with processing graph defined by the function below
    def my_pipeline() -> Any:
        """Create a pipeline which reads images and masks, decodes the images and returns them."""
        img_files, labels = fn.readers.file(file_root=images_dir, seed=1)
        mask_files, _ = fn.readers.file(file_root=images_dir, seed=1)
        images = fn.decoders.image(img_files, device="mixed")
        masks = fn.decoders.image(mask_files, device="mixed")
        return images, masks, labels

    pipe = my_pipeline(batch_size=4, num_threads=2, device_id=0)
    pipe.build()
    images, masks, labels = pipe.run()

    assert images.shape() == [(32, 32, 3), (32, 48, 3), (32, 64, 3), (32, 80, 3)]
    assert [one.tolist() for one in images] == [one.tolist() for one in masks]
    assert images.layout() == "HWC" and images.source_info(2) == "a/2.jpg@0"


def test_argument_inputs_and_explicit_places(images_dir: str) -> None:
    @pipeline_def
    def my_pipeline() -> Any:
        img_files, labels = fn.readers.file(file_root=images_dir, device="cpu")
        # `images` is GPU data (result of Mixed operator)
        images = fn.decoders.image(img_files, device="mixed")
        # `coin_flip` must be on CPU so the `flip_params` can be used as argument input
        flip_param = fn.random.coin_flip(device="cpu")
        # `images` is input (GPU) and `flip_param` is argument input (CPU)
        flipped = fn.flip(images, horizontal=flip_param, device="gpu")
        # `labels` is explicitly marked for transfer to GPU, `flipped` is already GPU
        return flipped, labels.gpu()

    pipe = my_pipeline(batch_size=4, num_threads=2, device_id=0)
    pipe.build()
    flipped, labels = pipe.run()
    assert len(flipped) == 4 and labels.as_array().tolist() == [[0]] * 4


def test_the_devices_give_the_same_images(images_dir: str) -> None:
    from beam_pipes.on_device import JaxGraphIterator, TorchGraphIterator

    @pipeline_def(batch_size=4, num_threads=2)
    def my_pipeline() -> Any:
        img_files, labels = fn.readers.file(file_root=images_dir)
        images = fn.decoders.image(img_files, device="mixed")
        return {"flipped": fn.flip(images, horizontal=fn.random.coin_flip()), "labels": labels.gpu()}

    expected = [plain(batch) for batch in GraphIterator(my_pipeline())]
    for iterator in (JaxGraphIterator, TorchGraphIterator):
        assert [plain(batch) for batch in iterator(my_pipeline())] == expected


def my_source() -> Any:
    return np.arange(4, dtype=np.float32).reshape(2, 2), np.array([7, 8])


def test_the_current_pipeline() -> None:
    pipe = Pipeline(batch_size=2, num_threads=3, device_id=0)
    with pipe:
        src = ops.ExternalSource(my_source, num_outputs=2)
        a, b = src()
        pipe.set_outputs(a, b)

    @pipeline_def(batch_size=2, num_threads=3, device_id=0)
    def my_pipe(my_source: Any) -> Any:
        return fn.external_source(my_source, num_outputs=2)

    assert plain(my_pipe(my_source).run()) == plain(pipe.run())


def test_conditional_execution(images_dir: str) -> None:
    @pipeline_def(enable_conditionals=True)
    def random_rotate() -> Any:
        jpegs, _ = fn.readers.file(device="cpu", file_root=images_dir)
        images = fn.decoders.image(jpegs, device="mixed")
        do_rotate = fn.random.coin_flip(probability=0.25, dtype=DALIDataType.BOOL)
        if do_rotate:
            result = fn.rotate(images, angle=fn.random.uniform(range=(10, 30)), fill_value=0)
        else:
            result = images
        return result, do_rotate, images

    pipe = random_rotate(batch_size=8, seed=2)
    rotated = 0
    for _ in range(4):
        result, do_rotate, images = pipe.run()
        for one, was, image in zip(result, do_rotate, images, strict=True):
            assert (one.shape != image.shape) == bool(was)
            assert bool(was) or np.array_equal(one, image)
            rotated += int(was)
    assert 0 < rotated < 16


def test_debug_mode(images_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    @graph.experimental.pipeline_def(debug=True)
    def my_pipe() -> Any:
        data, _ = fn.readers.file(file_root=images_dir)
        img = fn.decoders.image(data)
        print(np.array(img.get()[0]).shape)
        return img

    my_pipe(batch_size=2).run()
    assert capsys.readouterr().out == "(32, 32, 3)\n"

    @experimental.pipeline_def(batch_size=8, debug=True)
    def over_arrays() -> Any:
        img = [np.random.rand(64, 48, 3) for _ in range(8)]
        output = fn.flip(img)
        return output

    assert over_arrays().run()[0].as_array().shape == (8, 64, 48, 3)
