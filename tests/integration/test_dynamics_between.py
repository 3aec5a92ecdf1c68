"""What lies between checkpoints: hand-worked numbers, and the whole command against the models' own logits."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from limen.dynamics.between import PROBE, Data, measure
from limen.dynamics.between_figures import between_figure
from limen.dynamics.checkpoints import Checkpoint, read_checkpoint
from limen.dynamics.figures import pass_points, training_figure
from limen.dynamics.probe import ProbePairs
from limen.dynamics.quantities import Scored
from limen.dynamics.traces import read_traces, reasoning_part, support_groups
from limen.engines.protocol import ScoreRequest
from limen.errors import ConfigError, DataError
from limen.measure import CountTable
from limen.store import Run

LOG2 = math.log(2)


def pairs(*rows):
    """(problem, correct) of one-token responses."""
    request = ScoreRequest((2,), (3,))
    return ProbePairs(tuple(request for _ in rows), tuple((p, i) for i, (p, _) in enumerate(rows)),
                      np.array([c for _, c in rows]), "set")  # fmt: skip


def scored(*probabilities):
    return Scored.of([[math.log(p)] for p in probabilities])


@pytest.fixture
def worked():
    """Base and two checkpoints, two problems, two samples of each; every response is one token."""
    names = ("base", "one", "two")
    counts = [CountTable.of(n, ["x", "y"], 2, c) for n, c in zip(names, ([1, 1], [2, 1], [2, 0]), strict=True)]
    sets = {
        "base": pairs(("x", True), ("x", False), ("y", True), ("y", False)),
        "one": pairs(("x", True), ("x", True), ("y", True), ("y", False)),
        "two": pairs(("x", True), ("x", True), ("y", False), ("y", False)),
        PROBE: pairs(("x", True), ("y", False)),
    }
    scores = {
        ("base", 0): scored(1 / 2, 1 / 4, 1 / 2, 1 / 2),
        ("base", 1): scored(1, 1 / 4, 1 / 4, 1 / 2),
        ("base", 2): scored(1, 1 / 8, 1 / 8, 1 / 4),
        ("one", 0): scored(1 / 2, 1 / 2, 1 / 2, 1 / 2),
        ("one", 1): scored(1, 1, 1 / 4, 1 / 2),
        ("one", 2): scored(1, 1, 1 / 8, 1),
        ("two", 0): scored(1 / 2, 1 / 2, 1 / 8, 1 / 8),
        ("two", 2): scored(1, 1, 1, 1),
        (PROBE, 0): scored(1 / 2, 1 / 2),
        (PROBE, 1): scored(1, 1 / 2),
        (PROBE, 2): scored(1 / 2, 1 / 8),
    }
    checkpoints = [Checkpoint(n, i * 10, n, None) for i, n in enumerate(names)]
    return measure(Data(checkpoints, sets, scores, counts, 2, 100, 0))


def test_interference_against_coverage(worked):
    part = worked["interference"]["tasks"]["all"]
    found = {(p["from"], p["to"]): p for p in part["pairs"]}
    # correct responses of the base: x 1/2 -> 1 and y 1/2 -> 1/4 under one; of one: x, x stay, y 1/4 -> 1/8 under two
    assert found["base", "one"]["delta_plus"].value == pytest.approx(0.0)
    assert found["base", "two"]["delta_plus"].value == pytest.approx((LOG2 - 2 * LOG2) / 2)
    assert found["one", "two"]["delta_plus"].value == pytest.approx(-LOG2 / 3)
    # pass@2 of both problems: base 1, 1; one 1, 1; two 1, 0
    assert [found[k]["delta_pass"].value for k in found] == [0.0, -0.5, -0.5]
    want = np.corrcoef([0, -LOG2 / 2, -LOG2 / 3], [0, -0.5, -0.5])[0, 1]
    assert part["pearson"].value == pytest.approx(want)
    assert part["spearman"].value == pytest.approx(math.sqrt(3) / 2)  # ranks 3, 1, 2 against 3, 1.5, 1.5


def test_perplexities(worked):
    part = worked["perplexity"]["all"]
    base, one, two = part["rows"]
    assert (part["rose"], part["fell"]) == (["x"], ["y"])  # 1/2 -> 1 and 1/2 -> 0
    assert base["own"].value == base["own_under_base"].value == base["base"].value == pytest.approx((2 + 4 + 2 + 2) / 4)
    assert one["own"].value == pytest.approx((1 + 1 + 4 + 2) / 4)
    assert one["own_under_base"].value == pytest.approx(2)
    assert one["base_correct"].value == pytest.approx((1 + 4) / 2)
    assert one["base_wrong"].value == pytest.approx((4 + 2) / 2)
    assert two["own_under_base"].value == pytest.approx((2 + 2 + 8 + 8) / 4)
    assert two["rose"].value == pytest.approx((1 + 8) / 2)
    assert two["rose_correct"].value == pytest.approx(1)
    assert two["fell_correct"].value == pytest.approx(8)
    assert (two["pass1"].value, two["passk"].value) == (0.5, 0.5)


def test_probe_rows(worked):
    _, one, two = worked["probe"]["rows"]
    assert one["from_base"]["delta_plus"].value == pytest.approx(LOG2)
    assert one["from_base"]["influence"].value == pytest.approx(LOG2**2 / 2)
    assert two["from_previous"]["delta_plus"].value == pytest.approx(-LOG2)
    assert two["from_previous"]["delta_minus"].value == pytest.approx(-2 * LOG2)
    assert two["from_base"]["influence"].value == pytest.approx((0 + 4 * LOG2**2) / 2)
    assert two["from_previous"]["clip"] == 1.0
    assert two["ppl_wrong"].value == pytest.approx(8)


def test_reasoning_part_and_groups():
    assert reasoning_part("<think>a b</think> c") == "a b"
    assert reasoning_part("a b</think> c") == "a b"
    assert reasoning_part("<think>a b") == "a b"
    assert reasoning_part("a b c") == reasoning_part("<think></think>a b c")[-5:] == "a b c"
    assert support_groups([1, 1, 0, 0], [2, 0, 1, 0]) == ["kept", "shrinkage", "expansion", "neither"]


# -- the whole command ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The tiny base and a copy of it whose weights were moved, each with 8 samples of 6 problems, and a probe set."""
    from limen.config import SampleSettings
    from limen.dynamics.probe import draw_probe
    from limen.models import load_model
    from limen.sampling import sample_run

    out = tmp_path_factory.mktemp("between")
    loaded = load_model("tiny", device="cpu")
    torch.manual_seed(0)
    with torch.no_grad():
        for p in loaded.model.parameters():
            p.add_(0.05 * p.std() * torch.randn_like(p))
    loaded.model.save_pretrained(out / "checkpoint-30")
    loaded.tokenizer.save_pretrained(out / "checkpoint-30")
    shared = {"problems": "arithmetic:all?split=test&size=6", "max_tokens": 6, "template": "plain",
              "verifier": "exact", "device": "cpu", "verify_workers": 1}  # fmt: skip
    for name, model, step in (("base", "tiny", 0), ("moved", str(out / "checkpoint-30"), 30)):
        settings = SampleSettings.make(**shared, model=model, n=8, policy=name, step=step)
        sample_run(settings, out / name, progress=False)
    draw_probe(SampleSettings.make(**shared, model="tiny", n=4, temperature=0.9), out / "probe", progress=False)
    return out


