"""The tiny base's problems: right answers, a fixed split, nothing held out that training could have seen."""

import pytest

from limen.errors import DataError
from limen.problems.arithmetic import FAMILIES, TRAIN_SIZES, arithmetic_problems


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_right_and_written_units_first(family, split):
    for p in arithmetic_problems((family,), split):
        assert len(p.problem) == 6
        value = int(p.answer[::-1])
        left, right = int(p.problem[:2]), int(p.problem[3:5])
        assert value == (left + right if p.problem[2] == "+" else left * right)
        assert str(value)[::-1] == p.answer


@pytest.mark.parametrize("family", FAMILIES)
def test_held_out_problems_and_their_twins_never_occur_in_training(family):
    train, test = arithmetic_problems((family,), "train"), arithmetic_problems((family,), "test")
    assert len(test) == 100
    assert len(train) == TRAIN_SIZES[family]

    def pair(p):
        return frozenset((p.problem[:2], p.problem[3:5]))

    assert not {pair(p) for p in train} & {pair(p) for p in test}
    assert len({p.id for p in train + test}) == len(train) + len(test)


def test_the_split_does_not_move():
    """Results over years are compared on these problems: a change of the split must be noticed."""
    ids = [p.id for p in arithmetic_problems()]
    assert ids[0] == "add-73+95"
    assert ids[100] == "mul21-89*8"
    assert ids[200] == "mul22-26*59"


def test_size_takes_the_families_evenly():
    assert [p.task for p in arithmetic_problems(size=4)] == ["add", "add", "mul21", "mul22"]


@pytest.mark.parametrize(
    ("kwargs", "needle"),
    [
        ({"families": ("cube",)}, "cube"),
        ({"split": "dev"}, "dev"),
        ({"size": 301}, "300 test problems"),
        ({"size": 0}, "not 0"),
    ],
)
def test_bad_requests_say_what_is_there(kwargs, needle):
    with pytest.raises(DataError, match=needle):
        arithmetic_problems(**kwargs)
