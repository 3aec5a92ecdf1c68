"""Which figure and table of the papers is made from which study, and why some are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from limen.errors import ConfigError, DataError
from limen.lab import gallery_figures as figures
from limen.lab import gallery_tables as made_tables
from limen.lab.evidence import MAKERS, Evidence
from limen.report.tables import Table

PAPERS = {"rbp": "The Reasoning Boundary Paradox", "il": "The Invisible Leash", "limen": "limen itself"}
"""`limen`: figures of our own questions, which no paper has."""
Draw = Callable[[Evidence, Path], list[Path]]
Tabulate = Callable[[Evidence], Table]


@dataclass(frozen=True)
class Item:
    """A figure or table. `kinds`: studies that it can be made from, the first that is there is taken; `why_not`: why it
    is not made here."""

    paper: str
    what: str
    number: int
    title: str
    kinds: tuple[str, ...] = ()
    draw: Draw | None = None
    tabulate: Tabulate | None = None
    why_not: str = ""
    every: bool = False
    """Made once for each study of the kind (figure 10: each model)."""
    runs: bool = False
    """Made from the training runs of the study's folder, which no digest holds."""


def _training_figure(number: int) -> Draw:
    """RBP figures 2, 7 and 8 from the training runs of the study of dynamics; they need its run folders."""

    def draw(e: Evidence, out: Path) -> list[Path]:
        from limen.dynamics.figures import training_figure

        runs = sorted(e.path.parent.glob("seed-*/train-*-constant")) or sorted(e.path.parent.glob("seed-*/train-*"))
        if not runs:
            raise DataError(f"{e.path.parent} holds no training runs: give the folder of `{MAKERS['dynamics']}` itself")
        return training_figure(number, runs, out, _passes(e) if number == 2 else None)

    return draw


def _passes(e: Evidence) -> dict[str, dict[str, dict[int, list[float]]]]:
    """pass@1 and pass@n_max by method and step for panel A of figure 2; step 0 is the base."""
    from limen.lab.claims_rules import n_max, values

    runs = e.runs()
    if not runs:
        return {}
    arms = [a for a in dict.fromkeys(r.method for r in runs) if a.endswith("-constant")]
    out: dict[str, dict[str, dict[int, list[float]]]] = {}
    for k in (1, n_max(runs)):
        base = [float(values(runs[:1], k, "base").mean())]
        out[f"pass@{k}"] = {
            a: {0: base, **{s: [float(values([r], k).mean()) for r in e.runs(a) if r.step == s]
                            for s in sorted({r.step for r in e.runs(a)})}}
            for a in arms
        }  # fmt: skip
    return out


def _between(number: int) -> Draw:
    """RBP figures 3, 4 and 14: of the first training of the study of dynamics, or of what was compared by hand."""

    def draw(e: Evidence, out: Path) -> list[Path]:
        from limen.dynamics.between_figures import figure3, panels
        from limen.lab.claims_between import trainings

        docs = trainings(e)[1]
        part = docs[0].get("interference" if number == 3 else "perplexity") if docs else None
        if not part:
            raise DataError(f"{e.path} was made without samples of the checkpoints: see `{MAKERS['between']}`")
        if number == 3:
            return figure3(part, out)
        chosen = {t: v for t, v in part.items() if (t == "all") == (number == 4)} or part
        return panels(f"figure{number}", chosen, out, by_row=number == 14)

    return draw


def _modes(e: Evidence, out: Path) -> list[Path]:
    from limen.lab.modes_page import write_figures

    return write_figures(e.doc, out)


def _bandit(_: Evidence | None, out: Path) -> list[Path]:
    from limen.lab.bandit import X_NORM2
    from limen.lab.bandit_figures import write_figures

    out.mkdir(parents=True, exist_ok=True)
    return write_figures(out, 0, X_NORM2)


def _of_class(wanted: str, number: int) -> Draw:
    return lambda e, out: figures.of_class(e, out, wanted, f"il-figure{number}")