def command(*args):
    import typer

    from limen.cli import dynamics

    app = typer.Typer(pretty_exceptions_enable=False)
    dynamics.register(app)
    return CliRunner().invoke(app, [str(a) for a in args], catch_exceptions=False)


def directly(model, prompt, response):
    ids = torch.tensor([[*prompt, *response]])
    with torch.no_grad():
        logs = torch.log_softmax(model(input_ids=ids).logits[0].double(), -1)[len(prompt) - 1 : -1]
    return float(logs.gather(1, ids[0, len(prompt) :, None]).mean())


def test_command_against_the_models_own_logits(folder, tmp_path):
    from limen.models import load_model

    base, moved = (load_model(m, device="cpu").model for m in ("tiny", folder / "checkpoint-30"))
    run = Run.open(folder / "base")
    prompts = run.prompts()
    rollouts = list(run.rollouts())
    trace = rollouts[0]
    rows = [{"problem_id": trace.problem_id, "response": f"<think>{trace.text}</think>", "source": "us"},
            {"problem_id": "unknown", "response": "1"}]  # fmt: skip
    (tmp_path / "traces.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    done = command("dynamics", folder / "base", folder / "moved", "--probe", folder / "probe", "--out", tmp_path,
                   "--device", "cpu", "--traces", tmp_path / "traces.jsonl", "--draws", 50)  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "pass@8 stands for pass@128" in done.output
    assert "1 traces are of problems that were not sampled" in done.output
    found = json.loads((tmp_path / "dynamics.json").read_text())
    assert [c["name"] for c in found["checkpoints"]] == ["base", "moved 30"]
    under = [directly(moved, prompts[r.problem_id].token_ids, r.token_ids) for r in rollouts]
    before = [directly(base, prompts[r.problem_id].token_ids, r.token_ids) for r in rollouts]
    row = found["perplexity"]["all"]["rows"][1]
    assert row["base"]["value"] == pytest.approx(np.exp(-np.array(under)).mean(), rel=1e-4)
    verdicts = run.table("verdicts")
    right = {(p, i) for p, i, o in zip(*(verdicts[c].to_pylist() for c in ("problem_id", "sample_index", "outcome")))
             if o == "correct"}  # fmt: skip
    keep = np.array([(r.problem_id, r.sample_index) in right for r in rollouts])
    delta = np.array(under) - np.array(before)
    pair = found["interference"]["tasks"]["all"]["pairs"][0]
    assert pair["delta_plus"]["value"] == pytest.approx(delta[keep].mean(), abs=1e-5)
    assert pair["pairs"] == keep.sum()
    ids = load_tokenizer_ids(trace.text)
    traces = {(t["policy"], t["group"]): t for t in found["traces"] if t["traces"]}
    assert {k[0] for k in traces} == {"base", "moved 30"}
    assert next(t for k, t in traces.items() if k[0] == "base")["ppl"]["value"] == pytest.approx(
        math.exp(-directly(base, prompts[trace.problem_id].token_ids, ids)), rel=1e-4
    )
    for number in (3, 4, 14):
        made = between_figure(number, tmp_path, tmp_path / "figures")
        assert [f.suffix for f in made] == [".png", ".svg", ".csv"]
        assert all(f.stat().st_size > 100 for f in made)
    with pytest.raises(DataError, match="metrics"):
        training_figure(7, [folder / "base"], tmp_path)


