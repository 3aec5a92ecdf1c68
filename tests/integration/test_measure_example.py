"""The example runs as it stands."""

import json
import re
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


def test_the_notebook_is_the_script():
    """Same cells in the same order, and the stored output is what the script prints."""
    notebook = json.loads(EXAMPLE.with_suffix(".ipynb").read_text(encoding="utf-8"))
    cells = ["".join(c["source"]) for c in notebook["cells"]]
    script = re.split(r"^# %%(?: \[markdown\])?\n", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(cells) == len(script)
    for cell, part in zip(notebook["cells"], script, strict=True):
        text = part.strip()
        if cell["cell_type"] == "markdown":
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        assert "".join(cell["source"]).strip() == text
    told = [o["text"] for c in notebook["cells"] for o in c.get("outputs", ()) if o["output_type"] == "stream"]
    assert any("P/E/S/O = 2/1/2/1" in "".join(text) for text in told)
    assert "/tmp" not in json.dumps(notebook)
