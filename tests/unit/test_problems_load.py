"""Problems from files, Reasoning Gym and arithmetic; one clear error for each thing that is wrong."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limen.errors import DataError
from limen.problems import load_problems


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


ROWS = [{"id": "a", "problem": "1+1", "answer": "2", "level": 3}, {"id": "b", "problem": "2+2", "answer": 4}]


def test_three_formats_give_the_same_problems(tmp_path):
    jsonl = write(tmp_path / "p.jsonl", "".join(json.dumps(r) + "\n" for r in ROWS))
    csv = write(tmp_path / "p.csv", 'id,problem,answer,level\na,1+1,2,3\nb,2+2,"4",\n')
    pq.write_table(pa.Table.from_pylist([{**r, "answer": str(r["answer"])} for r in ROWS]), tmp_path / "p.parquet")
    seen = [
        [(p.id, p.problem, p.answer, p.task) for p in load_problems(f)] for f in (jsonl, csv, tmp_path / "p.parquet")
    ]
    assert seen[0] == [("a", "1+1", "2", "p"), ("b", "2+2", "4", "p")]
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]
    assert load_problems(jsonl)[0].metadata == {"level": 3}
    assert [p.id for p in load_problems(jsonl, limit=1)] == ["a"]


def test_columns_are_mapped_and_ids_are_content_hashes(tmp_path):
    file = write(tmp_path / "p.jsonl", '{"q": "1+1", "gold": ["2", "two"]}\n\n{"q": "1+2", "gold": ["3"]}\n')
    columns = {"problem": "q", "answer": "gold"}
    first, second = load_problems(file, columns=columns)
    assert first.answer == "2, two"
    assert first.id != second.id
    other = write(tmp_path / "other.jsonl", '{"problem": "1+1", "answer": "2, two"}\n')
    assert load_problems(other)[0].id == first.id


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("empty.jsonl", "", "holds no problems"),
        ("blank.jsonl", "\n\n", "holds no problems"),
        ("header.csv", "id,problem,answer\n", "holds no problems"),
        ("twice.jsonl", '{"id":"a","problem":"p","answer":"1"}\n{"id":"a","problem":"q","answer":"1"}\n', r":2.*:1"),
        ("same.jsonl", '{"problem":"p","answer":"1"}\n{"problem":"p","answer":"1"}\n', r":2.*same problem"),
        ("field.jsonl", '{"problem":"p","answer":"1"}\n{"problem":"p","gold":"1"}\n', r":2: no 'answer'.*gold"),
        ("void.jsonl", '{"problem":"p","answer":" "}\n', r":1: 'answer' is empty"),
        ("null.jsonl", '{"problem":"p","answer":null}\n', r":1: 'answer' is empty"),
        ("json.jsonl", '{"problem":"p","answer":"1"}\n\n{"problem":\n', r":3 is not whole JSON"),
        ("list.jsonl", "[1]\n", r":1 is a list, expected an object"),
        ("fields.csv", "problem,answer\na,b,c\n", r":2: more fields"),
        ("bad.parquet", "PAR1 but not", "not a readable Parquet"),
        ("file.txt", "x", "unknown file type"),
    ],
)
def test_bad_files_have_one_clear_error(tmp_path, name, text, message):
    file = write(tmp_path / name, text)
    with pytest.raises(DataError, match=message) as error:
        load_problems(file)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_sources_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load_problems(tmp_path / "absent.jsonl")
    with pytest.raises(DataError, match="cannot tell"):
        load_problems("nonsense")
    file = write(tmp_path / "p.jsonl", json.dumps(ROWS[0]) + "\n")
    with pytest.raises(DataError, match="no column 'gold'"):
        load_problems(file, columns={"answer": "gold"})
    with pytest.raises(DataError, match="limit"):
        load_problems(file, limit=0)


def test_gym_is_distinct_stable_and_prefix_closed():
    spec = "reasoning_gym:chain_sum?min_terms=2&max_terms=2&max_digits=1&seed=3"
    forty = load_problems(spec + "&size=40")
    assert len({p.problem for p in forty}) == 40
    assert load_problems(spec, limit=10) == forty[:10]
    for p in forty:
        expression = p.problem.split(":")[1].strip(" =")
        assert eval(expression) == int(p.answer)  # noqa: S307
        assert p.metadata["entry"]["metadata"]["source_dataset"] == "chain_sum"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("reasoning_gym:chain_sums", "near: chain_sum"),
        ("reasoning_gym:chain_sum?terms=2", "no option 'terms'.*min_terms"),
        ("reasoning_gym:chain_sum?min_terms=0", "refuses"),
        ("reasoning_gym:chain_sum?min_terms=two", "refuses"),
        ("reasoning_gym:chain_sum?min_terms", "option=value"),
        ("reasoning_gym:chain_sum?seed=1&seed=2", "twice"),
        ("reasoning_gym:chain_sum?size=0", "size"),
        ("reasoning_gym:chain_sum?min_terms=2&max_terms=2&max_digits=1&size=1000", "distinct problems"),
    ],
)
def test_gym_options_are_checked(spec, message):
    with pytest.raises(DataError, match=message):
        load_problems(spec)


def test_benchmarks_beside_the_repository_load(shared):
    sizes = {"aime24": 30, "amc23": 40, "math500": 500, "gsm8k_test": 1319, "minerva_math": 272}
    for name, size in sizes.items():
        assert len(load_problems(shared(f"data/{name}.jsonl"))) == size


def test_hub_rows_take_the_answer_behind_the_marker(monkeypatch):
    from limen.problems import hub

    rows = [{"question": "How many?", "answer": "He has 2+3=<<2+3=5>>5.\n#### 5"}]
    monkeypatch.setattr(hub, "_rows", lambda *args: rows)
    (problem,) = load_problems("openai/gsm8k")
    assert (problem.problem, problem.answer, problem.source) == ("How many?", "5", "openai/gsm8k")
    assert problem.metadata["solution"].startswith("He has")
    with pytest.raises(DataError, match="unknown option 'subset'"):
        load_problems("openai/gsm8k?subset=main")


def test_hub_dataset_that_cannot_be_had_is_one_error(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="cannot load the hub dataset 'nobody/nothing-at-all'"):
        load_problems("nobody/nothing-at-all")
