"""`limen lab decoding`: temperature and nucleus (top-p) at evaluation. Does the way of sampling fake shrinkage?

Trained policies of a study like `limen lab methods`, and their base, are sampled at several settings. Every policy is
compared with the base *at the same setting*, and with the base as it is (temperature 1, the whole distribution).

Rules, written down before the runs, on pass@n_max. A setting *fakes* shrinkage where the base itself, sampled there, is
below the base as it is (interval over problems below 0) while a second draw of the base as it is is not: an untrained
policy then looks shrunk. It *changes* what is said of GRPO where GRPO minus base at the setting differs from GRPO minus
base as they are, by both intervals of `limen.lab.frontier_rule`: *exaggerates* below 0, *hides* above, *leaves* where
both lie within `SAME`, else *unclear*. "Nucleus sampling fakes shrinkage" agrees where each setting with top-p below 1
and temperature 1 fakes it, and is opposite where for each the base's interval lies above -`SAME` and none fakes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from limen.errors import ConfigError
from limen.lab.claims_rules import AGREES, OPPOSITE, UNDETERMINED, Interval, Verdict, interval, n_max, said
from limen.lab.evidence import Evidence, Trained
from limen.lab.frontier_rule import Gap, gap
from limen.lab.policies import Study, in_processes, sample_policy
from limen.measure.passk import Floats
from limen.provenance import provenance

SAME = 0.03
SETTINGS = ((1.0, 1.0), (0.6, 1.0), (1.4, 1.0), (1.0, 0.95), (1.0, 0.8), (0.6, 0.95))
"""(temperature, top-p): each varied alone, and the pair that many papers evaluate at. The first is the reference."""


def label(setting: tuple[float, float]) -> str:
    """Name of a setting, and of its folder."""
    return f"t{setting[0]:g}-p{setting[1]:g}"


REFERENCE = label(SETTINGS[0])


def parse(text: str) -> list[tuple[float, float]]:
    """`1/1,0.6/0.95`: temperature/top-p. The reference is always among them, and first. Raises `ConfigError`."""
    try:
        pairs = [tuple(float(x) for x in part.split("/")) for part in text.split(",")]
    except ValueError:
        pairs = []
    if not pairs or any(len(p) != 2 or p[0] <= 0 or not 0 < p[1] <= 1 for p in pairs):
        raise ConfigError(f"settings '{text}': expected temperature/top-p with commas between, such as 1/1,0.6/0.95")
    return list(dict.fromkeys([SETTINGS[0], *((p[0], p[1]) for p in pairs)]))


@dataclass(frozen=True)
class DecodingStudy:
    """`trained`: the folder of the study whose models are sampled."""

    study: Study
    trained: Path
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: tuple[tuple[float, float], ...] = SETTINGS

    @property
    def policies(self) -> dict[str, str]:
        """Policy → its model. Raises `ConfigError` where one is not there."""
        found = {"base": self.study.base, "control": self.study.base}
        for m in self.methods:
            for s in self.seeds:
                folder = self.trained / f"seed-{s}" / f"train-{m}" / "model"
                if not (folder / "config.json").exists():
                    raise ConfigError(f"no model at {folder}: give the folder of `limen lab methods` with its runs")
                found[f"{m}-{s}"] = str(folder)
        return found


def run_one(s: DecodingStudy, policy: str) -> None:
    """Sample one policy at every setting (the base's second draw at the reference alone)."""
    models = s.policies
    if policy not in models:
        raise ConfigError(f"unknown policy '{policy}': expected some of {', '.join(models)}")
    for setting in s.settings:
        if policy == "control" and label(setting) != REFERENCE:
            continue
        temperature, top_p = setting
        more: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "logprobs": False}
        sample_policy(s.study, s.study.out / label(setting) / policy, models[policy], policy, **more)


def run_decoding(s: DecodingStudy, jobs: int = 1) -> str:
    """Sample everything that is missing. Returns the page; writes decoding.md, .json, .png, .svg, .csv."""
    todo = list(s.policies)
    if jobs == 1:
        for policy in todo:
            run_one(s, policy)
    else:
        chosen = ",".join(f"{t:g}/{p:g}" for t, p in s.settings)
        shared = ["lab", "decoding", str(s.trained), "--out", str(s.study.out), "-n", str(s.study.n)]
        shared += ["--base", s.study.base, "--methods", ",".join(s.methods), "--settings", chosen]
        shared += ["--seeds", ",".join(map(str, s.seeds)), "--device", str(s.study.device)]
        shared += ["--limit", str(s.study.limit)] if s.study.limit else []
        in_processes([[*shared, "--only", p] for p in todo], jobs)
    from limen.lab.decoding_page import decoding_page, figure
    from limen.lab.evidence import publish

    return publish(s.study.out, "decoding", measured(s), decoding_page, figure)


