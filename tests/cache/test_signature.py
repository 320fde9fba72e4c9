"""Signed snapshots: every kind of change after the signature is found, with keys as ssh-keygen and openssl write."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest
from built_files import built_files
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from beam_pipes import Cache, Loader, Pipeline, build, stage
from beam_pipes.building.leftovers import collect
from beam_pipes.cache.signature import PASSPHRASE, SIGNATURE, files_of, sign
from beam_pipes.cli import run
from beam_pipes.commands import app
from beam_pipes.errors import CorruptCacheError, SignatureError
from beam_pipes.export.export import export
from beam_pipes.sources import TextLines
from beam_pipes.transforms.analyzers import Vocabulary


@stage(on_error="dead_letter")
def example(line: str) -> dict[str, object]:
    return {"number": 1 // int(line), "tokens": [int(line)] * 3}


class Lines(Pipeline):
    input_type, output_type = str, list

    def transform(self, line: str) -> list[list[str]]:
        return [[line]]


LEARNED = [Vocabulary("lines", of=Lines())]


def write_keys(directory: Path, name: str, kind: str = "ssh", passphrase: str | None = None) -> Path:
    """`directory/name` and `directory/name.pub`."""
    made: dict[str, Callable[[], object]] = {
        "ssh": ed25519.Ed25519PrivateKey.generate,
        "ed25519": ed25519.Ed25519PrivateKey.generate,
        "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
        "rsa": lambda: rsa.generate_private_key(65537, 2048),
    }
    key = made[kind]()
    private = serialization.PrivateFormat.OpenSSH if kind == "ssh" else serialization.PrivateFormat.PKCS8
    lock = (
        serialization.NoEncryption()
        if passphrase is None
        else serialization.BestAvailableEncryption(passphrase.encode())
    )
    ssh = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    pem = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    file = directory / name
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, private, lock))  # type: ignore[attr-defined]
    file.chmod(0o600)
    public = key.public_key().public_bytes(*(ssh if kind == "ssh" else pem))  # type: ignore[attr-defined]
    (directory / f"{name}.pub").write_bytes(public + (b" somebody@example\n" if kind == "ssh" else b""))
    return file


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a signed cache, `cache`, and the keys `release` and `other`."""
    directory = tmp_path_factory.mktemp("signed")
    (directory / "in.txt").write_text("".join(f"{number}\n" for number in range(40)))
    write_keys(directory, "release")
    write_keys(directory, "other", "ed25519")
    splits = {"train": 0.8, "eval": 0.2}
    build(
        "n",
        TextLines(directory / "in.txt"),
        [example],
        to=directory / "cache",
        splits=splits,
        analyzers=LEARNED,
        workers=1,
    )
    sign(directory / "cache", key=directory / "release")
    return directory


