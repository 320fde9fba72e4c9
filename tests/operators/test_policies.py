"""Policies of augmentations: what is drawn, and what is refused. Their values: `test_dali_operators`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from beam_pipes.dali.auto_aug import auto_augment, rand_augment, trivial_augment
from dali_samples import draw
from operator_runs import given, run

from beam_pipes.errors import GraphError, OperatorArgumentError
from beam_pipes.graph import Pipeline
from beam_pipes.graph.samples import Records, Sample, Samples
from beam_pipes.transforms import fn
from beam_pipes.transforms.operators.image import policies

IMAGES = [draw(50 + at, 12, 10 + at, 3) for at in range(6)]


def drawn(operator: policies.Augmenting, count: int = 4000) -> list[list[tuple[str, float]]]:
    names = [str(number) for number in range(count)]
    samples = Samples(Records(size=count, ids=lambda: names), np.arange(count), "key")
    return [operator.chosen(Sample(samples, index)) for index in range(count)]


def test_every_augmentation_of_a_suite_is_as_likely_and_every_magnitude_too() -> None:
    found = drawn(policies.TrivialAugmentWide({"num_magnitude_bins": 5}))

    counts = Counter(name for ((name, _),) in found)
    assert len(counts) == 14 and all(220 < count < 360 for count in counts.values())
    angles = Counter(magnitude for ((name, magnitude),) in found if name == "rotate")
    assert set(angles) == {0, 33.75, 67.5, 101.25, 135, -33.75, -67.5, -101.25, -135}
    assert {magnitude for ((name, magnitude),) in found if name == "posterize"} == {8, 6.5, 5, 3.5, 2}


def test_a_policy_applies_its_augmentations_in_order_with_their_probabilities() -> None:
    found = drawn(policies.AutoAugment({"policy_name": "image_net"}))

    pairs = Counter(tuple(name for name, _ in one) for one in found)
    assert pairs["posterize", "auto_contrast"] == pytest.approx(4000 / 25 * 0.4 * 0.4, abs=16)
    assert pairs["shear_x", "rotate"] == pytest.approx(4000 / 25 * 0.2 * 0.6, abs=14)
    assert ("rotate", "shear_x") not in pairs
    angles = Counter(round(magnitude) for one in found for name, magnitude in one if name == "rotate")
    assert set(angles) == {0, 6, -6, 15, -15, 21, -21, 24, -24, 27, -27}


def test_rand_augment_takes_one_magnitude_and_leaves_out_what_is_excluded() -> None:
    operator = policies.RandAugment({"n": 2, "m": 9, "excluded": ["equalize", "rotate"]})
    found = [step for one in drawn(operator, 1000) for step in one]

    assert len(found) == 2000 and len({name for name, _ in found}) == 12
    assert {round(magnitude, 6) for name, magnitude in found if name == "sharpness"} == {0.27, -0.27}
    assert {round(magnitude, 6) for name, magnitude in found if name == "color"} == {1.27, 0.73}


def test_the_policies_are_whole() -> None:
    assert [len(policies.POLICIES[name]) for name in policies.POLICIES] == [25] * 4
    steps = {name for policy in policies.POLICIES.values() for pair in policy for name, _, _ in pair}
    assert steps <= set(policies.AUTO) and set(policies.AUTO) <= set(policies.AUGMENTATIONS)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: auto_augment.auto_augment_image_net(x),
        lambda x: auto_augment.auto_augment(x, policy_name="svhn", shape=x.shape(), fill_value=None),
        lambda x: trivial_augment.trivial_augment_wide(x, max_translate_abs=[3, 4]),
        lambda x: rand_augment.rand_augment(x, n=2, m=17, shape=(12, 15), max_translate_rel=0.5),
    ],
)
def test_images_keep_their_size_and_draws_their_record(call: Any) -> None:
    whole = run(call, IMAGES, layout="HWC")
    alone = run(call, IMAGES[:1], layout="HWC")

    assert [one.shape for one in whole] == [one.shape for one in IMAGES] and {one.dtype.name for one in whole} == {
        "uint8"
    }
    assert np.array_equal(whole[0], alone[0])
    assert any(not np.array_equal(one, image) for one, image in zip(whole, IMAGES, strict=True))


def test_errors_say_what_is_wrong() -> None:
    with Pipeline(batch_size=1):
        x = given(IMAGES[:1], layout="HWC")
        with pytest.raises(OperatorArgumentError, match="max_translate_rel does not go without shape"):
            fn.trivial_augment_wide(x, max_translate_rel=0.5)
        with pytest.raises(OperatorArgumentError, match="there is no augmentation 'rotat'. Did you mean 'rotate'"):
            fn.trivial_augment_wide(x, excluded=["rotat"])
        with pytest.raises(OperatorArgumentError, match="m should be a bin, below num_magnitude_bins=31"):
            fn.rand_augment(x, n=1, m=31)
        with pytest.raises(OperatorArgumentError, match="policy_name should be one of"):
            fn.auto_augment(x, policy_name="imagenet")
        with pytest.raises(GraphError, match="expected images HWC of 3 channels, uint8, got"):
            fn.auto_augment(fn.cast(x, dtype="float32"))
