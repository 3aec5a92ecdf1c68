"""limen's side of the vLLM engine passes the suite of all engines around a tabular policy."""

from types import SimpleNamespace

import pytest
import torch

import engine_conformance as suite
import fake_vllm
from limen.config import SampleSettings
from limen.engines import exact
from limen.engines.draw import draw, uniforms
from limen.engines.slot_draw import draw_static
from limen.errors import ConfigError, MissingExtra, ModelError
from limen.types import SamplingParams

TABLE = {"q=": {"ab": 0.5, "a": 0.2, "b": 0.2, "": 0.1}, "r=": {"b": 0.6, "aaa": 0.4}}


@pytest.fixture
def subject(monkeypatch):
    fake_vllm.install(monkeypatch)
    from limen.engines.vllm import VLLMEngine

    policy = fake_vllm.tabular(TABLE)
    llm = fake_vllm.LLM(policy, rows=7, context=20)
    engine = VLLMEngine(llm, policy.tokenizer, (exact.EOS,), logprobs=True)
    return suite.Subject(
        engine, policy.tokenizer, policy.next_probs, exact.EOS, tuple(TABLE), n=400, long_text="q=" * 10
    )


def told(engine, params, seed):
    """What vLLM is told of one request."""
    return engine._own(engine._shared(params), params, seed)


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda c: c.__name__)
def test_conformance(subject, check):
    check(subject)


@pytest.mark.parametrize("params", suite.PARAMS, ids=["plain", "temperature", "top_p", "top_k"])
def test_distribution(subject, params):
    suite.check_distribution(subject, params)


def test_resume_and_top_up(subject, tmp_path):
    suite.check_resume_and_top_up(subject, tmp_path)


@pytest.mark.parametrize("params", [*suite.PARAMS[:2], SamplingParams(max_tokens=3, stop=("b",))])
def test_rollouts_are_those_of_the_exact_engine(subject, params):
    """Whatever the batch and however requests move in it: the draw is by (seed, position) alone."""
    want = {
        (s.problem_id, s.sample_index): s
        for s in exact.ExactEngine(subject.engine.llm.policy).sample(suite.asks(subject, 200), params)
    }
    for s in subject.engine.sample(suite.asks(subject, 200), params):
        w = want.pop((s.problem_id, s.sample_index))
        assert (s.token_ids, s.text, s.finish_reason) == (w.token_ids, w.text, w.finish_reason)
    assert not want


def test_the_worker_is_told_that_nobody_reads_the_drawn_tokens(subject):
    from limen.engines.vllm_draw import DrawWorker

    worker, batch = DrawWorker(), SimpleNamespace(logitsprocs_need_output_token_ids=True)
    worker.model_runner = SimpleNamespace(input_batch=batch)
    assert worker.limen_lengths_suffice()
    assert batch.logitsprocs_need_output_token_ids is False
    del batch.logitsprocs_need_output_token_ids
    assert not worker.limen_lengths_suffice()
    assert not DrawWorker().limen_lengths_suffice()


def test_few_wait_and_what_is_given_up_is_aborted(subject):
    stream = subject.engine.sample(suite.asks(subject, 500), SamplingParams(max_tokens=3))
    next(stream)
    llm = subject.engine.llm
    assert len(llm.batch) + len(llm.waiting) <= 4 * llm.rows
    stream.close()
    assert not llm.has_unfinished_requests()
    assert llm.aborted


def test_a_broken_off_response_is_an_error(subject, monkeypatch):
    before = fake_vllm.LLM._finished

    def broken(self, request):
        output = before(self, request)
        if output is not None:
            output.outputs[0].finish_reason = "error"
        return output

    monkeypatch.setattr(fake_vllm.LLM, "_finished", broken)
    with pytest.raises(ModelError, match="broke off"):
        list(subject.engine.sample(suite.asks(subject, 2), SamplingParams(max_tokens=3)))


def test_broken_logits_are_an_error(subject):
    subject.engine.llm.policy.next_probs = lambda prompt, prefix: torch.full((6,), float("nan")).numpy()
    with pytest.raises(ModelError, match="not finite"):
        list(subject.engine.sample(suite.asks(subject, 2), SamplingParams(max_tokens=3)))


def test_a_nucleus_beyond_the_first_look_is_sorted(subject, monkeypatch):
    from limen.engines.vllm_draw import SeededDraw

    monkeypatch.setattr("limen.engines.slot_draw.NUCLEUS", 3)
    torch.manual_seed(0)
    logits, seeds = torch.randn(5, 50), [3, 1, 4, 1, 5]
    processor = SeededDraw(None, torch.device("cpu"), False)
    added = [
        (i, fake_vllm.SamplingParams(extra_args={"limen": [s, 1.0, 0.95, 0]}), (), []) for i, s in enumerate(seeds)
    ]
    processor.update_state(([], added, []))
    left = processor.apply(logits.clone())
    u = torch.from_numpy(uniforms(seeds, 0, 1)[:, 0])
    want, _ = draw(logits, u, SamplingParams(top_p=0.95))
    assert left.argmax(dim=1).tolist() == want.tolist()
    assert torch.isinf(left).sum().item() == 5 * 49


