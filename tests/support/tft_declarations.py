"""Builds with tensorflow-transform, in a module of their own so that worker processes and Beam can import them."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.sources import JSONLines
from beam_pipes.tft import ApplyTransformFn, TransformFn
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline

INPUT_VARIABLE = "BEAM_PIPES_TFT_INPUT"

RAW = {
    "stars": FeatureSpec("float32"),
    "words": FeatureSpec("str", shape=(None,)),
    "price": FeatureSpec("float32", shape=(2,)),
    "useful": FeatureSpec("int32"),
}
WORDS = ["good", "bad", "fine", "slow", "quick", "odd", "kind", "loud"]


def write_reviews(file: Path, *, count: int, seed: int) -> list[dict[str, Any]]:
    """Writes reviews as JSON lines; returns them."""
    rng = random.Random(seed)
    reviews = [
        {
            "stars": rng.randint(1, 50) / 8,
            "words": [WORDS[min(rng.randrange(8), rng.randrange(8))] for _ in range(rng.randrange(6))],
            "price": [rng.randrange(100) / 4, rng.randrange(100) / 4],
            "useful": rng.randrange(2),
        }
        for _ in range(count)
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(review) + "\n" for review in reviews))
    return reviews


def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
    """The most common kinds of analyzers: moments, bounds, quantiles, a vocabulary."""
    import tensorflow_transform as tft

    return {
        "stars_z": tft.scale_to_z_score(inputs["stars"]),
        "stars_bucket": tft.bucketize(inputs["stars"], num_buckets=4),
        "price_01": tft.scale_to_0_1(inputs["price"], elementwise=True),
        "word_ids": tft.compute_and_apply_vocabulary(inputs["words"], vocab_filename="words", num_oov_buckets=1),
        "useful": inputs["useful"],
    }


def preprocess_in_phases(inputs: dict[str, Any]) -> dict[str, Any]:
    """An analyzer of values scaled by another one, besides control flow and a vocabulary of computed values."""
    import tensorflow as tf
    import tensorflow_transform as tft

    scaled = tft.scale_to_0_1(inputs["stars"])
    _, steps = tf.while_loop(
        lambda at, _: at < 3, lambda at, sum: (at + 1, sum + inputs["useful"]), (0, inputs["useful"] * 0)
    )
    return {
        "stars_zz": tft.scale_to_z_score(scaled * scaled),
        "steps": steps,
        "word_ids": tft.compute_and_apply_vocabulary(inputs["words"], top_k=20),
    }


class Review(Pipeline):
    """A line as an example; lines without stars are dropped."""

    input_type = output_type = dict

    def transform(self, line: dict[str, Any]) -> list[dict[str, Any]]:
        return [line] if line["stars"] is not None else self.drop("no stars")


def declared(*, preprocessing_fn: Any = preprocess, **options: Any) -> Declaration:
    """Raw reviews in the split "raw", transformed ones in the split "train"."""
    review = Review()
    learned = TransformFn("tft", of=Review(), preprocessing_fn=preprocessing_fn, features=RAW)
    transformed = ApplyTransformFn(result=learned.result, keep=("price",))
    dag = {review: Input(dict), transformed: review, Output("raw"): review, Output("train"): transformed}
    features = {
        "raw": RAW,
        "train": {
            "stars_z": FeatureSpec("float32"),
            "stars_bucket": FeatureSpec("int64"),
            "price_01": FeatureSpec("float32", shape=(2,)),
            "word_ids": FeatureSpec("int64", shape=(None,)),
            "useful": FeatureSpec("int64"),
            "price": FeatureSpec("float32", shape=(2,)),
        },
    }
    return Declaration(
        name="reviews",
        source=JSONLines(os.environ[INPUT_VARIABLE], pattern="*.jsonl"),
        pipeline=DAGPipeline(dag, "Reviews"),
        features=features,
        analyzers=(learned,),
        **{"target_shard_bytes": 8_000, **options},
    )
