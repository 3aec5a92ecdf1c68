"""The report on published counts says what the definitions say of them."""

import json
import re

from limen.report import build_report


def test_math500_counts(shared, tmp_path):
    counts = shared("data/counts_math500_qwen25_7b.jsonl")
    html = build_report([counts], tmp_path, base="Qwen2.5-7B", figures=False).read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S).group(1))
    found = data["contrasts"][0]
    assert [found[k] for k in ("kept", "gained", "lost", "never")] == [462, 3, 19, 16]
    assert round(found["chance_lost"], 2) == 5.19
    base, trained = (p["curve"]["v"] for p in data["policies"])
    assert [round(base[0], 3), round(trained[0], 3)] == [0.614, 0.779]
    assert [round(base[-1], 3), round(trained[-1], 3)] == [0.962, 0.930]
    assert round(found["by_budget"][-2][2], 2) == 17.07
    calls = [found["verdict"].count(v) for v in ("shrunk", "expanded", "undetermined")]
    assert calls == [2, 2, 18]
    assert all(bool(e) == (c in "gl") for e, c in zip(found["evidence"], found["change"], strict=True))
    words = re.sub(r"<[^>]+>", "", html)
    assert "SimpleRL-Zoo shrank what the base can solve." in words
    assert "it lost 19 that the base solved in 128 samples and gained 3 that the base did not" in words
