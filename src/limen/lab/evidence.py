"""What studies found, in a form small enough to be committed: counts, trainings and rules, without any samples.

A study's folder (`demo.json`, `methods.json`, … beside its run folders) is read once by `digest`; `limen lab claims
--collect` writes the digests, and figures, tables and the page of claims are made from either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limen.errors import DataError
from limen.lab.evidence_answers import modal_digest
from limen.lab.evidence_pages import base_entropies, between_parts, series_table
from limen.lab.evidence_training import training_digest
from limen.measure import CountTable
from limen.store.writer import write_json

MAKERS = {
    "demo": "limen lab demo-study --out DIR",
    "methods": "limen lab methods --out DIR",
    "noise": "limen lab noise --out DIR",
    "modes": "limen lab modes --out DIR",
    "dynamics": "limen lab dynamics --out DIR",
    "between": "limen dynamics between BASE CHECKPOINT... --out DIR",
    "influence": "limen influence RUN --probe PROBE --out DIR",
    "offline": "limen lab offline --out DIR",
    "kl": "limen lab kl --out DIR",
    "widths": "limen lab widths --out DIR",
    "bandit": "limen bandit --out DIR",
    "longer": "limen lab longer --out DIR",
    "decoding": "limen lab decoding STUDY --out DIR",
    "bins": "limen lab bins STUDY --out DIR",
    "variance": "limen lab variance --out DIR",
}
"""Kinds of study, and the command that makes each."""

_FILES = {kind: f"{kind}.json" for kind in MAKERS if kind != "between"}


@dataclass(frozen=True)
class Trained:
    """One trained policy against its base, on the same problems. `method` names the algorithm (and, in the study of
    dynamics, its schedule); `group` the base; `step` the optimizer step."""

    method: str
    seed: int
    group: str
    step: int
    base: CountTable
    trained: CountTable
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """Base (where there are several) and seed, in words."""
        base, several, _ = self.group.partition("-")
        return f"base {base}, seed {self.seed}" if several else f"seed {self.seed}"


@dataclass(frozen=True)
class Evidence:
    """One study. `doc` is its digest: plain JSON values."""

    kind: str
    doc: Mapping[str, Any]
    path: Path

    def runs(self, *methods: str) -> list[Trained]:
        """Every trained policy that was sampled, or those of `methods`."""
        return [r for r in _runs(self.doc) if not methods or r.method in methods]

    def runs_of_base(self, group: str) -> CountTable:
        """The base's counts of one group. Raises `DataError` where no run has it."""
        found = next((r.base for r in self.runs() if r.group == group), None)
        if found is None:
            raise DataError(f"{self.path} holds no runs of '{group}'")
        return found

    def finals(self, *methods: str) -> list[Trained]:
        """The last checkpoint of each training."""
        found = self.runs(*methods)
        last = {(r.method, r.seed, r.group): r.step for r in sorted(found, key=lambda r: r.step)}
        return [r for r in found if r.step == last[r.method, r.seed, r.group]]

    @property
    def commit(self) -> str:
        return str(self.doc.get("provenance", {}).get("commit") or "")[:7]


def load(paths: Iterable[Path | str]) -> dict[str, list[Evidence]]:
    """Studies by kind. Each path is a study's folder, a folder of such folders or of digests, or one JSON file. The
    plain study of a kind comes before its variants, in whatever order they are given: the first decides.

    Raises `DataError` for a path that is not there; what is no study is passed over.
    """
    found: dict[str, list[Evidence]] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"{path} is not there: give folders of studies (or docs/results)")
        for file in [path] if path.is_file() else _candidates(path):
            one = read(file)
            if one is not None:
                found.setdefault(one.kind, []).append(one)
    return {
        kind: sorted(studies, key=lambda e: (len(digest_name(e)), digest_name(e))) for kind, studies in found.items()
    }


def _candidates(folder: Path) -> list[Path]:
    names = set(_FILES.values())
    for pattern in ("*.json", "*/*.json"):
        found = [f for f in folder.glob(pattern) if f.name in names or f.name.endswith(".digest.json")]
        if found:
            return sorted(found)
    return []


def read(file: Path) -> Evidence | None:
    """The study or digest in a JSON file; None where it is neither."""
    try:
        doc = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{file} is not JSON ({error}): restore it, or make its study again") from error
    if not isinstance(doc, dict):
        return None
    if "digest" in doc:
        return Evidence(str(doc["digest"]), doc, file)
    kind = next((k for k, name in _FILES.items() if name == file.name), None)
    if kind == "dynamics" and "trends" not in doc:
        kind = "between"
    return None if kind is None else Evidence(kind, digest(kind, doc, file.parent), file)


