"""`ApplyTransformFn`: a stage that writes transformed examples into the cache."""

from __future__ import annotations

import dataclasses
from typing import Any

from beam_pipes.analysis import Result
from beam_pipes.errors import DeclarationError, SpecError
from beam_pipes.tft.transform_function import TransformFunction
from beam_pipes.typed import Pipeline


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApplyTransformFn(Pipeline):
    """Raw examples → examples as the transform function makes them, beside the raw features in `keep`.

        tft = TransformFn("tft", of=ParseReview(), preprocessing_fn=preprocess, features=RAW)
        pipeline = DAGPipeline({parse: Input(str), (apply := ApplyTransformFn(result=tft.result)): parse,
                                Output("train"): apply})

        {"stars": 5.0, "id": 17}  →  {"stars_z": array(1.2, dtype=float32), "id": 17}      with keep=("id",)

    Worth its space where the transformation costs more than reading its output; where the function still changes,
    cache raw examples and apply it in the loader (`TransformFunction`): the values are the same.
    """

    input_type = dict
    output_type = dict

    result: Result
    keep: tuple[str, ...] = ()

    def transform(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        return self.transform_batch([example])[0]

    def transform_batch(self, examples: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """All examples at once: a call costs a millisecond, an example in it a few microseconds."""
        function: TransformFunction = self.result.value()
        taken = sorted(set(self.keep) & set(function.outputs))
        if taken:
            raise DeclarationError(
                f"stage {self.name!r}: {taken} are transformed features, and to be kept as they were. Leave them out "
                "of keep, or rename the outputs of the preprocessing_fn.",
                stage=self.name,
            )
        made = function.examples(examples)
        for transformed, example in zip(made, examples, strict=True):
            for name in self.keep:
                if name not in example:
                    raise SpecError(
                        f"stage {self.name!r}: expected the feature {name!r}, which is to be kept, got "
                        f"{sorted(example)}. Leave it out of keep, or give every example all of them.",
                        feature=name,
                    )
                transformed[name] = example[name]
        return [[transformed] for transformed in made]
