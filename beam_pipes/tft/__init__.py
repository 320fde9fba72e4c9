"""tensorflow-transform over builds: learned from all data, applied identically in builds, loaders and at serving.

| word | meaning |
| --- | --- |
| preprocessing_fn | a function from raw features to transformed ones, as tensors; it may name analyzers |
| raw features | what the function takes: features of examples, as tensorflow-transform knows types |
| transform function | the preprocessing_fn with its analyzers' results in their places: a SavedModel |

Learning needs Beam and tensorflow-transform; applying needs TensorFlow alone.
"""

from __future__ import annotations

from beam_pipes.tft.raw_features import RawFeatures as RawFeatures
from beam_pipes.tft.transform_fn import ApplyTransformFn as ApplyTransformFn
from beam_pipes.tft.transform_fn import TransformFn as TransformFn
from beam_pipes.tft.transform_function import TransformFunction as TransformFunction
