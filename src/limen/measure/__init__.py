"""pass@k, support, diversity and their uncertainty, from counts, run folders or other people's logs.

Works on arrays, without any run folder:

    pass_at_k(n, c, k)                                    unbiased, NaN where n < k
    pass_at_k_stopped(stopped_at, successes, n_max, r, k) the same where sampling stopped at the r-th success
    support(n, base_c, trained_c)                         P/E/S/O, their rates, chance, exact tests
    same_policy_flips(n, c)                               the A/A control
    question_verdicts(n, base_c, trained_c, q)            which questions were lost, under a false discovery rate
    fit_prior(n, c), extrapolate(n, c, ks)                posterior, and budgets beyond n
    maj_at_k, answer_entropy, distinct_at_k, good_turing, chao1, cover
"""

from limen.measure.adaptive import PosteriorVerdicts, adaptive_support, posterior_verdicts
from limen.measure.answers import answer_entropy, distinct_at_k, maj_at_k, self_consistency
from limen.measure.compare import Comparison, compare
from limen.measure.counts import CountTable, StopRule, read_counts
from limen.measure.curve import PassCurve, pass_curve
from limen.measure.describe import Description, describe, describe_difference
from limen.measure.flips import SamePolicyFlips, same_policy_flips, split_half
from limen.measure.passk import pass_at_k, pass_at_k_stopped, pass_table
from limen.measure.plan import Plan, plan
from limen.measure.posterior import BetaPrior, Extrapolation, cover, extrapolate, fit_prior, zero_bound
from limen.measure.responses import responses_from_run
from limen.measure.runs import counts_from_run
from limen.measure.series import Series, series, series_tables
from limen.measure.summary import Summary, summary
from limen.measure.support import SupportResult, support, support_rates
from limen.measure.unseen import chao1, good_turing
from limen.measure.verdicts import QuestionVerdicts, question_verdicts
from limen.measure.votes import AnswerTable, answers_from_run, maj_table

__all__ = [
    "AnswerTable",
    "BetaPrior",
    "Comparison",
    "CountTable",
    "Description",
    "Extrapolation",
    "PassCurve",
    "Plan",
    "PosteriorVerdicts",
    "QuestionVerdicts",
    "SamePolicyFlips",
    "Series",
    "StopRule",
    "Summary",
    "SupportResult",
    "adaptive_support",
    "answer_entropy",
    "answers_from_run",
    "chao1",
    "compare",
    "counts_from_run",
    "cover",
    "describe",
    "describe_difference",
    "distinct_at_k",
    "extrapolate",
    "fit_prior",
    "good_turing",
    "maj_at_k",
    "maj_table",
    "pass_at_k",
    "pass_at_k_stopped",
    "pass_curve",
    "pass_table",
    "plan",
    "posterior_verdicts",
    "question_verdicts",
    "read_counts",
    "responses_from_run",
    "same_policy_flips",
    "self_consistency",
    "series",
    "series_tables",
    "split_half",
    "summary",
    "support",
    "support_rates",
    "zero_bound",
]
