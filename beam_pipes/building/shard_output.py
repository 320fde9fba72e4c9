"""The second half of a shard job: batches → encoded parts → the shard's files, committed together."""

from __future__ import annotations

from collections.abc import Iterable

from beam_pipes.building.commit import letters_in_short, num_bad, too_many_bad
from beam_pipes.building.completion import DEAD_LETTERS, Completion, write_completion, write_lineage
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.leftovers import writing
from beam_pipes.building.reading import ERRORS_TOLD, SOURCE, EncodedRun, SourceBatch, Written, first_errors
from beam_pipes.building.shard_task import BuildHeader, ShardTask
from beam_pipes.engine.account import NO_OUTPUT, Account
from beam_pipes.engine.graph import Ref
from beam_pipes.engine.records import Column, Failure
from beam_pipes.errors import StageError, text_of
from beam_pipes.format.codec import ExampleCodec, RecordCodec, codec_for
from beam_pipes.lineage.lineage import Fate, LineageWriter
from beam_pipes.lineage.reader import DEAD_LETTER_CODEC, DeadLetter
from beam_pipes.publication.shard_writer import ShardWriter
from beam_pipes.sources.record_batch import BadRecord
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.locks import reached

WRITE = "write"


class ShardOutput:
    """Writes the output of one source shard: a shard for each split, and dead letters if there are any.

    `encode` has no effect on files; `write` appends parts, which have to come in order. Nothing has a final name until
    `commit`, which renames the files and then writes the completion.
    """

    def __init__(self, declaration: Declaration, header: BuildHeader, task: ShardTask) -> None:
        self.task = task
        self.next_sequence = 0
        self._declaration = declaration
        self._header = header
        graph = declaration.graph
        splits = declaration.source.splits_of(task.shard)
        self._outputs = {split: ref for split, ref in graph.outputs.items() if splits is None or split in splits}
        self._codecs = {
            split: codec_for(declaration.kinds[split], spec=header.specs.get(split), proto=graph.output_type[split])
            for split in self._outputs
        }
        self._writers: dict[str, ShardWriter] = {}
        self._account = Account()
        self._dead_letters: ShardWriter | None = None  # with the first one
        self._errors: tuple[str, ...] = ()
        self._dropped_errors: tuple[str, ...] = ()
        self._lineage = LineageWriter()

    def encode(self, batch: SourceBatch, sequence: int) -> EncodedRun:
        """What a batch adds to the shard after all units, encoded; books what is written and what fails.

        Raises `StageError` if a value does not fit its features and the declaration does not allow failures.
        """
        account = batch.account
        booked = account.unit(WRITE)
        failures = batch.failures
        # A record that failed in a stage is no longer in any column.
        try:
            records = {split: _encoded(self._codecs[split], batch, ref) for split, ref in self._outputs.items()}
        except Exception:
            records = self._encode_each(batch, {split: batch.column(ref) for split, ref in self._outputs.items()})
        written_ordinals = {ordinal for made in records.values() for _, ordinal, _ in made}
        written = len(written_ordinals)
        booked.kept += written
        booked.inputs += written
        for split, made in records.items():
            booked.outputs += len(made)
            account.outputs[split] = len(made)
        dead_letters = [_letter_of_failure(batch, i, failure) for i, failure in failures.items() if not failure.dropped]
        if self._declaration.on_error == "dead_letter":
            dead_letters += map(_letter_of_row, batch.records.bad)
        account.written = written
        account.dead = len(dead_letters)
        account.dropped = account.read - written - account.dead
        return EncodedRun(
            first_sequence=sequence,
            next_sequence=sequence + 1,
            records=records,
            dead_letters=sorted(dead_letters, key=lambda letter: letter.ordinal),
            account=account,
            lineage=self._lineage_of(batch, written_ordinals),
            dropped_errors=first_errors(self._declaration, batch, only_dropped=True),
        )

    def _encode_each(self, batch: SourceBatch, columns: dict[str, Column]) -> dict[str, list[Written]]:
        """The records one by one, because some of them cannot be stored."""
        records: dict[str, list[Written]] = {split: [] for split in columns}
        ways = [(records[split], self._codecs[split].encode_indexed, column) for split, column in columns.items()]
        for index, ordinal in enumerate(batch.records.ordinals):
            try:
                for made, encode, column in ways:
                    for value in column[index]:
                        payload, row = encode(value)
                        made.append((payload, ordinal, row))
            except Exception as error:
                for made, *_ in ways:
                    while made and made[-1][1] == ordinal:
                        made.pop()
                self._fail(batch, index, error)
        return records

    def write(self, part: EncodedRun) -> None:
        """Appends a part; parts come in order, without gaps."""
        assert part.first_sequence == self.next_sequence, (part.first_sequence, self.next_sequence)
        with writing(self._header.root):
            if not self._writers:
                self._open()
            for split, records in part.records.items():
                self._append(split, records)
            if part.dead_letters:
                self._append_dead_letters(part.dead_letters)
        self._dropped_errors = (*self._dropped_errors, *part.dropped_errors)[:ERRORS_TOLD]
        self._lineage.merge_from(part.lineage)
        self._account.merge_from(part.account)
        self.next_sequence = part.next_sequence
        self._check_max_bad()

    def to_part(self) -> EncodedRun:
        """Everything written so far as one part, read back from the uncommitted files."""
        return EncodedRun(
            first_sequence=0,
            next_sequence=self.next_sequence,
            records={split: writer.read_back() for split, writer in self._writers.items()},
            dead_letters=[] if self._dead_letters is None else _read_back(self._dead_letters),
            account=self._account,
            lineage=self._lineage,
            dropped_errors=self._dropped_errors,
        )

    def commit(self) -> Completion:
        """Gives all files their final names, then writes the completion; the counts have to add up."""
        self._account.reconcile(where=f"source shard {self.task.index}")
        with writing(self._header.root):
            if not self._writers:
                self._open()
            entries = {split: writer.commit() for split, writer in self._writers.items()}
            dead_letters = None if self._dead_letters is None else self._dead_letters.commit()
            lineage = write_lineage(self._header, self.task.index, self._lineage.to_bytes())
            reached("shard/dead-letters-renamed")
            completion = Completion(
                index=self.task.index,
                fingerprint=self.task.fingerprint,
                source=self.task.shard.slices,
                entries=entries,
                dead_letters=dead_letters,
                lineage=lineage,
                account=self._account,
                quarantined=self.task.quarantined,
                dropped_errors=self._dropped_errors,
            )
            write_completion(self._header, completion)
        reached("shard/completed")
        return completion

    def abort(self) -> None:
        """Removes the files that have no final name yet."""
        for writer in (*self._writers.values(), *([] if self._dead_letters is None else [self._dead_letters])):
            writer.abort()

    def _append(self, split: str, records: Iterable[Written]) -> None:
        if not self._writers:
            self._open()
        self._writers[split].write_all_encoded(records)

    def _open(self) -> None:
        header = self._header
        storage_for(header.directory).makedirs(header.directory)
        for split, codec in self._codecs.items():
            name = header.file_name(split, self.task.index)
            self._writers[split] = ShardWriter(header.directory, name, codec=codec)

    def _append_dead_letters(self, letters: list[DeadLetter]) -> None:
        if self._dead_letters is None:
            directory = f"{self._header.directory}/{DEAD_LETTERS}"
            storage_for(directory).makedirs(directory)
            name = self._header.file_name(DEAD_LETTERS, self.task.index)
            self._dead_letters = ShardWriter(directory, name, codec=DEAD_LETTER_CODEC)
        for letter in letters:
            self._dead_letters.write(letter.to_example(), letter.ordinal)
        errors = letters_in_short(letters[: ERRORS_TOLD - len(self._errors)])
        self._errors = (*self._errors, *errors)

    def _lineage_of(self, batch: SourceBatch, written: set[int]) -> LineageWriter:
        """Where each record of the batch was, and its fate."""
        records, fates = batch.records, {}
        for index, ordinal in enumerate(records.ordinals) if len(written) < len(records.ordinals) else ():
            if ordinal in written:
                continue
            failure = batch.failures.get(index)
            drops = batch.drops.get(index) or [(WRITE, NO_OUTPUT)]
            if failure is not None:
                fate = _fate_of_error(failure.stage, failure.error_type, dropped=failure.dropped)
            else:
                fate = Fate(status="dropped", drops=tuple(dict.fromkeys(drops)))
            fates[ordinal - records.first_ordinal] = fate
        for row in records.bad:
            dropped = self._declaration.on_error == "drop"
            fates[row.ordinal - records.first_ordinal] = _fate_of_error(
                SOURCE, type(row.error).__name__, dropped=dropped
            )
        lineage = LineageWriter()
        lineage.add(records.places(), fates, records.digests())
        return lineage

    def _fail(self, batch: SourceBatch, index: int, error: Exception) -> None:
        """A record whose outputs cannot be stored: booked under `write`, as the declaration says."""
        declaration, account = self._declaration, batch.account.unit(WRITE)
        record_id = batch.records.record_id(index)
        if declaration.on_error == "fail":
            raise StageError(
                f"record {record_id!r} cannot be stored: {text_of(error)} Correct the last stage or the declared "
                "features, or allow failures with on_error='dead_letter' (--on-error dead_letter: kept for a replay) "
                "or on_error='drop' (--on-error drop).",
                stage=WRITE,
                record=record_id,
            ) from error
        failure = Failure.of(error, stage=WRITE, dropped=declaration.on_error == "drop")
        account.inputs += 1
        if failure.dropped:
            account.dropped[failure.reason] = account.dropped.get(failure.reason, 0) + 1
        else:
            account.dead += 1
        batch.failures[index] = failure

    def _check_max_bad(self) -> None:
        limit = self._header.max_bad
        if isinstance(limit, int) and not isinstance(limit, bool) and num_bad(self._account) > limit:
            where = f"source shard {self.task.index}"
            errors = [*self._errors, *self._dropped_errors]
            raise too_many_bad(limit, self._account, where=where, errors=errors)


