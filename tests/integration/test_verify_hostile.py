"""Answers that are meant to hang, crash or fill the memory of whoever reads them."""

import gc
import itertools
import time

import psutil
import pytest

from limen.verify import JudgeItem, VerifierPool

DEADLINE = 0.6
MEMORY = 512


def hostile() -> dict[str, str]:
    """Named responses; none of them is the gold answer."""
    matrix = "\\begin{pmatrix}" + " \\\\ ".join(["1 & 2"] * 500_000) + "\\end{pmatrix}"
    return {
        "power tower": "\\boxed{5^{5^{5^{5^{5}}}}}",
        "power tower that is not a number": "\\boxed{x^{9^{9^{9^{9}}}}}",
        "tower in plain text": "9**9**9**9**9",
        "ten megabytes of braces": "\\boxed{" + "{" * 5_000_000 + "}" * 5_000_000,
        "ten megabytes of opening braces": "{" * 10_000_000,
        "a million boxes": "\\boxed{" * 1_000_000,
        "a million closed boxes": "\\boxed{3}" * 1_000_000,
        "unclosed boxes and text": ("\\boxed{ " + "x" * 100) * 20_000,
        "nested roots": "\\boxed{" + "\\sqrt{" * 5_000 + "2" + "}" * 5_000 + "}",
        "nested fractions": "\\boxed{" + "\\frac{1}{" * 3_000 + "2" + "}" * 3_000 + "}",
        "nested brackets": "\\boxed{" + "(" * 20_000 + "1" + ")" * 20_000 + "}",
        "huge integer": "\\boxed{" + "9" * 1_000_000 + "}",
        "huge exponent": "\\boxed{1e999999999}",
        "huge decimal": "\\boxed{0." + "3" * 100_000 + "}",
        "factorial of a factorial": "\\boxed{((((100!)!)!)!)!}",
        "factorial": "\\boxed{99999999999!}",
        "binomial": "\\boxed{\\binom{10^{18}}{10^{9}}}",
        "matrix of a million entries": f"\\boxed{{{matrix}}}",
        "list of a million entries": "\\boxed{" + ",".join(["1"] * 1_000_000) + "}",
        "set of different entries": "\\boxed{\\{" + ",".join(str(i) for i in range(2_000)) + "\\}}",
        "sum of many terms": "\\boxed{" + "+".join(["x"] * 20_000) + "}",
        "product of many sums": "\\boxed{" + "(a+b+c+d+1)" * 300 + "}",
        "integral": "\\boxed{\\int_0^1 x^{x^{x}} \\, dx}",
        "sum to infinity": "\\boxed{\\sum_{n=1}^{\\infty} \\frac{\\sin(n^{n^n})}{n!}}",
        "product": "\\boxed{\\prod_{n=1}^{10^{10}} n}",
        "limit": "\\boxed{\\lim_{x \\to 0} \\frac{\\sin(\\sin(\\sin(x)))^{100}}{x^{100}}}",
        "modulus": "\\boxed{2^{10^{12}} \\bmod 10^{9}}",
        "code": "\\boxed{__import__('os').system('sleep 60')}",
        "code in text": "\\boxed{\\text{exec(open('/etc/passwd').read())}}",
        "attributes": "\\boxed{().__class__.__bases__[0].__subclasses__()}",
        "zero width": "\\boxed{" + "\u200b" * 100_000 + "4}",
        "right to left": "\\boxed{\u202e5\u202c}\u202e",
        "combining marks": "\\boxed{5" + "\u0301" * 50_000 + "}",
        "lone surrogates": "\\boxed{\ud800\udfff\ud800}",
        "nul bytes": "\\boxed{\x00\x00\x01}",
        "dollars": "$" * 1_000_000,
        "backslashes": "\\" * 1_000_000,
        "answers": "the answer is " * 200_000,
        "hashes": "####\n" * 500_000,
        "tags": "<answer>" * 300_000,
        "spaces": "\\boxed{" + " " * 1_000_000 + "}",
        "newlines": "\n" * 5_000_000 + "x",
        "sines": "\\boxed{\\sin(10^{1000000})}",
        "logarithm tower": "\\boxed{" + "\\ln(" * 40 + "10^{10^{10}}" + ")" * 40 + "}",
        "plus minus": "\\boxed{" + "\\pm 1 " * 60 + "}",
        "signs": "\\boxed{" + "-" * 10_000 + "1}",
        "exponent chain": "\\boxed{" + "2^" * 3_000 + "2}",
        "primes": "\\boxed{f" + "'" * 10_000 + "}",
        "factorial marks": "\\boxed{3" + "!" * 10_000 + "}",
        "percent": "\\boxed{5" + "\\%" * 10_000 + "}",
        "text in text": "\\boxed{" + "\\text{" * 5_000 + "a" + "}" * 5_000 + "}",
        "equation chain": "\\boxed{" + "=".join(["x"] * 20_000) + "}",
    }


