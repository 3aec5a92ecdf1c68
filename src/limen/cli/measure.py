"""`limen passk` and `limen compare`: from run folders or count files to tables and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limen.cli.options import print_json
from limen.errors import DataError

if TYPE_CHECKING:
    from limen.measure import CountTable
    from limen.store.importers import Imported
    from limen.types import Problem

Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON instead of tables.")]
Ks = Annotated[str, typer.Option("--k", help="Budgets, such as 1,8,64. Default: powers of two up to the smallest n.")]
Draws = Annotated[int, typer.Option(help="Bootstrap draws; 0 for no intervals.", min=0)]
Seed = Annotated[int, typer.Option(help="Seed of the bootstrap.")]
Fdr = Annotated[float, typer.Option(help="False discovery rate of the verdicts on single questions.")]
Force = Annotated[bool, typer.Option("--force", help="Compare although prompts or problem sets differ.")]
Verifier = Annotated[str | None, typer.Option(help="Verifier whose verdicts count, where a run holds several.")]


class Over(StrEnum):
    """What an interval is about."""

    problems = "problems"
    samples = "samples"
    both = "both"


OverOption = Annotated[
    Over, typer.Option("--over", help="Intervals over other problems of this kind, over new samples of these, or both.")
]


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    app.command()(passk)
    app.command()(compare)
    app.command()(describe)
    app.command()(series)
    app.command()(plan)
    app.command(name="import")(import_)


def passk(
    source: Annotated[Path, typer.Argument(help="A run folder, or a count file (JSONL: problem_id, model, n, c).")],
    json: Json = False,
    k: Ks = "",
    model: Annotated[str | None, typer.Option(help="Only this model of a count file.")] = None,
    policy: Annotated[str | None, typer.Option(help="Policy, where a run holds several.")] = None,
    step: Annotated[int | None, typer.Option(help="Training step, where a run holds several.")] = None,
    verifier: Verifier = None,
    draws: Draws = 1000,
    seed: Seed = 0,
    over: OverOption = Over.problems,
) -> None:
    """pass@k of a run or of each model of a count file, with intervals."""
    from limen.measure import answers_from_run, show, summary

    tables = _tables(source, model, policy, step, verifier)
    votes = answers_from_run(source, tables[0].policy, tables[0].step, tables[0].verifier) if source.is_dir() else None
    found = [summary(t, _ks(k), draws, seed, over.value, votes) for t in tables]
    if json:
        print_json(found[0].to_json() if len(found) == 1 else {f.table.name: f.to_json() for f in found})
    else:
        show.print_summaries(found)


def compare(
    first: Annotated[Path, typer.Argument(metavar="BASE", help="Run folder or count file of the base.")],
    second: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TRAINED]", help="The same for the trained policy; not needed for a count file with both."
        ),
    ] = None,
    base: Annotated[str | None, typer.Option(help="Name of the base in a count file, or its policy in a run.")] = None,
    trained: Annotated[str | None, typer.Option(help="The same for the trained policy.")] = None,
    base_step: Annotated[int | None, typer.Option(help="Training step of BASE, where it holds several.")] = None,
    trained_step: Annotated[int | None, typer.Option(help="Training step of TRAINED, where it holds several.")] = None,
    verifier: Verifier = None,
    json: Json = False,
    k: Ks = "",
    draws: Draws = 1000,
    seed: Seed = 0,
    over: OverOption = Over.problems,
    q: Fdr = 0.05,
    force: Force = False,
) -> None:
    """What the trained policy gained and lost against the base, beside what chance alone does."""
    from limen.measure import compare as compare_tables
    from limen.measure import show

    if second is None and first.is_dir() and base is None and trained is None and base_step == trained_step:
        raise DataError(f"compare what with {first}? Give a second run folder: limen compare BASE TRAINED")
    left = _one(first, base, base_step, verifier, "--base")
    right = _one(second or first, trained, trained_step, verifier, "--trained")
    found = compare_tables(left, right, ks=_ks(k), draws=draws, seed=seed, over=over.value, q=q, force=force)
    if json:
        print_json(found.to_json())
    else:
        show.print_comparison(found)


def describe(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; with two, the second is compared with the first.")],
    step: Annotated[int | None, typer.Option(help="Training step, where a run holds several.")] = None,
    verifier: Verifier = None,
    budget: Annotated[int, typer.Option(help="Samples at which entropy and distinct answers are taken.", min=1)] = 32,
    pattern: Annotated[str, typer.Option(help="Regular expression that marks a response as code.")] = "python",
    merge: Annotated[
        str | None, typer.Option(help="Verifier that tells which wrong answers are the same (math: slower; off).")
    ] = None,
    json: Json = False,
    draws: Draws = 1000,
    seed: Seed = 0,
) -> None:
    """Majority votes, answer entropy, distinct answers, length, truncation and reasoning modes of runs."""
    from limen.measure import describe as describe_run
    from limen.measure import describe_difference, show

    with _merger(merge) as same:
        found = [
            describe_run(r, None, step, verifier, budget=budget, pattern=pattern, merge=same, draws=draws, seed=seed)
            for r in runs
        ]
    gap = describe_difference(found[0], found[1], draws, seed) if len(found) == 2 else {}
    if not json:
        show.print_descriptions(found, gap)
    elif len(found) == 1:
        print_json(found[0].to_json())
    else:
        rows = {name: show.measure_json(m) for name, m in gap.items()}
        print_json({"runs": [one.to_json() for one in found], "difference": rows or None})


@contextmanager
def _merger(verifier: str | None) -> Iterator[Callable[[str, list[str]], list[int]] | None]:
    """Classes of equal answers: each is judged against the first of every class so far, commonest class first."""
    if verifier is None:
        yield None
        return
    from limen.verify import JudgeItem, VerifierPool

    with VerifierPool(verifier) as pool:

        def classes(problem: str, answers: list[str]) -> list[int]:
            first: list[str] = []
            labels = []
            for answer in answers:
                told = pool.judge_many([JudgeItem(known, f"\\boxed{{{answer}}}") for known in first])
                same = next((i for i, verdict in enumerate(told) if verdict.correct), None)
                if same is None:
                    first.append(answer)
                labels.append(len(first) - 1 if same is None else same)
            return labels

        yield classes


def series(
    sources: Annotated[
        list[Path], typer.Argument(help="Base and checkpoints in order: run folders, or a count file with all models.")
    ],
    verifier: Verifier = None,
    json: Json = False,
    k: Ks = "",
    draws: Draws = 1000,
    seed: Seed = 0,
    q: Fdr = 0.05,
    force: Force = False,
) -> None:
    """Checkpoints of a training run against the first: when was a question lost or gained, does it come back."""
    from limen.measure import series as measure_series
    from limen.measure import series_tables, show

    found = measure_series(series_tables(sources, verifier), ks=_ks(k), draws=draws, seed=seed, q=q, force=force)
    if json:
        print_json(found.to_json())
    else:
        show.print_series(found)


def plan(
    pilot: Annotated[Path, typer.Argument(help="Run folder or count file of a pilot of the base.")],
    k: Annotated[int, typer.Option("--k", help="Budget whose pass@k matters.", min=1)],
    change: Annotated[float | None, typer.Option(help="Change in pass@k that should be seen, such as -0.03.")] = None,
    lost: Annotated[
        float | None, typer.Option(help="Or: lost questions that should be seen (negative: gained).")
    ] = None,
    problems: Annotated[
        int | None, typer.Option(help="Questions of the benchmark; the pilot's by default.", min=2)
    ] = None,
    power: Annotated[float, typer.Option(help="Wanted probability of seeing it.")] = 0.8,
    model: Annotated[str | None, typer.Option(help="Model of a count file with several.")] = None,
    runs: Annotated[int, typer.Option(help="Simulated experiments for each n.", min=20)] = 400,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """How many samples a question are needed to see a change, from a pilot run."""
    from limen.measure import plan as make_plan
    from limen.measure import show

    table = _one(pilot, model, None, None, "--model")
    found = make_plan(table, k, change=change, lost=lost, problems=problems, power=power, runs=runs, seed=seed)
    if json:
        print_json(found.to_json())
    else:
        show.print_plan(found)


def import_(
    format: Annotated[
        str, typer.Argument(help="lm-eval, lighteval, inspect, trl, verl, openai-batch, jsonl or counts.")
    ],
    paths: Annotated[list[Path], typer.Argument(help="Files of the log, or folders that hold them.")],
    out: Annotated[Path, typer.Option(help="New run folder (for counts: the new count file).")],
    name: Annotated[str | None, typer.Option(help="Name of the policy, where the log gives none.")] = None,
    problems: Annotated[str | None, typer.Option(help="Problems with their answers, where the log lacks them.")] = None,
    field: Annotated[list[str] | None, typer.Option(help="OUR_NAME=NAME_IN_LOG, such as response=output.")] = None,
    metric: Annotated[str | None, typer.Option(help="Which score or reward tells right from wrong.")] = None,
    threshold: Annotated[float, typer.Option(help="Smallest score that is correct.")] = 1.0,
    id_pattern: Annotated[
        str | None, typer.Option(help="Takes a request id apart: '(?P<problem>.+)-(?P<sample>[0-9]+)'.")
    ] = None,
    grade: Annotated[
        str, typer.Option(help="auto: the log's grades if it graded every sample, else math; none; or a verifier.")
    ] = "auto",
    json: Json = False,
) -> None:
    """Turn somebody's log into a run folder (or count file) that every other command measures."""
    from limen.store.importers import Options, import_counts, import_log

    fields = _pairs(field or [])
    if format == "counts":
        if len(paths) != 1:
            raise DataError(f"counts come from one file, got {len(paths)}")
        found: dict[str, object] = {"file": str(out), "lines": import_counts(paths[0], out, fields)}
        print_json(found) if json else typer.echo(f"{found['lines']} counts -> {out}; next: limen passk {out}")
        return
    given = {p.id: p for p in _problems(problems)} if problems else {}
    options = Options(fields, threshold, metric, given, id_pattern)
    done = import_log(format, list(paths), out, name=name, options=options, keep_grades=grade == "auto")
    judged = _judge(done, grade)
    found = {
        "run": str(out),
        "samples": done.samples,
        "problems": done.problems,
        "graded_in_log": done.graded,
        "judged_by": judged,
        "notes": list(done.notes),
    }
    if json:
        print_json(found)
        return
    typer.echo(f"{done.samples} samples of {done.problems} problems -> {out}")
    for line in done.notes:
        typer.echo(f"  {line}")
    typer.echo(f"  judged by {judged}" if judged else f"  not judged: limen verify {out}")
    typer.echo(f"next: limen passk {out}")


