"""`DynamicsProbe`: what one optimizer step does to the probe set, for any Hugging Face `Trainer`.

Every `every` steps the probe pairs are scored right before and right after the optimizer moves the weights; where the
trainer keeps a batch of sampled responses (TRL's GRPOTrainer, SELFTrainer) that batch too. Nothing random is drawn and
nothing of the trainer is changed: the weights are bit for bit those of a run without the probe.

Written to the run: a line of `metrics.jsonl` with keys `probe/...`, and `dynamics/step-XXXXXXXX.parquet` with one row
per pair.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from transformers import TrainerCallback

from limen.dynamics.packed import PackedScorer
from limen.dynamics.probe import ProbePairs, load_probe
from limen.dynamics.quantities import (
    Scored,
    change,
    clip_violation,
    interference,
    mean,
    perplexity,
    ratios,
    summarize,
)
from limen.engines.protocol import ScoreRequest
from limen.engines.runner import Runner
from limen.errors import ConfigError
from limen.store import Run
from limen.store.metrics import append_metrics, keep_metrics
from limen.store.writer import write_table

FOLDER = "dynamics"
"""Of a run: files of per-pair values."""
PREFIX = "probe/"


class DynamicsProbe(TrainerCallback):  # type: ignore[misc]
    """Add it to a trainer: `DynamicsProbe("runs/probe", every=10).attach(trainer)`.

    probe: a probe set (folder of `limen probe build`, or `ProbePairs`). every: optimizer steps between two probes;
        the first step is probed too. run_dir: where to write; by default the trainer's own run folder, or
        `output_dir/limen`. epsilon: of the clip range. entropies: also the policy's token entropy on the probe set.
    base: a frozen copy of the base model; with it the training batch's perplexity under the base is followed (own
        samples under the base, fig. 4 left), at the price of its memory.
    precision: None scores in the precision of the weights; "tf32" (CUDA) and "bf16" (autocast) are faster and noisier:
        the changes of one step can be smaller than their rounding. `noise` says what the rounding is.

    `trainer.add_callback(probe)` serves as well, without the quantities of the training batch. In a distributed run the
    main process scores. Raises `ConfigError` under FSDP and DeepSpeed, where no process holds the whole model.
    """

    def __init__(
        self,
        probe: str | Path | ProbePairs,
        every: int = 10,
        run_dir: str | Path | None = None,
        epsilon: float = 0.2,
        entropies: bool = True,
        base: Any = None,
        precision: str | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        if every < 1:
            raise ConfigError(f"every is {every}: give the optimizer steps between two probes, at least 1")
        if precision not in (None, "tf32", "bf16"):
            raise ConfigError(f"precision is {precision!r}: None (that of the weights), 'tf32' or 'bf16'")
        self.pairs = probe if isinstance(probe, ProbePairs) else load_probe(probe)
        self.every, self.epsilon, self.entropies = every, epsilon, entropies
        self.run_dir = None if run_dir is None else Path(run_dir)
        self.base, self.precision, self.batch_tokens = base, precision, batch_tokens
        self.trainer: Any = None
        self.seconds = 0.0
        self.noise: dict[str, float] = {}
        self._scorer: PackedScorer | None = None
        self._base_runner: Runner | None = None
        self._before: Scored | None = None
        self._latest: tuple[int, Scored] | None = None
        self._batch: tuple[PackedScorer, Scored] | None = None
        self._started = 0.0
        self._rate = float("nan")

    def attach(self, trainer: Any) -> DynamicsProbe:
        """Add this callback to `trainer`, whose training batch is then probed too."""
        self.trainer = trainer
        trainer.add_callback(self)
        return self

    def due(self, step: int) -> bool:
        """Whether the step that brings the policy to `step` is probed."""
        return step == 1 or step % self.every == 0

    # -- the trainer's calls ---------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if self.trainer is not None and (self.trainer.is_fsdp_enabled or self.trainer.is_deepspeed_enabled):
            raise ConfigError("DynamicsProbe needs the whole model in one process: not with FSDP or DeepSpeed")
        self._before, self._latest, self._batch, self._scorer = None, None, None, None
        if not state.is_world_process_zero:
            return
        self.run_dir = self._folder(args, state)
        for file in (self.run_dir / FOLDER).glob("step-*.parquet"):
            if int(file.stem.removeprefix("step-")) > state.global_step:
                file.unlink()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero or not self.due(state.global_step + 1):
            return
        self._started = self._clock(model)
        with self._scoring(model):
            if self._scorer is None:
                self._scorer = PackedScorer(Runner(model), self.pairs.request_N, self.batch_tokens)
                self.noise = noise_floor(self._scorer, self.pairs)
            if self._latest is not None and self._latest[0] == state.global_step:
                self._before = self._latest[1]
            else:
                self._before = self._scorer(self.entropies)
            requests = training_batch(self.trainer)
            if requests:
                scorer = PackedScorer(self._scorer.runner, requests, self._scorer.batch_tokens)
                self._batch = scorer, scorer()
        self.seconds = self._clock(model) - self._started

    def on_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        groups = getattr(optimizer, "param_groups", None)
        self._rate = float(groups[0]["lr"]) if groups else float("nan")

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if self._before is None:
            return
        assert self._scorer is not None
        self._started = self._clock(model)
        with self._scoring(model):
            after = self._scorer(self.entropies)
            row = {PREFIX + k: v for k, v in summarize(self._before, after, self.pairs.correct_N, self.epsilon).items()}
            rare_N = self.pairs.rare_N
            row[PREFIX + "delta_plus_rare"] = interference(change(self._before, after), rare_N)
            row[PREFIX + "logp_plus_rare"] = mean(after.mean_N[rare_N])
            if self._batch is not None:
                row |= self._batch_row(*self._batch)
        before, self._before, self._batch = self._before, None, None
        self._latest = state.global_step, after
        self._write(state.global_step, before, after)
        self.seconds += self._clock(model) - self._started
        row |= {PREFIX + "seconds": self.seconds, PREFIX + "lr": self._rate}
        row |= {PREFIX + k: v for k, v in self.noise.items()}
        assert self.run_dir is not None
        append_metrics(self.run_dir / "metrics.jsonl", {"step": state.global_step, **_finite(row)})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero and self.run_dir is not None:
            run = Run.open(self.run_dir)
            run.info["probe"] = {"name": self.pairs.name, "pairs": len(self.pairs), "every": self.every, **self.noise}
            if run.settings.get("made_by") == "DynamicsProbe":
                run.info["status"] = "done"
            run.save()

    # -- parts -----------------------------------------------------------------------------------------------

    def _folder(self, args: Any, state: Any) -> Path:
        """The run that is written to: given, the trainer's own, or one beside its output, made here."""
        own = getattr(self.trainer, "run_path", None)
        folder = self.run_dir or (Path(own) if own else Path(args.output_dir) / "limen")
        if not (folder / "run.json").exists():
            settings = {"made_by": "DynamicsProbe", "steps": state.max_steps, "every": self.every}
            Run.create(folder, "train", Path(args.output_dir).name or "train", settings)
        elif Run.open(folder).settings.get("made_by") == "DynamicsProbe":
            keep_metrics(folder / "metrics.jsonl", state.global_step)
        return folder

    def _batch_row(self, scorer: PackedScorer, before: Scored) -> dict[str, float]:
        """The training batch: its own tokens' ratios, and how likely it was under the policy and under the base."""
        row = {
            "clip_batch": clip_violation(ratios(before, scorer()), self.epsilon),
            "ppl_own": perplexity(before.mean_N),
        }
        if self.base is not None:
            if self._base_runner is None:
                self._base_runner = Runner(self.base.eval())
            under = PackedScorer(self._base_runner, scorer.requests, self.batch_tokens)()
            row["ppl_own_under_base"] = perplexity(under.mean_N)
        return {PREFIX + k: v for k, v in row.items()}

    def _write(self, step: int, before: Scored, after: Scored) -> None:
        assert self.run_dir is not None
        columns: dict[str, Any] = {
            "problem_id": self.pairs.problem_N,
            "sample_index": pa.array([i for _, i in self.pairs.key_N], pa.int32()),
            "correct": self.pairs.correct_N,
            "n_tokens": pa.array(before.tokens_N, pa.int32()),
            "logprob_before": before.sum_N,
            "logprob_after": after.sum_N,
        }
        if after.entropy_T is not None:
            columns["entropy"] = after.entropy_N
        write_table(self.run_dir / FOLDER / f"step-{step:08d}.parquet", pa.table(columns))

    @contextmanager
    def _scoring(self, model: Any) -> Iterator[None]:
        """Eval mode, and less precision where asked for; everything is left as it was."""
        training, matmul = model.training, torch.get_float32_matmul_precision()
        model.eval()
        try:
            if self.precision == "tf32":
                torch.set_float32_matmul_precision("high")
            with torch.autocast(model.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                yield
        finally:
            model.train(training)
            torch.set_float32_matmul_precision(matmul)

    def _clock(self, model: Any) -> float:
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def training_batch(trainer: Any) -> list[ScoreRequest]:
    """The sampled responses that the current optimizer step learns from, as TRL's GRPOTrainer buffers them; those that
    are masked out are left out. Empty where the trainer keeps none."""
    buffered = getattr(trainer, "_buffered_inputs", None)
    if not buffered:
        return []
    parts, step = len(buffered), int(trainer._step)
    used = min(parts, int(trainer.args.gradient_accumulation_steps))
    requests = []
    for at in sorted({(step - 1 - i) % parts for i in range(used)}):
        inputs = buffered[at]
        if not isinstance(inputs, Mapping) or "completion_ids" not in inputs:
            return []
        fields = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
        for p, pm, c, cm in zip(*(inputs[f].tolist() for f in fields), strict=True):
            response = tuple(t for t, m in zip(c, cm, strict=True) if m)
            if response:
                requests.append(ScoreRequest(tuple(t for t, m in zip(p, pm, strict=True) if m), response))
    return requests


def noise_floor(scorer: PackedScorer, pairs: ProbePairs, count: int = 16) -> dict[str, float]:
    """How far a response's per-token mean lies (nats) from that of the same policy scored one by one in the weights'
    own precision: mean and largest over some pairs. Two scorings of equal weights in one way differ by nothing."""
    places = list(range(0, len(pairs), max(1, len(pairs) // count)))[:count]
    together = scorer().mean_N[places]
    matmul = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    with torch.autocast(scorer.runner.device.type, enabled=False):
        alone = [PackedScorer(scorer.runner, [pairs.request_N[i]])().mean_N[0] for i in places]
    torch.set_float32_matmul_precision(matmul)
    gaps = abs(together - alone)
    return {"noise_mean": mean(gaps), "noise_max": float(gaps.max())}


def _finite(row: Mapping[str, float]) -> dict[str, float]:
    """JSON has no NaN: what is undefined (no correct pair, an empty batch) is left out of the line."""
    return {k: float(v) for k, v in row.items() if v == v and abs(v) != float("inf")}
