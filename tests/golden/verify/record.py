"""Record what the verifier `math` says of a fixed set of pairs: python tests/golden/verify/record.py

Run it only together with a new revision of the verifier (`Math.revision`): verdicts are stored under its version, so
that a version has to mean the same judging for good.
"""

import json
from pathlib import Path

from limen.verify import JudgeItem, VerifierPool
from limen.verify.bench import own_cases

FILE = Path(__file__).with_name("verdicts.jsonl")


def main() -> None:
    if FILE.exists():
        pairs = [tuple(json.loads(line)[:2]) for line in FILE.read_text(encoding="utf-8").splitlines()[1:]]
    else:
        cases = [c for c in own_cases() if not c.options]
        pairs = [(c.gold, c.response) for c in cases]
        pairs += [(c.gold, cases[(i + 1) % len(cases)].response) for i, c in enumerate(cases)]
        pairs += [(c.gold, cases[(i * 7 + 3) % len(cases)].response) for i, c in enumerate(cases)]
        pairs = list(dict.fromkeys(pairs))
    with VerifierPool("math", deadline=20.0) as pool:
        verdicts = pool.judge_many(JudgeItem(*pair) for pair in pairs)
        lines = [json.dumps(pool.version)]
    lines += [json.dumps([*p, v.outcome], ensure_ascii=False) for p, v in zip(pairs, verdicts, strict=True)]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