def test_the_base_begins_every_line_of_panel_a(folder):
    from limen.measure import counts_from_run, pass_at_k

    found = pass_points([folder / "base", folder / "moved"])
    assert list(found) == ["pass@1", "pass@8"]
    base, moved = counts_from_run(folder / "base"), counts_from_run(folder / "moved")
    assert found["pass@1"] == {"moved": {0: [base.c_P.mean() / 8], 30: [moved.c_P.mean() / 8]}}
    assert found["pass@8"]["moved"][0] == [float(np.mean(pass_at_k(8, base.c_P, 8)))]


def load_tokenizer_ids(text):
    from limen.models import load_tokenizer

    return load_tokenizer("tiny").encode(text)


def test_models_without_samples_need_a_probe_or_problems(folder, tmp_path):
    done = command("dynamics", "tiny", folder / "checkpoint-30", "--probe", folder / "probe", "--out", tmp_path,
                   "--json", "--device", "cpu", "--draws", 0)  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "dynamics.json").read_text())
    assert "perplexity" not in found
    assert found["probe"]["rows"][1]["from_base"]["influence"]["value"] > 0
    with pytest.raises(DataError, match="nothing to look at"):
        command("dynamics", "tiny", folder / "checkpoint-30", "--out", tmp_path)
    with pytest.raises(DataError, match="without samples"):
        between_figure(4, tmp_path, tmp_path)
    with pytest.raises(ConfigError, match="at least one checkpoint"):
        command("dynamics", "tiny", "--out", tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(DataError, match="needs problem_id"):
        read_traces(tmp_path / "bad.jsonl")


def test_a_problem_without_a_judged_sample_is_named(folder, tmp_path):
    """The verdicts of one problem say unjudged, and in another run one problem was never drawn."""
    import shutil

    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for name, tables in (("timeouts", ["verdicts"]), ("undrawn", ["verdicts", "rollouts"])):
        run = Run.open(shutil.copytree(folder / "moved", tmp_path / name))
        first = run.problems()[0].id
        for file in [f for t in tables for f in run.shards(t)]:
            rows = pq.read_table(file)
            its = pc.equal(rows["problem_id"], first)
            if name == "undrawn":
                rows = rows.filter(pc.invert(its))
            else:
                at = rows.schema.get_field_index("outcome")
                values = pc.if_else(its, "unjudged", rows["outcome"].cast("string"))
                rows = rows.set_column(at, rows.schema.field(at), values.cast(rows.schema.field(at).type))
            pq.write_table(rows, file)
        found = "none drawn" if name == "undrawn" else "8 unjudged"
        with pytest.raises(DataError) as error:
            command("dynamics", folder / "base", run.path, "--out", tmp_path / "out", "--device", "cpu")
        assert f"{run.path} (moved 30) has no judged sample of problem {first} ({found})" in str(error.value)
        assert f"limen verify {run.path}" in str(error.value)


def test_names_and_steps_of_checkpoints(folder):
    assert read_checkpoint(str(folder / "checkpoint-30")).step == 30
    own = read_checkpoint(str(folder / "moved"))
    assert (own.name, own.step, own.samples) == ("moved 30", 30, folder / "moved")
    other = read_checkpoint(f"elsewhere/model@{folder / 'moved'}")
    assert (other.model, other.samples) == ("elsewhere/model", folder / "moved")
