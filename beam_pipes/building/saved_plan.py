"""`SavedPlan`: a plan as a small file, which a later build is held to."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beam_pipes.building.declaration_fingerprint import DeclarationFingerprint, explain_change
from beam_pipes.building.forecast import Forecast
from beam_pipes.building.plan import BuildPlan
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.errors import PlanError, StalePlanError

_VERSION = 1
# Of what changed in the declaration so many lines are told.
_SHOWN = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedPlan:
    """What was planned: the snapshot that a build was to make, of which input, and what it was expected to cost.

    A snapshot's id is a digest of the bytes of the input and of the declaration, so times and places do not count: a
    file that was touched and not changed leaves a plan as good as it was.
    """

    name: str
    snapshot: str
    source: str
    num_files: int
    num_bytes: int
    fingerprint: DeclarationFingerprint
    forecast: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, plan: BuildPlan, forecast: Forecast | None = None) -> SavedPlan:
        return cls(
            name=plan.header.name,
            snapshot=plan.header.plain_snapshot,
            source=plan.header.fingerprints["source"],
            num_files=plan.source.num_files,
            num_bytes=plan.source.num_bytes,
            fingerprint=plan.fingerprint,
            forecast=None if forecast is None else forecast.to_json(),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as JSON."""
        fields = {**dataclasses.asdict(self), "fingerprint": self.fingerprint.to_json(), "version": _VERSION}
        try:
            Path(path).write_text(strict_json(fields, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise PlanError(f"the plan cannot be saved as {os.fspath(path)!r}: {error.strerror or error}.") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SavedPlan:
        """Reads what `save` wrote; `PlanError` where it is something else."""
        try:
            fields = json.loads(Path(path).read_text(encoding="utf-8"))
            if fields.pop("version") != _VERSION:
                raise ValueError("another version")
            return cls(**{**fields, "fingerprint": DeclarationFingerprint.from_json(fields["fingerprint"])})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PlanError(
                f"expected a plan in {os.fspath(path)!r}, got {type(error).__name__}: {error}. Make one: beam-pipes "
                "plan package.module:name --to DIR --save FILE"
            ) from error

    def require_fresh(self, plan: BuildPlan) -> None:
        """Raises `StalePlanError`, naming what changed, where `plan` is not what was planned then."""
        if plan.header.name == self.name and plan.header.plain_snapshot == self.snapshot:
            return
        changed = []
        if plan.header.name != self.name:
            changed.append(f"it is of {self.name!r}, and {plan.header.name!r} is to be built")
        if plan.header.fingerprints["source"] != self.source:
            changed.append(
                f"the input changed: {self.num_files:,} files with {self.num_bytes:,} bytes then, "
                f"{plan.source.num_files:,} files with {plan.source.num_bytes:,} bytes now"
            )
        lines = [line for each in explain_change(self.fingerprint, plan.fingerprint).values() for line in each]
        if lines:
            more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
            changed.append(f"the declaration changed: {'; '.join(lines[:_SHOWN])}{more}")
        if not changed:
            changed.append("everything is to be built anew, or was since")
        raise StalePlanError(
            f"the plan is out of date: {'. '.join(changed)}. Nothing was built. Plan again, look at the forecast, and "
            "build with the new plan.",
            planned=self.snapshot,
            found=plan.header.plain_snapshot,
        )
