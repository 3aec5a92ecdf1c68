"""Is a response right? Extract the final answer, compare it with the gold answer, never hang, never crash.

    judge(gold, response)            one response
    VerifierPool(...).judge_many()   many, in killable processes

Every verdict is one of four outcomes: correct, wrong, no_answer, unjudged (timeout, memory, crash, gold).
"""

from limen.verify.pool import JudgeItem, VerifierPool, judge, sample_name

__all__ = ["JudgeItem", "VerifierPool", "judge", "sample_name"]
