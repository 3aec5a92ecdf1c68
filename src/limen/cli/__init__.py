"""The command line: parse and dispatch, nothing else. Heavy imports happen inside the commands."""

from __future__ import annotations

import functools
import sys

import typer

from limen.errors import LimenError

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

app = typer.Typer(
    name="limen",
    help="See whether training shrank what a model can solve, and train so that it does not.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@functools.cache
def _register() -> None:
    """Once: each module adds its own commands to `app`; none of them imports torch at module level."""
    from limen.cli import dynamics, influence, lab, measure, report, sample, train, verify

    for module in (sample, verify, measure, report, train, dynamics, influence, lab):
        module.register(app)


def main() -> None:
    """Entry point. A `LimenError` is the user's to mend: one line on stderr, exit code 2."""
    _register()
    try:
        app()
    except LimenError as error:
        print(f"limen: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer's own answer to Ctrl-C, without a word
            print(
                "limen: interrupted; what was finished is stored, the same command goes on from there", file=sys.stderr
            )
        raise
