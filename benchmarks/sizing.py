"""Expected properties of a cache, by kind of data: bytes per input byte, records per second of one core, memory.

    python -m benchmarks.sizing --json sizing.json
    python -m benchmarks.sizing --megabytes 2 --kinds text pixels

Each kind is built by the local runner with one worker, in a process of its own. `cache_to_input`: bytes of the snapshot
(shards, indexes, lineage, the rest) over bytes of input. `index_and_lineage_bytes_per_record`: of the files beside
shards. `records_per_sec`, `input_bytes_per_sec`: of one core, by CPU time, planning and publishing included.
`peak_rss_bytes`: of the building process, all it imports included; a worker of a larger build needs that much.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.transforms.audio import write_wav
from benchmarks import sizing_stages
from benchmarks.harness import parser, report

# Kind → directory of its input. Input shared by several kinds is written once.
KINDS = {
    "text": "text",
    "byte_ids": "text",
    "subword_ids": "text",
    "subword_ids_as_list": "text",
    "rows": "rows",
    "encoded_images": "images",
    "pixels": "images",
    "mel": "sound",
}

_BUILD = """
import json, sys, time
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
started = time.process_time()
account = build(sys.argv[1], sys.argv[2], options=LocalOptions(workers=1)).account
secs = time.process_time() - started
with open("/proc/self/status") as file:  # getrusage would tell of the process that started this one, too
    peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))
print(json.dumps({"records": account.written, "read": account.read, "cpu_secs": secs, "peak_rss_bytes": peak}))
"""


def write_input(directory: Path, kind: str, num_bytes: int) -> None:
    """About `num_bytes` of input of one kind, the same every time."""
    target = directory / KINDS[kind]
    if kind.startswith("subword") and not (directory / "tokenizer.json").exists():
        train_tokenizer(directory / "tokenizer.json")
    if target.exists():
        return
    target.mkdir(parents=True)
    {"text": _write_text, "rows": _write_rows, "images": _write_images, "sound": _write_sound}[KINDS[kind]](
        target, num_bytes
    )


def paragraphs() -> list[str]:
    """The paragraphs of this Python's own sources, one per line, in the order of the files."""
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source = path.read_text(encoding="utf-8", errors="replace")
        found += [" ".join(part.split()) for part in source.split("\n\n") if len(part) > 40]
    return found


def train_tokenizer(path: Path, *, vocabulary: int = 16_000) -> None:
    """A byte-pair vocabulary, trained on every tenth paragraph."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(paragraphs()[::10], trainer)
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))


def _write_text(target: Path, num_bytes: int) -> None:
    block = ("\n".join(paragraphs()) + "\n").encode()
    text = (block * (num_bytes // len(block) + 1))[:num_bytes]
    (target / "corpus.txt").write_bytes(text[: text.rindex(b"\n") + 1].decode("utf-8", "ignore").encode())


def _write_rows(target: Path, num_bytes: int) -> None:
    rng = np.random.default_rng(0)
    with open(target / "rows.jsonl", "w", encoding="utf-8") as file:
        while file.tell() < num_bytes:
            values = np.round(rng.normal(size=16), 6).tolist()
            row = {"user": int(rng.integers(2**40)), "label": int(rng.integers(10)), "values": values}
            file.write(json.dumps(row) + "\n")


def _write_images(target: Path, num_bytes: int) -> None:
    """Photographs have smooth regions and edges: sums of waves and rectangles compress about as they do."""
    from PIL import Image

    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:375, 0:500].astype(np.float32)
    written = number = 0
    while written < num_bytes:
        image = np.zeros((375, 500, 3), np.float32)
        for _ in range(12):
            a, b, phase = rng.normal(0, 0.03), rng.normal(0, 0.03), rng.uniform(0, 6)
            image += rng.uniform(5, 25, 3) * np.sin(a * x + b * y + phase)[..., None]
        for _ in range(25):
            top, left = rng.integers(0, 350), rng.integers(0, 480)
            image[top : top + rng.integers(5, 90), left : left + rng.integers(5, 90)] += rng.normal(0, 30, 3)
        image += rng.normal(0, 6, image.shape)
        buffer = io.BytesIO()
        Image.fromarray(np.clip(image + 128, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
        (target / f"{number:06d}.jpg").write_bytes(buffer.getvalue())
        written, number = written + buffer.tell(), number + 1


def _write_sound(target: Path, num_bytes: int) -> None:
    rng = np.random.default_rng(0)
    written = number = 0
    while written < num_bytes:
        samples = int(rng.uniform(2, 10) * sizing_stages.SAMPLE_RATE)
        seconds = np.arange(samples) / sizing_stages.SAMPLE_RATE
        wave = 0.3 * np.sin(2 * np.pi * rng.uniform(80, 400) * seconds) + 0.05 * rng.normal(size=samples)
        path = target / f"{number:06d}.wav"
        write_wav(path, wave.astype(np.float32), sizing_stages.SAMPLE_RATE)
        written, number = written + path.stat().st_size, number + 1


def bytes_below(directory: Path) -> int:
    """The size of all files below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def snapshot_bytes(cache: Path) -> dict[str, int]:
    """Bytes of the published snapshot by kind of file."""
    [snapshot] = (cache / "snapshots").iterdir()
    sizes = {"shards": 0, "indexes": 0, "lineage": 0, "rest": 0}
    for path in snapshot.rglob("*"):
        if not path.is_file():
            continue
        if path.name.endswith(".index"):
            kind = "indexes"
        elif ".tfrecord-" in path.name:
            kind = "shards"
        else:
            kind = "lineage" if path.parent.name == "lineage" else "rest"
        sizes[kind] += path.stat().st_size
    return sizes


def measure(kind: str, directory: Path) -> dict[str, Any]:
    """Builds one kind and returns its figures."""
    input_bytes = bytes_below(directory / KINDS[kind])
    cache = directory / "caches" / kind
    ran = subprocess.run(
        [sys.executable, "-c", _BUILD, f"benchmarks.sizing_stages:{kind}", str(cache)],
        env={**os.environ, sizing_stages.INPUT_VARIABLE: str(directory), "TOKENIZERS_PARALLELISM": "false"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures = json.loads(ran.stdout.strip().splitlines()[-1])
    sizes = snapshot_bytes(cache)
    return {
        "input_bytes": input_bytes,
        "records": figures["records"],
        **{f"{name}_bytes": size for name, size in sizes.items()},
        "cache_to_input": sum(sizes.values()) / input_bytes,
        "index_and_lineage_bytes_per_record": (sizes["indexes"] + sizes["lineage"]) / figures["records"],
        "records_per_sec": figures["read"] / figures["cpu_secs"],
        "input_bytes_per_sec": input_bytes / figures["cpu_secs"],
        "peak_rss_bytes": figures["peak_rss_bytes"],
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measures all kinds, or those that are named."""
    options = parser(__doc__)
    options.add_argument("--megabytes", type=float, default=40, help="input of each kind [40]")
    options.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="which [all]")
    chosen = options.parse_args(arguments)
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    results: dict[str, Any] = {}
    try:
        for kind in chosen.kinds:
            write_input(work, kind, int(chosen.megabytes * 1e6))
            results[kind] = measure(kind, work)
            shutil.rmtree(work / "caches" / kind)
            print(f"{kind}: {json.dumps(results[kind])}", file=sys.stderr)
    finally:
        shutil.rmtree(work)
    report(results, chosen.json)
    return results


if __name__ == "__main__":
    main()
