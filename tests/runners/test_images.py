"""The worker image and the manifests: linted, versions as everywhere else, every RUN step run in a clean directory, and
each target laid out in a directory where Beam's boot program starts a worker."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from dockerfile_parse import DockerfileParser

from reference_pages.pythons import extras

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"
MANIFESTS = sorted((ROOT / "runners").rglob("*.yaml"))
BOOT_IN_IMAGE = ROOT / "tests/support/boot_in_image.py"
HADOLINT = Path(sys.executable).with_name("hadolint")
UV = Path(sys.executable).with_name("uv")

# Where the image puts things, and a step therefore names them absolutely.
_PLACES = re.compile(r"(?<![\w.$/])/(install|opt|home|root|source|etc)\b")


def _steps() -> list[dict[str, Any]]:
    parser = DockerfileParser(path=str(DOCKERFILE))
    return [step for step in parser.structure if step["instruction"] != "COMMENT"]


def _args() -> dict[str, str]:
    return dict(step["value"].split("=", 1) for step in _steps() if step["instruction"] == "ARG")


def _stages() -> dict[str, list[dict[str, Any]]]:
    """Stage → its steps, the FROM first."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for step in _steps():
        if step["instruction"] == "FROM":
            stages[step["value"].split(" AS ")[1]] = current = []
        if stages:
            current.append(step)
    return stages


def _lint(path: Path) -> str:
    return subprocess.run([HADOLINT, path], capture_output=True, text=True, timeout=60).stdout


def test_the_linter_has_nothing_to_say(tmp_path: Path) -> None:
    assert _lint(DOCKERFILE) == ""
    bad = tmp_path / "Dockerfile"
    bad.write_text(DOCKERFILE.read_text().replace("uv==0.9.30", "uv").replace("USER 65532:65532", "USER root"))
    assert {"DL3013", "DL3002"} <= set(re.findall(r"DL\d+", _lint(bad))), "it would have"


def test_versions_are_those_of_the_metadata() -> None:
    project, args = (ROOT / "pyproject.toml").read_text(), _args()
    [beam] = set(re.findall(r'"apache-beam\[[^]]*\]==([\d.]+)"', project))
    [version] = re.findall(r'^version = "([\d.]+)"', project, re.MULTILINE)
    text = DOCKERFILE.read_text()

    assert args["BEAM_VERSION"] == beam
    assert f"apache-beam=={beam}\n" in (ROOT / "constraints.txt").read_text()
    assert f'"Programming Language :: Python :: {args["PYTHON_VERSION"]}"' in project
    assert set(re.findall(r"/beam-pipes:([\d.]+)", text)) == {version}
    assert re.findall(r"uv==([\d.]+)", text) == re.findall(r"uv==([\d.]+)", (ROOT / "Makefile").read_text())[:1]
    assert set(re.findall(r"--extra (\w+)", text)) <= extras().keys()
    for manifest in MANIFESTS:
        assert set(re.findall(r"/beam-pipes:(\S+)", manifest.read_text())) == {version}, manifest


def test_the_image_has_no_build_tools_and_is_nobody_s() -> None:
    stages = _stages()
    kinds = {name: [step["instruction"] for step in steps] for name, steps in stages.items()}

    expected = ["beam", "packages", "packages-tft", "root", "flex-template", "root-tft", "worker-tft", "worker"]
    assert list(stages) == expected
    for name, base in (("worker", "root"), ("worker-tft", "root-tft")):
        assert kinds[name] == ["FROM", "USER"]
        assert stages[name][0]["value"] == f"{base} AS {name}"
        assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", stages[name][-1]["value"]), "Kubernetes wants a number"
    assert [step["value"] for step in stages["root-tft"]] == [
        "root AS root-tft",
        "--from=packages-tft /install /usr/local",
    ]
    assert "tft" not in str([step["value"] for step in stages["packages"]]), "1.8 GB for builds that need it"
    assert stages["beam"][0]["value"].startswith("apache/beam_python${PYTHON_VERSION}_sdk:${BEAM_VERSION}")
    assert "-slim-" in stages["root"][0]["value"]
    assert "USER" not in kinds["root"]
    assert not re.search(r"apt|gcc|build-essential|\buv\b|pip", str([step["value"] for step in stages["root"]]))
    assert [step["value"] for step in stages["root"] if step["instruction"] == "ENTRYPOINT"] == [
        '["/opt/apache/beam/boot"]'
    ]


def test_the_flex_template_is_the_worker_with_a_launcher_and_the_file_that_it_runs() -> None:
    first, *steps = [(step["instruction"], " ".join(step["value"].split())) for step in _stages()["flex-template"]]
    launcher = "/opt/google/dataflow/python_template_launcher"

    assert first == ("FROM", "root AS flex-template")
    assert [kind for kind, _ in steps] == ["COPY", "COPY", "ENV"]
    assert re.fullmatch(
        rf"--from=gcr.io/dataflow-templates-base/python311-template-launcher-base:\w+ {launcher} {launcher}",
        steps[0][1],
    )
    assert _args()["PYTHON_VERSION"] == "3.11", "the launcher's image is of this version"
    assert steps[1][1] == "runners/dataflow/flex_template.py /template/"
    assert steps[2][1] == "FLEX_TEMPLATE_PYTHON_PY_FILE=/template/flex_template.py"
    assert (ROOT / "runners/dataflow/flex_template.py").is_file()


