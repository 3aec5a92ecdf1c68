"""Claims that the bandit, the study of reasoning modes and the study of verifier errors decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from limen.lab.claims_rules import AGREES, OPPOSITE, UNDETERMINED, Rule, Verdict
from limen.lab.evidence import Evidence


def bandit(row: str) -> Rule:
    """A row that `limen bandit` judged."""

    def rule(e: Evidence) -> Verdict | None:
        found = e.doc.get("claims", {}).get(row)
        return None if found is None else Verdict(found["verdict"], found["size"])

    return rule


def modes(row: str) -> Rule:
    """A rule of `limen.lab.modes_rules`, of GRPO; SELF's beside it."""

    def rule(e: Evidence) -> Verdict | None:
        rules = e.doc.get("rules", {})
        found = rules.get("grpo", {}).get(row)
        if found is None:
            return None
        own = rules.get("self", {}).get(row)
        beside = f". SELF: {own['verdict']}; {own['size']}" if own and row != "F15b" else ""
        return Verdict(found["verdict"], found["size"] + beside)

    return rule


def joined(studies: Sequence[Evidence]) -> list[Evidence]:
    """Studies of verifier errors with one recipe as one, so that a row that compares patterns finds them all. Each
    pattern keeps the clean level of its own study (`clean`); of a pattern that several have, the first study's counts.
    """
    found: dict[Any, list[Evidence]] = {}
    for e in studies:
        found.setdefault((e.doc.get("recipe") or "demo", e.doc.get("steps")), []).append(e)
    return [_join(same) if len(same) > 1 else same[0] for same in found.values()]


def _join(studies: Sequence[Evidence]) -> Evidence:
    from limen.lab.evidence import command_of

    patterns: dict[str, Any] = {}
    for e in studies:
        clean = e.doc["patterns"].get("true", {}).get("R")
        for name, row in e.doc["patterns"].items():
            patterns.setdefault(name, {**row, "clean": clean})
    first = studies[0]
    commands = [command_of(e.doc.get("provenance", {}), e.kind) for e in studies]
    made = {**first.doc.get("provenance", {}), "command": "; ".join(dict.fromkeys(commands))}
    return Evidence(first.kind, {**first.doc, "patterns": patterns, "provenance": made}, first.path)


def _patterns(e: Evidence) -> dict[str, Mapping[str, Any]]:
    rows: dict[str, Mapping[str, Any]] = {k: v for k, v in e.doc.get("patterns", {}).items() if v.get("noise")}
    return rows


def _random(noise: Any) -> bool:
    """Independent random errors; those that are fixed for a response are systematic."""
    return isinstance(noise, dict) and noise.get("when") == "random" and noise.get("per") == "sample"


def _said(rows: Mapping[str, Mapping[str, Any]]) -> str:
    return "; ".join(f"{k} {r['class']} ({r['R']:.3f}{_by_seed(r)})" for k, r in rows.items())


def _by_seed(row: Mapping[str, Any]) -> str:
    """Classes of the seeds, where they differ."""
    found = list(row.get("class_by_seed") or ())
    return f"; by seed {', '.join(found)}" if len(set(found)) > 1 else ""


def random_errors_delay(e: Evidence) -> Verdict | None:
    """DPC-1: under random, independent errors the end level is the clean run's."""
    rows = {k: r for k, r in _patterns(e).items() if _random(r["noise"])}
    if not rows:
        return None
    hits = [r["class"] == "delay" for r in rows.values()]
    verdict = AGREES if all(hits) else OPPOSITE if not any(hits) else UNDETERMINED
    clean = sorted({float(r.get("clean") or e.doc["patterns"]["true"]["R"]) for r in rows.values()})
    level = ", ".join(f"{x:.3f}" for x in clean)
    return Verdict(verdict, f"end level of the true reward, clean {level}: {_said(rows)}")