def publish(
    out: Path,
    kind: str,
    doc: Mapping[str, Any],
    page_of: Callable[[Evidence], str],
    figure: Callable[[Evidence, Path, str], Any],
) -> str:
    """Write what a study found: KIND.json, KIND.md and its figure in `out`, made from what the JSON says. Returns the
    page."""
    write_json(out / f"{kind}.json", doc)
    evidence = read(out / f"{kind}.json")
    assert evidence is not None
    page = page_of(evidence)
    (out / f"{kind}.md").write_text(page, encoding="utf-8")
    figure(evidence, out, kind)
    return page


def write_digest(one: Evidence, folder: Path) -> Path:
    """`digest_name(one)`.digest.json in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{digest_name(one)}.digest.json"
    write_json(file, one.doc)
    return file


def digest_name(one: Evidence) -> str:
    """`KIND`, or of a study whose step size is not the demo's `KIND-RECIPE`.

    Two more names, so that no study overwrites another that rows compare it with: verifier errors that are all drawn
    for each sample, and the dynamics of another base than `tiny`.
    """
    recipe = one.doc.get("recipe")
    name = one.kind if recipe in (None, "demo") or one.kind == "modes" else f"{one.kind}-{recipe}"
    name += "-per-sample" if one.kind == "noise" and _per_sample(one.doc) else ""
    base = str(one.doc.get("base", "tiny")) if one.kind == "dynamics" else "tiny"
    return name + ("" if base == "tiny" else f"-{base}")


def _per_sample(doc: Mapping[str, Any]) -> bool:
    """Every error pattern is drawn for each sample."""
    noises = [r["noise"] for r in doc.get("patterns", {}).values() if r.get("noise")]
    return bool(noises) and all(isinstance(x, dict) and x.get("per") == "sample" for x in noises)


def digest(kind: str, doc: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A study's JSON without what no figure or claim needs; of its run folders, counts and training curves."""
    keep = {k: doc[k] for k in ("provenance", "steps", "recipe", "n", "trends", "rules", "every", "base") if k in doc}
    out: dict[str, Any] = {"digest": kind, **keep}
    if kind == "demo":
        out |= _demo_counts(doc, folder)
        places = {f"base-{r['base_seed']}-seed-{r['seed']}" for r in doc["runs"]}
        pairs = {f"{p}/{m}": (folder / p / "base", folder / p / m) for p in sorted(places) for m in ("grpo", "self")}
        out["modal"] = modal_digest(pairs)
    elif kind == "methods":
        out |= _method_counts(doc)
        out["base_extra"] = doc.get("base") or base_entropies(folder)
        seeds = sorted({int(r["seed"]) for rows in doc["methods"].values() for r in rows})
        names = [f"seed-{s}/{m}" for s in seeds for m in doc["methods"]]
        out["modal"] = modal_digest({n: (folder / "base", folder / n) for n in names})
    elif kind == "dynamics":
        out |= _series_counts(folder) | {"table": series_table(folder), "between": between_parts(folder)}
    elif kind in ("offline", "kl", "widths", "longer", "decoding"):
        out |= _listed_counts(doc)
        out |= {k: doc[k] for k in ("parameters", "greedy", "commits", "hardware", "settings") if k in doc}
    elif kind == "noise":
        out["patterns"] = doc["patterns"]
    elif kind == "bins":
        out |= {k: doc[k] for k in ("study", "edges", "groups", "traces")}
        out["changes"] = [{**r, **{k: _line(r[k]) for k in ("dlogp", "dp")}} for r in doc["changes"]]
    else:
        out |= {k: v for k, v in doc.items() if k not in out and k not in ("responses", "effects")}
    out["provenance"] = {**out.get("provenance", {}), "command": command_of(out.get("provenance", {}), kind)}
    if kind in ("demo", "methods", "dynamics"):
        out["training"] = training_digest(folder)
    cleaned: dict[str, Any] = _without_places(out)
    return cleaned


def command_of(provenance: Mapping[str, Any], kind: str) -> str:
    """The command that made a study, as a reader would type it: without the folders of the machine that it ran on."""
    words = str(provenance.get("command") or "").split()
    start = next((i for i, w in enumerate(words) if w in ("lab", "dynamics", "influence", "bandit")), None)
    if start is None:
        return MAKERS[kind]
    return "limen " + " ".join("DIR" if w.startswith(("/", "~")) else w for w in words[start:])