def measured(s: DecodingStudy) -> dict[str, Any]:
    """decoding.json: every policy against the base at the same setting; `group` is the setting."""
    from limen.measure import compare, counts_from_run

    rows = []
    for setting in s.settings:
        place = s.study.out / label(setting)
        base = counts_from_run(place / "base")
        policies = [p for p in s.policies if p != "base" and (place / p / "run.json").exists()]
        for policy in policies:
            method, _, seed = policy.partition("-")
            found = compare(base, counts_from_run(place / policy), draws=0).to_json()
            rows.append({"method": method, "seed": int(seed or 0), "group": label(setting), "step": 0,
                         "comparison": found})  # fmt: skip
    return {"provenance": provenance(), "steps": 0, "n": s.study.n, "settings": [list(x) for x in s.settings],
            "runs": rows}  # fmt: skip


# What the rules are made of: pass@k by problem at a setting, of the base and of a method's seeds.


def at(e: Evidence, setting: str, method: str) -> list[Trained]:
    return sorted((r for r in e.runs(method) if r.group == setting), key=lambda r: r.seed)


def settings(e: Evidence) -> list[str]:
    """Settings that hold trained policies, the reference first."""
    return list(dict.fromkeys(r.group for r in e.runs() if r.method != "control"))


def rates(table: Any, k: int) -> Floats:
    from limen.measure import pass_at_k

    return np.asarray(pass_at_k(table.n_P, table.c_P, k))


def base_change(e: Evidence, setting: str, k: int) -> Interval:
    """pass@k of the base at a setting minus the base as it is, over problems."""
    there, here = (e.runs_of_base(g) for g in (setting, REFERENCE))
    return interval(rates(there, k) - rates(here, k))


def difference(e: Evidence, setting: str, method: str, k: int) -> Gap:
    """pass@k of a method minus the base's, both at the setting."""
    return gap(np.array([rates(r.trained, k) - rates(r.base, k) for r in at(e, setting, method)]))


def shift(e: Evidence, setting: str, method: str, k: int) -> Gap:
    """How much that difference is larger at the setting than as they are."""
    there, here = at(e, setting, method), at(e, REFERENCE, method)
    return gap(np.array([
        rates(a.trained, k) - rates(a.base, k) - rates(b.trained, k) + rates(b.base, k)
        for a, b in zip(there, here, strict=True)
    ]))  # fmt: skip


def changes(g: Gap) -> str:
    """exaggerates, hides, leaves or unclear, by the rule at the top."""
    if g.surely_below:
        return "exaggerates"
    if g.surely_above and g.value > 0:
        return "hides"
    ends = (*g.seeds, *g.problems)
    return "leaves" if all(abs(x) <= SAME for x in ends) else "unclear"


def fakes(e: Evidence, setting: str, k: int) -> bool:
    """An untrained policy looks shrunk at the setting, and does not for a second draw alone."""
    control = [interval(rates(r.trained, k) - rates(r.base, k)) for r in at(e, REFERENCE, "control")]
    return base_change(e, setting, k)[2] < 0 and not any(x[2] < 0 for x in control)


def nucleus_fakes(e: Evidence) -> Verdict | None:
    """The rule at the top; None where no setting has a top-p alone."""
    alone = [s for s in settings(e) if s.startswith("t1-p") and s != REFERENCE]
    if not alone:
        return None
    k = n_max(e.runs())
    hits = [fakes(e, s, k) for s in alone]
    level = all(base_change(e, s, k)[1] > -SAME for s in alone)
    verdict = AGREES if all(hits) else OPPOSITE if level and not any(hits) else UNDETERMINED
    size = f"pass@{k} of the base at the setting − as it is: " + ", ".join(
        f"{s} {said(base_change(e, s, k))}" for s in alone
    )
    return Verdict(verdict, size)