@pytest.fixture
def cache(signed: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(signed / "cache", tmp_path / "cache")
    return tmp_path / "cache"


def open_trusted(cache: Path, signed: Path, **options: object) -> Cache:
    return Cache.open(cache, trusted=signed / "release.pub", **options)  # type: ignore[arg-type]


def snapshot_of(cache: Path) -> Path:
    return Path(Cache.open(cache).directory)


def test_signing_changes_no_file_and_readers_read_as_before(signed: Path, tmp_path: Path) -> None:
    before = {name: data for name, data in built_files(signed / "cache").items() if not name.endswith(SIGNATURE)}
    shutil.copytree(signed / "cache", tmp_path / "cache")
    snapshot = snapshot_of(tmp_path / "cache")
    (snapshot / SIGNATURE).unlink()
    manifest = Cache.open(tmp_path / "cache").manifest.id
    sign(tmp_path / "cache", key=signed / "release")

    again = built_files(tmp_path / "cache")
    assert again.pop(str((snapshot / SIGNATURE).relative_to(tmp_path / "cache")))
    assert again == before
    opened = open_trusted(tmp_path / "cache", signed)
    assert opened.manifest.id == manifest
    assert len(list(Loader(opened["train"], batch_size=4, epochs=1))) == len(opened["train"]) // 4
    assert len(open_trusted(snapshot, signed)["train"]) == len(opened["train"]), "by the snapshot's own directory"


def tampered(data: bytes) -> bytes:
    """Other bytes of the same crc32c: what no checksum of the manifest finds."""
    changed = bytearray(data)
    changed[len(data) // 3] ^= 1
    # crc32c is linear: of the changes to four later bytes, the one that restores the checksum is found by elimination.
    wanted, at = google_crc32c.value(data), len(data) - 4
    base = bytes(changed[:at]) + bytes(4) + bytes(changed[at + 4 :])
    constant = google_crc32c.value(base)
    columns = []
    for bit in range(32):
        one = bytearray(base)
        one[at + bit // 8] ^= 1 << bit % 8
        columns.append(google_crc32c.value(bytes(one)) ^ constant)
    left, chosen, rows = wanted ^ constant, 0, [(column, 1 << bit) for bit, column in enumerate(columns)]
    for bit in range(32):
        pivot = next((row for row in rows if row[0] >> bit & 1), None)
        if pivot is not None:
            rows = [
                (row[0] ^ pivot[0], row[1] ^ pivot[1]) if row[0] >> bit & 1 else row for row in rows if row != pivot
            ]
            if left >> bit & 1:
                left, chosen = left ^ pivot[0], chosen ^ pivot[1]
    made = bytearray(base)
    made[at : at + 4] = chosen.to_bytes(4, "little")
    assert left == 0 and google_crc32c.value(bytes(made)) == wanted and bytes(made) != data
    return bytes(made)


KINDS = ["shard", "index", "lineage", "dead_letters", "asset", "schema"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["forged", "byte", "removed"])
def test_each_kind_of_file_is_covered(cache: Path, signed: Path, kind: str, change: str) -> None:
    snapshot = snapshot_of(cache)
    files = files_of(Cache.open(cache).manifest)
    parts = {
        "shard": lambda name: ".tfrecord-" in name and not name.endswith(".index"),
        "index": lambda name: name.endswith(".index"),
        "lineage": lambda name: name.startswith("lineage/"),
        "dead_letters": lambda name: name.startswith("dead_letters/"),
        "asset": lambda name: name.startswith("assets/"),
        "schema": lambda name: name == "schema.pbtxt",
    }
    file = snapshot / next(filter(parts[kind], files))
    data = file.read_bytes()
    file.chmod(file.stat().st_mode | stat.S_IWUSR)
    file.unlink()
    if change != "removed":
        file.write_bytes(tampered(data) if change == "forged" else data[:-1] + bytes([data[-1] ^ 1]))

    words = (
        "it was signed, and cannot be read now" if change == "removed" else "expected the SHA-256 .* which was signed"
    )
    with pytest.raises(CorruptCacheError, match=f"{file.name}: {words}"):
        open_trusted(cache, signed)
    with pytest.raises(SystemExit) as ended:
        run(app, ["verify", str(cache), "--trusted", str(signed / "release.pub")], [])
    assert ended.value.code == 1
    assert [problem.file for problem in Cache.open(cache).verify(trusted=signed / "release.pub").problems][:1] == [
        str(file.relative_to(snapshot))
    ]
    assert len(open_trusted(cache, signed, verify=False)["train"]), "the signature and the manifest are still right"


def test_every_file_that_readers_open_is_one_of_these_kinds(signed: Path) -> None:
    snapshot = snapshot_of(signed / "cache")
    covered = set(files_of(Cache.open(signed / "cache").manifest))
    others = {str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.is_file()} - covered
    indexes = {name for name in others if name.startswith("dead_letters/") and name.endswith(".index")}
    assert {name.split("/")[0] for name in others - indexes} <= {
        "build.json",
        "report.html",
        "statistics.json",  # a copy from the manifest
        "fingerprint.json",
        "completions",
        "analysis.json",
        SIGNATURE,
    }


@pytest.mark.parametrize("verify", [None, False])
def test_a_changed_or_exchanged_manifest_is_refused(cache: Path, signed: Path, verify: bool | None) -> None:
    """A split less, or another snapshot with this one's signature: in the pointer of readers and in the snapshot."""
    snapshot = snapshot_of(cache)
    manifest = json.loads((snapshot / "manifest.json").read_bytes())
    del manifest["splits"]["eval"]
    for file in (cache / "manifest.json", snapshot / "manifest.json"):
        file.chmod(0o644)
        file.write_text(json.dumps(manifest, sort_keys=True, separators=(",", ":")))
    with pytest.raises(SignatureError, match="the snapshot was changed or exchanged after it was signed. Restore"):
        open_trusted(cache, signed, verify=verify)

    (cache / "other.txt").write_text("1\n2\n")
    build("n", TextLines(cache / "other.txt"), [example], to=cache, workers=1)
    with pytest.raises(SignatureError, match=r"this snapshot is not signed. Check it and sign it \(beam-pipes sign"):
        open_trusted(cache, signed, verify=verify)
    shutil.copy(snapshot / SIGNATURE, snapshot_of(cache) / SIGNATURE)
    with pytest.raises(SignatureError, match="the signature is of the manifest .* changed or exchanged"):
        open_trusted(cache, signed, verify=verify)


def test_signatures_of_others_and_broken_ones_are_refused(cache: Path, signed: Path, tmp_path: Path) -> None:
    with pytest.raises(SignatureError, match="is signed by key .*, and trusted are key .* or trust the key that"):
        Cache.open(cache, trusted=signed / "other.pub")
    file = snapshot_of(cache) / SIGNATURE
    envelope = json.loads(file.read_bytes())
    changed = {**envelope, "payload": envelope["payload"][:40] + "A" + envelope["payload"][41:]}
    file.write_text(json.dumps(changed))
    with pytest.raises(SignatureError, match="does not fit what it signs: signature.json was changed"):
        open_trusted(cache, signed)
    for text in ("{", "[]", json.dumps({**envelope, "signatures": [{"sig": "%"}]})):
        file.write_text(text)
        with pytest.raises(SignatureError, match="is not the signature of a snapshot .* Remove it and sign again"):
            open_trusted(cache, signed)
    file.write_text(json.dumps({**envelope, "signatures": []}))
    with pytest.raises(SignatureError, match="is signed by no key"):
        open_trusted(cache, signed)


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_several_people_may_sign_with_keys_of_every_kind(cache: Path, signed: Path, tmp_path: Path, kind: str) -> None:
    key = write_keys(tmp_path, "second", kind)
    sign(cache, key=key)
    sign(cache, key=key)
    together = tmp_path / "all.pub"
    together.write_bytes((signed / "other.pub").read_bytes() + key.with_suffix(".pub").read_bytes())
    for trusted in (signed / "release.pub", key.with_suffix(".pub"), together, [signed / "release.pub", together]):
        assert Cache.open(cache, trusted=trusted, verify=False).splits == ("eval", "train")
    assert len(json.loads((snapshot_of(cache) / SIGNATURE).read_bytes())["signatures"]) == 2


def test_a_damaged_snapshot_is_not_signed(cache: Path, signed: Path) -> None:
    shard = next(snapshot_of(cache).glob("*.tfrecord-*-of-?????"))
    data = shard.read_bytes()
    shard.unlink()
    shard.write_bytes(data[:-1] + b"!")
    (snapshot_of(cache) / SIGNATURE).unlink()
    with pytest.raises(CorruptCacheError, match="expected an undamaged cache"):
        sign(cache, key=signed / "release")
    assert not (snapshot_of(cache) / SIGNATURE).exists()


@pytest.mark.parametrize("kind", ["ed25519", "ssh"])
def test_keys_that_cannot_be_read_are_named(
    cache: Path, signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    locked = write_keys(tmp_path, "locked", kind, passphrase="open sesame")
    with pytest.raises(SignatureError, match=f"private key in '.*locked'.* is taken from {PASSPHRASE}"):
        sign(cache, key=locked)
    monkeypatch.setenv(PASSPHRASE, "open sesame")
    sign(cache, key=locked)
    assert Cache.open(cache, trusted=tmp_path / "locked.pub", verify=False)
    with pytest.raises(SignatureError, match="the key '.*none' cannot be read: No such file"):
        sign(cache, key=tmp_path / "none")
    (tmp_path / "words").write_text("no key\n")
    with pytest.raises(SignatureError, match=r"expected public keys in '.*words', in PEM or as ssh-keygen writes them"):
        Cache.open(cache, trusted=tmp_path / "words")
    with pytest.raises(SignatureError, match="trusted names no file with a public key"):
        Cache.open(cache, trusted=[])


def test_gc_export_and_builds(cache: Path, signed: Path, tmp_path: Path) -> None:
    """A signature goes with its snapshot: kept by a build that changes nothing, removed by gc, not exported."""
    first = snapshot_of(cache)
    splits = {"train": 0.8, "eval": 0.2}
    build("n", TextLines(signed / "in.txt"), [example], to=cache, splits=splits, analyzers=LEARNED, workers=1)
    assert snapshot_of(cache) == first and open_trusted(cache, signed)
    export(str(cache), str(tmp_path / "out"), format="parquet")
    assert not list((tmp_path / "out").rglob(SIGNATURE))
    (cache / "other.txt").write_text("1\n2\n")
    build("n", TextLines(cache / "other.txt"), [example], to=cache, workers=1)
    collect(str(cache), keep=0, ignore_leases=True)
    assert not first.exists() and not list(cache.rglob(SIGNATURE))


def test_the_commands(cache: Path, signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def command(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            run(app, list(arguments), [])
        said = capsys.readouterr()
        return int(ended.value.code or 0), " ".join((said.out + said.err).split())

    (snapshot_of(cache) / SIGNATURE).unlink()
    unsigned = command("verify", str(cache), "--trusted", str(signed / "release.pub"))
    assert unsigned[0] == 1 and "this snapshot is not signed" in unsigned[1]
    code, said = command("sign", str(cache), "--key", str(signed / "release"))
    assert code == 0 and "signed by key " in said
    for option in ("--trusted", "--signature"):
        code, said = command("verify", str(cache), option, str(signed / "release.pub"))
        assert code == 0 and "no problem." in said and "It is what a trusted key has signed." in said