def negatives_like_random(e: Evidence) -> Verdict | None:
    """DPC-2: systematic false negatives end in the class of random ones."""
    negative = {k: r for k, r in _patterns(e).items() if _kind(r) == "false_negative"}
    plain = {k: r for k, r in negative.items() if _random(r["noise"])}
    systematic = {k: r for k, r in negative.items() if k not in plain}
    if not plain or not systematic:
        return None
    classes = {r["class"] for r in plain.values()}
    hits = [r["class"] in classes for r in systematic.values()]
    verdict = AGREES if all(hits) else OPPOSITE if not any(hits) else UNDETERMINED
    return Verdict(verdict, f"random: {_said(plain)}; systematic: {_said(systematic)}")


def _kind(row: Mapping[str, Any]) -> str:
    noise = row["noise"]
    return str(noise.get("kind", "")) if isinstance(noise, dict) else ""


def _positives(e: Evidence) -> dict[str, Mapping[str, Any]]:
    return {k: r for k, r in _patterns(e).items() if _kind(r) == "false_positive" and not _random(r["noise"])}


def positives_range(e: Evidence) -> Verdict | None:
    """DPC-3: systematic false positives give at least one plateau and one collapse."""
    rows = _positives(e)
    if not rows:
        return None
    classes = {r["class"] for r in rows.values()}
    verdict = AGREES if {"plateau", "collapse"} <= classes else OPPOSITE if classes == {"delay"} else UNDETERMINED
    return Verdict(verdict, _said(rows))


def pattern_decides(e: Evidence) -> Verdict | None:
    """DPC-4: two error models of equal rate (±1 point, both kinds) with different outcomes."""
    rows = list(_patterns(e).items())
    pairs = [
        (a, b, x, y)
        for i, (a, x) in enumerate(rows)
        for b, y in rows[i + 1 :]
        if _kind(x) == _kind(y) and all(abs(x[k] - y[k]) <= 0.01 for k in _RATES)
    ]
    if not rows:
        return None
    differ = [p for p in pairs if p[2]["class"] != p[3]["class"]]
    verdict = AGREES if differ else OPPOSITE if pairs else UNDETERMINED
    size = "; ".join(f"{a} {x['class']} / {b} {y['class']} (rates {x[_key(x)]:.3f}, {y[_key(y)]:.3f})"
                     for a, b, x, y in (differ or pairs)[:4])  # fmt: skip
    return Verdict(verdict, f"{len(differ)} of {len(pairs)} pairs of equal rate differ" + (f": {size}" if size else ""))


_RATES = ("false_negative_rate", "false_positive_rate")


def _key(row: Mapping[str, Any]) -> str:
    return f"{_kind(row)}_rate"


def not_foretold(e: Evidence) -> Verdict | None:
    """DPC-5: the class of the pattern nearest in rates (leave one out) foretells no better than the commonest class."""
    rows = list(_patterns(e).values())
    if len(rows) < 4:
        return None
    classes = [r["class"] for r in rows]
    right = 0
    for i, row in enumerate(rows):
        others = [r for j, r in enumerate(rows) if j != i]
        near = min(others, key=lambda r: sum(abs(r[k] - row[k]) for k in _RATES))
        right += near["class"] == row["class"]
    commonest = max(map(classes.count, classes))
    verdict = AGREES if right <= commonest else UNDETERMINED
    return Verdict(verdict, f"nearest rate right in {right} of {len(rows)}, the commonest class in {commonest}")


def errors_are_learned(e: Evidence) -> Verdict | None:
    """DPC-6: under systematic false positives the share of samples that are wrong and called right rises.

    Start: the pattern's rate on the base's wrong samples, times their share; end: reward as said minus true reward. It
    rises where it gains more than 0.02. (Whether it is level under false negatives is not measured.)"""
    rows = _positives(e)
    if not rows:
        return None
    ends = {k: (r["false_positive_rate"] * (1 - r["R0"]), r["reward_said"] - r["R"]) for k, r in rows.items()}
    hits = [b - a > 0.02 for a, b in ends.values()]
    verdict = AGREES if all(hits) else OPPOSITE if not any(hits) else UNDETERMINED
    return Verdict(verdict, "; ".join(f"{k} {a:.3f} → {b:.3f}" for k, (a, b) in ends.items()))
