"""Sampling for the studies of the laboratory, on the tiny model."""

from limen.lab.policies import Study, sample_policy
from limen.store import Run


def test_the_name_of_a_study_s_folder_decides_no_sample(tmp_path):
    """One command with two --out gives one table; policies of one name below other folders have draws of their own."""

    def sampled(out, *below):
        run = sample_policy(Study(out, n=2, limit=4), out.joinpath(*below, "base"), "tiny", "base", logprobs=False)
        return {(r.problem_id, r.sample_index): r.token_ids for r in Run.open(run).rollouts()}

    first = sampled(tmp_path / "one")
    assert first == sampled(tmp_path / "two")
    zero, one = (sampled(tmp_path / "one", name) for name in ("seed-0", "seed-1"))
    assert len(first) == 8
    assert first != zero
    assert first != one
    assert zero != one
