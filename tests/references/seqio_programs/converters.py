"""Feature converters that users write: their own mapping, or a subclass of those that there are."""

from __future__ import annotations

import abc

import tensorflow as tf
from seqio_answers import raised

EXAMPLES = [
    {"inputs": [7, 8, 5, 1], "targets": [3, 9, 1]},
    {"inputs": [8, 4, 9, 3, 1], "targets": [4, 1]},
]
LENGTHS = {"inputs": 10, "targets": 7}


def _dataset(seqio, examples=None):
    return seqio.test_utils.create_default_dataset(examples or EXAMPLES)


def _plain(dataset):
    rows = []
    for example in dataset.as_numpy_iterator():
        rows.append({name: value.tolist() for name, value in sorted(example.items())})
    return rows


def a_mapping_of_its_own(seqio):
    Spec = seqio.FeatureConverter.FeatureSpec

    class Classifier(seqio.FeatureConverter):
        TASK_FEATURES = {"inputs": Spec(dtype=tf.int32), "targets": Spec(dtype=tf.int32)}
        MODEL_FEATURES = {"tokens": Spec(dtype=tf.int32), "label": Spec(dtype=tf.int32), "mask": Spec(tf.int32)}
        PACKING_FEATURE_DTYPES = {}

        def _convert_features(self, ds, task_feature_lengths):
            def convert(features):
                tokens = features["inputs"]
                mask = seqio.non_padding_position(tokens)
                return {"tokens": tokens, "label": features["targets"], "mask": mask}

            ds = self._pack_or_pad(ds, task_feature_lengths)
            return ds.map(convert, num_parallel_calls=tf.data.experimental.AUTOTUNE)

        def get_model_feature_lengths(self, task_feature_lengths):
            length = task_feature_lengths["inputs"]
            return {"tokens": length, "mask": length, "label": task_feature_lengths["targets"]}

    converter = Classifier(pack=False)
    return [_plain(converter(_dataset(seqio), LENGTHS)), converter.pack, converter.bos_id]


def classes_are_abstract(seqio):
    return [
        issubclass(seqio.FeatureConverter, abc.ABC),
        issubclass(seqio.Vocabulary, abc.ABC) or isinstance(seqio.Vocabulary, abc.ABCMeta),
        isinstance(seqio.DataSource, abc.ABCMeta),
        [issubclass(getattr(seqio, f"{name}FeatureConverter"), seqio.FeatureConverter) for name in ("EncDec", "LM")],
        issubclass(seqio.PrefixLMFeatureConverter, seqio.LMFeatureConverter),
    ]


def encoder_decoder_with_another_feature(seqio):
    Spec = seqio.FeatureConverter.FeatureSpec

    class WithLengths(seqio.EncDecFeatureConverter):
        MODEL_FEATURES = {**seqio.EncDecFeatureConverter.MODEL_FEATURES, "decoder_weights": Spec(dtype=tf.float32)}

        def _convert_example(self, features):
            converted = dict(super()._convert_example(features))
            converted["decoder_weights"] = tf.cast(converted["decoder_loss_weights"], tf.float32) * 0.5
            return converted

        def get_model_feature_lengths(self, task_feature_lengths):
            lengths = dict(super().get_model_feature_lengths(task_feature_lengths))
            return {**lengths, "decoder_weights": task_feature_lengths["targets"]}

    return [_plain(WithLengths(pack=pack)(_dataset(seqio), LENGTHS)) for pack in (True, False)]


KEYS = {"inputs", "targets", "inputs_width", "inputs_width_add_pos"}


def what_convert_example_finds(seqio):
    found = {}

    def looking(base, name):
        class Looking(base):
            def _convert_example(self, features):
                keys = KEYS | {
                    f"{key}_{what}" for key in ("inputs", "targets") for what in ("segment_ids", "positions")
                }
                wanted = KEYS if not self.pack else keys
                found[f"{name}, pack={self.pack}"] = sorted(wanted & features.keys())
                return super()._convert_example(features)

        return Looking

    for pack in (True, False):
        list(looking(seqio.EncDecFeatureConverter, "encdec")(pack=pack)(_dataset(seqio), LENGTHS))
        list(looking(seqio.PrefixLMFeatureConverter, "prefix")(pack=pack)(_dataset(seqio), LENGTHS))
        list(looking(seqio.LMFeatureConverter, "lm")(pack=pack)(_dataset(seqio), {"targets": 7}))
    return found


def the_dataset_converted_by_hand(seqio):
    class ByHand(seqio.EncDecFeatureConverter):
        def _convert_features(self, ds, task_feature_lengths):
            ds = self._pack_or_pad(ds, task_feature_lengths)
            return ds.map(self._convert_example, num_parallel_calls=tf.data.experimental.AUTOTUNE)

    return [_plain(ByHand(pack=pack)(_dataset(seqio), LENGTHS)) for pack in (True, False)]


def a_prefix_converted_by_hand(seqio):
    class ByHand(seqio.PrefixLMFeatureConverter):
        def _convert_features(self, ds, task_feature_lengths):
            ds = ds.map(self._concat_and_add_masks, num_parallel_calls=tf.data.experimental.AUTOTUNE)
            ds = self._pack_or_pad(ds, self._concat_task_feature_lengths(task_feature_lengths))
            return ds.map(self._convert_example, num_parallel_calls=tf.data.experimental.AUTOTUNE)

    return [_plain(ByHand(pack=pack)(_dataset(seqio), LENGTHS)) for pack in (True, False)]


