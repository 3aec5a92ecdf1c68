"""Stop strings in growing responses."""

import pytest

from limen.engines.stops import StopStrings


class Pieces:
    """Tokens of several characters."""

    pieces = ("", "", "a", "b\n", "\nPro", "blem", ":", "x", " ", "\ufffd")

    def __len__(self):
        return len(self.pieces)

    def decode(self, ids, **options):
        return "".join(self.pieces[i] for i in ids)

    def batch_decode(self, rows, **options):
        return [self.decode(r) for r in rows]


def stops(*strings):
    return StopStrings(Pieces(), strings, 12)


def test_only_tokens_that_can_complete_a_string_are_looked_at():
    marks = stops("Problem:").may_complete
    assert [i for i in range(10) if marks[i]] == [6, 9]  # ":" and the half character
    assert marks[10:].all()
    assert not stops().may_complete.any()


def test_a_string_is_found_across_tokens_and_cut_off():
    s = stops("\nProblem:", "zzz")
    assert not s.found([2, 4, 5])
    assert s.found([2, 4, 5, 6])
    assert s.cut("a\nProblem: more") == "a"
    assert s.cut("nothing here") is None


def test_the_earliest_string_counts():
    assert stops("b", "a").cut("xxaxb") == "xx"


def test_a_long_response_is_found_only_by_its_end():
    s = stops(":")
    ids = [7] * 50
    assert not s.found(ids)
    assert s.found([*ids, 6])


@pytest.mark.parametrize("last", [" ", "\t"])
def test_strings_that_end_in_a_blank_look_at_every_token(last):
    assert stops("x" + last).may_complete.all()