def _family(wanted: str, number: int, part: int = 0) -> Tabulate:
    return lambda e: made_tables.family_table(e, wanted, number, part)


def _longer(e: Evidence, out: Path) -> list[Path]:
    from limen.lab.longer_page import figure

    return figure(e, out, "limen-figure1")


def _decoding(e: Evidence, out: Path) -> list[Path]:
    from limen.lab.decoding_page import figure

    return figure(e, out, "limen-figure2")


def _samples(e: Evidence, out: Path) -> list[Path]:
    from limen.lab.samples import draw_study

    return draw_study(e, out)


def _widths(e: Evidence, out: Path) -> list[Path]:
    from limen.lab.widths_figure import figure

    return figure(e, out, "limen-figure4")


def _bins(e: Evidence, out: Path) -> list[Path]:
    from limen.lab.bins_page import figure

    return figure(e, out, "limen-figure5")


def _variance(e: Evidence, out: Path) -> list[Path]:
    from limen.lab.variance_page import figure

    return figure(e, out, "limen-figure6")


BOTH = ("demo", "methods")
OF_METHODS = ("methods", "demo")

ITEMS: tuple[Item, ...] = (
    Item("rbp", "figure", 1, "coverage over training", ("dynamics",), figures.coverage_over_training),
    Item("rbp", "figure", 2, "learning dynamics of GRPO", ("dynamics",), _training_figure(2), runs=True),
    Item("rbp", "figure", 3, "interference against the change of coverage", ("between", "dynamics"), _between(3)),
    Item("rbp", "figure", 4, "perplexity during training", ("between", "dynamics"), _between(4)),
    Item("rbp", "figure", 5, "what one step does to likely and unlikely actions", (), _bandit),
    Item("rbp", "figure", 6, "from code to language", ("modes",), _modes),
    Item("rbp", "figure", 7, "clip violations", ("dynamics",), _training_figure(7), runs=True),
    Item("rbp", "figure", 8, "learning dynamics of GRPO and SELF", ("dynamics",), _training_figure(8), runs=True),
    Item("rbp", "figure", 9, "REINFORCE against likelihood on the bandit", (), _bandit),
    Item("rbp", "figure", 10, "dynamics of each model", ("dynamics",), _training_figure(2), every=True, runs=True),
    Item("rbp", "figure", 11, "pass@k curves of base, GRPO and SELF", BOTH, figures.curves),
    Item("rbp", "figure", 12, "W-REINFORCE over training", ("methods",), figures.w_reinforce),
    Item("rbp", "figure", 13, "cost of a step", (*BOTH, "dynamics"), figures.cost),
    Item("rbp", "figure", 14, "perplexity by family", ("between", "dynamics"), _between(14)),
    Item("rbp", "figure", 15, "forms of reasoning by family", ("modes",), _modes),
    Item("rbp", "table", 1, "base, GRPO and SELF", BOTH, tabulate=made_tables.main_table),
    Item("rbp", "table", 2, "a prompt template", why_not="its text is not in the copy of the paper that limen follows"),
    Item("rbp", "table", 3, "a prompt template", why_not="its text is not in the copy of the paper that limen follows"),
    Item("il", "figure", 1, "kept, gained, lost and never solved", OF_METHODS, figures.support_figure),
    Item("il", "figure", 2, "preservation", OF_METHODS, _of_class("preservation", 2)),
    Item("il", "figure", 3, "expansion", OF_METHODS, _of_class("expansion", 3)),
    Item("il", "figure", 4, "shrinkage", OF_METHODS, _of_class("shrinkage", 4)),
    Item("il", "table", 1, "support, by family and overall", OF_METHODS, tabulate=made_tables.support_table),
    Item("il", "table", 2, "perplexity of others' solutions", ("between",), tabulate=made_tables.traces_table),
    Item("il", "table", 4, "support over checkpoints", ("dynamics",), tabulate=made_tables.checkpoint_table),
    Item("il", "table", 5, "SFT against DAPO", ("offline",), tabulate=made_tables.offline_table),
    Item("il", "table", 13, "accuracy and entropies", ("methods",), tabulate=made_tables.entropy_table),
    Item("il", "table", 14, "names of the models", why_not="it lists the paper's models; nothing in it is measured"),
    Item("il", "table", 15, "preservation, first families", OF_METHODS, tabulate=_family("preservation", 15)),
    Item("il", "table", 16, "preservation, further families", OF_METHODS, tabulate=_family("preservation", 16, 1)),
    Item("il", "table", 17, "preservation, further families", OF_METHODS, tabulate=_family("preservation", 17, 2)),
    Item("il", "table", 18, "expansion", OF_METHODS, tabulate=_family("expansion", 18)),
    Item("il", "table", 19, "shrinkage", OF_METHODS, tabulate=_family("shrinkage", 19)),
    Item("limen", "figure", 1, "longer training", ("longer",), _longer),
    Item("limen", "figure", 2, "temperature and top-p at evaluation", ("decoding",), _decoding),
    Item("limen", "figure", 3, "number of samples", OF_METHODS, _samples),
    Item("limen", "figure", 4, "larger models", ("widths",), _widths),
    Item("limen", "figure", 5, "winners and losers", ("bins",), _bins),
    Item("limen", "figure", 6, "why W-REINFORCE breaks", ("variance",), _variance),
)  # fmt: skip


