"""What a loader says of what it reads."""

from __future__ import annotations

from loader_caches import DOCUMENTS, documents, write_split

from beam_pipes.loader import Loader, Mixture, pack
from beam_pipes.loader.row_source import PaddedSplit


def test_a_tree_from_the_run_down_to_the_manifests(tmp_path, document_split):
    part = write_split(tmp_path / "web", documents(20, seed=3), DOCUMENTS).where("len(tokens) > 4")
    plan = pack(document_split, sequence_length=40, max_segments=3, seed=7, reshuffle_each_iteration=True)
    loader = Loader(
        Mixture([(plan, 3), (pack(part, sequence_length=40, overlong="drop"), 1)]),
        batch_size=8, seed=5, epochs=None, host_index=1, host_count=2,
    )  # fmt: skip

    lines = loader.describe().splitlines()

    assert lines[:5] == [
        "Loader: batches of 8 rows, no end of an epoch, epochs without end, last='drop'",
        "├─ order: global, seed 5",
        "├─ this process: rows 4 to 7 of each batch (host 1 of 2)",
        "├─ features: tokens",
        "└─ mixture, exhausted='repeat'",
    ]
    assert lines[5] == (
        f"   ├─ 0.75 of the rows: {len(plan)} rows of 40 tokens, packed by best_fit, seed 7, drawn again in "
        "each epoch, at most 3 segments"
    )
    assert lines[6] == f"   │  ├─ 1,576 tokens, {plan.waste:.3%} padding, plan {plan.digest}"
    assert lines[8] == f"   │     └─ 103 records in 3 shards, manifest {document_split.manifest_id}"
    assert lines[9].startswith("   └─ 0.25 of the rows: ")
    assert f"      └─ {len(part)} records where len(tokens) > 4" in lines
    loader.set_rates([1, 1])
    assert "0.5 of the rows" in loader.describe() and "0.75 of the rows" not in loader.describe()


def test_a_split_padded_rows_and_lost_tokens(document_split):
    title, *_, split, records = Loader(document_split, batch_size=4, epochs=2).describe().splitlines()
    assert title == "Loader: batches of 4 rows, 25 steps in an epoch, 2 epochs, last='drop'"
    assert split == f"└─ split 'train' of {document_split.path!r}"
    assert records.startswith("   └─ 103 records in 3 shards, manifest ")

    padded = PaddedSplit(split=document_split, sequence_lengths={"tokens": 50, "id": None})
    assert (
        "└─ 103 rows, padded: tokens to 50, id as stored; overlong='error'" in Loader(padded, batch_size=4).describe()
    )
    cut = pack(document_split, sequence_length=20)
    assert f"{cut.truncated_tokens} tokens cut off" in Loader(cut, batch_size=4).describe()
    dropped = pack(document_split, sequence_length=20, overlong="drop")
    output = f"{dropped.dropped_tokens} tokens of {dropped.dropped_records} records left out"
    assert output in Loader(dropped, batch_size=4).describe()
