"""Fuzz of extraction and comparison: random and mutated texts must neither raise nor take long.

    python benchmarks/verify_fuzz.py --seconds 600 [--seed 0]

Hypothesis makes the texts: pieces of LaTeX in any order, and limen's own cases cut, doubled and spliced. What runs in
the caller's process (`quick`) has to end within 2 s of processor time, the same comparison with a worker's limits
within 20 s. A text equals itself. The first failure is printed, made small by Hypothesis, and ends the run with
status 1.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from types import FrameType

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from limen.verify import extract
from limen.verify.answers import Math, number
from limen.verify.bench import own_cases
from limen.verify.choice import Choice
from limen.verify.countdown import Countdown

QUICK, SLOW = 2.0, 20.0
_WORDS = r"""
\frac \dfrac \sqrt \boxed{ \fbox{ \boxed \text{ \mathrm{ \left( \right) \left[ \right] \pm \mp \infty \pi \cup \cap
\setminus \in \le \ge \neq < > = \approx \begin{pmatrix} \end{pmatrix} \begin{array}{cc} \end{array} \\ & \{ \}
\circ ^\circ ^{\circ} \% \$ \sin \cos^{2} \tan^{-1} \log_{2} \ln \exp \binom \lfloor \rfloor \lceil \rceil \overline{
\ldots \, \! \; \quad {,} \mathbb{R} \emptyset \prime \dot{ \cdot \times \div \gcd \max \int_0^1 \sum_{n=1}^{9} \lim
the answer is #### <answer> </answer> and or sqrt( 1e9 1e-400 np. ° ½ ² − × √ π ≤ ∞ é ９ ٣ cm days a.m. p.m. True none
10 0.5 .5 007 1,000 12345678901234567890 99999999999999! 9^9^9^9 _8 _{2} ^ _ ' ! | ( ) [ ] { } , ; : + - * / x y n e i
f(x) g(2) E no solution 1/3 2\frac{1}{3} 0.\overline{3} x_1 \theta \lambda_{\text{red}} \hbar
"""
PIECES = st.sampled_from([*_WORDS.split(), " ", "\n", "", "$", "$$", "\u200b", "\ud800", "\x00"])
SEEDS = st.sampled_from([t for c in own_cases() for t in (c.gold, c.response)])


@st.composite
def texts(draw: st.DrawFn) -> str:
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return "".join(draw(st.lists(PIECES, max_size=draw(st.sampled_from([5, 20, 120])))))
    text = draw(SEEDS)
    if kind == 1:
        return text
    for _ in range(draw(st.integers(1, 4))):
        a, b = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        middle = draw(st.sampled_from(["", text[a:b] * 2, text[a:b] * 40])) if kind == 2 else draw(PIECES | SEEDS)
        text = (text[:a] + middle + text[b:])[:4000]
    return text


class Hang(Exception):
    pass


def alarm(signum: int, frame: FrameType | None) -> None:
    raise Hang("took too long")


class Timed:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, self.seconds)

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)


MATH, CHOICE, COUNTDOWN = Math(), Choice(), Countdown()
COUNTS: Counter[str] = Counter()


def check(gold: str, response: str) -> None:
    with Timed(QUICK):
        answers = [extract.final_answer(response, where=w, join=True).answer for w in ("boxed", "any")]
        for answer in {a for a in answers if a is not None}:
            decision = MATH.quick(gold, answer, {})
            COUNTS["open" if decision is None else decision.outcome] += 1
            CHOICE.quick(gold, answer, {"choices": ["a", "b"]})
            COUNTDOWN.quick("24", answer, {"numbers": [1, 2, 3]})
            number(answer)
    with Timed(SLOW):
        MATH._compare(gold, response, quick=False)
        if response.strip():
            same = MATH._compare(response, response, quick=False)
            assert same is not None, response
            assert same.outcome == "correct", same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    signal.signal(signal.SIGPROF, alarm)
    end, rounds, tried = time.monotonic() + args.seconds, args.seed, 0

    def round_of(number: int) -> None:
        @seed(number)
        @settings(
            max_examples=2000,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        )
        @given(texts(), texts())
        def run(gold: str, response: str) -> None:
            nonlocal tried
            tried += 1
            check(gold, response)

        run()

    while time.monotonic() < end:
        round_of(rounds)
        rounds += 1
        print(f"{tried} pairs, {dict(COUNTS)}, {max(0.0, end - time.monotonic()):.0f} s left", flush=True)
    print(f"clean: {tried} pairs in {args.seconds:.0f} s")


if __name__ == "__main__":
    sys.setrecursionlimit(50_000)
    main()
