"""Expressions over data nodes, constants, indexing."""

import operator

import numpy as np
from nvidia.dali import fn, math, newaxis, pipeline_def, types

DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64")


def told(outputs):
    """What a batch holds: dtype, shape and values of its first sample."""
    samples = [np.array(output.at(0)) for output in outputs]
    return [[sample.dtype.name, list(sample.shape), sample.tolist()] for sample in samples]


def given(array):
    return fn.external_source(source=lambda: [array, array])


def run(graph, **options):
    pipe = pipeline_def(graph)(batch_size=2, num_threads=1, device_id=None, **options)
    pipe.build()
    return told(pipe.run())


def promotion_of_two_dtypes():
    def graph():
        left = [given(np.array([7, 1, 3]).astype(dtype)) for dtype in DTYPES]
        right = [given(np.array([2, 3, 1]).astype(dtype)) for dtype in DTYPES]
        return tuple(op(a, b) for op in (operator.add, operator.truediv, operator.mod) for a in left for b in right)

    return run(graph)


def promotion_with_numbers():
    def graph():
        nodes = [given(np.array([7, 1, 3]).astype(dtype)) for dtype in DTYPES]
        return tuple(
            made for one in nodes for number in (2, 100, -3, 2.5) for made in (one + number, number * one, one / number)
        )

    return run(graph)


def whole_quotients_and_remainders():
    def graph():
        signed = given(np.array([-7, 7, -8, 8], np.int32))
        small = given(np.array([200, 7, 8, 9], np.uint8))
        return signed // 2, signed % 2, signed // -3, signed % -3, small // 3, small % np.int16(-3), 100 % signed

    return run(graph)


def comparisons_and_bits():
    def graph():
        small = given(np.array([0, 3, 200], np.uint8))
        signed = given(np.array([-1, 3, 100], np.int16))
        return (
            small < -1,
            small > signed,
            small == 3,
            small & 3,
            small | signed,
            small ^ 255,
            ~small,
            signed >> 1,
            -signed,
        )

    return run(graph)


def constants_have_32_bits():
    def graph():
        small = given(np.array([4, 5], np.uint8))
        return (
            *(types.Constant(value) for value in ([1, 2], [1, 2.5], [True, False])),
            *(types.Constant(value) for value in (np.array([1, 2]), np.array([1, 2.5]), np.float32([1, 2]))),
            *(types.Constant(3, shape=(2,)), types.Constant([3, 4], dtype=types.INT64)),
            *(small + np.array([1, 2.5]), small + np.array([1, 2]), small * types.Constant(2.0)),
            *(fn.reshape(np.array([1, 2.5]), shape=[2, 1]), np.array([1, 2.5]), 3, 3.5, True),
        )

    return run(graph)


def indices():
    def graph():
        image = given(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
        at = given(np.array(1, np.int32))
        return image[0], image[:, 1:], image[1, :, ::2], image[-1, -1], image[at], image[:, at:], image[:, :, 1:-1]

    return run(graph)


def new_axes_and_shapes():
    def graph():
        image = fn.external_source(source=lambda: [np.zeros((2, 3), np.uint8)] * 2, layout="HW")
        named = image[newaxis("F"), :]
        return (
            *(image[newaxis, :, :], image[:, newaxis], named, named.property("layout"), image.property("layout")),
            *(image.shape(), image.shape(dtype=types.INT32), named.shape()),
        )

    return run(graph)


def functions_of_math():
    def graph():
        whole = given(np.array([1, 4, 9], np.uint8))
        real = given(np.array([0.25, -0.5, 0.75], np.float32))
        of_whole = (math.sqrt(whole), math.floor(whole), math.abs(whole), math.min(whole, 3), math.max(whole, 2.5))
        of_two = (math.clamp(whole, 2, 5), math.pow(whole, 2), math.fpow(whole, 2), math.atan2(real, whole))
        of_real = [
            f(real) for f in (math.floor, math.ceil, math.abs, math.fabs, math.sin, math.exp, math.cbrt, math.asin)
        ]
        return (*of_whole, *of_two, *of_real, math.rsqrt(whole), math.log2(whole))

    return run(graph)


def casts():
    def graph():
        real = given(np.array([-3.7, -3.5, -0.2, 0.4, 0.5, 2.5, 3.5, 300.7], np.float32))
        whole = given(np.array([-200, -1, 0, 1, 127, 128, 300], np.int32))
        dtypes = (types.UINT8, types.INT8, types.INT16, types.INT32, types.INT64, types.BOOL, types.FLOAT)
        return tuple(fn.cast(one, dtype=dtype) for one in (real, whole) for dtype in dtypes)

    return run(graph)


def declared_outputs():
    def failing(**options):
        def graph():
            return given(np.array([1, 2], np.uint8)), types.Constant(np.float32([1.0]))

        try:
            run(graph, **options)
        except (RuntimeError, ValueError, TypeError):
            return "refused"
        return "taken"

    return [
        failing(output_dtype=[types.UINT8, types.FLOAT], output_ndim=[1, 1]),
        failing(output_dtype=[types.UINT8, None], output_ndim=1),
        failing(output_dtype=types.UINT8),
        failing(output_ndim=[1, 2]),
        failing(output_dtype=[types.FLOAT, types.FLOAT]),
        failing(output_dtype=[types.UINT8]),
        failing(output_ndim=-1),
    ]
