"""`limen report` and `limen watch`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from limen.report.model import ReportData


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    app.command("report")(report)
    app.command("watch")(watch)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders and count files; the first policy is the base.")],
    train: Annotated[list[Path] | None, typer.Option(help="Training run, for its curves (repeatable).")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the page, figures and tables.")] = Path("report"),
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    base: Annotated[str | None, typer.Option(help="Name of the policy to compare with, if not the first.")] = None,
    control: Annotated[
        list[str] | None, typer.Option(help="Policy that is a second draw of the base (repeatable).")
    ] = None,
    verifier: Annotated[str | None, typer.Option(help="Whose verdicts, where a run has several.")] = None,
    max_responses: Annotated[int, typer.Option(min=0, help="Responses shown per problem and policy.")] = 4,
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="PNG, SVG and CSV of each figure.")] = True,
    draws: Annotated[int, typer.Option(min=0, help="Bootstrap draws for the intervals; 0 for none.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Compare although problems or prompts differ.")] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Serve it on this machine, anew while runs go on.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --serve; 0 takes a free one.")] = 8765,
    every: Annotated[float, typer.Option(min=0.5, help="With --serve: seconds between looks.")] = 5.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No tables in the terminal.")] = False,
) -> None:
    """Make one HTML page that opens offline, with figures and tables, from runs and count files."""
    from limen.report import read_report, write_report

    def read() -> ReportData:
        return read_report(runs, title, train or (), base, control or (), max_responses, verifier, draws, seed, force)

    if serve:
        from limen.report.serve import LiveReport
        from limen.report.serve import serve as run_server

        run_server(LiveReport(read, [*runs, *(train or [])]), port, every, typer.echo)
        return
    data = read()
    page = write_report(data, out, figures)
    if not quiet:
        from limen.report.terminal import print_report

        print_report(data)
    typer.echo(f"\n{page}")
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def watch(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of `limen sample` or `limen train`.")],
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show the state and end.")] = False,
) -> None:
    """Watch running samplers and trainings; ends when all are done."""
    from limen.report.watch import watch as show

    show(runs, interval, once)
