"""Checkpoints of one policy, and how far the verdicts can be trusted."""

import pytest

from limen.errors import DataError
from limen.report import build_report, read_report
from limen.store import Run
from limen.store.schema import verdict_row
from limen.types import Verdict
from report_synthetic import problems, write_run


def add_verdicts(path, make):
    run = Run.open(path)
    rows = [verdict_row(r, v) for r in run.rollouts() if (v := make(r)) is not None]
    with run.writer("verdicts") as out:
        for row in rows:
            out.append(row)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("steps")
    items = problems(30)
    runs = [write_run(folder / "base", "base", items, [0.4] * 30, 16, 1)]
    for step, q in ((50, 0.5), (100, 0.6)):
        runs.append(
            write_run(folder / f"grpo-{step}", f"grpo-{step}", items, [q] * 30, 16, step, policy="grpo", step=step)
        )
    return runs


def test_only_the_last_checkpoint_speaks_in_the_verdict(checkpoints, tmp_path):
    data = read_report(checkpoints, draws=0)
    assert [(p.family, p.step, p.last) for p in data.policies] == [
        ("base", 0, True),
        ("grpo", 50, False),
        ("grpo", 100, True),
    ]
    html = build_report(checkpoints, tmp_path, draws=20, figures=False).read_text()
    assert html.count('class="finding"') == 1
    assert 'id="checkpoint-plots"' in html


def test_other_verifiers_opinions_are_counted(tmp_path):
    path = write_run(tmp_path / "a", "a", problems(4), [1.0, 1.0, 0.0, 0.0], 5, 1)
    flip = {("p000", 0), ("p000", 1), ("p003", 4)}
    right = {"p000", "p001"}

    def other(r):
        correct = (r.problem_id in right) != ((r.problem_id, r.sample_index) in flip)
        return Verdict("correct" if correct else "wrong", "", "rule", "math@2")

    add_verdicts(path, other)
    with pytest.raises(DataError, match="--verifier"):
        read_report([path], draws=0)
    data = read_report([path], draws=0, verifier="exact@1")
    (opinion,) = data.base.health.verdicts.opinions
    assert (opinion.verifier, opinion.both, opinion.only_first, opinion.only_other) == ("math@2", 20, 2, 1)
    assert "math@2" in build_report([path], tmp_path / "out", verifier="exact", draws=0, figures=False).read_text()


def test_noise_and_reasons_are_said_aloud(tmp_path):
    path = write_run(tmp_path / "a", "a", problems(4), [0.5] * 4, 5, 1)
    run = Run.open(path)
    for shard in run.shards("verdicts"):
        shard.unlink()

    def noisy(r):
        if (r.problem_id, r.sample_index) == ("p000", 0):
            return Verdict("unjudged", "", "timeout", "math@1")
        false = r.problem_id == "p001"
        return Verdict("correct" if false else "wrong", "", "exact", "math@1", true_outcome="wrong")

    add_verdicts(path, noisy)
    data = read_report([path], draws=0)
    told = " ".join(n.text for n in data.notes if n.level == "warning")
    assert "1 samples could not be judged (timeout 1)" in told
    assert "5 wrong answers pass and 0 right ones fail" in told
    assert data.base.health.verdicts.rules == {"exact": 19}


def test_checkpoints_are_drawn_on_paper_and_written_as_numbers(checkpoints, tmp_path):
    build_report(checkpoints, tmp_path, draws=20)
    for suffix in ("png", "svg"):
        assert (tmp_path / "figures" / f"checkpoints.{suffix}").stat().st_size > 2000
    rows = [x.split(",") for x in (tmp_path / "figures" / "checkpoints.csv").read_text().splitlines()]
    assert rows[0] == ["policy", "step", "k", "pass_at_k", "low", "high"]
    data = read_report(checkpoints, draws=0)
    firsts = {(r[0], int(r[1])): float(r[3]) for r in rows[1:] if r[2] == "1"}
    assert set(firsts) == {("grpo", 0), ("grpo", 50), ("grpo", 100)}
    for (_, step), value in firsts.items():
        policy = next(p for p in data.policies if p.step == step)
        assert value == pytest.approx(sum(policy.correct_P) / sum(policy.n_P), abs=1e-4)
