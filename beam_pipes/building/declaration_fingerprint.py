"""The fingerprint of a declaration: everything that decides the bytes of a shard besides its input.

Its *digest* says whether something changed; its *parts*, which are stored beside each snapshot, say what.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping

from beam_pipes.building.declaration import Declaration
from beam_pipes.engine.graph import Ref
from beam_pipes.errors import CacheNotFoundError, CodeChangedError
from beam_pipes.format.spec import ExampleSpec
from beam_pipes.identity.canonical import canonical_text, digest_of
from beam_pipes.identity.fingerprint import Fingerprint, explain, fingerprint
from beam_pipes.identity.fingerprint import content_changes as contents_of_stage
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.storage.local import storage_for

# Beside the snapshot's manifest and outside of it: parts name modules, and a moved module changes no byte of a cache.
FILE_NAME = "fingerprint.json"

# Below a cache's directory: what services have answered, by the fingerprint of the stage that called them.
ANSWERS = ".answers"

# The group of everything that belongs to no stage: seed, source options, outputs and their features.
DECLARATION = "declaration"

# The end of a line of `explain` about a constant that represents the content of a file, before and after.
_OTHER_CONTENT = re.compile(r': \{"\$asset":"[0-9a-f]+"\} → \{"\$asset":"[0-9a-f]+"\}$')

# Prefix of the names of stages that a source runs while it reads.
SOURCE = "source"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeclarationFingerprint:
    """`digest` decides whether shards are reused; `options` and `stages` (unit → fingerprint) say what it covers."""

    digest: str
    options: Mapping[str, str]
    stages: Mapping[str, Fingerprint]

    def to_json(self) -> dict[str, object]:
        stages = {name: {"digest": stage.digest, "parts": dict(stage.parts)} for name, stage in self.stages.items()}
        return {"digest": self.digest, "options": dict(self.options), "stages": stages}

    def to_bytes(self) -> bytes:
        """The file in a snapshot's directory."""
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n"
        # A constant may hold half a surrogate pair, which json.loads takes in this form.
        return text.encode("utf-8", "surrogatepass")

    @classmethod
    def from_json(cls, value: JsonObject) -> DeclarationFingerprint:
        stages = {name: Fingerprint(each["digest"], each["parts"]) for name, each in value["stages"].items()}
        return cls(digest=value["digest"], options=value["options"], stages=stages)


def fingerprint_declaration(declaration: Declaration, specs: Mapping[str, ExampleSpec]) -> DeclarationFingerprint:
    """The fingerprint of a declaration whose examples have the features `specs`, by split."""
    graph, kinds = declaration.graph, declaration.kinds
    options: dict[str, str] = {
        "seed": str(declaration.seed),
        "on_error": declaration.on_error,
        "source": canonical_text([declaration.source.fingerprint_class(), declaration.source.fingerprint_config()]),
    }
    options |= {f"fingerprint {name}": digest for name, digest in declaration.fingerprints.items()}
    stages: dict[str, Fingerprint] = {
        f"{SOURCE}.{name}": fingerprint(stage) for name, stage in declaration.source.stages().items()
    }
    for unit in graph.units:
        inputs = list(unit.inputs) if isinstance(unit.inputs, Ref) else {k: list(v) for k, v in unit.inputs.items()}
        options[f"{unit.name}.inputs"] = canonical_text([unit.join, inputs])
        stages[unit.name] = fingerprint(unit.stage)
    for split, ref in graph.outputs.items():
        options[f"split {split}"] = canonical_text([list(ref), kinds[split]])
        if split in specs:
            options[f"split {split}.features"] = canonical_text(specs[split].to_json())
    # Stages count by their digests, which name no modules, so that moving code changes nothing.
    digest = digest_of([graph.prefix, options, {name: stage.digest for name, stage in stages.items()}])
    return DeclarationFingerprint(
        digest=digest, options={"prefix": graph.prefix, **dict(_flat(options))}, stages=stages
    )


def read_fingerprint(directory: str) -> DeclarationFingerprint | None:
    """The fingerprint stored in a snapshot's directory; None if there is none that can be read."""
    try:
        data = storage_for(directory).read_bytes(f"{directory}/{FILE_NAME}")
        return DeclarationFingerprint.from_json(json.loads(data))
    except (CacheNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def explain_change(old: DeclarationFingerprint, new: DeclarationFingerprint) -> dict[str, list[str]]:
    """What changed: stage (or `declaration`) → one line for each field; every stage of `new` is there.

    `{"declaration": ["seed: 0 → 1"], "Tokenize": ["Tokenize.config.min_length: 1 → 2"], "Filter": []}`
    """
    changed = {DECLARATION: explain(old.options, new.options)}
    for name, stage in new.stages.items():
        before = old.stages.get(name)
        if before is None:
            changed[name] = ["added"]
        elif before.digest == stage.digest:
            changed[name] = []
        else:
            changed[name] = explain(before.parts, stage.parts) or [
                "digest: " + f"{before.digest:.8} → {stage.digest:.8}"
            ]
    changed.update({name: ["removed"] for name in old.stages if name not in new.stages})
    return changed


def code_changes(old: DeclarationFingerprint, new: DeclarationFingerprint) -> dict[str, list[str]]:
    """The stages whose code changed while their declared version did not: stage → the parts that changed."""
    changed = {}
    for name, lines in explain_change(old, new).items():
        before, after = old.stages.get(name), new.stages.get(name)
        if before is None or after is None or _versions(before) != _versions(after):
            continue
        code = [line for line in lines if _is_code(line)]
        if code:
            changed[name] = code
    return changed


def content_changes(old: DeclarationFingerprint, new: DeclarationFingerprint) -> dict[str, list[str]]:
    """The stages whose files, analyzer results or vocabularies have other content: stage → the parts."""
    return {
        name: lines
        for name, stage in new.stages.items()
        if (before := old.stages.get(name)) is not None and (lines := contents_of_stage(before.parts, stage.parts))
    }


def require_new_versions(old: DeclarationFingerprint, new: DeclarationFingerprint, *, path: str) -> None:
    """Raises `CodeChangedError` if the code of a stage changed and its version did not."""
    changed = code_changes(old, new)
    if changed:
        listed = "; ".join(f"stage {name!r} ({', '.join(lines)})" for name, lines in changed.items())
        raise CodeChangedError(
            f"the code changed since {path!r} was built, and the version did not: {listed}. If records may come out "
            "differently, raise the `version` of these stages; if the change is intended, build with "
            "--accept-code-change (accept_code_change=True). Every shard is then rebuilt.",
            stages=sorted(changed),
            path=path,
        )


def _versions(stage: Fingerprint) -> list[tuple[str, str]]:
    return sorted((key, value) for key, value in stage.parts.items() if key.endswith(".version"))


def _is_code(line: str) -> bool:
    """Whether a line of `explain` is about code: `code:m.f: …`, `const:m.X: …` or `Tokenize.code: …`.

    A constant that is an asset or an analyzer may have other content with the same code.
    """
    if _OTHER_CONTENT.search(line):
        return False
    return line.startswith(("code:", "const:")) or line.split(": ", 1)[0].endswith(".code")


def _flat(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Options whose values are JSON objects, split into fields: a difference names the field."""
    for name, text in options.items():
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if name == "source" and isinstance(value, list):
            value = {"class": value[0], **value[1]}
        yield from _flat_fields(name, value) if isinstance(value, dict) else [(name, text)]


def _flat_fields(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat_fields(f"{name}.{key}", item)
    else:
        yield name, canonical_text(value)