def a_prefix_that_uses_the_widths(seqio):
    Spec = seqio.FeatureConverter.FeatureSpec

    class WithWidths(seqio.PrefixLMFeatureConverter):
        MODEL_FEATURES = {
            **seqio.PrefixLMFeatureConverter.MODEL_FEATURES,
            "decoder_prefix_lengths": Spec(dtype=tf.int32),
        }

        def _convert_example(self, features):
            converted = dict(super()._convert_example(features))
            converted["decoder_prefix_lengths"] = features["inputs_width"]
            return converted

        def get_model_feature_lengths(self, task_feature_lengths):
            lengths = dict(super().get_model_feature_lengths(task_feature_lengths))
            return {**lengths, "decoder_prefix_lengths": sum(task_feature_lengths.values())}

    return [_plain(WithWidths(pack=pack)(_dataset(seqio), LENGTHS)) for pack in (True, False)]


def one_example_by_hand(seqio):
    targets = tf.constant([3, 9, 1, 0])
    made = seqio.LMFeatureConverter(pack=False)._convert_example({"targets": targets})
    both = seqio.EncDecFeatureConverter(pack=False)._convert_example({"inputs": targets, "targets": targets})
    return [{name: value.numpy().tolist() for name, value in sorted(one.items())} for one in (made, both)]


def passthrough(seqio):
    Spec = seqio.FeatureConverter.FeatureSpec
    rows = [{**example, "id": [number]} for number, example in enumerate(EXAMPLES)]
    dataset = seqio.test_utils.create_default_dataset(
        rows,
        output_types={"inputs": tf.int32, "targets": tf.int32, "id": tf.int32},
        output_shapes={"inputs": [None], "targets": [None], "id": [None]},
    )
    converter = seqio.EncDecFeatureConverter(pack=False, passthrough_features={"id": Spec(dtype=tf.int32)})
    return _plain(converter(dataset, {**LENGTHS, "id": 1}))


def lengths_that_do_not_fit_the_features(seqio):
    class TooFew(seqio.LMFeatureConverter):
        def get_model_feature_lengths(self, task_feature_lengths):
            return {"decoder_target_tokens": 7}

    class TooMany(seqio.LMFeatureConverter):
        def get_model_feature_lengths(self, task_feature_lengths):
            return {**super().get_model_feature_lengths(task_feature_lengths), "more": 7}

    class MoreFeatures(seqio.LMFeatureConverter):
        def _convert_example(self, features):
            return {**super()._convert_example(features), "more": features["targets"]}

    class FewerFeatures(seqio.LMFeatureConverter):
        def _convert_example(self, features):
            return {"decoder_target_tokens": features["targets"]}

    class OtherLength(seqio.LMFeatureConverter):
        def get_model_feature_lengths(self, task_feature_lengths):
            return dict.fromkeys(super().get_model_feature_lengths(task_feature_lengths), 5)

    dataset = _dataset(seqio)
    told = [raised(cls(pack=False), dataset, {"targets": 7}) for cls in (TooMany, MoreFeatures)]
    fewer = [raised(cls(pack=False), dataset, {"targets": 7})["raises"] for cls in (TooFew, FewerFeatures)]
    return [*told, *fewer, raised(lambda: list(OtherLength(pack=False)(dataset, {"targets": 7})))["raises"]]


def every_converter(seqio):
    empty = {"inputs": [3, 1], "targets": [4, 1], "suffixes": [9, 1]}
    suffixes = seqio.test_utils.create_default_dataset([empty], feature_names=["inputs", "targets", "suffixes"])
    told = {}
    for pack in (True, False):
        for name in ("EncDec", "PrefixLM"):
            converter = getattr(seqio, f"{name}FeatureConverter")(pack=pack)
            told[f"{name} {pack}"] = _plain(converter(_dataset(seqio), LENGTHS))
            told[f"{name} {pack} lengths"] = dict(converter.get_model_feature_lengths(LENGTHS))
        all_of_it = seqio.PrefixLMFeatureConverter(pack=pack, loss_on_targets_only=False)
        told[f"all {pack}"] = _plain(all_of_it(_dataset(seqio), LENGTHS))
        converter = seqio.PrefixSuffixLMFeatureConverter(pack=pack)
        told[f"suffix {pack}"] = _plain(converter(suffixes, {"inputs": 4, "targets": 4, "suffixes": 4}))
        decoder = seqio.DecoderFeatureConverter(pack=pack)
        told[f"decoder {pack}"] = _plain(decoder(_dataset(seqio), LENGTHS))
        told[f"decoder of targets {pack}"] = _plain(decoder(_dataset(seqio), {"targets": 7}))
        encoder = seqio.EncoderFeatureConverter(mask_id=9, pack=pack)
        aligned = [{"inputs": [8, 9, 3, 1], "targets": [8, 7, 3, 1]}, {"inputs": [8, 9, 1], "targets": [8, 6, 1]}]
        told[f"encoder {pack}"] = _plain(encoder(_dataset(seqio, aligned), {"inputs": 8, "targets": 8}))
    return told
