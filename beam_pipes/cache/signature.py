"""Signed snapshots: what was trained on is what was approved.

    sign("cache", key="release")            → cache/snapshots/<id>/signature.json
    Cache.open("cache", trusted="release.pub")   reads nothing that was not signed

The manifest names the files of a snapshot with crc32c, which finds damage, and not forgery. So a signature is over a
statement that lists the SHA-256 of each: the manifest, shards, indexes, lineage, assets, dead letters, the schema. It
is an in-toto statement in a DSSE envelope, by securesystemslib. Neither the files nor the id of the snapshot change.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from beam_pipes.cache.verify import Problem, verify_snapshot
from beam_pipes.errors import CacheNotFoundError, SignatureError, without_stop
from beam_pipes.extras import require
from beam_pipes.format.index import index_path
from beam_pipes.lineage.lineage import lineage_file, num_lineage_files
from beam_pipes.publication.manifest import FILE_NAME, Manifest
from beam_pipes.publication.publish import SCHEMA, read_manifest, snapshot_directory
from beam_pipes.storage.checked_json import canonical_json
from beam_pipes.storage.local import storage_for, writing_to
from beam_pipes.storage.protocol import Storage, in_parallel

SIGNATURE = "signature.json"
PASSPHRASE = "BEAM_PIPES_KEY_PASSPHRASE"

#: Files with public keys, in PEM or as `ssh-keygen` writes them, one or several in each.
Trusted = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "urn:beam-pipes:snapshot:v1"
_READ_BYTES = 8 << 20


class Key(Protocol):
    """A public key of securesystemslib; `keyid` is the digest of what it is."""

    keyid: str


class Envelope(Protocol):
    """securesystemslib's DSSE envelope."""

    payload: bytes
    payload_type: str
    signatures: dict[str, object]

    def sign(self, signer: object) -> Key: ...
    def verify(self, keys: list[Key], threshold: int) -> object: ...
    def to_dict(self) -> dict[str, object]: ...


def sign(path: str | os.PathLike[str], *, key: str | os.PathLike[str], snapshot: str | None = None) -> str:
    """Signs the published snapshot of a cache, or the one with the id `snapshot`; returns the id of the key.

    Every byte is read and checked first. The signature is written beside the snapshot's manifest; one by another key is
    added to it, and it goes with the snapshot when that is removed or copied.

    Args:
        path: the cache, on any storage.
        key: a file with a private key: PEM (PKCS #8), or as `ssh-keygen -t ed25519` writes it. Ed25519, ECDSA or RSA.
            The passphrase of an encrypted one is taken from BEAM_PIPES_KEY_PASSPHRASE.

    Raises `CorruptCacheError` if the snapshot is damaged, `SignatureError` for a key that cannot be read, `OutputError`
    if the signature cannot be written, and `MissingExtraError` without securesystemslib (extra `sign`).
    """
    root = os.path.expanduser(os.fspath(path))
    storage = storage_for(root)
    manifest = read_manifest(root, snapshot, storage=storage)
    directory = snapshot_directory(root, manifest.snapshot)
    signer_of = require("securesystemslib.signer", purpose="signatures").CryptoSigner
    private = _private_key(key)
    verify_snapshot(directory, manifest, storage=storage).raise_if_damaged()
    files = [file for file in files_of(manifest) if file != SCHEMA or storage.exists(os.path.join(directory, SCHEMA))]
    digests = dict(zip(files, in_parallel(storage, lambda file: _sha256(storage, directory, file), files), strict=True))
    dsse = require("securesystemslib.dsse", purpose="signatures")
    envelope: Envelope = dsse.Envelope(_statement(manifest, digests), _PAYLOAD_TYPE, {})
    try:
        before = _envelope(directory, storage)
        if before.payload == envelope.payload:
            envelope = before
    except SignatureError:
        pass  # none yet, or one that says nothing about this snapshot
    made = envelope.sign(signer_of(private))
    target = os.path.join(directory, SIGNATURE)
    with writing_to(target):
        storage.replace(target, canonical_json(envelope.to_dict()))
    return str(made.keyid)