def test_the_large_layer_depends_on_requirements_alone() -> None:
    steps = _stages()["packages"]
    installs = next(at for at, step in enumerate(steps) if "--requirement pyproject.toml" in step["value"])
    copied = [step["value"].split() for step in steps[:installs] if step["instruction"] == "COPY"]

    assert copied == [["setup.py", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "./"]]
    after = {step["value"].split()[0] for step in steps[installs:] if step["instruction"] == "COPY"}
    assert after == {"beam_pipes"}


def test_what_is_copied_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        name
        for step in _steps()
        if step["instruction"] == "COPY" and "--from" not in step["value"]
        for name in step["value"].split()[:-1]
    }

    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.timeout(1200)
def test_every_run_step_works_in_a_clean_directory(tmp_path: Path) -> None:
    """In order, as the image is built, with this Python; the directories of the image lie below `tmp_path`."""
    python, image = tmp_path / "python", tmp_path / "image"
    subprocess.run([UV, "venv", "--quiet", "--seed", "--python", sys.executable, python], check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment = {**kept, "PATH": f"{python / 'bin'}:{os.environ['PATH']}"}
    source = image / "source"
    source.mkdir(parents=True)
    (image / "etc").mkdir()
    ran = 0
    for name, steps in _stages().items():
        for step in steps:
            if step["instruction"] == "COPY" and "--from" not in step["value"]:
                for entry in step["value"].split()[:-1]:
                    copy = shutil.copytree if (ROOT / entry).is_dir() else shutil.copy
                    (source / entry).parent.mkdir(parents=True, exist_ok=True)
                    copy(ROOT / entry, source / entry)
            if step["instruction"] != "RUN":
                continue
            command = re.sub(r"--mount=\S+\s+", "", step["value"])
            command = _PLACES.sub(lambda found: str(image / found[1]), command)
            done = subprocess.run(
                ["sh", "-euc", command], cwd=source, env=environment, capture_output=True, text=True, timeout=1100
            )
            assert done.returncode == 0, (name, command, done.stderr)
            ran += 1
    assert ran == 5

    installed = image / "install"
    [packages] = installed.glob("lib/python3.*/site-packages")
    code = """
import importlib.util, beam_pipes.cli, beam_pipes.building
for name in ("apache_beam", "tensorflow_transform", "google.cloud.storage", "sentencepiece", "typer"):
    assert importlib.util.find_spec(name) is not None, name
print(beam_pipes.__file__)
"""
    done = subprocess.run(
        [python / "bin" / "python", "-c", code],
        env={**environment, "PYTHONPATH": str(packages)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str(packages / "beam_pipes" / "__init__.py"), done.stderr
    assert (installed / "bin" / "beam-pipes").exists()
    assert (image / "opt/apache/beam-venv").stat().st_mode & 0o1777 == 0o1777
    shutil.rmtree(installed)  # some gigabytes


# The targets with tensorflow-transform differ from these by their packages alone, as a test above says.
@pytest.mark.timeout(300)
def test_beam_s_boot_program_starts_a_worker_in_every_target() -> None:
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    unshare = [*sudo, "unshare", "--mount", "--net", "--pid", "--fork", sys.executable, BOOT_IN_IMAGE]
    targets = {"root": "0:0", "flex-template": "0:0", "worker --worker_pool": "65532:65532"}

    started = {
        words: subprocess.Popen([*unshare, *words.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for words in targets
    }
    for words, user in targets.items():
        output, log = started[words].communicate()
        answer = json.loads(output) if output else None
        assert answer == {"answered": True, "exit": None, "user": user, "workdir": "/home/worker"}, (words, log[-3000:])


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_what_kubernetes_takes(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    assert documents
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        document["spec"]["replikas"] = 1
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_workers_of_a_task_manager_lie_beside_it() -> None:
    documents = list(yaml.safe_load_all((ROOT / "runners/kubernetes/flink-session-cluster.yaml").read_text()))
    [workers] = [d for d in documents if d["metadata"]["name"] == "flink-taskmanager"]
    containers = {each["name"]: each for each in workers["spec"]["template"]["spec"]["containers"]}
    pool = containers["python-workers"]
    [port] = [each["containerPort"] for each in pool["ports"]]
    slots = re.search(r"numberOfTaskSlots: (\d+)", containers["taskmanager"]["env"][0]["value"])

    assert pool["args"] == ["--worker_pool"]
    assert f"--environment-config=localhost:{port}" in (ROOT / "docs" / "deploy.md").read_text()
    assert slots is not None
    assert slots[1] == pool["resources"]["requests"]["cpu"]


def test_the_cluster_runs_the_flink_of_the_job_server() -> None:
    manifest = (ROOT / "runners/kubernetes/flink-session-cluster.yaml").read_text()
    [minor] = re.findall(r"<flink.version>([\d.]+)</flink.version>", (ROOT / "runners/flink/pom.xml").read_text())
    [(version, java)] = set(re.findall(r"image: flink:([\d.]+)-java(\d+)", manifest))
    documented = (ROOT / "docs" / "deploy.md").read_text()

    assert version.startswith(f"{minor}.")
    assert f"| Flink | {version} |\n| Java | {java} |\n" in documented
