"""A randomly initialised tiny Llama with a character tokenizer, and arithmetic rows, for the training tests."""

from __future__ import annotations

from collections import Counter

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHARS = ["<pad>", "</s>", *"0123456789+*="]


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    raw = Tokenizer(models.WordLevel({c: i for i, c in enumerate(CHARS)}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    raw.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", padding_side="left")


def tiny_model(seed: int = 0, width: int = 32, layers: int = 2) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(CHARS), hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True,
        pad_token_id=0, eos_token_id=1, bos_token_id=None, attention_dropout=0.0,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def rows(n: int = 64) -> list[dict[str, str]]:
    """Sums of one-digit numbers below 5 (one-digit answers), as text prompts."""
    out = []
    for i in range(n):
        a, b = i % 10, i // 10 % 10
        out.append({"prompt": f"{a}+{b}=", "answer": str((a + b) % 10), "problem_id": f"p{i}"})
    return out


def warm(model: LlamaForCausalLM, data: list[dict[str, str]], steps: int, seed: int = 0, lr: float = 3e-3) -> None:
    """A few supervised steps, so that some answers are right and most are not."""
    tok = tiny_tokenizer()
    generator = torch.Generator().manual_seed(seed)
    ids = torch.tensor([[*tok.encode(r["prompt"] + r["answer"]), 1] for r in data])
    opt = torch.optim.AdamW(model.parameters(), lr=lr)
    for _ in range(steps):
        batch = ids[torch.randint(len(ids), (32,), generator=generator)]
        labels = batch.clone()
        labels[:, :4] = -100
        loss = model(input_ids=batch, labels=labels).loss
        loss.backward()
        opt.step()
        opt.zero_grad()


def digit_reward(completions, answer, **kwargs):
    """1 where the first character is the answer."""
    return [float(c[:1] == a) for c, a in zip(completions, answer)]


def config(out, **kwargs):
    from limen.train import SELFConfig

    values = {
        "output_dir": str(out), "per_device_train_batch_size": 32, "gradient_accumulation_steps": 1,
        "num_generations": 4, "max_completion_length": 3, "max_steps": 3, "learning_rate": 1e-3,
        "lr_scheduler_type": "constant", "use_cpu": True, "bf16": False, "gradient_checkpointing": False,
        "report_to": "none", "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True, "loss_type": "dapo",
        "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 1, "data_seed": 1, "optim": "adamw_torch",
    }  # fmt: skip
    values.update(kwargs)
    return SELFConfig(**values)


def trainer(out, model=None, data=None, reward=digit_reward, **kwargs):
    from datasets import Dataset
    from transformers import PrinterCallback

    from limen.train import SELFTrainer

    extra = {k: kwargs.pop(k) for k in ("verifier", "callbacks", "peft_config") if k in kwargs}
    made = SELFTrainer(
        model=model if model is not None else tiny_model(),
        reward_funcs=reward,
        args=config(out, **kwargs),
        train_dataset=Dataset.from_list(data if data is not None else rows()),
        processing_class=tiny_tokenizer(),
        **extra,
    )
    made.remove_callback(PrinterCallback)
    return made


BATCH = [
    {"prompt": "1+1=", "answer": "2", "problem_id": "a"},
    {"prompt": "1+2=", "answer": "3", "problem_id": "b"},
    {"prompt": "1+3=", "answer": "4", "problem_id": "c"},
    {"prompt": "1+4=", "answer": "5", "problem_id": "d"},
]
GREEDY = {"1+1=": "9$", "1+2=": "3$", "1+3=": "9$", "1+4=": "9$"}
SAMPLES = {
    "1+1=": ["2$", "0$", "11$", "12$"],  # right, wrong x3: lengths 2, 2, 3, 3
    "1+2=": ["3$", "0$", "0$", "0$"],
    "1+3=": ["0$", "0$", "0$", "0$"],  # no spread: inactive
    "1+4=": ["5$", "0$", "7$", "00$"],  # right, wrong, unjudged (holds a 7), wrong: lengths 2, 2, 2, 3
}


def judge_but_7(completions, answer, **kwargs):
    """1 where right, 0 where wrong, unjudged where the response holds a 7."""
    return [None if "7" in c else float(c == a) for c, a in zip(completions, answer)]


def scripted(made, greedy, samples, put=setattr):
    """Put fixed greedy answers and samples (texts by prompt; `$` ends) in the place of the model's own."""
    from limen.train import screening

    tok = tiny_tokenizer()
    seen: Counter[str] = Counter()

    def ids(text):
        return [1 if c == "$" else tok.convert_tokens_to_ids(c) for c in text]

    def turn(self, prompt_ids, *args, **kwargs):
        out = []
        for text in map(tok.decode, prompt_ids):
            out.append(ids(samples[text][seen[text] % len(samples[text])]))
            seen[text] += 1
        return out, None

    put(screening, "_greedy_transformers", lambda t, prompts: [ids(greedy[tok.decode(p)]) for p in prompts])
    put(type(made).__mro__[1], "_generate_single_turn", turn)


def keep_gradients(made, put=setattr):
    """List that gets the gradient after each backward pass, before clipping."""
    got: list[torch.Tensor] = []
    original = type(made).training_step

    def keep(self, *args, **kwargs):
        loss = original(self, *args, **kwargs)
        policy = self.accelerator.unwrap_model(self.model)
        got.append(torch.cat([p.grad.flatten().clone() for p in policy.parameters() if p.grad is not None]))
        return loss

    put(type(made), "training_step", keep)
    return got


def scripted_trainer(out, micro, options, put=setattr):
    """A trainer on `BATCH` with fixed responses, all greedy ones right from the second step on; and its gradients."""
    made = trainer(
        out, tiny_model(3), BATCH, judge_but_7, per_device_train_batch_size=micro, max_grad_norm=1e9,
        shuffle_dataset=False, **options,
    )  # fmt: skip
    greedy = dict(GREEDY)
    right = {r["prompt"]: r["answer"] + "$" for r in BATCH}
    made.listeners.append(lambda step, total, metrics: greedy.update(right))
    scripted(made, greedy, SAMPLES, put)
    return made, keep_gradients(made, put)
