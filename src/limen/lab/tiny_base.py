"""The tiny base model: 334,080 parameters, trained from a seed in a few minutes on two cores.

It is a plain Llama-style decoder with a character tokenizer. Part of its training labels are wrong on purpose:
a base model that is unsure, with mass on many answers, is what makes coverage something to lose. Held-out
problems (`limen.problems.arithmetic`, split "test") never occur in its training, nor do their commuted twins.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limen.errors import ConfigError
from limen.problems.arithmetic import ANSWER_LENGTH, FAMILIES, PROMPT_LENGTH, TRAIN_SHARES, arithmetic_problems
from limen.provenance import provenance
from limen.store.writer import write_json
from limen.types import Problem

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

CHARACTERS = "0123456789+*="
SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")
PAD, EOS = 13, 14


@dataclass(frozen=True)
class BaseRecipe:
    """How the base is trained. `noisy_labels`: share of labels that are disturbed; `noise`: chance that a digit of
    such a label is replaced by a random one. `lr` is AdamW's, constant after `warmup` steps."""

    seed: int = 0
    steps: int = 1500
    batch: int = 256
    lr: float = 1e-3
    warmup: int = 20
    noisy_labels: float = 0.3
    noise: float = 0.5
    width: int = 96
    layers: int = 3
    heads: int = 4
    feed_forward: int = 256

    @classmethod
    def of_width(cls, width: int, **more: Any) -> BaseRecipe:
        """The recipe at another width, with a feed-forward part in proportion. Raises `ConfigError`."""
        if width < 16 or width % (2 * cls.heads):
            raise ConfigError(f"width {width}: expected a multiple of {2 * cls.heads} from 16 up, as 48, 96 or 192")
        return cls(width=width, feed_forward=width * 8 // 3, **more)


def make_tokenizer(words: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """One token a character, and one for each of `words`; encoding and decoding round-trip exactly."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {s: i for i, s in enumerate((*CHARACTERS, *SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    pattern = "|".join([*map(re.escape, words), r"[\s\S]"])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        unk_token="<unk>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def make_model(recipe: BaseRecipe, words: int = 0) -> LlamaForCausalLM:
    """Randomly initialised from `recipe.seed`, with `words` more tokens than characters and special ones."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(recipe.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(CHARACTERS) + len(SPECIAL) + words,
            hidden_size=recipe.width,
            intermediate_size=recipe.feed_forward,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.heads,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            pad_token_id=PAD,
            eos_token_id=EOS,
            bos_token_id=EOS + 1,
        )
    )


def encode(problems: list[Problem]) -> NDArray[np.int64]:
    """Token ids of prompt, answer, end, padding: shape (problems, PROMPT_LENGTH + ANSWER_LENGTH + 1)."""
    code = {c: i for i, c in enumerate(CHARACTERS)}
    ids = np.full((len(problems), PROMPT_LENGTH + ANSWER_LENGTH + 1), PAD, dtype=np.int64)
    for row, p in zip(ids, problems, strict=True):
        text = p.problem + p.answer
        row[: len(text)] = [code[c] for c in text]
        row[len(text)] = EOS
    return ids


def noisy_batch(
    pools: list[NDArray[np.int64]], recipe: BaseRecipe, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(token ids, labels) of one batch, shapes (batch, tokens); labels are -100 on the prompt and the padding."""
    shares = np.array([TRAIN_SHARES[f] for f in FAMILIES])
    family = rng.choice(len(pools), size=recipe.batch, p=shares / shares.sum())
    ids = np.stack([pools[f][rng.integers(len(pools[f]))] for f in family])
    answer = (ids < 10) & (np.arange(ids.shape[1]) >= PROMPT_LENGTH)
    disturbed = (rng.random((recipe.batch, 1)) < recipe.noisy_labels) & (rng.random(ids.shape) < recipe.noise)
    ids = np.where(answer & disturbed, rng.integers(10, size=ids.shape), ids)
    labels = np.where((np.arange(ids.shape[1]) >= PROMPT_LENGTH) & (ids != PAD), ids, -100)
    return ids, labels


def train_base(
    out: Path,
    recipe: BaseRecipe | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Train a base from `recipe.seed` and save model, tokenizer and `recipe.json` to `out`.

    `progress(step, steps, loss)` is called after each step. On one machine the same seed gives the same weights.
    """
    recipe = recipe or BaseRecipe()
    pools = [encode(arithmetic_problems((f,), "train")) for f in FAMILIES]
    rng = np.random.default_rng(recipe.seed)
    model = make_model(recipe)
    return fit(model, make_tokenizer(), recipe, lambda: noisy_batch(pools, recipe, rng), out, progress, device)


def fit(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    recipe: BaseRecipe,
    batch: Callable[[], tuple[NDArray[np.int64], NDArray[np.int64]]],
    out: Path,
    progress: Callable[[int, int, float], None] | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """`recipe.steps` AdamW steps of maximum likelihood on what `batch` gives; saves all to `out`."""
    import torch

    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.99), weight_decay=0.01)
    start = time.monotonic()
    loss_value = float("nan")
    for step in range(1, recipe.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr * min(1.0, step / recipe.warmup)
        ids, labels = batch()
        loss = model(input_ids=torch.from_numpy(ids).to(device), labels=torch.from_numpy(labels).to(device)).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss_value = float(loss.detach())
        if progress:
            progress(step, recipe.steps, loss_value)
    info = {
        "recipe": asdict(recipe),
        "parameters": sum(p.numel() for p in model.parameters()),
        "final_loss": loss_value,
        "seconds": round(time.monotonic() - start, 1),
        "provenance": provenance(),
    }
    out.mkdir(parents=True, exist_ok=True)
    model.cpu().eval().save_pretrained(out)
    tokenizer.save_pretrained(out)
    write_json(out / "recipe.json", info)
    return info
