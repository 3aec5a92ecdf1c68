"""`limen lab figure`, `limen lab table`, `limen lab claims`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Studies = Annotated[
    list[Path] | None, typer.Argument(help="Folders of studies, folders of those, or docs/results.", show_default=False)
]
Paper = Annotated[str, typer.Option(help="rbp (The Reasoning Boundary Paradox) or il (The Invisible Leash).")]


def register(lab: typer.Typer) -> None:
    """Add this module's commands to `limen lab`."""
    lab.command("gallery")(gallery)
    lab.command("figure")(figure)
    lab.command("table")(table)
    lab.command("claims")(claims)


Number = Annotated[int, typer.Argument(help="Number in the paper (`limen lab gallery` lists them).")]
Out = Annotated[Path, typer.Option(help="Folder for the files.")]


def gallery(studies: Studies = None) -> None:
    """All figures and tables of the papers: which can be made from the studies that there are, and what others need."""
    from limen.lab.evidence import load
    from limen.lab.gallery import listing

    for paper, item, title, state in listing(load(_places(studies))):
        print(f"{paper:4} {item:10} {title} – {state}")


def _places(studies: list[Path] | None) -> list[Path]:
    return studies or [p for p in (Path("docs/results"), Path("studies")) if p.exists()]


def figure(number: Number, studies: Studies = None, paper: Paper = "rbp", out: Out = Path("figures")) -> None:
    """A figure of a paper from the studies that there are: PNG, SVG and its numbers as CSV."""
    _make("figure", number, studies, paper, out)


def table(number: Number, studies: Studies = None, paper: Paper = "rbp", out: Out = Path("tables")) -> None:
    """A table of a paper from the studies that there are: printed, and as Markdown and CSV."""
    _make("table", number, studies, paper, out)


def _make(what: str, number: int, studies: list[Path] | None, paper: str, out: Path) -> None:
    from limen.lab.evidence import load
    from limen.lab.gallery import find, make

    item = find(paper, what, number)
    files, text = make(item, load(_places(studies)), out)
    print(text)
    print("\n".join(f"wrote {f}" for f in files))


def claims(
    studies: Studies = None,
    out: Annotated[Path, typer.Option(help="The page.")] = Path("docs/claims.md"),
    collect: Annotated[
        Path | None, typer.Option(help="Write digests of the studies into this folder, and read all that are there.")
    ] = None,
) -> None:
    """Every claim of the papers beside what ours shows; rows whose study has not run say so."""
    from limen.lab.claims import write_claims
    from limen.lab.evidence import load, write_digest

    found = load(studies or [Path("docs/results")])
    if collect is not None:
        for one in [e for kind in found.values() for e in kind]:
            print(f"wrote {write_digest(one, collect)}")
        found = load([collect])
    page = write_claims(found, out)
    print(next(line for line in page.splitlines() if line.startswith("agrees: ")))
    print(f"wrote {out}")
