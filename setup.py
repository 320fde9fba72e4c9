"""Packages and extras of beam-pipes; everything that is pinned exactly stands in constraints.txt."""

from __future__ import annotations

from setuptools import find_packages, setup

BEAM = [
    "apache-beam[gcp,tfrecord]==2.77.0",
    "tensorflow-transform==1.21.0",
]
CLI = [
    "typer>=0.15",
    "rich>=13",
]
SOURCES = [
    "pyarrow>=18",
    "zstandard>=0.23",
]
TEXT = [
    # 0.2.3 needs protobuf 7, Beam 2.77 needs protobuf < 7.
    "sentencepiece==0.2.1",
    "tokenizers>=0.21",
]
TF = ["tensorflow>=2.21,<2.22"]
JAX = ["jax>=0.5"]
TORCH = ["torch>=2.5"]
GCS = ["google-cloud-storage>=2.18"]
AUDIO = ["soundfile>=0.12"]
FLINK: list[str] = []
DEV = [
    "array_record>=0.5",
    "gcp-storage-emulator>=2024.8.3",
    "grain>=0.2.3",
    "hypothesis>=6.100",
    "mypy>=1.11",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "ruff>=0.6",
    "tensorflow-datasets>=4.9.7",
    "types-protobuf>=5",
]

EXTRAS = {
    "cli": CLI,
    "sources": SOURCES,
    "beam": [*BEAM, *CLI, *SOURCES],
    "text": TEXT,
    "tf": TF,
    "jax": JAX,
    "torch": TORCH,
    "gcs": GCS,
    "audio": AUDIO,
    "flink": [*BEAM, *CLI, *SOURCES, *FLINK],
}
EXTRAS["all"] = sorted({requirement for extra in EXTRAS.values() for requirement in extra})
EXTRAS["dev"] = sorted({*EXTRAS["all"], *DEV})

setup(
    name="beam-pipes",
    version="0.1.0",
    description="Declare once, cache with Apache Beam, train from ordinary TFRecords at memory speed.",
    long_description=open("README.md", encoding="utf-8").read(),
    long_description_content_type="text/markdown",
    python_requires=">=3.10,<3.13",
    # Named, not discovered from the top: a dependency of apache-beam[gcp] installs a top-level `tests`.
    packages=find_packages(
        include=["beam_pipes", "beam_pipes.*", "transforms", "transforms.*", "runners", "runners.*"]
    ),
    package_data={"beam_pipes": ["py.typed"], "transforms": ["py.typed"], "runners": ["py.typed"]},
    install_requires=[
        "numpy>=1.26",
        "protobuf>=4.25",
        "google-crc32c>=1.5",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["beam-pipes=runners.cli:main"]},
)
