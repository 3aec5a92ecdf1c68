"""The example runs as it stands."""

import runpy
import sys
from pathlib import Path

import matplotlib as mpl

EXAMPLE = Path(__file__).parents[2] / "examples" / "compare_two_logs.py"


def test_compare_two_logs(tmp_path, monkeypatch, capsys):
    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    assert "P/E/S/O = 2/1/2/1" in shown
    assert "lost every success" in shown
    assert (tmp_path / "compare_two_logs.png").stat().st_size > 10_000