def _encoded(codec: RecordCodec, batch: SourceBatch, ref: Ref) -> list[Written]:
    """The values of an output, encoded, in the order of their records."""
    ordinals = batch.records.ordinals
    table = batch.tables.get(ref)
    if table is not None and isinstance(codec, ExampleCodec):
        payloads, rows = codec.encode_columns(table.columns)
        return [*zip(payloads, ordinals, rows, strict=True)]
    column = batch.column(ref)
    counts = [*map(len, column)]
    values = [value for values in column for value in values]
    if {*counts} - {1}:
        ordinals = [ordinal for ordinal, count in zip(ordinals, counts, strict=True) for _ in range(count)]
    payloads, rows = codec.encode_all(values)
    return [*zip(payloads, ordinals, rows, strict=True)]


def _read_back(letters: ShardWriter) -> list[DeadLetter]:
    return [DeadLetter.from_example(DEAD_LETTER_CODEC.decode(payload)) for payload, _, _ in letters.read_back()]


def _fate_of_error(stage: str, error: str, *, dropped: bool) -> Fate:
    if dropped:
        return Fate(status="dropped", drops=((stage, f"error/{error}"),))
    return Fate(status="dead", stage=stage, error=error)


def _letter_of_row(row: BadRecord) -> DeadLetter:
    return DeadLetter(
        record=row.raw,
        source=row.file,
        position=row.position,
        ordinal=row.ordinal,
        stage=SOURCE,
        error_type=type(row.error).__name__,
        message=text_of(row.error),
        traceback="",  # the frames of our own parser say nothing about the record
    )


def _letter_of_failure(batch: SourceBatch, index: int, failure: Failure) -> DeadLetter:
    records = batch.records
    return DeadLetter(
        record=records.raw(index),
        source=records.file(index),
        position=records.position(index),
        ordinal=records.ordinals[index],
        stage=failure.stage,
        error_type=failure.error_type,
        message=failure.message,
        traceback=failure.traceback,
        item=failure.item,
    )
