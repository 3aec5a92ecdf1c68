"""The same verdicts from a notebook's kind of process, inside an event loop, beside torch, and after a fork."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAIRS = r"""[("\\sqrt{8}", "\\boxed{2\\sqrt{2}}"), ("5", "\\boxed{\\gcd(x,5)}"), ("7", "\\boxed{\\int_0^7 1 dx}")]"""
EXPECTED = "['correct', 'wrong', 'correct']"
HEAD = f"""
from limen.verify import JudgeItem, VerifierPool, judge
pairs = {PAIRS}
def outcomes(pool): return [v.outcome for v in pool.judge_many([JudgeItem(g, r) for g, r in pairs])]
"""
PLACES = {
    "interactive, without a file": "pool = VerifierPool(workers=2, deadline=30)\nprint(outcomes(pool))\n",
    "inside an event loop": """
import asyncio
async def main():
    with VerifierPool(workers=1, deadline=30) as pool:
        print(outcomes(pool))
asyncio.run(main())
""",
    "in threads of its own": """
from concurrent.futures import ThreadPoolExecutor
with VerifierPool(workers=2, deadline=30) as pool, ThreadPoolExecutor(4) as threads:
    print({str(r) for r in threads.map(lambda i: outcomes(pool), range(8))}.pop())
""",
    "beside torch and after a fork": """
import os, sys, torch
torch.ones(64, 64) @ torch.ones(64, 64)
pool = VerifierPool(workers=1, deadline=30)
first = outcomes(pool)
sys.stdout.flush()
child = os.fork()
if child == 0:
    os._exit(0 if outcomes(pool) == first else 1)
status = os.waitpid(child, 0)[1]
print(first if status == 0 and outcomes(pool) == first else status)
""",
    "without closing the pool": "pool = VerifierPool(workers=2, deadline=30)\nprint(outcomes(pool))\n",
}


@pytest.mark.parametrize("place", PLACES)
def test_place(place):
    done = subprocess.run(
        [sys.executable, "-"],
        input=HEAD + PLACES[place],
        capture_output=True,
        text=True,
        timeout=180,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.stdout.strip().replace('"', "") == EXPECTED, done.stderr
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
