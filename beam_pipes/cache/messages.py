"""`SequenceExample`, `Example` and their parts: the public name of what is in `beam_pipes.format.messages`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beam_pipes.format.messages import BytesList as BytesList
    from beam_pipes.format.messages import Example as Example
    from beam_pipes.format.messages import Feature as Feature
    from beam_pipes.format.messages import FeatureList as FeatureList
    from beam_pipes.format.messages import FeatureLists as FeatureLists
    from beam_pipes.format.messages import Features as Features
    from beam_pipes.format.messages import FloatList as FloatList
    from beam_pipes.format.messages import Int64List as Int64List
    from beam_pipes.format.messages import SequenceExample as SequenceExample
else:

    def __getattr__(name: str) -> object:
        from beam_pipes.format import messages

        return getattr(messages, name)
