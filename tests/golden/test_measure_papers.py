"""The papers' tables that are functions of counts, at the printed digits; and a public pair of models."""

import json
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal

import pytest
from typer.testing import CliRunner

from limen.measure import compare, pass_at_k, read_counts, support_rates


def tables(shared):
    return json.loads(shared("spec/tables.json").read_text(), parse_float=Decimal)


def prints_as(value: float, printed) -> bool:
    """Rounds to the printed digits (half up or half even: the papers do not say)."""
    printed = Decimal(printed)
    unit = Decimal(1).scaleb(int(printed.as_tuple().exponent))
    exact = Decimal(repr(round(float(value), 12)))
    return any(exact.quantize(unit, rounding=r) == printed for r in (ROUND_HALF_UP, ROUND_HALF_EVEN))


def test_support_rates_of_both_tables(shared):
    checked = 0
    for name in ("IL-T1", "IL-T4"):
        for row in tables(shared)[name]:
            if row.get("P") is None:
                continue
            rates, why = support_rates(row["P"], row["E"], row["S"])
            assert not why
            for rate, value in rates.items():
                assert prints_as(value, row[rate]), (name, row, rate, value)
                checked += 1
    assert checked == 56


def test_rates_printed_in_the_text():
    for (P, E, S, _), want in {
        (1355, 5, 56, 131): ("0.96", "0.00", "0.01", "-0.04"),
        (1045, 31, 107, 674): ("0.91", "0.03", "0.06", "-0.06"),
        (2400, 36, 163, 805): ("0.94", "0.01", "0.03", "-0.05"),
        (2388, 48, 175, 793): ("0.93", "0.02", "0.04", "-0.05"),
        (19, 2, 2, 7): ("0.905", "0.095", "0.172", "0.000"),
        (19, 3, 2, 6): ("0.905", "0.136", "0.237", "0.042"),
        (24, 0, 1, 5): ("0.960", "0", "0", "-0.040"),
    }.items():
        rates, _why = support_rates(P, E, S)
        assert all(prints_as(v, w) for v, w in zip(rates.values(), want, strict=True))


def test_coverage_of_table_4(shared):
    rows = [r for r in tables(shared)["IL-T4"] if r.get("P") is not None]
    for row in rows:
        M = row["P"] + row["E"] + row["S"] + row["O"]
        solved = [256] * (row["P"] + row["E"]) + [0] * (M - row["P"] - row["E"])
        assert prints_as(100 * pass_at_k(256, solved, 256).mean(), row["pass@256_pct"])


def test_public_counts(shared):
    base, trained = read_counts(shared("data/counts_math500_qwen25_7b.jsonl")).values()
    got = compare(base, trained, draws=200)
    s = got.support
    assert (s.P, s.E, s.S, s.O) == (462, 3, 19, 16)
    assert round(s.chance_each_way, 2) == 5.19
    assert s.mcnemar_p < 0.01
    assert [round(c.at(k), 3) for c in (got.base_curve, got.trained_curve) for k in (1, 128)] == [
        0.614,
        0.962,
        0.779,
        0.930,
    ]


def test_public_counts_on_the_command_line(shared):
    import typer

    from limen.cli import measure

    app = typer.Typer()
    measure.register(app)
    file = str(shared("data/counts_math500_qwen25_7b.jsonl"))
    names = ["--base", "Qwen2.5-7B", "--trained", "Qwen-2.5-7B-SimpleRL-Zoo"]
    done = CliRunner().invoke(app, ["compare", file, *names, "--json", "--draws", "50"])
    assert done.exit_code == 0, done.output
    got = json.loads(done.stdout)
    keys = {"P", "E", "S", "O", "SRR", "NDR", "SDS", "NSCR", "chance_each_way", "mcnemar_p"}
    assert keys <= set(got["support"])
    assert got["pass_at_k"]["base"]["128"] == pytest.approx(0.962)
    assert set(got["pass_at_k"]) == {"base", "trained"}
