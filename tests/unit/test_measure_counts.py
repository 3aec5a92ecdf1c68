"""Count files and count tables: what is read, what is refused, k beyond n."""

import math

import numpy as np
import pytest

from limen.errors import DataError
from limen.measure import CountTable, compare, pass_curve, read_counts

LINE = '{"problem_id": "%s", "model": "%s", "n": 8, "c": %d}\n'


def test_reads_models_in_order(tmp_path):
    file = tmp_path / "c.jsonl"
    file.write_text(LINE % ("p1", "z", 3) + "\n" + LINE % ("p1", "a", 4) + LINE % ("p2", "z", 0))
    tables = read_counts(file)
    assert list(tables) == ["z", "a"]
    assert tables["z"].problem_ids == ("p1", "p2")
    assert tables["z"].c_P.tolist() == [3, 0]


def test_name_of_the_file_stands_for_the_model(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"problem_id": 7, "n": 4.0, "c": 1, "unjudged": 2, "task": "sums"}\n')
    table = read_counts(file)["mine"]
    assert (table.problem_ids, table.n_P[0], table.unjudged_P[0], table.task_P) == (("7",), 4, 2, ("sums",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LINE % ("p1", "a", 1) + '{"problem_id": "p2", "mo', r":2 .*cut off"),
        ("[1, 2]\n", ":1 is a list"),
        ('{"problem_id": "p", "model": "a", "c": 1}\n', "no n "),
        (LINE % ("p1", "a", 9), "c=9 correct of n=8"),
        (LINE % ("p1", "a", 1) * 2, r":2: problem 'p1' .*already on .*:1"),
        ('{"problem_id": "p", "n": 1.5, "c": 1}\n', "whole number"),
        ('{"problem_id": "p", "n": true, "c": 1}\n', "whole number"),
        ('{"problem_id": "p", "n": 4, "c": -1}\n', "at least 0"),
        ("", "is empty"),
    ],
)
def test_refuses(tmp_path, text, says):
    file = tmp_path / "c.jsonl"
    file.write_text(text)
    with pytest.raises(DataError, match=says):
        read_counts(file)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match="not a file"):
        read_counts(tmp_path / "none.jsonl")


def test_repeated_ids_are_refused():
    with pytest.raises(DataError, match="'a' occurs more than once"):
        CountTable.of("t", ["a", "b", "a"], 4, [1, 2, 3])


def test_k_beyond_n_is_nan_for_the_benchmark_never_a_smaller_population():
    table = CountTable.of("t", ["a", "b"], [8, 7], [8, 7], unjudged=[0, 1])
    curve = pass_curve(table, [1, 7, 8])
    assert curve.value_K[:2].tolist() == [1, 1]
    assert math.isnan(curve.value_K[2])
    assert math.isnan(curve.low_K[2])
    assert curve.undefined == {
        8: "1 of 2 problems have fewer than 8 judged samples, 1 of them because of unjudged samples"
    }
    assert pass_curve(table).k_K.tolist() == [1, 2, 4, 7]


def test_no_samples_at_all():
    table = CountTable.of("t", ["a", "b"], [4, 0], [1, 0])
    assert pass_curve(table).k_K.size == 0
    got = compare(table, table)
    assert got.support is None
    assert any("no judged sample" in n for n in got.notes)
    assert got.to_json()["pass_at_k"] == {"base": {}, "trained": {}}


def test_curve_is_seeded_and_paired():
    rng = np.random.default_rng(0)
    a = CountTable.of("a", [str(i) for i in range(40)], 16, rng.integers(0, 17, 40))
    one, two = pass_curve(a, seed=3), pass_curve(a, seed=3)
    assert np.array_equal(one.low_K, two.low_K)
    assert not np.array_equal(one.low_K, pass_curve(a, seed=4).low_K)
    same = compare(a, a)
    assert not same.difference_low_K.any()  # resampled in pairs: no noise between a policy and itself
    assert not same.difference_high_K.any()


def test_order_of_problems_does_not_matter():
    ids = [str(i) for i in range(10)]
    a = CountTable.of("a", ids, 4, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    back = CountTable.of("b", ids[::-1], 4, a.c_P[::-1])
    got = compare(a, back)
    assert (got.support.E, got.support.S) == (0, 0)
    assert not got.difference_K.any()


def test_one_problem_has_no_interval():
    curve = pass_curve(CountTable.of("t", ["a"], 4, [2]))
    assert curve.at(1) == 0.5
    assert np.isnan(curve.low_K).all()