def _without_places(value: Any) -> Any:
    """Absolute paths as their last part: where a study lay is nobody's business."""
    if isinstance(value, dict):
        return {k: _without_places(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_places(v) for v in value]
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


# Counts are written as one line of numbers a policy, so that a digest stays readable and small.


def _line(counts: Iterable[float]) -> str:
    return " ".join(map(str, counts))


def _n(counts: Iterable[int]) -> int | str:
    """One number where all problems have as many judged samples, else one for each: a verifier that timed out once must
    not make a success rate wrong."""
    each = [int(n) for n in counts]
    return each[0] if len(set(each)) == 1 else _line(each)


def _entry(method: str, seed: int, group: str, step: int, questions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "method": method, "seed": seed, "group": group, "step": step,
        "n": _n(q["trained_n"] for q in questions), "c": _line(q["trained_c"] for q in questions),
    }  # fmt: skip


def _base_of(questions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"n": _n(q["base_n"] for q in questions), "c": _line(q["base_c"] for q in questions)}


def _demo_counts(doc: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    bases, runs, tasks = {}, [], []
    for row in doc["runs"]:
        group = f"{row['base_seed']}-{row['seed']}"
        for name, comparison in row["policies"].items():
            questions = comparison.get("questions") or _questions(folder, row, name)
            tasks = [q["task"] for q in questions]
            bases[group] = _base_of(questions)
            runs.append(_entry(name, int(row["seed"]), group, int(doc.get("steps", 0)), questions))
    return {"bases": bases, "runs": runs, "tasks": tasks}


def _questions(folder: Path, row: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Counts of an older demo.json, which does not hold them, from its run folders."""
    from limen.measure import compare, counts_from_run

    at = folder / f"base-{row['base_seed']}-seed-{row['seed']}"
    if not (at / name).exists():
        raise DataError(f"{folder}/demo.json holds no counts, and its run folders are not beside it: make it again")
    found = compare(counts_from_run(at / "base"), counts_from_run(at / name), draws=0)
    questions: list[dict[str, Any]] = found.to_json()["questions"]
    return questions


def _method_counts(doc: Mapping[str, Any]) -> dict[str, Any]:
    steps, bases, runs, tasks = int(doc["steps"]), {}, [], []
    for method, rows in doc["methods"].items():
        for row in rows:
            questions = row["comparison"]["questions"]
            tasks, bases["0"] = [q["task"] for q in questions], _base_of(questions)
            extra = {k: v for k, v in row.items() if k not in ("seed", "comparison")}
            runs.append({**_entry(method, int(row["seed"]), "0", steps, questions), "extra": extra})
    if "control" in doc:
        runs.append(_entry("control", 0, "0", 0, doc["control"]["questions"]))
    return {"bases": bases, "runs": runs, "tasks": tasks}


def _listed_counts(doc: Mapping[str, Any]) -> dict[str, Any]:
    """Studies that list their runs, each with its comparison: offline, kl, widths."""
    bases, runs, tasks = {}, [], []
    for row in doc["runs"]:
        questions, group = row["comparison"]["questions"], str(row.get("group", "0"))
        tasks, bases[group] = [q["task"] for q in questions], _base_of(questions)
        entry = _entry(row["method"], int(row["seed"]), group, int(row["step"]), questions)
        runs.append({**entry, "extra": row["extra"]} if "extra" in row else entry)
    return {"bases": bases, "runs": runs, "tasks": tasks}


def _series_counts(folder: Path) -> dict[str, Any]:
    """Checkpoints of the study of dynamics: seed-S/ARM-step-N beside `base`."""
    from limen.measure import compare, counts_from_run

    places = sorted(folder.glob("seed-*/*-step-*/run.json"))
    if not places or not all(list((p / "verdicts").glob("*")) for p in (folder / "base", places[0].parent)):
        return {"bases": {}, "runs": [], "tasks": []}  # the samples were left where the study ran
    base, bases, runs, tasks = counts_from_run(folder / "base"), {}, [], []
    for file in places:
        arm, _, step = file.parent.name.rpartition("-step-")
        questions = compare(base, counts_from_run(file.parent), draws=0).to_json()["questions"]
        tasks, bases["0"] = [q["task"] for q in questions], _base_of(questions)
        seed = int(file.parent.parent.name.removeprefix("seed-"))
        runs.append(_entry(arm, seed, "0", int(step), questions))
    return {"bases": bases, "runs": runs, "tasks": tasks}


def _runs(doc: Mapping[str, Any]) -> list[Trained]:
    tasks = list(doc.get("tasks", ()))
    ids = [f"{t}-{i}" for i, t in enumerate(tasks)]

    def table(name: str, row: Mapping[str, Any]) -> CountTable:
        n = [int(x) for x in row["n"].split()] if isinstance(row["n"], str) else int(row["n"])
        return CountTable.of(name, ids, n, [int(x) for x in row["c"].split()], task=tasks)

    bases = {k: table("base", row) for k, row in doc.get("bases", {}).items()}
    return [
        Trained(
            r["method"], int(r["seed"]), r["group"], int(r["step"]), bases[r["group"]], table(r["method"], r),
            r.get("extra", {}),
        )
        for r in doc.get("runs", ())
    ]  # fmt: skip
