"""Probe sets (RBP §4.1): problems × 4 responses of the base at temperature 0.9, each verified, stored as a run.

A probe set is an ordinary run folder of kind "probe": problems with prompts, rollouts with token ids, verdicts. It is
drawn fresh, or taken from the stored responses of a run that is there.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limen.config import SPEED, SampleSettings
from limen.engines.protocol import Engine, ScoreRequest
from limen.errors import ConfigError, DataError, StoreError
from limen.store import Run
from limen.store.schema import rollout_row, verdict_row
from limen.types import Problem, Prompt, Rollout, Verdict, derive_seed

PROBLEMS, RESPONSES, TEMPERATURE = 512, 4, 0.9
"""The paper's probe set."""


@dataclass(frozen=True)
class ProbePairs:
    """Problem-response pairs with their verdicts. `request_N[i]` holds the token ids of pair i; `key_N[i]` is
    (problem_id, sample_index); `correct_N` is false for wrong and for answerless responses alike."""

    request_N: tuple[ScoreRequest, ...]
    key_N: tuple[tuple[str, int], ...]
    correct_N: NDArray[np.bool_]
    name: str = ""

    def __len__(self) -> int:
        return len(self.request_N)

    @property
    def problem_N(self) -> list[str]:
        return [p for p, _ in self.key_N]

    @property
    def rate_N(self) -> NDArray[np.float64]:
        """Share of correct responses among those of the same problem."""
        right, every = Counter[str](), Counter(self.problem_N)
        for p, correct in zip(self.problem_N, self.correct_N, strict=True):
            right[p] += bool(correct)
        return np.array([right[p] / every[p] for p in self.problem_N])

    @property
    def rare_N(self) -> NDArray[np.bool_]:
        """Correct responses to problems that at most half of the responses solve: what winner-take-all would lose."""
        return self.correct_N & (self.rate_N <= 0.5)


@dataclass(frozen=True)
class Judged:
    """One stored response and what the verifier said of it."""

    rollout: Rollout
    verdict: Verdict


def draw_probe(
    settings: SampleSettings, out: str | Path, engine: Engine | None = None, seed: int = 0, progress: bool = True
) -> Run:
    """Sample `settings.n` responses of every problem and store them as a probe set in `out`.

    Can be killed: what was drawn lies in `out/draw` until the set is whole, and the same command goes on from there.
    """
    from limen.sampling import sample_run

    out = Path(out)
    asked = {k: v for k, v in settings.model_dump(mode="json").items() if k not in SPEED}
    if (out / "run.json").exists() and Run.open(out).info.get("status") == "done":
        return _same(Run.open(out), {"settings": asked})
    source = sample_run(settings, out / "draw", engine, progress)
    origin = {"drawn": True, "settings": asked}
    run = _build(source, out, settings.limit or len(source.problems()), settings.n, seed, origin)
    shutil.rmtree(out / "draw")
    return run


def build_probe(
    source: str | Path,
    out: str | Path,
    problems: int = PROBLEMS,
    responses: int = RESPONSES,
    seed: int = 0,
    policy: str | None = None,
    step: int | None = None,
) -> Run:
    """A probe set from the stored responses of a run: `problems` of its problems, `responses` judged ones of each,
    both picked by `seed`. Raises `DataError` where there are no token ids, prompts or verdicts, or too few of them."""
    run = Run.open(source)
    origin = {"drawn": False, "source": run.name, "source_settings": run.settings, "policy": policy, "step": step}
    return _build(run, Path(out), problems, responses, seed, origin, policy, step)


def _same(run: Run, wanted: dict[str, Any]) -> Run:
    """The probe set that is there, if it is what is asked for."""
    if run.info.get("kind") != "probe":
        raise ConfigError(f"{run.path} holds a run of kind '{run.info.get('kind')}', not a probe set: choose another")
    stored = run.settings
    if isinstance(stored.get("settings"), dict):  # an older limen did not know every setting
        plain = SampleSettings.model_construct(model="", problems="").model_dump(mode="json")
        stored["settings"] = {**{k: v for k, v in plain.items() if k not in SPEED}, **stored["settings"]}
    differ = [k for k, v in wanted.items() if stored.get(k) != v]
    if differ:
        raise ConfigError(f"{run.path} holds a probe set with other {', '.join(differ)}: choose another folder")
    return run


def _build(
    source: Run,
    out: Path,
    problems: int,
    responses: int,
    seed: int,
    origin: dict[str, Any],
    policy: str | None = None,
    step: int | None = None,
) -> Run:
    settings = {**origin, "problems": problems, "responses": responses, "seed": seed}
    if (out / "run.json").exists():
        run = _same(Run.open(out), settings)
        if run.info["status"] == "done":
            return run
        for table in ("rollouts", "verdicts"):
            shutil.rmtree(out / table, ignore_errors=True)
    chosen, dropped = choose(judged(source, policy, step), problems, responses, seed)
    known, prompts = {p.id: p for p in source.problems()}, source.prompts()
    missing = [p for p in chosen if p not in prompts or p not in known]
    if missing:
        raise DataError(
            f"{source.path}: {len(missing)} problems have no stored prompt (the first: {missing[0]}), so their "
            "responses cannot be scored: take a run of `limen sample`"
        )
    run = _start(out, settings)
    _write(run, chosen, known, prompts)
    every = [j for js in chosen.values() for j in js]
    counts = Counter(j.verdict.outcome for j in every)
    run.info["probe"] = {
        "problems": len(chosen),
        "pairs": len(every),
        "outcomes": dict(counts),
        "tokens": sum(len(j.rollout.token_ids or ()) for j in every),
        "temperatures": sorted({j.rollout.params.temperature for j in every}),
        "dropped": dropped,
    }
    run.info["verifier"] = every[0].verdict.verifier
    run.finish()
    return run


