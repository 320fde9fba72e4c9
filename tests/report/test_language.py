"""Token ids as language: numbers, boundaries of tokens, the page and the commands."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from beam_pipes.cache import Cache, FeatureSpec, write_cache
from beam_pipes.errors import DeclarationError
from beam_pipes.loader import pack
from beam_pipes.recipes import open_tokenizer
from beam_pipes.report import language_of, report_html
from beam_pipes.report.language import pieces_of, token_features

TEXTS = ["the dog is a dog", "the cat is not a dog", "the dog is a dog", "naïve façade: 犬", "the\tend\n"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(TEXTS[:3] * 5, trainers.BpeTrainer(
        vocab_size=280, special_tokens=["<eos>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))  # fmt: skip
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory, tokenizer):
    vocabulary = open_tokenizer(tokenizer)
    path = tmp_path_factory.mktemp("language") / "cache"
    examples = [
        {"tokens": np.array([*vocabulary.encode(text), 0], np.int32), "lang": "en" if number % 3 else "fr", "n": number}
        for number, text in enumerate(TEXTS * 4)
    ]
    features = {"tokens": FeatureSpec("int32", shape=(None,)), "lang": FeatureSpec("str"), "n": FeatureSpec("int64")}
    write_cache(path, {"train": examples}, features=features)
    return Cache.open(path)


def test_pieces_show_where_tokens_end_and_keep_characters_whole(tokenizer):
    vocabulary = open_tokenizer(tokenizer)

    assert "".join(pieces_of(vocabulary, vocabulary.encode(TEXTS[0]))) == TEXTS[0]
    assert pieces_of(vocabulary, vocabulary.encode("犬 a")) == [
        "犬",
        " a",
    ]  # three tokens of one byte each are one piece
    assert pieces_of(vocabulary, vocabulary.encode(TEXTS[4]))[-1] == "\\n"
    assert pieces_of(open_tokenizer("bytes"), [119, 114, 1]) == ["t", "o", "⟨1⟩"]
    assert pieces_of(vocabulary, [0])[0].startswith("⟨<") and vocabulary.name_of(5) is None
    assert pieces_of(open_tokenizer("bytes"), [119] * 100, most=3) == ["t", "t", "t", "…"]


def test_the_tokens_of_a_split_are_counted(cache, tokenizer):
    assert token_features(cache, "train") == ["tokens"]
    vocabulary = open_tokenizer(tokenizer)

    found = language_of(cache, "train", "tokens", vocabulary)

    ids = [cache["train"][row]["tokens"].tolist() for row in range(20)]
    assert (found.records, found.of, found.tokens) == (20, 20, sum(map(len, ids)))
    assert found.distinct == len({each for row in ids for each in row})
    assert found.duplicates == pytest.approx(16 / 20)  # four different texts
    top = found.frequent[0]
    assert (
        top.count == max(sum(row.count(top.id) for row in ids) for _ in [0]) and top.share == top.count / found.tokens
    )
    text_bytes = 4 * sum(len(text.encode()) for text in TEXTS)
    decoded = sum(len(vocabulary.decode(row).encode()) for row in ids)
    assert decoded >= text_bytes and found.tokens_per_byte == pytest.approx(found.tokens / decoded)
    assert found.categories == {"lang": [("en", 0.65), ("fr", 0.35)]}
    assert [row for row, _ in found.samples] == [0, 9, 19]


def test_another_tokenizer_is_refused(cache):
    with pytest.raises(DeclarationError, match=r"train.tokens has the id \d+, and the tokenizer has 259 ids. Name the"):
        language_of(cache, "train", "tokens", open_tokenizer("bytes"))


def test_the_page_has_a_chapter_of_it(cache, tokenizer):
    page = report_html(cache, vocabulary=open_tokenizer(tokenizer))

    assert '<h2 id="language">Language</h2>' in page and "tokens per byte of text" in page
    assert re.search(r"<code> dog</code></th><td class=\"n\">\d+", page)
    assert "80" in re.search(r"([\d.]+)\s?% of these records repeat", page).group(1)
    assert "language" not in report_html(cache)


def told(*arguments, code=0):
    done = subprocess.run([sys.executable, "-m", "beam_pipes", *map(str, arguments)],
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_commands_show_tokens_and_the_first_batch_of_a_loader(cache, tokenizer, tmp_path):
    one = told("inspect", cache.path, "-n", "1", "--tokens", tokenizer)
    assert re.search(r"^      (t\|?h\|?e|the)\|.* .*⟨<eos>⟩$", one, re.MULTILINE), one

    options = ["--batch-size", "2", "--seed", "3", "-n", "1", "--tokens", tokenizer, "--sequence-length", "tokens=32"]
    loader = told("inspect", cache.path, "--loader", *options)
    assert "rows of 32 tokens, packed by best_fit" in loader and "order: global, seed 3" in loader
    assert "first batch: tokens int32[2, 32], segment_ids" in loader and "segment 1: " in loader

    plain = told("inspect", cache.path, "--loader", "-n", "1", "--where", "n < 4")
    assert "Loader: batches of 4 rows" in plain and "4 records where n < 4" in plain

    told("report", cache.path, "--tokens", tokenizer, "--to", tmp_path / "page.html")
    assert "Language" in (tmp_path / "page.html").read_text()
    words = told("inspect", "--task", "a_task", "--loader", code=1)
    assert "--loader and --tokens show a cache" in " ".join(words.split())
    assert "is not a known tokenizer" in told("inspect", cache.path, "--tokens", "words", code=1)


@pytest.mark.parametrize("row_length", [5, 12, 70])
def test_the_page_packs_texts_as_the_forecast_does_and_shows_no_mean_of_ids(cache, tokenizer, row_length):
    rows = pack(cache["train"], sequence_length=row_length, feature="tokens", overlong="split")

    page = report_html(cache, vocabulary=open_tokenizer(tokenizer), row_length=row_length)

    assert "Packed rows hold all pieces of longer records; one record a row cuts these off." in page
    waste = f'>{row_length}</th><td class="n">{100 * rows.waste:.2f} %</td><td class="n">{len(rows)}</td>'
    assert waste in page, re.findall(r"packed rows.*?</table>", page, re.DOTALL)
    assert page.count("train: tokens</h3>") == 2  # lengths and language, and no values
    assert "train: n</h3>" in page and "train: lang</h3>" not in page  # its values are shown
    assert report_html(cache).count("train: tokens</h3>") == 2 and "train: lang</h3>" in report_html(cache)