def find(paper: str, what: str, number: int) -> Item:
    """The item. Raises `ConfigError` for one that the papers do not have, or that no copy here describes."""
    if paper not in PAPERS:
        raise ConfigError(f"unknown paper '{paper}': expected {' or '.join(PAPERS)}")
    for item in ITEMS:
        if (item.paper, item.what, item.number) == (paper, what, number):
            return item
    have = ", ".join(str(i.number) for i in ITEMS if (i.paper, i.what) == (paper, what))
    raise ConfigError(f"{PAPERS[paper]} has no {what} {number} here: expected one of {have}")


def make(item: Item, studies: Mapping[str, Sequence[Evidence]], out: Path) -> tuple[list[Path], str]:
    """(files, text to print). Raises `DataError` naming the command that makes what is missing."""
    where = f"{item.what} {item.number} of {PAPERS[item.paper]} ({item.title})"
    if item.why_not:
        raise DataError(f"{where} is not made here: {item.why_not}")
    found = [e for kind in item.kinds for e in studies.get(kind, ())]
    if item.kinds and not found:
        commands = " or ".join(f"`{MAKERS[k]}`" for k in item.kinds)
        again = f"limen lab {item.what} {item.number} DIR --paper {item.paper}"
        raise DataError(f"{where} needs a study that has not run: make it with {commands}, then `{again}`")
    if item.tabulate is not None:
        from limen.report.export import markdown

        table = item.tabulate(found[0])
        return made_tables.write_table(table, out), f"{where}\n\n{markdown(table)}"
    assert item.draw is not None
    if item.every and len(found) > 1:
        return [p for e in found for p in item.draw(e, out / e.path.parent.name)], where
    return item.draw(found[0] if found else None, out), where  # type: ignore[arg-type]


def listing(studies: Mapping[str, Sequence[Evidence]]) -> list[tuple[str, str, str, str]]:
    """(paper, item, title, state) of everything."""
    rows = []
    for i in ITEMS:
        if i.why_not:
            state = f"not made: {i.why_not}"
        elif not i.kinds or any(k in studies for k in i.kinds):
            holds = [e for k in i.kinds for e in studies.get(k, ()) if any(e.path.parent.glob("seed-*/train-*"))]
            state = "ready" if holds or not i.runs else f"needs the folder of `{MAKERS[i.kinds[0]]}`, not its digest"
        else:
            state = "needs " + " or ".join(f"`{MAKERS[k]}`" for k in i.kinds)
        rows.append((i.paper.upper(), f"{i.what} {i.number}", i.title, state))
    return rows
