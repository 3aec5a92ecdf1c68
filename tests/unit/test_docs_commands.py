"""Every command that the README and the documentation show exists, with the options that they give it."""

import re
import shlex
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("presets/*.yaml")]
)
SPAN = re.compile(r"`([^`]+)`")


@pytest.fixture(scope="module")
def root():
    app = typer.Typer()
    from limen.cli import dynamics, influence, lab, measure, report, sample, train, verify

    for module in (sample, verify, measure, report, train, dynamics, influence, lab):
        module.register(app)
    return typer.main.get_command(app)


def commands(text):
    """Command lines, without `limen`: whole lines of code blocks, and what stands between backticks in the prose."""
    blocks, prose = [], []
    for i, part in enumerate(re.split(r"^```.*$", text, flags=re.MULTILINE)):
        (blocks if i % 2 else prose).append(part)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    found = [re.sub(r"^\s*(#|\$|>)?\s*", "", line) for line in lines]
    found += [re.sub(r"\s+", " ", span) for part in prose for span in SPAN.findall(part)]
    found = [one for line in found for one in re.split(r";\s*(?=limen )", line)]
    return [line.removeprefix("limen ") for line in found if line.startswith("limen ")]


def words(line):
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # an apostrophe in the prose of a comment
        return line.partition(" #")[0].split()


def wrong(root, line):
    """What is wrong with a command line, or None."""
    command, given = root, words(line)
    while given and hasattr(command, "commands"):
        if given[0].isupper() and "between" in command.commands:
            given.insert(0, "between")  # `limen dynamics BASE CKPT...`
        if given[0] not in command.commands:
            if given[0].startswith("-"):
                break
            return f"no command '{given[0]}'"
        command = command.commands[given.pop(0)]
    known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help"}
    asked = [w.partition("=")[0].strip("[]()|,.") for w in given if re.match(r"^\[?--?[A-Za-z]", w)]
    missing = [name for name in asked if name not in known]
    return f"no option {', '.join(missing)}" if missing else None


def test_the_check_sees_what_is_wrong(root):
    assert commands("```\n$ limen sample --n 2  # so\n```\nand `limen\npassk RUN` there") == [
        "sample --n 2  # so",
        "passk RUN",
    ]
    assert commands("`limen lab x; limen lab y --z`") == ["lab x", "lab y --z"]
    assert wrong(root, "smaple --n 2") == "no command 'smaple'"
    assert wrong(root, "sample [--nn 2] # it's --wrong") == "no option --nn"
    assert wrong(root, "lab figur 3") == "no command 'figur'"
    assert wrong(root, "sample -n 2 --out runs/x") is None


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_in_the_documentation_exist(root, page):
    faults = {line: fault for line in commands(page.read_text()) if (fault := wrong(root, line))}
    assert not faults


def test_the_documentation_has_commands():
    assert sum(len(commands(page.read_text())) for page in PAGES) > 100
