"""Commands of `limen` about report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    app.command("report")(report)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders and count files; the first policy is the base.")],
    train: Annotated[
        list[Path] | None, typer.Option("--train", help="Training run, for its curves (repeatable).")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the page, figures and tables.")] = Path("report"),
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    base: Annotated[str | None, typer.Option(help="Name of the policy to compare with, if not the first.")] = None,
    control: Annotated[
        list[str] | None, typer.Option("--control", help="Policy that is a second draw of the base (repeatable).")
    ] = None,
    verifier: Annotated[str | None, typer.Option(help="Whose verdicts, where a run has several.")] = None,
    max_responses: Annotated[int, typer.Option(min=0, help="Responses shown per problem and policy.")] = 4,
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="PNG, SVG and CSV of each figure.")] = True,
    draws: Annotated[int, typer.Option(min=0, help="Bootstrap draws for the intervals; 0 for none.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Compare although problems or prompts differ.")] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Make one HTML page that opens offline, with figures and tables, from runs and count files."""
    from limen.report import read_report, write_report
    from limen.report.terminal import print_report

    data = read_report(runs, title, train or (), base, control or (), max_responses, verifier, draws, seed, force)
    page = write_report(data, out, figures)
    print_report(data)
    typer.echo(f"\n{page}")
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
