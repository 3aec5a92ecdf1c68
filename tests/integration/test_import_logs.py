"""Logs of other tools: files that those tools made, and hand-made ones of the documented shape."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from limen.cli import measure as cli
from limen.errors import ConfigError, DataError, StoreError
from limen.measure import compare, counts_from_run, read_counts
from limen.store import Run
from limen.store.importers import Options, import_counts, import_log
from limen.types import Problem
from limen.verify import VerifierPool
from limen.verify.stored import judge_run

DATA = Path(__file__).parents[1] / "data" / "import"


def judged(done, verifier="numeric"):
    with VerifierPool(verifier, workers=1) as pool:
        judge_run(done.run, pool)
    return counts_from_run(done.run.path)


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


# -- made by the tools -----------------------------------------------------------------------------------------


def test_lm_eval_repeats_are_all_taken_and_judged_again(tmp_path):
    done = import_log("lm-eval", [DATA / "lm_eval"], tmp_path / "run")
    assert (done.samples, done.problems, done.graded, done.needs_judging) == (12, 3, 0, True)
    assert any("other filters" in n for n in done.notes)
    table = judged(done)
    assert table.problem_ids == ("tiny_sums:add-73+95", "tiny_sums:add-95+73", "tiny_sums:add-21+58")
    assert table.n_P.tolist() == [4, 4, 4]
    # read off the file: 831 262 861 861 / 863 861 861 841 (gold 861), 97 97 98 97 (gold 97)
    assert table.c_P.tolist() == [2, 2, 3]
    assert all(table.prompt_hash_P)


def test_lm_eval_single_responses_keep_their_grade(tmp_path):
    row = {"doc_id": 0, "doc": {}, "target": "4", "resps": [["4"]], "filter": "none", "metrics": ["exact_match"]}
    file = lines(tmp_path / "samples_t_2026-01-01T00-00-00.1.jsonl", [{**row, "exact_match": 1.0}])
    done = import_log("lm-eval", [file], tmp_path / "run")
    assert not done.needs_judging
    assert counts_from_run(tmp_path / "run").verifier == "lm-eval-log@1"


def test_lm_eval_refuses_what_has_no_text(tmp_path):
    row = {"doc_id": 0, "doc": {}, "target": 1, "resps": [[[-1.5, False]], [[-0.5, True]]], "filter": "none"}
    file = lines(tmp_path / "samples_mc_2026-01-01T00-00-00.1.jsonl", [row])
    with pytest.raises(DataError, match="generate_until"):
        import_log("lm-eval", [file], tmp_path / "run")
    assert not (tmp_path / "run").exists()  # nothing half-imported stays behind


def test_two_lm_eval_runs_in_one_folder_are_refused(tmp_path):
    row = {"doc_id": 0, "doc": {}, "target": "4", "filter": "none", "metrics": ["m"], "m": 0}
    for i, answer in enumerate("45"):
        lines(tmp_path / "logs" / f"samples_t_2026-01-0{i + 1}T00-00-00.1.jsonl", [{**row, "resps": [[answer]]}])
    with pytest.raises(DataError, match="two runs"):
        import_log("lm-eval", [tmp_path / "logs"], tmp_path / "run")


def test_lighteval_details(tmp_path):
    done = import_log("lighteval", [DATA / "lighteval"], tmp_path / "run")
    assert (done.samples, done.problems, done.needs_judging) == (8, 2, True)
    table = judged(done)
    assert table.c_P.tolist() == [2, 2]
    assert table.task_P == ("tiny_sums|0",) * 2


def test_inspect_json(tmp_path):
    done = import_log("inspect", [DATA / "inspect" / "tiny_inspect.json"], tmp_path / "run")
    assert (done.samples, done.problems, done.needs_judging) == (6, 2, False)
    check_inspect(tmp_path / "run", json.loads((DATA / "inspect" / "tiny_inspect.json").read_text()))


def test_inspect_eval(tmp_path):
    logs = pytest.importorskip("inspect_ai.log", reason="reading .eval files needs inspect_ai")
    file = DATA / "inspect" / "tiny_inspect.eval"
    import_log("inspect", [file], tmp_path / "run")
    check_inspect(tmp_path / "run", logs.read_eval_log(str(file)).model_dump(mode="json"))


def check_inspect(path, log):
    table = counts_from_run(path)
    got = dict(zip(table.problem_ids, zip(table.n_P.tolist(), table.c_P.tolist(), table.truncated_P.tolist())))
    want = {}
    for s in log["samples"]:
        n, c, cut = want.get(f"tiny_inspect:{s['id']}", (0, 0, 0))
        choice = s["output"]["choices"][0]
        good = s["scores"]["match"]["value"] == "C"
        want[f"tiny_inspect:{s['id']}"] = (n + 1, c + good, cut + (choice["stop_reason"] == "max_tokens"))
    assert got == want
    assert sum(c for _, c, _ in want.values()) > 0
    assert (table.policy, table.verifier) == ("mockllm/model", "inspect-log@1")


def test_inspect_errors_are_unjudged_and_extra_is_named(tmp_path):
    log = json.loads((DATA / "inspect" / "tiny_inspect.json").read_text())
    log["samples"][0] |= {"error": {"message": "boom"}, "scores": {}, "output": {"choices": [], "completion": ""}}
    log["status"] = "error"
    (tmp_path / "log.json").write_text(json.dumps(log))
    done = import_log("inspect", [tmp_path / "log.json"], tmp_path / "run")
    assert counts_from_run(tmp_path / "run").unjudged_P.sum() == 1
    assert any("may be incomplete" in n for n in done.notes)
    log["samples"][1]["scores"] = {"a": {"value": "C"}, "b": {"value": "I"}}
    (tmp_path / "log.json").write_text(json.dumps(log))
    with pytest.raises(DataError, match="several scorers"):
        import_log("inspect", [tmp_path / "log.json"], tmp_path / "run2")


def test_trl_completions(tmp_path):
    with pytest.raises(DataError, match=r"right, short.*--metric"):
        import_log("trl", [DATA / "trl"], tmp_path / "run")
    done = import_log("trl", [DATA / "trl"], tmp_path / "run", options=Options(metric="right"))
    assert (done.samples, done.needs_judging, done.has_golds) == (16, False, False)
    with pytest.raises(DataError, match=r"step 1 .*step 2"):
        counts_from_run(tmp_path / "run")
    import pyarrow.parquet as pq

    for step in (1, 2):
        rows = pq.read_table(DATA / "trl" / f"completions_{step:05d}.parquet").to_pylist()
        table = counts_from_run(tmp_path / "run", step=step)
        assert table.n_P.tolist() == [4] * len({r["prompt"] for r in rows})
        assert table.c_P.sum() == sum(r["right"] for r in rows)


# -- hand-made, of the documented shape ----------------------------------------------------------------------------


def verl_row(uid=None, **more):
    row = {"input": "2+2=?", "output": "4", "gts": "4", "score": 1.0, "step": 5, **more}
    return row if uid is None else {**row, "uid": uid}


def test_verl_first_trainer(tmp_path):
    rows = [verl_row(), verl_row(output="5", score=0.0), verl_row(input="3+3=?", gts="6", output="6")]
    lines(tmp_path / "dump" / "5.jsonl", rows)
    lines(tmp_path / "dump" / "10.jsonl", [{**r, "step": 10, "score": 1.0} for r in rows])
    done = import_log("verl", [tmp_path / "dump"], tmp_path / "run")
    assert (done.samples, done.problems) == (6, 2)
    five, ten = (counts_from_run(tmp_path / "run", step=s) for s in (5, 10))
    assert (five.n_P.tolist(), five.c_P.tolist()) == ([2, 1], [1, 1])  # n varies
    assert ten.c_P.tolist() == [2, 1]
    assert compare(five, ten, draws=10).support.P == 2


def test_verl_second_trainer_padding_and_turns(tmp_path):
    rows = [
        verl_row("u1_0_0", input="2+2=?", output="let me call a tool", score=1.0),
        verl_row("u1_0_1", input="2+2=? [tool: 4]", output="4", score=1.0),
        verl_row("u1_1_0", output="5", score=-1.0),
        verl_row("pad_7", output="5", score=-1.0),
    ]
    done = import_log("verl", [lines(tmp_path / "5.jsonl", rows)], tmp_path / "run")
    assert (done.samples, done.problems) == (2, 1)
    table = counts_from_run(tmp_path / "run")
    assert (table.n_P.tolist(), table.c_P.tolist()) == ([2], [1])
    assert {r.text for r in done.run.rollouts()} == {"4", "5"}
    assert any("padding" in n for n in done.notes)


def test_verl_acc_counts_before_score_and_uids_are_no_names(tmp_path):
    """The score may hold a format bonus; the second trainer draws new uids for the same prompt each time."""
    rows = [verl_row("a_0_0", score=0.1, acc=True), verl_row("b_0_0", score=0.1, acc=False)]
    done = import_log("verl", [lines(tmp_path / "5.jsonl", rows)], tmp_path / "run")
    assert done.problems == 1
    assert counts_from_run(tmp_path / "run").c_P.tolist() == [1]
    with pytest.raises(DataError, match="holds a sample twice"):
        import_log("verl", [lines(tmp_path / "6.jsonl", [rows[0], rows[0]])], tmp_path / "run2")


def batch_row(custom, *texts, status=200, **more):
    choices = [{"index": i, "message": {"content": t}, "finish_reason": "stop"} for i, t in enumerate(texts)]
    body = {"model": "m", "choices": choices}
    return {"custom_id": custom, "response": {"status_code": status, "body": body}, "error": None, **more}


PROBLEMS = {"p1": Problem("p1", "2+2=?", "4"), "p2": Problem("p2", "3+3=?", "6")}


def test_openai_batch(tmp_path):
    rows = [
        batch_row("p1-0", "4"),
        batch_row("p1-1", "the answer is 4"),
        batch_row("p2-0", "7", "6"),
        batch_row("p2-1", status=500),
    ]
    file = lines(tmp_path / "out.jsonl", rows)
    options = Options(problems=PROBLEMS, id_pattern="(?P<problem>.+)-(?P<sample>[0-9]+)")
    done = import_log("openai-batch", [file], tmp_path / "run", options=options)
    assert (done.samples, done.needs_judging, done.has_golds) == (4, True, True)
    assert any("requests failed" in n for n in done.notes)
    table = judged(done)
    assert dict(zip(table.problem_ids, table.c_P.tolist())) == {"p1": 2, "p2": 1}
    for bad, says in ((Options(), "--problems"), (Options(problems=PROBLEMS), "no problem 'p1-0'")):
        with pytest.raises(DataError, match=says):
            import_log("openai-batch", [file], tmp_path / "x", options=bad)
    for pattern in ("(", "(.+)"):
        with pytest.raises(DataError, match="id pattern"):
            import_log("openai-batch", [file], tmp_path / "x", options=Options(problems=PROBLEMS, id_pattern=pattern))
    with pytest.raises(DataError, match="already at"):
        import_log("openai-batch", [lines(tmp_path / "twice.jsonl", rows * 2)], tmp_path / "x", options=options)


def test_jsonl_lines_of_samples_and_of_problems(tmp_path):
    single = [{"id": "a", "completion": "4", "is_correct": i % 2 == 0, "model": "m", "gt": "4"} for i in range(3)]
    import_log("jsonl", [lines(tmp_path / "s.jsonl", single)], tmp_path / "one")
    table = counts_from_run(tmp_path / "one")
    assert (table.n_P.tolist(), table.c_P.tolist(), table.policy) == ([3], [2], "m")
    grouped = [{"idx": 0, "question": "q", "code": ["4", "5"], "score": [True, False], "gt": "4"}]
    import_log("jsonl", [lines(tmp_path / "g.jsonl", grouped)], tmp_path / "two", name="mine")
    table = counts_from_run(tmp_path / "two")
    assert (table.n_P.tolist(), table.c_P.tolist(), table.policy) == ([2], [1], "mine")
    mapped = [{"who": "a", "out": "4", "ok": 0.7}]
    options = Options({"problem_id": "who", "response": "out", "correct": "ok"}, threshold=0.5)
    import_log("jsonl", [lines(tmp_path / "m.jsonl", mapped)], tmp_path / "three", options=options)
    assert counts_from_run(tmp_path / "three").c_P.tolist() == [1]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"id": "a", "other": 1}], "neither responses nor grades"),
        ([{"response": "x", "correct": 1}], "names no problem"),
        ([{"id": "a", "responses": ["x", "y"], "scores": [1]}], "2 responses but 1 grades"),
        ([{"id": "a", "responses": ["x", "y"], "score": 1}], "single grade"),
        ([{"id": "a", "response": "x", "score": "good"}], "is not a score"),
        ([{"id": "a", "response": "x", "score": 1, "sample": 3}] * 2, "occurs twice"),
        ([{"id": "a", "response": "x", "score": 1, "gt": g} for g in "12"], "two problems share an id"),
        ([{"id": "a", "response": "x", "score": 1, "prompt": p} for p in "12"], "mixes templates"),
        ([], "no samples"),
    ],
)
def test_jsonl_refuses(tmp_path, rows, says):
    with pytest.raises(DataError, match=says):
        import_log("jsonl", [lines(tmp_path / "x.jsonl", rows)], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_cut_off_log_and_folders(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"id": "a", "response": "x", "score": 1}\n{"id": "b", "resp')
    with pytest.raises(DataError, match=r":2 .*cut off"):
        import_log("jsonl", [file], tmp_path / "run")
    with pytest.raises(DataError, match="no such file"):
        import_log("jsonl", [tmp_path / "none"], tmp_path / "run")
    with pytest.raises(ConfigError, match="known are lm-eval"):
        import_log("csv", [file], tmp_path / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    with pytest.raises(StoreError, match="not empty"):
        import_log("jsonl", [file], tmp_path / "full")


def test_half_graded_logs_are_judged_whole(tmp_path):
    rows = [{"id": "a", "response": "4", "score": 1, "gt": "4"}, {"id": "a", "response": "4", "gt": "4"}]
    done = import_log("jsonl", [lines(tmp_path / "x.jsonl", rows)], tmp_path / "run")
    assert (done.graded, done.needs_judging) == (1, True)
    assert not Run.open(tmp_path / "run").shards("verdicts")
    assert judged(done).c_P.tolist() == [2]


def test_problems_by_question(tmp_path):
    """Two logs under their own ids are joined through the problems they were made from."""
    rows = [{"idx": 77, "question": "2+2=?", "response": "4"}]
    options = Options(problems=PROBLEMS)
    done = import_log("jsonl", [lines(tmp_path / "x.jsonl", rows)], tmp_path / "run", options=options)
    assert [p.id for p in done.run.problems()] == ["p1"]
    rows[0]["question"] = "another"
    with pytest.raises(DataError, match="not among the 2 problems"):
        import_log("jsonl", [lines(tmp_path / "y.jsonl", rows)], tmp_path / "run2", options=options)


def test_counts(tmp_path):
    csv = tmp_path / "c.csv"
    csv.write_text("task,attempts,passed\np1,8,3\np2,8.0,0\n")
    fields = {"problem_id": "task", "n": "attempts", "c": "passed"}
    assert import_counts(csv, tmp_path / "c.jsonl", fields) == 2
    assert read_counts(tmp_path / "c.jsonl")["c"].c_P.tolist() == [3, 0]
    for text, says in (("a,n\n1,2\n", "no 'problem_id'"), ("problem_id,n,c\na,2,0.5\n", "counts, not rates")):
        csv.write_text(text)
        with pytest.raises(DataError, match=says):
            import_counts(csv, tmp_path / "d.jsonl")


def test_command_line(tmp_path):
    app = typer.Typer()
    cli.register(app)
    run = lambda *args: CliRunner().invoke(app, ["import", *map(str, args)])  # noqa: E731
    done = run("lm-eval", DATA / "lm_eval", "--out", tmp_path / "a", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["judged_by"].startswith("math@")
    done = run("trl", DATA / "trl", "--out", tmp_path / "b", "--metric", "right")
    assert "the log's own grades" in done.output
    file = lines(tmp_path / "x.jsonl", [{"name": "a", "response": "x"}])
    done = run("jsonl", file, "--out", tmp_path / "c", "--field", "problem_id=name")
    assert "not judged" in done.output
    done = run("jsonl", file, "--out", tmp_path / "d", "--field", "problem_id")
    assert isinstance(done.exception, DataError)
    csv = tmp_path / "c.csv"
    csv.write_text("problem_id,n,c\np1,8,3\n")
    assert "1 counts" in run("counts", csv, "--out", tmp_path / "c.jsonl").output
