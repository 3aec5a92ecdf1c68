"""`build_report`: from run folders and count files to a folder with the page, figures and tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from limen.report.collect import collect
from limen.report.export import csv_files, latex, markdown, plain_markdown
from limen.report.figures import write_figures
from limen.report.model import Note, ReportData
from limen.report.page import EMBED_BYTES, chunk_file, render_page
from limen.report.sources import arrange, finished_part, load_sources
from limen.report.tables import tables

FILES = "report_files"


def build_report(
    runs: Sequence[Path | str],
    out: Path | str,
    title: str | None = None,
    train_runs: Sequence[Path | str] = (),
    *,
    base: str | None = None,
    controls: Sequence[str] = (),
    max_responses: int = 4,
    verifier: str | None = None,
    figures: bool = True,
    draws: int = 1000,
    seed: int = 0,
    force: bool = False,
    embed_bytes: int = EMBED_BYTES,
) -> Path:
    """Write OUT/report.html, tables.md, tables.tex and figures/*.{png,svg,csv}; return the page's path.

    runs: run folders of `limen sample` and count files; the first policy is the base unless `base` names another.
    train_runs: run folders of `limen train`, for the training curves. controls: names of policies that are second
    draws of the base (sampling runs of the base's own model are found without). max_responses: shown per problem
    and policy. verifier: whose verdicts, where a run has several. force: compare although problems or prompts
    differ. embed_bytes: most packed text inside the page; more goes into OUT/report_files.
    Raises `LimenError` for anything that cannot be read or should not be compared.
    """
    data = read_report(runs, title, train_runs, base, controls, max_responses, verifier, draws, seed, force)
    return write_report(data, Path(out), figures, embed_bytes)


def read_report(
    runs: Sequence[Path | str],
    title: str | None = None,
    train_runs: Sequence[Path | str] = (),
    base: str | None = None,
    controls: Sequence[str] = (),
    max_responses: int = 4,
    verifier: str | None = None,
    draws: int = 1000,
    seed: int = 0,
    force: bool = False,
) -> ReportData:
    """The content of a report, without writing anything. Parameters as in `build_report`."""
    sources, partial = finished_part(arrange(load_sources(runs, verifier), base, controls))
    data = collect(sources, train_runs, title, max_responses, draws, seed, force)
    return replace(data, notes=[Note("warning", partial), *data.notes]) if partial else data


def write_report(data: ReportData, out: Path, figures: bool = True, embed_bytes: int = EMBED_BYTES) -> Path:
    """Write everything of `data` into `out`; the page last, so that what it names is there."""
    out.mkdir(parents=True, exist_ok=True)
    made = tables(data)
    _write(out / "tables.md", f"# {plain_markdown(data.title)}\n\n" + "\n".join(markdown(t) for t in made))
    _write(out / "tables.tex", "\n".join(latex(t) for t in made))
    if figures:
        write_figures(data, out / "figures")
        for name, text in csv_files(data).items():
            _write(out / "figures" / name, text)
    html, beside = render_page(data, FILES, embed_bytes)
    for old in (out / FILES).glob("chunk-*.js"):
        old.unlink()
    for chunk in beside:
        (out / FILES).mkdir(exist_ok=True)
        _write(out / FILES / f"chunk-{chunk.number}.js", chunk_file(chunk))
    _write(out / "report.html", html)
    return out / "report.html"


def _write(path: Path, text: str) -> None:
    temp = path.with_name(f".{path.name}.tmp")
    temp.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(temp, path)