def _judge(done: Imported, grade: str) -> str | None:
    """Judge an imported run where it has to be; the verifier's name and version, or None where it is not judged."""
    if grade == "none" or (grade == "auto" and done.needs_judging and not done.has_golds):
        return None
    if grade == "auto" and not done.needs_judging:
        return f"{done.run.settings['format']}-log@1 (the log's own grades)"
    if not done.has_golds:
        raise DataError(f"{done.run.path}: the log does not hold the answers: give them with --problems FILE")
    from limen.verify import VerifierPool
    from limen.verify.stored import judge_run

    with VerifierPool("math" if grade == "auto" else grade) as pool:
        return str(judge_run(done.run, pool).verifier)


def _problems(spec: str) -> list[Problem]:
    from limen.problems import load_problems

    return load_problems(spec)


def _pairs(items: list[str]) -> dict[str, str]:
    pairs = [item.split("=", 1) for item in items]
    bad = next((p for p in pairs if len(p) != 2 or not all(p)), None)
    if bad is not None:
        raise DataError(f"--field {'='.join(bad)!r} is not OUR_NAME=NAME_IN_LOG")
    return {pair[0]: pair[1] for pair in pairs}


def _ks(text: str) -> list[int] | None:
    if not text.strip():
        return None
    try:
        return [int(part) for part in text.replace(" ", ",").split(",") if part]
    except ValueError as error:
        raise DataError(f"--k {text!r} is not a list of whole numbers such as 1,8,64") from error


def _tables(
    source: Path, model: str | None, policy: str | None, step: int | None, verifier: str | None
) -> list[CountTable]:
    from limen.measure import counts_from_run, read_counts

    if source.is_dir() or not source.exists():
        return [counts_from_run(source, policy, step, verifier)]
    tables = read_counts(source)
    if model is not None and model not in tables:
        raise DataError(f"{source} has no model {model!r}; it has: {', '.join(tables)}")
    return [tables[model]] if model is not None else list(tables.values())


def _one(source: Path, name: str | None, step: int | None, verifier: str | None, option: str) -> CountTable:
    tables = _tables(source, None if source.is_dir() else name, name, step, verifier)
    if len(tables) > 1:
        raise DataError(f"{source} has several models: say which with {option} ({', '.join(t.name for t in tables)})")
    return tables[0]
