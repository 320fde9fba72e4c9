"""The translation example, end to end on the pairs that it writes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cached_tasks import fresh_registries

from beam_pipes import Cache, tasks
from beam_pipes.runners import LocalOptions, cache_tasks
from beam_pipes.transforms.converters import EncDecFeatureConverter

with fresh_registries(Path()):  # importing them registers tasks, and other tests have registries of their own
    from examples import translation, translator

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with all files and caches, in which the example runs."""
    directory = tmp_path_factory.mktemp("translation")
    with pytest.MonkeyPatch.context() as patch, fresh_registries(translation.CACHES):
        patch.chdir(directory)
        translation.register()
        translation.write_files()
        results = cache_tasks("numbers_.*", translation.CACHES, options=LocalOptions(workers=1))
        assert ["built", "built"] == [result.outcome for result in results]
        yield directory / translation.CACHES


@pytest.mark.parametrize(
    ("number", "english", "german", "french"),
    [
        (1, "one", "eins", "un"),
        (21, "twenty-one", "einundzwanzig", "vingt et un"),
        (71, "seventy-one", "einundsiebzig", "soixante et onze"),
        (80, "eighty", "achtzig", "quatre-vingts"),
        (91, "ninety-one", "einundneunzig", "quatre-vingt-onze"),
        (101, "one hundred one", "einhunderteins", "cent un"),
        (200, "two hundred", "zweihundert", "deux cents"),
        (217, "two hundred seventeen", "zweihundertsiebzehn", "deux cent dix-sept"),
        (1000, "one thousand", "eintausend", "mille"),
        (
            9875,
            "nine thousand eight hundred seventy-five",
            "neuntausendachthundertfünfundsiebzig",
            "neuf mille huit cent soixante-quinze",
        ),
    ],
)
def test_numbers_in_words(number: int, english: str, german: str, french: str) -> None:
    spoken = [translation.number_words(number, language) for language in ("English", "German", "French")]

    assert [english, german, french] == spoken


def test_no_two_numbers_have_the_same_words() -> None:
    for language in translation.UNITS:
        assert 9999 == len({translation.number_words(number, language) for number in range(1, 10_000)})


def test_the_caches_hold_every_pair_as_tokens_that_decode_to_it() -> None:
    lines = Path(translation.ROOT, "German.train.tsv").read_text(encoding="utf-8").splitlines()
    split = Cache.open(translation.CACHES / "numbers_german")["train"]

    assert [3000, 3000] == [len(lines), len(split)]
    for index in (0, 1500, 2999):
        english, german = lines[index].split("\t")
        decoded = {name: translation.vocabulary.decode(split[index][name].tolist()) for name in ("inputs", "targets")}
        assert {"inputs": f"translate English to German: {english}", "targets": german} == decoded


def test_no_pair_to_validate_with_is_trained_on() -> None:
    for language in translation.PAIRS:
        train, validation = (
            set(Path(translation.ROOT, f"{language}.{split}.tsv").read_text(encoding="utf-8").splitlines())
            for split in ("train", "validation")
        )
        assert (translation.PAIRS[language], 100) == (len(train), len(validation))
        assert not train & validation


def test_the_small_language_comes_more_often_than_its_share_of_examples() -> None:
    plan = tasks.plan_loading("numbers", translator.LENGTHS, EncDecFeatureConverter(), exhaustion="repeat")
    loader = plan.loader(batch_size=16, seed=0, num_epochs=None)
    languages = {"German": 0, "French": 0}

    for step in range(20):
        batch = loader.batch_at(step)
        for row, segments in zip(batch["encoder_input_tokens"], batch["encoder_segment_ids"], strict=True):
            for segment in range(1, segments.max() + 1):
                text = translation.vocabulary.decode(row[segments == segment].tolist())
                found = re.match(r"translate English to (German|French): [a-z -]+$", text)
                assert found, text
                languages[found[1]] += 1

    share = languages["French"] / sum(languages.values())
    assert share == pytest.approx(1000**0.5 / (1000**0.5 + 3000**0.5), abs=0.02)
    assert plan.truncated_tokens == 0 and plan.waste is not None and plan.waste < 0.2


def test_examples_in_a_row_do_not_see_each_other() -> None:
    torch.manual_seed(0)
    model = translator.Translator(translation.vocabulary.vocab_size)
    batch = tasks.get_loader("numbers", translator.LENGTHS, EncDecFeatureConverter(), batch_size=2).batch_at(0)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in batch.items()}
    others = tensors["encoder_segment_ids"] != 2
    changed = dict(tensors, encoder_input_tokens=torch.where(others, 5, tensors["encoder_input_tokens"]))

    before, after = model(tensors), model(changed)

    second = tensors["decoder_segment_ids"] == 2
    torch.testing.assert_close(before[second], after[second])
    assert not torch.allclose(before[~second], after[~second])


def test_metrics_count_what_is_right_and_how_alike_the_rest_is() -> None:
    assert {"right": 50.0, "alike": 87.5} == translation.right(["zwei", "drei"], ["zwei", "dreu"])


def test_the_model_learns_and_translates() -> None:
    command = ["-m", "examples.translator", "--steps", "50", "--examples", "20"]

    # In a process of its own: an optimizer of torch loads Triton, which ends a process that has loaded TensorFlow.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    printed = subprocess.run(
        [sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout

    assert re.search(r"numbers, split train: [\d,]+ rows of 2 tasks, \d+\.\d\d% padding, 0 truncated", printed)
    first, last = (float(loss) for loss in re.findall(r"step (?:1|50): ([\d.]+) nats a token", printed))
    assert last < 0.4 * first
    for language in ("german", "french"):
        found = re.search(rf"numbers_{language}: \d+ of 100 right, letters (\d+) % alike", printed)
        assert found and int(found[1]) > 50
    assert re.search(r"translate English to French: four thousand three hundred twenty-one → [\w -]+\n", printed)
