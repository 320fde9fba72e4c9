"""Translation of number words, English to German and French: two tasks and a mixture over one SentencePiece vocabulary.

python -m examples.translation
beam-pipes build --tasks 'numbers_.*' --module-import examples.translation --to .demo/translation/caches
python -m examples.translator
"""

from __future__ import annotations

import difflib
import functools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import sentencepiece

from beam_pipes import tasks

ROOT = Path(".demo/translation")
CACHES, MODEL = ROOT / "caches", ROOT / "numbers.model"
# Language → training pairs: German is the large language here, French the small one.
PAIRS = {"German": 3000, "French": 1000}
VALIDATION_PAIRS = 100

UNITS = {
    "English": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen",
    "German": "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn",
    "French": "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept "
    "dix-huit dix-neuf",
}
TENS = {
    "English": "twenty thirty forty fifty sixty seventy eighty ninety",
    "German": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
    "French": "vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt",
}


def below_hundred(number: int, language: str) -> str:
    """21 → `twenty-one`, `einundzwanzig`, `vingt et un`; 75 → `soixante-quinze`."""
    units, tens = UNITS[language].split(), TENS[language].split()
    if number < 20:
        return units[number]
    ten, unit = tens[number // 10 - 2], number % 10
    if language == "French" and number // 10 in (7, 9):
        unit += 10
    if language == "German":
        return f"{units[unit]}und{ten}" if unit else ten
    if language == "French" and unit in (1, 11) and number < 80:
        return f"{ten} et {units[unit]}"
    if language == "French" and number == 80:
        return "quatre-vingts"
    return f"{ten}-{units[unit]}" if unit else ten


def number_words(number: int, language: str) -> str:
    """1 to 9,999 in words: 2,301 → `two thousand three hundred one`, `zweitausenddreihunderteins`."""
    parts = []
    for size, names in ((1000, ("thousand", "tausend", "mille")), (100, ("hundred", "hundert", "cent"))):
        name = dict(zip(UNITS, names, strict=True))[language]
        count, number = divmod(number, size)
        if count and language == "French":
            ends = "s" if size == 100 and count > 1 and not number else ""
            parts += [name + ends] if count == 1 else [below_hundred(count, language), name + ends]
        elif count:
            parts += [below_hundred(count, language), name]
    if number:
        parts.append("eins" if language == "German" and number == 1 else below_hundred(number, language))
    return ("" if language == "German" else " ").join(parts)


def write_files(*, seed: int = 0) -> None:
    """Writes `{language}.{split}.tsv`, each number in one split of a language only, and trains the vocabulary."""
    ROOT.mkdir(parents=True, exist_ok=True)
    texts = []
    for language, count in PAIRS.items():
        numbers = random.Random(f"{seed} {language}").sample(range(1, 10_000), count + VALIDATION_PAIRS)
        lines = [f"{number_words(n, 'English')}\t{number_words(n, language)}\n" for n in numbers]
        for split, some in (("train", lines[:count]), ("validation", lines[count:])):
            (ROOT / f"{language}.{split}.tsv").write_text("".join(some), encoding="utf-8")
        texts += [f"translate English to {language}: {text}" for line in lines[:count] for text in line.split("\t")]
    with MODEL.open("wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=writer,
            model_type="bpe",
            vocab_size=256,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            num_threads=1,
            minloglevel=2,
        )


@tasks.python_map
def pair(line: bytes, *, language: str) -> Mapping[str, str]:
    """`b"two\\tzwei"` → `{"inputs": "translate English to German: two", "targets": "zwei"}`."""
    english, other = line.decode().split("\t")
    return {"inputs": f"translate English to {language}: {english}", "targets": other}


def right(targets: Sequence[str], predictions: Sequence[str]) -> Mapping[str, float]:
    """`right`: how many of 100 translations are without any fault; `alike`: how alike their letters are, of 100."""
    pairs = list(zip(targets, predictions, strict=True))
    alike = [difflib.SequenceMatcher(None, target, prediction).ratio() for target, prediction in pairs]
    return {
        "right": 100 * sum(target == prediction for target, prediction in pairs) / len(pairs),
        "alike": 100 * sum(alike) / len(pairs),
    }


vocabulary = tasks.SentencePieceVocabulary(str(MODEL))


def register() -> None:
    """Registers a task for each language, and their mixture."""
    for language in PAIRS:
        tasks.TaskRegistry.add(
            f"numbers_{language.lower()}",
            source=tasks.TextLineDataSource({s: str(ROOT / f"{language}.{s}.tsv") for s in ("train", "validation")}),
            preprocessors=[
                functools.partial(pair, language=language),
                tasks.preprocessors.tokenize,
                tasks.CacheDatasetPlaceholder(),
                tasks.preprocessors.append_eos_after_trim,
            ],
            output_features={
                "inputs": tasks.Feature(vocabulary, add_eos=False),
                "targets": tasks.Feature(vocabulary),
            },
            metric_fns=[right],
        )
    # Temperature 2 takes the roots of the sizes: a small language comes more often than its share of examples.
    tasks.MixtureRegistry.add(
        "numbers",
        [f"numbers_{language.lower()}" for language in PAIRS],
        default_rate=functools.partial(tasks.mixing_rate_num_examples, temperature=2.0),
    )


register()

if __name__ == "__main__":
    write_files()
    print(f"{len(list(ROOT.glob('*.tsv')))} files of pairs and the vocabulary {MODEL.name} lie in {ROOT}")