def test_requests_of_others_are_left_alone(subject):
    from limen.engines.vllm_draw import SeededDraw

    processor = SeededDraw(None, torch.device("cpu"), False)
    ours = fake_vllm.SamplingParams(extra_args={"limen": [7, 1.0, 1.0, 0]})
    processor.update_state(([], [(0, fake_vllm.SamplingParams(), (), []), (1, ours, (), [])], []))
    logits = torch.randn(2, 9)
    left = processor.apply(logits.clone())
    assert torch.equal(left[0], logits[0])
    assert torch.isinf(left[1]).sum().item() == 8


def drawing(kinds, kernel):
    """A processor with one request of each kind (temperature, top_p, top_k), and the rows its kernel was given."""
    from limen.engines.vllm_draw import SeededDraw

    processor, given = SeededDraw(None, torch.device("cpu"), False), []

    def watched(logits, rows, u, temperature):
        given.extend(rows.tolist())
        kernel(logits, rows, u, temperature)

    processor.kernel = watched
    params = [fake_vllm.SamplingParams(extra_args={"limen": [seed, *kind]}) for seed, kind in enumerate(kinds)]
    processor.update_state(([], [(i, p, (), [0] * i) for i, p in enumerate(params)], []))
    return processor, given


KINDS = [(1.0, 1.0, 0), (0.0, 1.0, 0), (1.0, 1.0, 0), (0.7, 1.0, 0), (1.0, 0.9, 0), (1.0, 1.0, 3)]


def by_torch(logits):
    processor, _ = drawing(KINDS, None)
    processor.kernel = None
    return processor.apply(logits.clone())


def test_the_kernel_gets_the_plain_draws_and_torch_the_others(subject):
    def kernel(logits, rows, u, temperature):
        tokens, *_ = draw_static(logits[rows], u, SamplingParams(temperature=temperature))
        logits[rows] = float("-inf")
        logits[rows, tokens] = 0.0

    logits = torch.randn(len(KINDS), 50)
    processor, given = drawing(KINDS, kernel)
    assert torch.equal(processor.apply(logits.clone()), by_torch(logits))
    assert sorted(given) == [0, 2, 3]


def test_a_kernel_that_does_not_run_here_is_said_once_and_torch_draws(subject, caplog):
    def kernel(*_):
        raise RuntimeError("no compiler")

    logits = torch.randn(len(KINDS), 50)
    processor, given = drawing(KINDS, kernel)
    for _ in range(2):
        assert torch.equal(processor.apply(logits.clone()), by_torch(logits))
    assert len(given) == 2
    assert [record.message.count("no compiler") for record in caplog.records] == [1]


def test_vllm_s_own_seeds(subject):
    from limen.engines.vllm import VLLMEngine

    engine = VLLMEngine(subject.engine.llm, subject.tokenizer, (exact.EOS,), draws="vllm")
    given = told(engine, SamplingParams(0.7, 0.9, 5, 9), 2**63 + 5)
    assert (given.temperature, given.top_p, given.top_k, given.seed) == (0.7, 0.9, 5, 5)
    assert given.extra_args is None
    with pytest.raises(ModelError, match="expected one of"):
        VLLMEngine(subject.engine.llm, subject.tokenizer, (), draws="dice")


def test_requests_share_what_is_common_and_nothing_of_their_own(subject):
    params = SamplingParams(0.7, 0.9, 5, 9)
    shared = subject.engine._shared(params)
    first, second = (subject.engine._own(shared, params, seed) for seed in (1, 2))
    assert [x.extra_args["limen"][0] for x in (first, second)] == [1, 2]
    assert shared.extra_args is None
    assert shared.skip_clone  # vLLM would copy each in depth again


def test_every_option_is_said(subject):
    given = told(subject.engine, SamplingParams(0.7, 0.9, 5, 9, ("b",)), 11)
    assert given.extra_args == {"limen": [11, 0.7, 0.9, 5]}
    assert (given.temperature, given.top_p, given.top_k, given.seed) == (0.0, 1.0, 0, None)
    assert (given.max_tokens, given.stop, given.stop_token_ids, given.logprobs) == (9, ["b"], [exact.EOS], 0)
    from limen.engines.vllm import llm_options

    options = llm_options("m", "bfloat16", False)
    assert options["generation_config"] == "vllm"
    assert options["logprobs_mode"] == "raw_logprobs"
    assert options["enable_prefix_caching"] is True


def test_without_vllm_the_extra_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "vllm", None)
    from limen.engines.vllm import open_vllm

    settings = {"model": "tiny", "problems": "p", "engine": "vllm"}
    with pytest.raises(MissingExtra, match=r"limen\[vllm\]"):
        open_vllm(SampleSettings.make(**settings))
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES"):
        open_vllm(SampleSettings.make(**settings, device="cuda:1"))
    with pytest.raises(ConfigError, match="visible"):
        open_vllm(SampleSettings.make(**settings, gpus=9))


def test_the_draw_does_not_wait_for_the_gpu(subject):
    """Without data every look at a value raises; vLLM schedules ahead, and a look would hold it up."""
    from limen.engines.vllm_draw import SeededDraw

    processor = SeededDraw(None, torch.device("meta"), False)
    params = [fake_vllm.SamplingParams(extra_args={"limen": [s, 0.7, 1.0, s % 2 * 5]}) for s in range(6)]
    processor.update_state(([], [(i, p, (), []) for i, p in enumerate(params)], []))
    assert processor.apply(torch.empty(6, 500, device="meta")).shape == (6, 500)
