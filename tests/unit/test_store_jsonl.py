"""JSON that any reader takes, and that every command prints through the one function that writes it."""

import json
import math
from pathlib import Path

import numpy as np

import limen.cli
from limen.cli.options import print_json
from limen.store.jsonl import strict_json


def test_what_json_does_not_have_is_null(capsys):
    value = {"b": math.nan, "a": [math.inf, (-math.inf, 1.5)], "n": {"x": np.float64("nan"), "y": True, "z": "NaN"}}
    want = {"b": None, "a": [None, [None, 1.5]], "n": {"x": None, "y": True, "z": "NaN"}}
    assert json.loads(strict_json(value), parse_constant=int) == want
    print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed, parse_constant=int) == want
    assert list(json.loads(printed)) == ["b", "a", "n"]


def test_no_command_writes_json_in_a_way_of_its_own():
    modules = sorted(Path(limen.cli.__file__).parent.glob("*.py"))
    assert len(modules) > 10
    assert [m.name for m in modules if "json.dump" in m.read_text(encoding="utf-8")] == []