def files_of(manifest: Manifest) -> list[str]:
    """The files of a snapshot that a signature covers, relative to its directory: all that readers open."""
    shards = [
        split.file_name(manifest.name, name, shard)
        for name, split in manifest.splits.items()
        for shard in range(len(split.numbers))
    ]
    count = num_lineage_files(manifest)
    return [
        FILE_NAME,
        SCHEMA,
        *(file for shard in shards for file in (shard, index_path(shard))),
        *(lineage_file(index, count) for index in range(count)),
        *(entry.file for entry in (*manifest.assets, *manifest.dead_letters)),
    ]


def check_signature(directory: str, manifest: Manifest, *, trusted: Trusted, storage: Storage) -> dict[str, str]:
    """File → SHA-256, as a trusted key has signed them for this manifest. Reads no file but the signature.

    Raises `SignatureError` if the snapshot is not signed, not by these keys, or if the signature is of another one.
    """
    keys = public_keys(trusted)
    envelope = _envelope(directory, storage)
    errors = require("securesystemslib.exceptions", purpose="signatures")
    own = f"{directory}: snapshot {manifest.snapshot}"
    known = [key for key in keys if key.keyid in envelope.signatures]
    if not known:
        raise SignatureError(
            f"{own} is signed by {_keys_in_words(envelope.signatures)}, and trusted are "
            f"{_keys_in_words(key.keyid for key in keys)}. Have it signed by one of these (beam-pipes sign), or trust "
            "the key that signed it.",
            path=directory,
        )
    try:
        envelope.verify(known, 1)
    except (errors.VerificationError, errors.UnverifiedSignatureError, ValueError) as error:
        raise SignatureError(
            f"{own}: the signature by {_keys_in_words(key.keyid for key in known)} does not fit what it signs: "
            f"{SIGNATURE} was changed, or another key has this id. Get the file again from who signed it.",
            path=directory,
        ) from error
    digests = _digests(envelope, directory)
    if digests.get(FILE_NAME) != manifest.id:
        raise SignatureError(
            f"{own} has the manifest {manifest.id[:16]}…, and the signature is of the manifest "
            f"{digests.get(FILE_NAME, 'of no snapshot')[:16]}…: the snapshot was changed or exchanged after it was "
            "signed. Restore what was signed, or check this one and sign it.",
            path=directory,
        )
    return digests


def signed_problems(directory: str, manifest: Manifest, *, trusted: Trusted, storage: Storage) -> Iterator[Problem]:
    """What differs from the signed snapshot: every file is read. Raises what `check_signature` raises."""
    digests = check_signature(directory, manifest, trusted=trusted, storage=storage)
    wanted = [file for file in files_of(manifest) if file in digests or file != SCHEMA]

    def found(file: str) -> Problem | None:
        path = os.path.join(directory, *file.split("/"))
        if file not in digests:
            return Problem(file=file, offset=None, message=f"{path}: the signature does not cover this file")
        try:
            digest = _sha256(storage, directory, file)
        except OSError as error:
            return Problem(file=file, offset=None, message=f"{path}: it was signed, and cannot be read now: {error}")
        if digest != digests[file]:
            words = f"{path}: expected the SHA-256 {digests[file][:16]}…, which was signed, found {digest[:16]}…"
            return Problem(file=file, offset=None, message=words)
        return None

    yield from (problem for problem in in_parallel(storage, found, wanted) if problem is not None)


