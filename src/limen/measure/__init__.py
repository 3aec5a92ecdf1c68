"""pass@k, support, diversity and their uncertainty, from counts, run folders or other people's logs.

Works on arrays, without any run folder: `pass_at_k(n, c, k)`, `support(n, base_c, trained_c)`.
"""

from limen.measure.compare import Comparison, compare
from limen.measure.counts import CountTable, StopRule, read_counts
from limen.measure.curve import PassCurve, pass_curve
from limen.measure.passk import pass_at_k, pass_at_k_stopped, pass_table
from limen.measure.runs import counts_from_run
from limen.measure.summary import Summary, summary
from limen.measure.support import SupportResult, support, support_rates

__all__ = [
    "Comparison",
    "CountTable",
    "PassCurve",
    "StopRule",
    "Summary",
    "SupportResult",
    "compare",
    "counts_from_run",
    "pass_at_k",
    "pass_at_k_stopped",
    "pass_curve",
    "pass_table",
    "read_counts",
    "summary",
    "support",
    "support_rates",
]
