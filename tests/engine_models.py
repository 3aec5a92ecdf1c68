"""Small random models of several families, and a tokenizer for them."""

import torch

from limen.models import LoadedModel

VOCABULARY = 12
EOS = 1


class Letters:
    """Token i is a letter; token 0 pads, 1 ends."""

    eos_token_id = EOS
    chat_template = None
    letters = "\0\0abcdefghij"

    def __len__(self):
        return VOCABULARY

    def encode(self, text, add_special_tokens=True):
        return [self.letters.index(c) for c in text]

    def decode(self, ids, **options):
        return "".join(self.letters[i] for i in ids if i > 1)

    def batch_decode(self, rows, **options):
        return [self.decode(row) for row in rows]


SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "eos_token_id": EOS,
    "bos_token_id": None,
    "pad_token_id": 0,
}


def _llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**SIZE))


def _qwen2():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(Qwen2Config(**SIZE))


def _sliding():
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(MistralConfig(**SIZE, sliding_window=4))


def _softcap():
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(**SIZE, head_dim=8, sliding_window=4, final_logit_softcapping=2.0)
    config._attn_implementation = "eager"
    return Gemma2ForCausalLM(config)


def _gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4, eos_token_id=EOS)
    )


def _bloom():
    from transformers import BloomConfig, BloomForCausalLM

    return BloomForCausalLM(BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4, eos_token_id=EOS))


def _hybrid():
    from transformers import Lfm2Config, Lfm2ForCausalLM

    return Lfm2ForCausalLM(Lfm2Config(**SIZE, layer_types=["conv", "full_attention"]))


def _mamba():
    from transformers import MambaConfig, MambaForCausalLM

    return MambaForCausalLM(
        MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4, eos_token_id=EOS)
    )


FAMILIES = {
    "llama": _llama,
    "qwen2": _qwen2,
    "sliding": _sliding,
    "softcap": _softcap,
    "gpt2": _gpt2,
    "bloom": _bloom,
    "hybrid": _hybrid,
    "mamba": _mamba,
}


def random_model(family="llama", seed=0, sharpness=3.0):
    """A `LoadedModel` whose next-token distribution depends strongly on what came before."""
    torch.manual_seed(seed)
    model = FAMILIES[family]().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "A_log" not in name:
                parameter.copy_(torch.randn_like(parameter) * sharpness / parameter.shape[1] ** 0.5)
    return LoadedModel(model, Letters(), family)