def public_keys(trusted: Trusted) -> list[Key]:
    """The keys in these files. Raises `SignatureError`, naming the file, for one that holds none."""
    of_signer = require("securesystemslib.signer", purpose="signatures").SSlibKey
    serialization = require("cryptography.hazmat.primitives.serialization", purpose="signatures")
    found: list[Key] = []
    for file in [trusted] if isinstance(trusted, (str, os.PathLike)) else trusted:
        data = _read_key(file)
        try:
            if data.lstrip().startswith(b"-----"):
                parts = [part + b"-----END PUBLIC KEY-----\n" for part in data.split(b"-----END PUBLIC KEY-----")[:-1]]
                keys = [serialization.load_pem_public_key(part.strip()) for part in parts]
            else:
                lines = [line for line in data.splitlines() if line.strip() and not line.startswith(b"#")]
                keys = [serialization.load_ssh_public_key(line) for line in lines]
            if not keys:
                raise ValueError("it holds no public key")
            found += [of_signer.from_crypto(key) for key in keys]
        except Exception as error:  # of several kinds, by the library behind
            raise SignatureError(
                f"expected public keys in {os.fspath(file)!r}, in PEM or as ssh-keygen writes them (release.pub): "
                f"{without_stop(error)}.",
                path=os.fspath(file),
            ) from error
    if not found:
        raise SignatureError("trusted names no file with a public key. Name one, or leave trusted out.")
    return found


def _private_key(file: str | os.PathLike[str]) -> object:
    serialization = require("cryptography.hazmat.primitives.serialization", purpose="signatures")
    data = _read_key(file)
    phrase = os.environ.get(PASSPHRASE)
    load = serialization.load_pem_private_key
    if b"BEGIN OPENSSH PRIVATE KEY" in data:
        load = serialization.load_ssh_private_key
    try:
        return load(data, None if phrase is None else phrase.encode())
    except Exception as error:
        raise SignatureError(
            f"expected a private key in {os.fspath(file)!r}, in PEM or as ssh-keygen writes it: {without_stop(error)}. "
            f"The passphrase of an encrypted key is taken from {PASSPHRASE}.",
            path=os.fspath(file),
        ) from error


def _read_key(file: str | os.PathLike[str]) -> bytes:
    try:
        return Path(file).expanduser().read_bytes()
    except OSError as error:
        raise SignatureError(
            f"the key {os.fspath(file)!r} cannot be read: {error.strerror}.", path=os.fspath(file)
        ) from error


def _sha256(storage: Storage, directory: str, file: str) -> str:
    digest = hashlib.sha256()
    with storage.open_read(os.path.join(directory, *file.split("/"))) as opened:
        while data := opened.read(_READ_BYTES):
            digest.update(data)
    return digest.hexdigest()


def _statement(manifest: Manifest, digests: Mapping[str, str]) -> bytes:
    return canonical_json(
        {
            "_type": _STATEMENT_TYPE,
            "predicate": {"manifest": manifest.id, "name": manifest.name, "snapshot": manifest.snapshot},
            "predicateType": _PREDICATE_TYPE,
            "subject": [{"digest": {"sha256": digest}, "name": file} for file, digest in digests.items()],
        }
    )


def _envelope(directory: str, storage: Storage) -> Envelope:
    path = os.path.join(directory, SIGNATURE)
    envelope = require("securesystemslib.dsse", purpose="signatures").Envelope
    try:
        data = storage.read_bytes(path)
    except (CacheNotFoundError, FileNotFoundError):
        raise SignatureError(
            f"{directory}: this snapshot is not signed. Check it and sign it (beam-pipes sign DIR --key KEY), or read "
            "it without trusted keys.",
            path=directory,
        ) from None
    try:
        made: Envelope = envelope.from_dict(json.loads(data))
        return made
    except Exception as error:  # of several kinds, by the part that is damaged
        raise _damaged(path, error) from error


def _digests(envelope: Envelope, directory: str) -> dict[str, str]:
    path = os.path.join(directory, SIGNATURE)
    try:
        statement = json.loads(envelope.payload)
        if envelope.payload_type != _PAYLOAD_TYPE or statement["predicateType"] != _PREDICATE_TYPE:
            raise ValueError("it signs something else than a snapshot")
        return {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> SignatureError:
    return SignatureError(
        f"{path} is not the signature of a snapshot ({type(error).__name__}: {error}). Remove it and sign again.",
        path=path,
    )


def _keys_in_words(ids: Iterable[str]) -> str:
    return ", ".join(f"key {each[:16]}…" for each in ids) or "no key"
