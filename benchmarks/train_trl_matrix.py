"""Run the trainer's tests on several versions of TRL, each unpacked beside the installed one.

python benchmarks/train_trl_matrix.py [1.0.0 1.8.0 1.16.0]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FILES = ("trainer", "shared_prompts", "distributed")
TESTS = [f"tests/integration/test_train_{name}.py" for name in FILES]


def main(versions: list[str]) -> int:
    root = Path(__file__).resolve().parents[1]
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for version in versions:
            target = Path(folder) / version
            pip = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--no-deps",
                "--target",
                str(target),
                f"trl=={version}",
            ]
            subprocess.run(pip, check=True)
            env = {**os.environ, "PYTHONPATH": str(target)}
            check = f"import trl; assert trl.__version__ == {version!r}, trl.__version__"
            subprocess.run([sys.executable, "-c", check], env=env, check=True)
            done = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:warnings", *TESTS], cwd=root, env=env)
            print(f"trl {version}: {'passed' if done.returncode == 0 else 'FAILED'}", flush=True)
            failed += [version] if done.returncode else []
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or ["1.0.0", "1.8.0", "1.16.0"]))
