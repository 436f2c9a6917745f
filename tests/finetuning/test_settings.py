"""What cannot be meant is refused at the door, with a remedy that works."""

from dataclasses import fields
from typing import Any

import pytest

from compact_bilinear.finetuning import FineTuning


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": -1}, r"epochs ≥ 0, but got -1\.\nLeave it out for 50\."),
        ({"batch": 0}, r"batch ≥ 1, but got 0"),
        ({"rate": float("nan")}, r"rate ≥ 0, but got nan"),
        ({"momentum": 1.0}, r"momentum from 0 to below 1"),
        ({"hold_out": 1.0}, r"hold_out from 0 to below 1"),
        ({"layer_decay": 0.0}, r"layer_decay above 0, up to 1"),
        ({"freeze": "head"}, r"freeze ≥ 0 or 'backbone', but got 'head'"),
        ({"freeze": True}, r"freeze ≥ 0 or 'backbone', but got True"),
        ({"damping": 0.0}, r"damping > 0"),
        ({"optimizer": "adam"}, r"optimizer 'sgd' or 'adamw', but got 'adam'"),
        ({"schedule": "linear"}, r"'constant' or 'cosine' or 'step'"),
        ({"patience": 3}, r"hold_out=0\.\nWrite hold_out=0\.2 beside it"),
    ],
)
def test_refuses(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        FineTuning(**wrong)
    assert len(str(refused.value).splitlines()) == 2


def test_the_remedies_are_taken() -> None:
    assert FineTuning(hold_out=0.2, patience=3, freeze="backbone", damping=0.1).patience == 3


def test_what_changes_only_the_last_digits_may_change_between_a_run_and_its_continuation() -> None:
    free = {"accumulate", "channels_last", "compile", "deterministic", "workers", "checkpoint_minutes"}
    assert FineTuning().decisive().keys() == {each.name for each in fields(FineTuning)} - free
    assert FineTuning(workers=3).decisive() == FineTuning().decisive()
