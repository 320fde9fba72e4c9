"""Linear resizing of uint8 images: what float64 gives, to the bit where it is defined by integers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.graph.types import DALIInterpType
from beam_pipes.transforms.operators.image.exact_linear import linearly_resized, sparse_product_by_operator
from beam_pipes.transforms.operators.image.resampling import weights

extents = st.integers(1, 60)


def integer_weights(size: int, start: float, end: float, length: int, stretched: bool, bits: int) -> Any:
    """(size, length) int64 whose rows sum to 2^bits: the triangle filter in the arithmetic of the module."""
    scale = (end - start) / size
    reach = max(scale, 1.0) if stretched else 1.0
    made = np.zeros((size, length), np.int64)
    for pixel in range(size):
        centre = start + (pixel + 0.5) * scale - 0.5
        taps = np.floor(centre - reach) + np.arange(int(np.ceil(2 * reach)) + 2)
        values = np.maximum(0.0, 1.0 - np.abs(taps - centre) / reach)
        whole = np.rint(values / values.sum() * (1 << bits)).astype(np.int64)
        whole[values.argmax()] += (1 << bits) - whole.sum()
        np.add.at(made[pixel], np.clip(taps, 0, length - 1).astype(np.int64), whole)
    return made


@settings(deadline=None, max_examples=60)
@given(
    shape=st.tuples(extents, extents, st.integers(1, 4)),
    size=st.tuples(extents, extents),
    window=st.tuples(*[st.floats(0.0, 1.0)] * 4),
    stretched=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 99),
)
def test_pixels_are_those_of_integer_arithmetic(shape: Any, size: Any, window: Any, stretched: Any, seed: int) -> None:
    image = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    spans = [
        (min(a, b) * length, max(a, b) * length + 0.25)
        for a, b, length in zip(window[:2], window[2:], shape[:2], strict=True)
    ]
    rows, columns = (
        integer_weights(size[axis], *spans[axis], shape[axis], stretched[axis], bits)
        for axis, bits in ((0, 16), (1, 13))
    )
    # Rows in eighths, the nearest one (of two, the even one); columns to the nearest pixel value, halves up.
    tall = np.rint(np.einsum("hH,HWC->hWC", rows, image.astype(np.int64)) / 2**13).astype(np.int64)
    expected = (np.einsum("wW,hWC->hwC", columns, tall) + 2**15) >> 16

    found = linearly_resized(image, size, spans[0], spans[1], stretched)

    assert found.dtype == np.uint8 and np.array_equal(expected, found)


@pytest.mark.parametrize("size", [(224, 224), (37, 500), (700, 90)])
def test_pixels_are_those_of_floats_but_for_some_that_round_the_other_way(size: tuple[int, int]) -> None:
    image = np.random.default_rng(3).integers(0, 256, (375, 500, 3), dtype=np.uint8)
    rows, columns = (
        weights(size[axis], 0.0, float(length), length, DALIInterpType.INTERP_LINEAR, size[axis] < length)
        for axis, length in enumerate((375, 500))
    )
    precise = np.einsum("wW,hWC->hwC", columns.astype(float), np.einsum("hH,HWC->hWC", rows.astype(float), image))

    found = linearly_resized(image, size, (0.0, 375.0), (0.0, 500.0), (True, True))

    assert np.abs(found - precise).max() < 0.6
    assert (found != np.floor(precise + 0.5)).mean() < 0.07


def test_an_image_of_one_colour_stays_one() -> None:
    for value in (0, 1, 128, 255):
        made = linearly_resized(np.full((41, 33, 3), value, np.uint8), (7, 90), (3.0, 40.0), (0.0, 33.0), (True, True))
        assert (made == value).all()


def test_a_large_image_is_resized_piece_by_piece_to_the_same() -> None:
    small = np.random.default_rng(1).integers(0, 256, (900, 40, 3), dtype=np.uint8)
    large = np.tile(small, (1, 36, 1))

    made = linearly_resized(large, (100, 1440), (0.0, 900.0), (0.0, 1440.0), (True, True))

    assert np.array_equal(linearly_resized(small, (100, 40), (0.0, 900.0), (0.0, 40.0), (True, True)), made[:, 40:80])


def test_scipys_operator_gives_what_its_loop_gives() -> None:
    rng = np.random.default_rng(8)
    matrix = scipy.sparse.random_array((7, 9), density=0.4, format="csr", dtype=np.float32, rng=rng)
    lines = rng.integers(0, 9, (9, 5)).astype(np.float32)
    parts = (matrix.indptr, matrix.indices, matrix.data, lines.ravel())
    by_loop, by_operator = np.ones(35, np.float32), np.ones(35, np.float32)

    scipy.sparse._sparsetools.csr_matvecs(7, 9, 5, *parts, by_loop)
    sparse_product_by_operator(scipy.sparse, 7, 9, 5, *parts, by_operator)

    np.testing.assert_allclose(by_loop, by_operator, rtol=1e-6)
    np.testing.assert_allclose(by_loop, 1 + (matrix @ lines).ravel(), rtol=1e-6)


def test_threads_do_not_share_what_they_calculate_in() -> None:
    rng = np.random.default_rng(5)
    images = [rng.integers(0, 256, (int(rng.integers(20, 200)), 150, 3), dtype=np.uint8) for _ in range(60)]

    def made(image: Any) -> Any:
        return linearly_resized(image, (33, 40), (0.0, float(len(image))), (0.0, 150.0), (True, True))

    expected = [made(image) for image in images]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(made, images))

    assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))
