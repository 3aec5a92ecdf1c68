"""A version of a verifier means the same judging for good."""

import json
from pathlib import Path

from limen.verify import JudgeItem, VerifierPool

FILE = Path(__file__).parent / "verify" / "verdicts.jsonl"


def test_judging_has_not_changed_under_the_same_version():
    lines = FILE.read_text(encoding="utf-8").splitlines()
    recorded = [json.loads(line) for line in lines[1:]]
    assert len(recorded) > 1000
    with VerifierPool("math", deadline=20.0) as pool:
        verdicts = pool.judge_many(JudgeItem(gold, response) for gold, response, _ in recorded)
        assert pool.version == json.loads(lines[0]), "a new revision: run tests/golden/verify/record.py"
    changed = [(r, v) for r, v in zip(recorded, verdicts, strict=True) if v.outcome != r[2]]
    assert changed == [], "judging changed: raise Math.revision, then run tests/golden/verify/record.py"
