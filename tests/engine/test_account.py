"""Accounts: merging, JSON, reconciliation."""

from __future__ import annotations

import re
from typing import Any

import pytest
from function_stages import Stage, run

from beam_pipes.engine.account import Account
from beam_pipes.errors import ReconciliationError
from beam_pipes.typed import (
    Counter,
    Histogram,
)


class TestAccounts:
    def account(self) -> Account:
        def transform(stage: Stage, value: int) -> Any:
            stage._set_stats([Histogram("h", [0, 2])] if value else [Counter("c", 1)])
            return [value] if value else stage.drop("zero")

        batch = run(Stage(transform), [0, 1, 2])[1]
        batch.account.read, batch.account.written, batch.account.dropped = 3, 2, 1
        batch.account.outputs["o"] = 2
        return batch.account

    def test_json_keeps_everything(self) -> None:
        account = self.account()
        assert Account.from_json(account.to_json()) == account

    def test_merging_adds_and_does_not_change_its_argument(self) -> None:
        total, one = Account(), self.account()
        total.merge_from(one)
        total.merge_from(one)

        assert one == self.account()
        unit = total.units["Stage"]
        assert (total.read, total.written, total.dropped, total.outputs) == (6, 4, 2, {"o": 4})
        assert (unit.inputs, unit.kept, unit.dropped) == (6, 4, {"zero": 2})
        assert [str(stat) for stat in total.statistics()] == ["Stage_c: 2", "Stage_h:"]

    def test_records_that_do_not_add_up_are_reported(self) -> None:
        account = self.account()
        account.reconcile(where="shard 3")
        account.read = 4
        message = "shard 3: 4 records were read, but 2 written + 1 dropped + 0 dead letters = 3. Nothing was published."
        with pytest.raises(ReconciliationError, match=f"^{re.escape(message)}$") as caught:
            account.reconcile(where="shard 3")
        assert caught.value.account == account.to_json()

    def test_inputs_of_a_stage_that_do_not_add_up_are_reported(self) -> None:
        account = self.account()
        account.units["Stage"].inputs = 5
        message = "shard 3, stage 'Stage': 5 inputs, but 2 kept + 1 dropped + 0 dead = 3. Nothing was published."
        with pytest.raises(ReconciliationError, match=f"^{re.escape(message)}$") as caught:
            account.reconcile(where="shard 3")
        assert caught.value.stage == "Stage"