def _start(out: Path, settings: dict[str, Any]) -> Run:
    """A run folder; `out/draw` may lie in it already. Raises `StoreError` where other things do."""
    if out.exists() and not (out / "run.json").exists() and any(p.name != "draw" for p in out.iterdir()):
        raise StoreError(f"{out} is not empty and not a run folder (no run.json): choose another folder")
    from limen.provenance import provenance
    from limen.store.schema import SCHEMA_VERSION

    info = {
        "schema": SCHEMA_VERSION,
        "kind": "probe",
        "name": out.resolve().name,
        "settings": settings,
        "provenance": provenance(),
        "status": "running",
    }
    run = Run(out, info)
    run.save()
    return run


def _write(run: Run, chosen: dict[str, list[Judged]], known: dict[str, Problem], prompts: dict[str, Prompt]) -> None:
    run.write_problems([known[p] for p in chosen], [prompts[p] for p in chosen])
    with run.writer("rollouts") as rollouts, run.writer("verdicts") as verdicts:
        for responses in chosen.values():
            for j in responses:
                rollouts.append(rollout_row(j.rollout))
                verdicts.append(verdict_row(j.rollout, j.verdict))


def judged(run: Run, policy: str | None = None, step: int | None = None) -> dict[str, list[Judged]]:
    """Stored responses with their latest verdicts, by problem, in the order of their sample index.

    Raises `DataError` where the run holds several policies or steps and none is chosen.
    """
    found: dict[tuple[str, str, int, int], Verdict] = {}
    columns = ("problem_id", "policy", "step", "sample_index", "outcome", "answer", "rule", "verifier", "true_outcome")
    for row in zip(*(run.table("verdicts", columns).column(c).to_pylist() for c in columns), strict=True):
        if policy in (None, row[1]) and step in (None, row[2]):
            found[row[:4]] = Verdict(row[4], row[5] or "", row[6] or "", row[7] or "", row[8])
    groups = {(k[1], k[2]) for k in found if not k[1].endswith("@greedy")}
    if len(groups) > 1:
        shown = ", ".join(f"{p} step {s}" for p, s in sorted(groups)[:6])
        raise DataError(f"{run.path} holds several policies or steps ({shown}): choose one with --policy and --step")
    if not groups:
        raise DataError(f"{run.path} holds no verdicts (of that policy and step): judge its responses first")
    by_problem: dict[str, list[Judged]] = defaultdict(list)
    for r in run.rollouts():
        verdict = found.get((r.problem_id, r.policy, r.step, r.sample_index))
        if verdict is not None and (r.policy, r.step) in groups:
            by_problem[r.problem_id].append(Judged(r, verdict))
    return {p: sorted(js, key=lambda j: j.rollout.sample_index) for p, js in by_problem.items()}


def choose(
    found: dict[str, list[Judged]], problems: int, responses: int, seed: int
) -> tuple[dict[str, list[Judged]], dict[str, int]]:
    """`responses` judged, scorable responses of each of `problems` problems, picked by hashed seeds; what was not
    usable is counted: unjudged responses, responses without token ids, empty ones, problems with too few."""
    dropped: Counter[str] = Counter()
    usable: dict[str, list[Judged]] = {}
    for pid, all_of_it in found.items():
        good = []
        for j in all_of_it:
            if j.verdict.outcome == "unjudged":
                dropped["unjudged"] += 1
            elif j.rollout.token_ids is None:
                dropped["without token ids"] += 1
            elif not j.rollout.token_ids:
                dropped["empty"] += 1
            else:
                good.append(j)
        if len(good) < responses:
            dropped["problems with too few responses"] += 1
        else:
            usable[pid] = _pick(good, responses, derive_seed(seed, "probe", pid))
    if not usable:
        why = ", ".join(f"{k}: {v}" for k, v in dropped.items())
        raise DataError(f"no problem has {responses} judged responses with token ids ({why or 'nothing is stored'})")
    ids = sorted(usable, key=lambda p: derive_seed(seed, "probe problem", p))[:problems]
    keep = set(ids)
    return {p: js for p, js in usable.items() if p in keep}, dict(dropped)


def _pick(good: list[Judged], count: int, seed: int) -> list[Judged]:
    at = np.random.default_rng(seed).choice(len(good), size=count, replace=False)
    return [good[i] for i in sorted(at)]


def load_probe(path: str | Path, policy: str | None = None, step: int | None = None) -> ProbePairs:
    """The pairs of a probe set, or of any run with prompts, token ids and verdicts, in a fixed order.

    Raises `DataError` where nothing in it can be scored.
    """
    run = Run.open(path)
    found, prompts = judged(run, policy, step), run.prompts()
    pairs = [
        j
        for p in sorted(found)
        for j in found[p]
        if p in prompts and j.rollout.token_ids and j.verdict.outcome != "unjudged"
    ]
    if not pairs:
        raise DataError(f"{path} holds no judged response with token ids and a stored prompt: build a probe set")
    return ProbePairs(
        tuple(ScoreRequest(prompts[j.rollout.problem_id].token_ids, j.rollout.token_ids or ()) for j in pairs),
        tuple((j.rollout.problem_id, j.rollout.sample_index) for j in pairs),
        np.array([j.verdict.correct for j in pairs], dtype=bool),
        run.name,
    )
