from __future__ import annotations

import dataclasses
import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_caches import DOCUMENTS, documents, write_split

from beam_pipes.errors import LoaderError, StateMismatchError
from beam_pipes.loader import BlockShuffle, Loader, LoaderState, Mixture, pack

# Each starts up to twelve loaders. `--hypothesis-profile=explore` tries others, and many more of them.
EXAMPLES = 1000 if settings.get_current_profile_name() == "explore" else 80
BATCH = 12


def global_batches(loaders, count):
    """What all hosts get at each of the next steps, laid side by side."""
    steps = []
    for batches in itertools.islice(zip(*loaders, strict=True), count):
        steps.append({name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]})
    return steps


def assert_same(expected, found):
    assert len(expected) == len(found)
    for left, right in zip(expected, found, strict=True):
        assert left.keys() == right.keys()
        for name in left:
            assert np.array_equal(left[name], right[name]), name


@pytest.fixture(scope="module")
def packed_mixture(document_split, other_split):
    """Two packed splits, mixed 7 : 3 until all rows were read: packing, mixing and shuffling are on."""
    plans = [pack(split, sequence_length=40, overlong="split") for split in (document_split, other_split)]
    return Mixture(zip(plans, (0.7, 0.3), strict=True), exhausted="drop")


@pytest.fixture(scope="module")
def uninterrupted(packed_mixture):
    return global_batches([Loader(packed_mixture, batch_size=BATCH, seed=11, epochs=3, last="pad")], None)


