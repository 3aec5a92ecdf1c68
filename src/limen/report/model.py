"""What a report shows, as plain frozen records: figures, tables and the page are all made from these alone.

Nothing here is computed from samples; `collect.py` fills the records from `limen.measure` and the store.
Policies are referred to by their position in `ReportData.policies`; position 0 is the base.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["base", "trained", "control"]
"""`control`: a second draw of the base itself (A/A), which shows what chance alone does."""

Change = Literal["kept", "gained", "lost", "never", ""]
""""": the problem is not in both."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Values over budgets k with an interval; NaN where a value is undefined."""

    k: Sequence[int]
    value: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    def at(self, k: int) -> tuple[float, float, float]:
        """(value, low, high) at budget k. Raises `ValueError` where k is not on the curve."""
        i = list(self.k).index(k)
        return self.value[i], self.low[i], self.high[i]


@dataclass(frozen=True, slots=True)
class Measure:
    """Mean over the `problems` that have the quantity, with a 95% interval over problems."""

    value: float
    low: float
    high: float
    problems: int


@dataclass(frozen=True, slots=True)
class Opinion:
    """Another verifier on the same samples: how many both judged, and which way they differ."""

    verifier: str
    both: int
    only_first: int
    only_other: int


@dataclass(frozen=True, slots=True)
class VerdictHealth:
    """rules: verdicts by the rule that decided, commonest first; reasons: why samples are unjudged.

    false_positives, false_negatives: verdicts that deliberate noise turned to correct, and from correct.
    """

    rules: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    false_positives: int = 0
    false_negatives: int = 0
    opinions: tuple[Opinion, ...] = ()


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of the responses of one kind: mean and the 5, 25, 50, 75 and 95% quantiles."""

    kind: str
    count: int
    mean: float
    q05: float
    q25: float
    median: float
    q75: float
    q95: float


@dataclass(frozen=True, slots=True)
class Health:
    """Outcomes of one policy's responses. Rates are shares of `samples`; NaN where the source does not say."""

    samples: int
    no_answer: float
    truncated: float
    unjudged: int
    verifier: str = ""
    verdicts: VerdictHealth = field(default_factory=VerdictHealth)
    lengths: Sequence[Lengths] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy: `correct_P` of `n_P` judged samples of each problem, problems as in `ReportData.problems`.

    family, step: the trained policy and its optimizer step; last: no later checkpoint of the family is shown.
    measures: what `limen.measure` says of its samples, by name; those of answers at `budget` samples.
    """

    name: str
    role: Role
    source: str
    curve: Curve
    avg: float
    n_P: Sequence[int]
    correct_P: Sequence[int]
    health: Health
    family: str = ""
    step: int | None = None
    last: bool = True
    measures: Mapping[str, Measure] = field(default_factory=dict)
    budget: int = 0


@dataclass(frozen=True, slots=True)
class Contrast:
    """A policy against the base, at an equal budget of `budget` samples a problem.

    `chance_lost`, `chance_gained`: flips expected of two draws of one policy, given the pooled counts.
    `verdict_P`: per problem shrunk / expanded / kept / out / undetermined under the false discovery rate `fdr`, with
    `evidence_P` in words; `rate_P`: fell / rose / same, of the success rate. "" where the problem is not in both.
    `by_budget`: expected (k, gained, lost, chance flips each way) at smaller budgets.
    """

    policy: int
    budget: int
    kept: int
    gained: int
    lost: int
    never: int
    chance_gained: float
    chance_lost: float
    p_value: float
    rates: Mapping[str, float]
    difference: Curve
    change_P: Sequence[Change]
    verdict_P: Sequence[str]
    evidence_P: Sequence[str] = ()
    rate_P: Sequence[str] = ()
    fdr: float = math.nan
    by_budget: Sequence[tuple[int, float, float, float]] = ()
    notes: Sequence[str] = ()

    @property
    def net(self) -> int:
        return self.gained - self.lost


@dataclass(frozen=True, slots=True)
class SplitHalf:
    """The base against itself: its samples split at random into two halves of `budget` each (A/A)."""

    budget: int
    kept: int
    gained: int
    lost: int
    never: int
    chance: float
    p_value: float
    rates: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Response:
    """A sample shown beside a problem. `text` may be cut in the middle, at
    `cut_at`; `left_out` counts the characters that were cut."""

    policy: int
    sample_index: int
    outcome: str
    answer: str
    rule: str
    finish: str
    tokens: int | None
    text: str
    left_out: int = 0
    cut_at: int = 0
    step: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)
    token_scores: Mapping[str, Sequence[float]] = field(default_factory=dict)
    pieces: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ProblemItem:
    """A problem with what is shown of it. `answers`: per policy, (answer, outcome, count), commonest first."""

    id: str
    task: str
    problem: str
    gold: str
    responses: Sequence[Response] = ()
    answers: Sequence[Sequence[tuple[str, str, int]]] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """One logged quantity of a training run. `smooth`: running mean over `window` steps, to be drawn over it."""

    key: str
    step: Sequence[int]
    value: Sequence[float]
    smooth: Sequence[float] = ()
    window: int = 1


@dataclass(frozen=True, slots=True)
class Training:
    """Logged quantities of a training run; `policy` is the place of the policy that it made, if that is shown."""

    name: str
    source: str
    series: Sequence[Series]
    policy: int | None = None


MAIN_KEYS = (
    "reward_batch",
    "correct_share",
    "reward",
    "entropy",
    "completions/mean_length",
    "length",
    "loss",
    "loss_kl",
    "grad_ratio_kl_rl",
    "grad_norm",
    "kept",
    "greedy_solved",
    "interference",
    "influence",
    "probe/delta_plus",
    "probe/influence",
    "probe/logp_plus",
    "probe/clip",
    "probe/clip_batch",
    "probe/ppl_correct",
)
"""Logged quantities that are shown first; the others are folded away."""

LABELS = {
    "reward_batch": "reward, all prompts of the batch",
    "correct_share": "correct, of the sampled responses",
    "reward": "reward of the sampled responses",
    "entropy": "token entropy",
    "completions/mean_length": "response length",
    "loss_kl": "forward KL, nll of base responses",
    "grad_ratio_kl_rl": "||g_KL|| / ||g_RL||",
    "grad_norm": "gradient norm",
    "kept": "prompts that were trained on",
    "greedy_solved": "solved by the greedy answer",
    "probe/delta_plus": "interference Δ+, probe set",
    "probe/influence": "influence ||Δ||, probe set",
    "probe/logp_plus": "log π(y+), base's right responses",
    "probe/clip": "clip violations, probe set",
    "probe/clip_batch": "clip violations, training batch",
    "probe/ppl_correct": "perplexity, base's right responses",
}
"""What a quantity is called where people read it; the others go by the key that they are logged under."""


@dataclass(frozen=True, slots=True)
class Note:
    """A reservation that a reader must know. `level`: warning (may change the conclusion) or note."""

    level: Literal["warning", "note"]
    text: str


@dataclass(frozen=True, slots=True)
class ReportData:
    title: str
    policies: Sequence[Policy]
    contrasts: Sequence[Contrast]
    problems: Sequence[ProblemItem]
    split_half: SplitHalf | None = None
    training: Sequence[Training] = ()
    notes: Sequence[Note] = ()
    families: Sequence[tuple[str, Sequence[str]]] = ()
    provenance: Sequence[tuple[str, Mapping[str, Any]]] = ()
    made: Mapping[str, Any] = field(default_factory=dict)
    live: bool = False

    @property
    def shows_lengths(self) -> bool:
        """Whether responses are long enough for their lengths to say anything."""
        return any(x.q95 >= 16 for p in self.policies for x in p.health.lengths)

    @property
    def base(self) -> Policy:
        return self.policies[0]