HOSTILE = hostile()


@pytest.fixture(scope="module")
def pool():
    with VerifierPool("math", workers=2, deadline=DEADLINE, memory_mb=MEMORY) as pool:
        pool.judge("\\pi", "\\boxed{\\gcd(x,y)}")
        yield pool


@pytest.mark.parametrize("name", HOSTILE)
def test_each_is_judged_or_given_up_within_its_deadline(pool, name):
    start = time.monotonic()
    verdict = pool.judge("12345678", HOSTILE[name])
    assert verdict.outcome in ("wrong", "no_answer", "unjudged"), verdict
    assert verdict.rule in ("timeout", "memory", "crash", "too large") or verdict.outcome != "unjudged"
    assert time.monotonic() - start < 4 * DEADLINE + 5.0
    assert len(verdict.answer) <= 2000


def test_as_gold_answers_they_do_no_harm_either(pool):
    golds = [
        HOSTILE[n].removeprefix("\\boxed{")
        for n in ("nested roots", "sum of many terms", "integral", "list of a million entries")
    ]
    start = time.monotonic()
    verdicts = pool.judge_many([JudgeItem(g, "\\boxed{3}") for g in golds])
    assert all(not v.correct for v in verdicts)
    assert time.monotonic() - start < len(golds) * (4 * DEADLINE + 5.0)


def test_good_answers_among_bad_ones_are_judged(pool):
    bad = [HOSTILE[n] for n in ("power tower", "integral", "code", "nested roots", "sum to infinity")]
    items = list(itertools.chain.from_iterable((JudgeItem("7", b), JudgeItem("7", "\\boxed{7}")) for b in bad))
    assert [v.outcome for v in pool.judge_many(items)][1::2] == ["correct"] * 5


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_loop_of_hundreds_leaves_no_process_and_no_growth(rounds):
    """Each response differs, so that none is answered from memory; the short deadline makes many kills."""
    small = [n for n, text in HOSTILE.items() if len(text) < 100_000]
    before = {p.pid for p in _descendants()}
    own = psutil.Process()
    sizes, peaks = [], []
    with VerifierPool("math", workers=2, deadline=0.15, memory_mb=MEMORY) as pool:
        for start in range(0, 100 * rounds, 100):
            picks = [small[i % len(small)] for i in range(start, start + 100)]
            items = [JudgeItem(str(10**6 + i), HOSTILE[n] + " " * i) for i, n in enumerate(picks)]
            verdicts = pool.judge_many(items)
            assert all(not v.correct for v in verdicts)
            gc.collect()
            sizes.append(own.memory_info().rss)
            workers = [p for p in _descendants() if p.pid not in before]
            assert len(workers) <= 3  # the zygote and two workers
            peaks.append(sum(p.memory_info().rss for p in workers))
    deadline = time.monotonic() + 20
    while {p.pid for p in _descendants()} - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert {p.pid for p in _descendants()} <= before
    assert sizes[-1] - sizes[min(2, rounds - 1)] < 64 << 20
    assert max(peaks) < 3 * (MEMORY << 20)


def test_memory_stays_under_the_limit(tmp_path, monkeypatch):
    (tmp_path / "greedy_verifier.py").write_text(
        "def greedy(gold, response, metadata):\n    return len(bytearray(int(response) << 20)) > 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with VerifierPool("greedy_verifier:greedy", workers=1, deadline=10.0, memory_mb=256) as pool:
        small, large = pool.judge_many([JudgeItem("", "64"), JudgeItem("", "1024")])
    assert (small.outcome, large.outcome, large.rule) == ("correct", "unjudged", "memory")


def test_a_killed_zygote_is_started_again():
    with VerifierPool("math", workers=1, deadline=5.0) as pool:
        pool.judge("\\pi", "\\boxed{\\gcd(x,y)}")
        for process in _descendants():
            process.kill()
        verdicts = [pool.judge("\\pi", f"\\boxed{{\\gcd(x,y,{i})}}") for i in range(3)]
        assert verdicts[-1].outcome == "wrong"
