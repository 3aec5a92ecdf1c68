"""`limen verify`, `regrade`, `check-golds` and `verify-bench`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limen.cli.options import print_json

if TYPE_CHECKING:
    from limen.verify.bench import Score
    from limen.verify.golds import GoldReport
    from limen.verify.stored import Regrade

_VERIFIER = "A name (math, numeric, exact, choice, countdown, reasoning_gym, python, MODULE:FUNCTION) or JSON settings."
_Workers = Annotated[int | None, typer.Option(help="Processes; by default one per core.")]
_Deadline = Annotated[float, typer.Option(help="Seconds for one answer, after which it is unjudged.")]
_Memory = Annotated[int, typer.Option(help="MiB that one process may use for an answer.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    app.command()(verify)
    app.command()(regrade)
    app.command(name="check-golds")(check_golds)
    app.command(name="verify-bench")(verify_bench)


def verify(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    verifier: Annotated[str | None, typer.Option(help=f"{_VERIFIER} By default the run's own.")] = None,
    workers: _Workers = None,
    deadline: _Deadline = 5.0,
    memory_mb: _Memory = 1024,
    as_json: _Json = False,
) -> None:
    """Judge the stored responses of a run that have no verdict of this verifier yet."""
    from dataclasses import asdict

    from limen.store import Run
    from limen.verify import VerifierPool
    from limen.verify.stored import judge_run

    opened = Run.open(run)
    with VerifierPool(_spec(verifier, opened), workers, deadline, memory_mb) as pool:
        judged = judge_run(opened, pool, _progress)
    if as_json:
        print_json(asdict(judged))
        return
    typer.echo(f"{judged.verifier}: {judged.judged} judged now, {judged.before} before")
    typer.echo("  " + (", ".join(f"{k} {v}" for k, v in sorted(judged.outcomes.items())) or "nothing new"))
    if judged.unjudged_rules:
        typer.echo("  unjudged because of " + ", ".join(f"{k} {v}" for k, v in sorted(judged.unjudged_rules.items())))


def regrade(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    verifier: Annotated[str, typer.Option(help=_VERIFIER)],
    against: Annotated[str | None, typer.Option(help="Version to compare with; by default the latest other.")] = None,
    samples: Annotated[int, typer.Option(help="Responses to show of each kind of change.")] = 3,
    workers: _Workers = None,
    deadline: _Deadline = 5.0,
    memory_mb: _Memory = 1024,
    as_json: _Json = False,
) -> None:
    """Judge a run anew with another verifier; say how many verdicts changed, which way, by which rule. Old verdicts
    are kept."""
    from limen.store import Run
    from limen.verify import VerifierPool
    from limen.verify.stored import choose_old, compare_verdicts, judge_run

    opened = Run.open(run)
    with VerifierPool(_spec(verifier, opened), workers, deadline, memory_mb) as pool:
        old = choose_old(opened, pool.version, against)
        judge_run(opened, pool, _progress)
        result = compare_verdicts(opened, old, pool.version, samples)
    if as_json:
        print_json(result.to_json())
    else:
        _print_regrade(result, run)


def check_golds(
    problems: Annotated[str, typer.Argument(help="FILE, reasoning_gym:TASK, arithmetic:FAMILY, owner/dataset.")],
    verifier: Annotated[str, typer.Option(help=f"{_VERIFIER} auto: what suits the problems.")] = "auto",
    column: Annotated[list[str] | None, typer.Option(help="answer=NAME: which column holds what.")] = None,
    split: Annotated[str | None, typer.Option(help="Split of a hub dataset.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first so many problems.")] = None,
    as_json: _Json = False,
) -> None:
    """Judge every gold answer against itself, bare and boxed. Exit code 1 where one fails."""
    from dataclasses import asdict

    from limen.cli.options import columns
    from limen.problems import load_problems
    from limen.verify import VerifierPool
    from limen.verify.golds import report_golds

    loaded = load_problems(problems, limit, columns(column or []), split)
    if verifier == "auto":
        from limen.sampling.golds import auto_verifier

        verifier = auto_verifier(loaded)
    with VerifierPool(_spec(verifier, None)) as pool:
        reports = report_golds(loaded, pool)
        version = pool.version
    failing = [r for r in reports if r.fails]
    if as_json:
        found = {"verifier": version, "problems": len(loaded), "reports": [asdict(r) for r in reports]}
        print_json(found)
    else:
        typer.echo(
            f"{len(loaded)} gold answers, {version}: {len(failing)} fail, {len(reports) - len(failing)} to look at"
        )
        for report in sorted(reports, key=lambda r: not r.fails):
            typer.echo("  " + _gold_line(report))
    if failing:
        raise typer.Exit(1)


def verify_bench(
    cases: Annotated[Path | None, typer.Argument(help="JSONL of gold, response, expected; else limen's own.")] = None,
    verifier: Annotated[str, typer.Option(help=_VERIFIER)] = "math",
    baseline: Annotated[bool, typer.Option(help="Also math-verify alone, on the same pairs.")] = True,
    workers: _Workers = None,
    deadline: _Deadline = 5.0,
    misses: Annotated[int, typer.Option(help="Misjudged pairs to list.")] = 20,
    as_json: _Json = False,
) -> None:
    """Accuracy on labelled pairs and speed, beside math-verify alone."""
    from dataclasses import asdict

    from limen.verify import bench

    pairs = bench.own_cases() if cases is None else bench.read_cases(cases)
    spec = _spec(verifier, None)
    scores = [bench.measure(pairs, {"name": spec} if isinstance(spec, str) else spec, workers, deadline)]
    if baseline:
        scores.append(bench.measure_math_verify(pairs, max(1, round(deadline))))
    if as_json:
        rows = [{**asdict(s), "accuracy": s.accuracy, "pairs_per_second": s.pairs_per_second} for s in scores]
        print_json(rows)
        return
    typer.echo(
        f"{'verifier':<16}{'pairs':>8}{'right':>8}{'accuracy':>10}{'false +':>9}{'false -':>9}{'s':>9}{'pairs/s':>10}"
    )
    for s in scores:
        typer.echo(
            f"{s.name:<16}{s.pairs:>8}{s.right:>8}{s.accuracy:>10.4f}{s.false_positives:>9}{s.false_negatives:>9}"
            f"{s.seconds:>9.2f}{s.pairs_per_second:>10,.0f}"
        )
    _print_misses(scores[0], misses)


def _print_misses(score: Score, most: int) -> None:
    for miss in score.misses[:most]:
        typer.echo(
            f"  {score.name} says {miss['got']} ({miss['rule']}), labelled {miss['expected']}: "
            f"gold {miss['gold']!r}, response ...{miss['response'][-80:]!r}  {miss['why']}"
        )


def _print_regrade(result: Regrade, run: Path) -> None:
    typer.echo(f"{run}: {result.old} -> {result.new}: {result.changed} of {result.compared} verdicts changed")
    for change in result.changes:
        typer.echo(f"  {change.count:>6}  {change.old} ({change.old_rule}) -> {change.new} ({change.new_rule})")
        for sample in change.samples:
            typer.echo(f"          problem {sample.get('problem_id', '?')}, gold {sample.get('gold', '')!r}")
            typer.echo(f"            answer {sample['old_answer']!r} -> {sample['new_answer']!r}")
            typer.echo(f"            ...{sample.get('response_end', '')[-120:]!r}")


def _gold_line(report: GoldReport) -> str:
    what = "FAILS" if report.fails else "not understood, matched as text" if report.unread else "look"
    return f"{what}: {report.problem_id}: {report.answer!r}: bare {report.bare}, boxed {report.boxed}"


def _spec(text: str | None, run: Any) -> str | dict[str, Any]:
    """A verifier's name or settings; without one, what the run was sampled with."""
    from limen.cli.options import verifier_of

    if text is not None and text != "auto":
        return verifier_of(text)
    known: Any = run.settings.get("verifier") if run is not None else None
    if known in (None, "auto", "none"):
        from limen.sampling.golds import auto_verifier

        return auto_verifier(run.problems()) if run is not None else "math"
    return known if isinstance(known, dict) else str(known)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\rjudged {done} of {total}", end="\n" if done >= total else "", file=sys.stderr, flush=True)