@given(
    stop=st.integers(0, 14),
    hosts_before=st.integers(1, 6),
    hosts_after=st.integers(1, 6),
    workers=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    saved_by=st.integers(0, 5),
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_run_stopped_at_any_step_continues_exactly_on_any_number_of_hosts(
    packed_mixture, uninterrupted, stop, hosts_before, hosts_after, workers, saved_by
):
    def loaders(hosts, workers):
        options = {"batch_size": BATCH, "seed": 11, "epochs": 3, "last": "pad", "workers": workers}
        return [Loader(packed_mixture, host_index=host, host_count=hosts, **options) for host in range(hosts)]

    stop = min(stop, len(uninterrupted))
    before = loaders(hosts_before, workers[0])
    begun = global_batches(before, stop)
    states = {loader.get_state() for loader in before}
    assert len(states) == 1 and len(min(states)) < 1000

    after = loaders(hosts_after, workers[1])
    for loader in after:
        loader.set_state(before[saved_by % hosts_before].get_state())
    rest = global_batches(after, len(uninterrupted)) if stop < len(uninterrupted) else []

    assert_same(uninterrupted, begun + rest)


@pytest.mark.parametrize("shuffle", [True, False, BlockShuffle(window=2)], ids=["global", "stored", "blocks"])
@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
def test_a_plain_split_is_resumed_exactly_at_every_step(row_split, shuffle, last):
    def loader():
        return Loader(row_split, batch_size=30, epochs=2, shuffle=shuffle, last=last, seed=6)

    whole = global_batches([loader()], None)

    for stop in range(1, len(whole)):
        first = loader()
        global_batches([first], stop)
        second = loader()
        second.set_state(first.get_state())
        assert_same(whole[stop:], global_batches([second], None))


def test_another_batch_size_after_resuming_reads_the_same_rows_in_the_same_order(row_split):
    rows = np.concatenate([batch["id"] for batch in Loader(row_split, batch_size=100, epochs=2, seed=3)])
    first = Loader(row_split, batch_size=16, epochs=2, seed=3, last="partial")
    read = [batch["id"] for batch in itertools.islice(first, 3)]

    second = Loader(row_split, batch_size=7, epochs=2, seed=3, last="partial", workers=1)
    second.set_state(first.get_state())
    read += [batch["id"] for batch in second]

    assert np.concatenate(read).tolist() == rows.tolist()


def test_prefetched_batches_do_not_count_as_read(row_split):
    loader = Loader(row_split, batch_size=10, workers=2, prefetch=8)
    iterator = iter(loader)
    next(iterator)

    assert loader.state.position == 10
    iterator.close()
    assert loader.state.position == 10


def test_restoring_while_iterating_jumps(row_split):
    loader = Loader(row_split, batch_size=10, workers=1, epochs=2)
    iterator = iter(loader)
    expected = [next(iterator)["id"].tolist() for _ in range(12)][7:]

    state = LoaderState.from_dict({**loader.state_dict(), "epoch": 0, "position": 70})
    loader.restore(state)

    assert [next(iterator)["id"].tolist() for _ in range(5)] == expected
    iterator.close()


@pytest.mark.parametrize("restored", [True, False], ids=["restored", "iterated_anew"])
@pytest.mark.parametrize("fails", [False, True], ids=["read", "failed"])
def test_a_thread_that_still_reads_for_an_iterator_that_was_left_takes_nothing_from_the_next_one(
    row_split, restored, fails
):
    expected = [batch["id"].tolist() for batch in Loader(row_split, batch_size=8, seed=3)]
    reads, goes_on = threading.Event(), threading.Event()

    def transform(batch):
        if threading.current_thread() is not threading.main_thread():
            reads.set()
            assert goes_on.wait(60)
            if fails:
                raise ValueError("a disk that failed")
        return batch

    loader = Loader(row_split, batch_size=8, seed=3, transform=transform)
    left_behind: list[BaseException] = []
    old = iter(loader)
    seen = [next(old)["id"].tolist()]

    def read_one_more():
        try:
            next(old)
        except (LoaderError, ValueError) as error:
            left_behind.append(error)

    thread = threading.Thread(target=read_one_more)
    thread.start()
    assert reads.wait(60)
    if restored:
        loader.load_state_dict(loader.state_dict())
    new = iter(loader)
    seen += [next(new)["id"].tolist(), next(new)["id"].tolist()]  # of the second group one batch is left
    goes_on.set()
    thread.join()
    seen += [batch["id"].tolist() for batch in new]

    assert seen == expected
    assert len(left_behind) == 1
    assert ("a disk that failed" if fails else "was closed, or replaced by a newer one") in str(left_behind[0])


def test_all_protocols_hold_the_same_state(row_split):
    loader = Loader(row_split, batch_size=10)
    iterator = iter(loader)
    next(iterator)

    assert LoaderState.from_json(loader.get_state()).to_dict() == loader.state_dict() == iterator.state_dict()
    assert iterator.get_state() == loader.get_state()
    other = iter(Loader(row_split, batch_size=10))
    other.load_state_dict(loader.state_dict())
    expected = next(iterator)["id"].tolist()
    assert next(other)["id"].tolist() == expected
    other.set_state(loader.get_state().decode())
    assert next(other)["id"].tolist() == next(iterator)["id"].tolist()


def test_a_state_of_a_finished_run_has_nothing_left(row_split):
    loader = Loader(row_split, batch_size=10, epochs=2)
    list(loader)
    state = loader.get_state()

    again = Loader(row_split, batch_size=10, epochs=2)
    again.set_state(state)

    assert (again.epoch, again.position) == (2, 0)
    longer = Loader(row_split, batch_size=10, epochs=3)
    longer.set_state(state)
    assert len(list(longer)) == 10


def test_states_of_other_data_orders_and_plans_are_refused_with_the_difference(tmp_path, row_split, document_split):
    plan = pack(document_split, sequence_length=32)
    state = Loader(plan, batch_size=2, seed=1).state

    with pytest.raises(StateMismatchError, match="seed: 1 → 2"):
        Loader(plan, batch_size=2, seed=2).restore(state)
    with pytest.raises(StateMismatchError, match="shuffle: 'global' → 'stored'"):
        Loader(plan, batch_size=2, seed=1, shuffle=False).restore(state)
    with pytest.raises(StateMismatchError, match="source.plan: '[0-9a-f]+' → '[0-9a-f]+'"):
        Loader(pack(document_split, sequence_length=33), batch_size=2, seed=1).restore(state)
    with pytest.raises(StateMismatchError, match="source.plan: '[0-9a-f]+' → 'absent'; source.rows"):
        Loader(document_split, batch_size=2, seed=1).restore(state)
    with pytest.raises(StateMismatchError, match="order_version: 0 → 1"):
        Loader(plan, batch_size=2, seed=1).restore(dataclasses.replace(state, order_version=0))
    rebuilt = write_split(tmp_path / "rebuilt", documents(103, seed=5), DOCUMENTS)
    with pytest.raises(StateMismatchError, match="source.manifest: '[0-9a-f]+' → '[0-9a-f]+'"):
        Loader(rebuilt, batch_size=2, seed=1).restore(Loader(document_split, batch_size=2, seed=1).state)
    mixture = Mixture([(document_split, 1), (rebuilt, 1)])
    with pytest.raises(StateMismatchError, match=r"source.sources\[1\]: .* → 'absent'"):
        Loader(Mixture([(document_split, 1)]), batch_size=2, epochs=None).restore(
            Loader(mixture, batch_size=2, epochs=None).state
        )
    with pytest.raises(LoaderError, match="position 200 is outside an epoch of 100 rows"):
        Loader(row_split, batch_size=2).restore(
            dataclasses.replace(Loader(row_split, batch_size=2).state, position=200)
        )
