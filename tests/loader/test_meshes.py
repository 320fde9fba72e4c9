"""Loaders under meshes of four processes: what every rank reads, compared with the global batches of one process."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from world_processes import run_world, worlds

from beam_pipes.errors import LoaderError
from beam_pipes.loader import Loader, Mixture, pack
from beam_pipes.loader.mesh import MeshShare, SequenceShare, mesh_share
from beam_pipes.loader.world import HostSlice

ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
# The places of a row of 64 in the parts of two.
ZIGZAG = [[*range(16), *range(48, 64)], [*range(16, 48)]]
CONTIGUOUS = [[*range(32)], [*range(32, 64)]]


def batches_of(loader):
    return [{name: array.tolist() for name, array in batch.items()} for batch in loader]


def alone(split, *, batch_size=4, segment_multiple=4, **options):
    """The global batches, read by one process."""
    plan = pack(split, sequence_length=64, segment_multiple=segment_multiple)
    return list(Loader(plan, batch_size=batch_size, seed=1, host_count=1, **options))


def places_by_segment(bounds, part, count=2):
    """Places of the flattened batch of one part of the documents between these bounds, by the definition."""
    places = []
    for begin, end in itertools.pairwise(bounds):
        chunk = (end - begin) // (2 * count)
        for number in (part, 2 * count - 1 - part):
            places += range(begin + number * chunk, begin + (number + 1) * chunk)
    return places


@pytest.fixture(scope="module")
def of_torch(document_split, row_split):
    """What four processes of torch found."""
    return run_world("torch_mesh.py", 4, document_split.path, row_split.path, environment=ON_CPU)


@pytest.mark.parametrize(("order", "places"), [("contiguous", CONTIGUOUS), ("zigzag", ZIGZAG)])
def test_ranks_read_their_rows_and_their_part_of_each_sequence(of_torch, document_split, order, places):
    whole = alone(document_split)

    for rank, found in enumerate(of_torch):
        dp, cp = divmod(rank, 2)
        expected = [
            {name: array[2 * dp : 2 * dp + 2][:, places[cp]].tolist() for name, array in batch.items()}
            for batch in whole
        ]
        assert len(expected) > 2
        assert found["orders"][order] == expected


def test_documents_are_cut_one_by_one_for_kernels_of_varying_lengths(of_torch, document_split):
    whole = alone(document_split, cu_seqlens=True, host_index=None)

    for rank, found in enumerate(of_torch):
        dp, cp = divmod(rank, 2)
        for batch, part in zip(whole, found["orders"]["segments"], strict=True):
            rows = slice(2 * dp, 2 * dp + 2)
            inside = [bound - 128 * dp for bound in batch["cu_seqlens"].tolist() if 128 * dp <= bound <= 128 * dp + 128]
            assert part["cu_seqlens"] == inside
            places = places_by_segment(inside, cp)
            for name in ("tokens", "segment_ids", "positions"):
                flat = batch[name][rows].reshape(-1)
                assert part[name] == flat[places].reshape(2, 32).tolist()


def test_axes_that_divide_nothing_read_the_same(of_torch, document_split):
    whole = alone(document_split)

    for rank, found in enumerate(of_torch):
        first = rank // 2 * 2
        expected = [{name: array[first : first + 2].tolist() for name, array in batch.items()} for batch in whole]
        assert found["tensor parallel"] == found["pipeline parallel"] == expected


def test_several_axes_divide_the_rows_the_last_one_fastest(of_torch, document_split):
    whole = alone(document_split)

    for rank, found in enumerate(of_torch):
        replicate, shard = divmod(rank, 2)
        for name, row in (("replicate and shard", rank), ("shard and replicate", 2 * shard + replicate)):
            expected = [{key: array[row : row + 1].tolist() for key, array in batch.items()} for batch in whole]
            assert found[name] == expected


def test_a_mesh_of_one_dimension_needs_no_name(of_torch):
    assert [found["one dimension"] for found in of_torch] == [[rank, 4] for rank in range(4)]


def test_only_the_sequence_may_be_divided(of_torch, document_split):
    for rank, found in enumerate(of_torch):
        places = CONTIGUOUS[rank % 2]
        expected = [
            {name: array[:, places].tolist() for name, array in batch.items()} for batch in alone(document_split)
        ]
        assert found["only the sequence"] == expected


def test_conversions_and_pickles_keep_the_mesh(of_torch):
    for rank, found in enumerate(of_torch):
        assert found["as tensors"] == found["from a cache"] == found["orders"]["contiguous"]
        assert found["pickled"] == found["orders"]["zigzag"][1:]
        assert found["places"] == [[0, 1, 6, 7], [2, 3, 4, 5]][rank % 2]


def test_a_loader_describes_its_mesh(of_torch):
    assert of_torch[3]["described"] == [
        "├─ this process: rows 2 to 3 of each batch (host 1 of 2)",
        "├─ mesh: dp=1 of 2, cp=1 of 2 of torch's DeviceMesh; parts 1 to 1 of 2 of each row, order zigzag",
    ]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            "host options",
            "mesh says which rows this process reads (dp=0 of 2, cp=0 of 2 of torch's DeviceMesh), and host_index=0, "
            "host_count=2 were given too. Omit them, or omit mesh.",
        ),
        (
            "no spec",
            "which axes of the mesh {'dp': 2, 'cp': 2} divide the batch? Name those of the rows in spec=('dp',), and a "
            "second one for the places of a row: spec=('dp', 'cp'). Processes along all other axes read the same.",
        ),
        ("unknown axis", "spec=('dp', 'ep') names the axis 'ep', which the mesh does not have; it has: dp, cp"),
        ("axis twice", "spec=('dp', 'dp') names the axis 'dp' twice; each divides one dimension"),
        (
            "three",
            "spec=('dp', None, 'cp') divides 3 dimensions, and a loader divides the rows and the places of a row.",
        ),
        (
            "order alone",
            "sequence_order='zigzag' arranges the places of a row over an axis of the mesh, and spec=('dp',) names "
            "none for them. Name it second: spec=('data', 'context').",
        ),
        ("unknown order", "sequence_order should be one of contiguous, zigzag, segments, got 'striped'"),
        (
            "odd batch",
            "global batches have 5 rows, which do not divide into the 2 parts of the mesh (dp=0 of 2, cp=0 of 2 of "
            "torch's DeviceMesh). Pass a batch_size, of all processes together, that is a multiple of 2",
        ),
        ("token batches", "for TokenBatches, multiple_of=2."),
        (
            "ragged",
            "feature 'tokens' is as long as the longest row of each batch, which may not be divisible by the 2 parts "
            "that the mesh cuts a sequence into. Pass pad_to={'tokens': …}, or pack the rows.",
        ),
        (
            "values",
            "tokens: ragged='values' concatenates rows of all lengths, which the mesh cannot cut into equal parts.",
        ),
        (
            "length",
            "feature 'tokens' has rows of 63 places, which do not divide into the 2 parts that the mesh cuts a "
            "sequence into (sequence_order='contiguous' over 2 processes or devices). Use a length that is a multiple "
            "of 2; a feature that is no sequence is left out by features=[…], or made flat by transform=….",
        ),
        (
            "segments",
            "sequence_order='segments' cuts each document into 4 equal parts, but the segments of these rows are "
            "multiples of 1 positions. Pass pack(…, segment_multiple=4).",
        ),
        ("transformed", "feature 'three' has rows of 3 places, which do not divide into the 2 parts"),
        (
            "unnamed",
            "this DeviceMesh has no names for its dimensions, so a spec cannot say which of them divide a batch.",
        ),
        ("a number", "spec should name axes of the mesh (dp, cp), such as spec=('dp',), got 5"),
        ("numbers", "spec should name axes of the mesh (dp, cp), such as spec=('dp',), got (0, 1)"),
    ],
)
def test_contradictions_are_refused(of_torch, case, words):
    assert of_torch[0]["refused"][case].startswith("LoaderError: ")
    assert words in of_torch[0]["refused"][case]


@pytest.fixture(scope="module")
def of_jax(document_split):
    """What four processes of JAX with two devices each found."""
    environment = {**ON_CPU, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    return run_world("jax_mesh.py", 4, document_split.path, environment=environment)


def of_parts(batch, order, count):
    """The tokens of a batch, the places of all parts one after the other, as a global array holds them."""
    tokens = batch["tokens"]
    if order == "contiguous":
        return tokens.tolist()
    if order == "zigzag":
        chunks = np.split(tokens, 2 * count, axis=1)
        pairs = [[chunks[part], chunks[2 * count - 1 - part]] for part in range(count)]
        return np.concatenate(list(itertools.chain(*pairs)), axis=1).tolist()
    rows = []
    for row, ids in zip(tokens, batch["segment_ids"], strict=True):
        starts = [place for place in range(0, 64, 16) if ids[place] != (ids[place - 16] if place else -1)]
        bounds = [*starts, 64]
        rows.append(list(itertools.chain(*(row[places_by_segment(bounds, part, count)] for part in range(count)))))
    return np.array(rows).tolist()


@pytest.mark.parametrize(
    ("mesh", "count", "shares", "parts"),
    [
        ("context within a process", 2, [[0, 4], [1, 4], [2, 4], [3, 4]], [[0, 2, 2]] * 4),
        ("context over processes", 4, [[0, 2], [0, 2], [1, 2], [1, 2]], [[0, 2, 4], [2, 4, 4]] * 2),
        ("context and tensor", 2, [[0, 2], [0, 2], [1, 2], [1, 2]], [[0, 1, 2], [1, 2, 2]] * 2),
    ],
)
@pytest.mark.parametrize("order", ["contiguous", "zigzag", "segments"])
def test_sequences_are_divided_within_and_over_processes_of_jax(
    of_jax, document_split, mesh, count, shares, parts, order
):
    whole = alone(document_split, batch_size=8, segment_multiple=16)
    expected = [of_parts(batch, order, count) for batch in whole]

    assert len(expected) > 1
    for rank, found in enumerate(of_jax):
        found = found[f"{mesh}, {order}"]
        assert (found["share"], found["parts"]) == (shares[rank], parts[rank])
        assert found["global"] == expected
        (index, hosts), (first, last, _) = shares[rank], parts[rank]
        mine = np.array(expected[0])[8 * index // hosts : 8 * (index + 1) // hosts]
        assert found["local"] == mine[:, 64 * first // count : 64 * last // count].tolist()


@pytest.mark.parametrize(
    ("mesh", "shares"),
    [("data", [[0, 4], [1, 4], [2, 4], [3, 4]]), ("tensor", [[0, 2], [0, 2], [1, 2], [1, 2]])],
)
def test_a_named_sharding_says_which_rows_a_process_reads(of_jax, document_split, mesh, shares):
    whole = [batch["tokens"].tolist() for batch in alone(document_split, batch_size=8, segment_multiple=16)]

    for rank, found in enumerate(of_jax):
        assert found[f"{mesh}, contiguous"]["share"] == shares[rank]
        assert found[f"{mesh}, contiguous"]["global"] == whole


def test_a_mesh_of_jax_with_a_spec_is_a_named_sharding(of_jax):
    assert [found["mesh and spec"] for found in of_jax] == [[rank // 2, 2, True] for rank in range(4)]


def test_devices_of_a_mesh_may_come_in_any_order(of_jax):
    assert [found["in any order"] for found in of_jax] == [[]] * 4


def test_parts_that_are_no_slice_are_named(of_jax):
    assert [found["alternating"] for found in of_jax[:2]] == [
        [
            "parts 0, 2 of 8",
            [
                "├─ this process: rows 0 to 0, 2 to 2 of each batch (host 0 of 4)",
                "├─ mesh: data=0, 2 of 8 of JAX's Mesh; whole rows",
            ],
        ],
        [
            "parts 4, 6 of 8",
            [
                "├─ this process: rows 4 to 4, 6 to 6 of each batch (host 2 of 4)",
                "├─ mesh: data=4, 6 of 8 of JAX's Mesh; whole rows",
            ],
        ],
    ]


def test_what_a_sharding_contradicts_is_refused(of_jax):
    refused = of_jax[0]["refused"]

    assert refused["two specs"] == (
        "LoaderError: mesh is a NamedSharding, which has the spec P('data',), and spec=('data',) was given "
        "too. Leave spec out, or pass the mesh alone: mesh=sharding.mesh."
    )
    assert refused["another sharding"].startswith(
        "LoaderError: the loader hands out parts 0 to 1 of 4 of each row, as its mesh says, and the devices of this "
        "process need parts 0 to 0 of 1 by P('data',) over {'data': 8}. Pass the same sharding to both:"
    )
    assert refused["elsewhere"] == (
        "LoaderError: no device of this process is in JAX's Mesh {'data': 2}, so there is nothing for it to read. Make "
        "the mesh of all processes, or create the loader only in those that are in it."
    )


@pytest.fixture(scope="module")
def of_training(row_split, tmp_path_factory):
    """Twelve steps by 4, 2, 3 and again 4 processes, each world going on where the last stopped; and by one process."""

    with worlds("torch_training.py", environment=ON_CPU) as of_training:

        def world(count, first, last, directory):
            return of_training.run(count, row_split.path, str(first), str(last), str(directory))

        directory = tmp_path_factory.mktemp("stopped")
        stopped = [world(count, 3 * number, 3 * number + 3, directory) for number, count in enumerate((4, 2, 3, 4))]
        return stopped, world(1, 0, 12, tmp_path_factory.mktemp("alone"))[0]


@pytest.mark.parametrize("kind", ["DistributedDataParallel", "FSDP2"])
def test_a_run_continues_with_any_number_of_processes(of_training, row_split, kind):
    stopped, alone = of_training
    losses, rows = [], []
    for world in stopped:
        ranks = [rank[kind] for rank in world]
        assert len({tuple(rank["losses"]) for rank in ranks}) == 1
        losses += ranks[0]["losses"]
        rows += [list(itertools.chain(*step)) for step in zip(*(rank["ids"] for rank in ranks), strict=True)]

    whole = Loader(row_split, batch_size=12, epochs=None, seed=3, features=["id"])
    assert rows == alone[kind]["ids"] == [batch["id"].tolist() for batch in itertools.islice(whole, 12)]
    assert losses == pytest.approx(alone[kind]["losses"], rel=1e-5)
    assert losses[-1] != losses[0]


@given(
    count=st.integers(1, 5),
    order=st.sampled_from(["contiguous", "zigzag"]),
    chunks=st.integers(0, 4),
)
def test_the_parts_of_a_sequence_are_all_of_it_once(count, order, chunks):
    length = chunks * 2 * count
    parts = [SequenceShare(first=part, last=part + 1, count=count, order=order) for part in range(count)]

    places = [part.places(length).tolist() for part in parts]

    assert sorted(itertools.chain(*places)) == list(range(length))
    assert {len(each) for each in places} == {length // count}
    whole = SequenceShare(first=0, last=count, count=count, order=order)
    assert whole.places(length).tolist() == list(itertools.chain(*places))
    if order == "zigzag" and chunks:  # as many pairs of a place and one before it
        assert len({sum(each) // chunks for each in places}) == 1


def test_places_that_do_not_divide_are_refused():
    with pytest.raises(LoaderError, match="a row of 6 places does not divide into 4 equal parts"):
        SequenceShare(first=0, last=1, count=2, order="zigzag").places(6)
    with pytest.raises(LoaderError, match="sequence_order='segments' depend on the documents of each row"):
        SequenceShare(first=0, last=1, count=2, order="segments").places(8)


def of_part(part, count=2, order="segments"):
    share = HostSlice(index=0, count=1, chosen_by="mesh")
    return MeshShare(share=share, sequence=SequenceShare(first=part, last=part + 1, count=count, order=order), mesh="")


def test_a_taken_mesh_share_is_a_mesh(document_split):
    plan = pack(document_split, sequence_length=64, segment_multiple=4)
    first, second = (Loader(plan, batch_size=4, mesh=of_part(part)) for part in range(2))

    for left, right, whole in zip(first, second, Loader(plan, batch_size=4), strict=True):
        both = np.concatenate([left["tokens"], right["tokens"]], axis=1)
        assert np.sort(both, axis=1).tolist() == np.sort(whole["tokens"], axis=1).tolist()


def test_stacked_batches_are_cut_too(document_split):
    plan = pack(document_split, sequence_length=64)
    loader = Loader(plan, batch_size=4, mesh=of_part(1, order="zigzag"))

    stacked = loader.batches_at(1, 3)

    assert stacked["tokens"].shape == (3, 4, 32)
    assert [batch.tolist() for batch in stacked["tokens"]] == [loader.batch_at(n)["tokens"].tolist() for n in (1, 2, 3)]


def test_plans_of_a_mixture_have_one_segment_multiple(document_split, other_split):
    plans = [
        (pack(split, sequence_length=64, segment_multiple=multiple), 1)
        for split, multiple in ((document_split, 4), (other_split, 8))
    ]
    with pytest.raises(LoaderError, match="have segment_multiple 4 and 8, and the boundaries of segments need one"):
        Loader(Mixture(plans, exhausted="drop"), batch_size=4, cu_seqlens=True)


def test_a_mesh_needs_to_be_one():
    with pytest.raises(LoaderError, match="mesh should be a DeviceMesh of torch, .* got int"):
        mesh_share(3)
    with pytest.raises(LoaderError, match="spec=\\('dp',\\) names axes of a mesh, and there is none: pass mesh=… too"):
        mesh_share(None, spec=("dp",))
    with pytest.raises(LoaderError, match="sequence_order='zigzag' arranges what a mesh divides: pass mesh=… too"):
        mesh_share(None, sequence_order="zigzag")
