"""Pages of the five faces say in three lines what they lack and what to do instead, from the tables of messages."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from beam_pipes import dali, on_device, seqio
from beam_pipes.graph.tensors import ABSENT as OF_GRAPHS
from beam_pipes.tasks.vocabularies import bert_word_piece
from beam_pipes.transforms import parakeet
from beam_pipes.transforms.operators import ABSENT as OPERATORS
from beam_pipes.typed.random_partition import ABSENT as OF_NOTES

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- what is not here -->\n", "<!-- end of what is not here -->"


@dataclasses.dataclass(frozen=True)
class Face:
    """A system whose names we offer, and what it has that we have not.

    `names`: what a program may type → what to do instead, as messages say it. `others`: a line about what has no name.
    `section`: where the page of the migration has the table of differences.
    """

    page: str
    room: str
    names: Mapping[str, str]
    others: str
    section: str = "What differs, and why"


def _below(owner: str, names: Mapping[str, str]) -> dict[str, str]:
    return {f"{owner}.{name}" if owner else name: why for name, why in names.items()}


FACES: dict[str, Face] = {
    "DALI": Face(
        "dali",
        "graph",
        {
            **_below("fn", OPERATORS),
            **OF_GRAPHS,
            **{full: why for module, names in dali.ABSENT.items() for full, why in _below(module, names).items()},
        },
        "**Volumes**, but for `flip(depthwise=)`: cut by `slice`. **Arguments** that single operators lack: "
        "[the table]({docs}operators.md#dalis-operators).",
    ),
    "Magenta": Face(
        "magenta",
        "typed",
        OF_NOTES,
        "**Modules that the document does not describe** (chords, drums, lead sheets, performances, piano rolls): they "
        "are stages over note-seq, and run here once their import is changed.",
        "What is different, and better so",
    ),
    "MIDAS": Face(
        "midas",
        "on_device",
        on_device.ABSENT,
        "**`ShardedDeviceArray`**, which JAX no longer has: a batch is one global array for `jit`; "
        "`x.reshape(devices, -1, *x.shape[1:])` makes what `pmap` takes.",
    ),
    "Parakeet": Face(
        "parakeet",
        "map_style",
        parakeet.ABSENT,
        "**Models that are downloaded** (g2p_en, g2pM): a lexicon, `English(read_lexicon(path))`, and pypinyin. "
        "**Paddle's tensors**: `paddle.to_tensor(array)` of a batch.",
    ),
    "SeqIO": Face(
        "seqio",
        "seqio",
        {**seqio.ABSENT, **_below("BertWordPieceVocabulary", bert_word_piece.ABSENT)},
        "**Options**: `use_fast_tokenizer` and `use_custom_ops` are accepted without effect; `--output_format` is "
        "TFRecord. **Names that start with an underscore**: only those that subclasses override (`_convert_example`, "
        "`_convert_features`, `_concat_and_add_masks`, `_pack_or_pad`, `_validate_dataset`, `_encode`, `_decode`, "
        "`_encode_tf`, `_decode_tf`, `_base_vocab_size`). **Names of `typing`**: import them from there.",
        "What is different, on purpose",
    ),
}


def _names(table: Mapping[str, str]) -> str:
    """`a`, `b` (why); `c`, `d` and 7 more (why): names by the reason for their absence."""
    by_reason: dict[str, list[str]] = {}
    for name, why in table.items():
        by_reason.setdefault(why, []).append(f"`{name}`")
    return "; ".join(
        f"{', '.join(names if len(names) < 6 else names[:2])}"
        f"{f' and {len(names) - 2} more' if len(names) > 5 else ''} ({why})"
        for why, names in by_reason.items()
    )


def _differences(face: Face) -> int:
    """The rows of the table of differences."""
    page = (ROOT / f"docs/migrate-from-{face.page}.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {face.section}\n")[2].partition("\n## ")[0]
    return sum(line.startswith("| ") for line in section.splitlines()) - 2


def lines(face: Face, docs: str, own: str) -> str:
    """The three lines, with links that begin with `docs`, and with `own` to the page of the migration."""
    anchor = re.sub(r"[^\w -]", "", face.section.lower()).replace(" ", "-")
    return "\n".join(
        [
            f"- **Names that are not here**, and what to do instead: {_names(face.names)}.",
            f"- {face.others.format(docs=docs)}" if "{docs}" in face.others else f"- {face.others}",
            f"- **What is there, but differs**: {_differences(face)} rows, each with the reason, in "
            f"[{face.section}]({own}#{anchor}).",
        ]
    )


def pages() -> dict[str, str]:
    """The pages of the faces, with the lines of today between their marks."""
    made = {}
    for face in FACES.values():
        for name, docs, own in (
            (f"docs/migrate-from-{face.page}.md", "", ""),
            (f"beam_pipes/{face.room}/README.md", "../../docs/", f"../../docs/migrate-from-{face.page}.md"),
        ):
            before, _, rest = (ROOT / name).read_text(encoding="utf-8").partition(BEGIN)
            made[name] = f"{before}{BEGIN}{lines(face, docs, own)}\n{END}{rest.partition(END)[2]}"
    return made
