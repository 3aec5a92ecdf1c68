"""A model between two: each weight a share of the way from the base to a policy trained from it.

Training that lost coverage has moved the weights; part of the way back may keep the gain at pass@1 and have the
coverage again. Known as WiSE-FT (Wortsman et al. 2022, arXiv 2109.01903); Dang et al. 2025 (arXiv 2504.10478) do it to
language models after supervised fine-tuning, for pass@k.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from limen.errors import ConfigError, ModelError

RECORD = "interpolation.json"
"""What a folder made here says of its origin."""


def interpolate(
    base: str | Path,
    policy: str | Path,
    share: float,
    out: str | Path,
    dtype: str | None = None,
    trust_remote_code: bool = False,
) -> Path:
    """Write (1 - share) · base + share · policy into the folder `out`, with the policy's tokenizer; returns the folder.

    base, policy: models as `load_model` takes them, of one architecture and vocabulary; a LoRA adapter is put into its
        base first.
    share: in [0, 1]; 0 is the base, 1 the policy.
    dtype: of the weights written, the policy's own if not said. Sums are taken in float32.

    Both models are in memory at once. Raises `ConfigError` for another share or a folder that holds something,
    `ModelError` where the models do not fit together. The folder appears whole or not at all.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share {share}: expected a number between 0 (the base) and 1 (the policy)")
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{out} is there and not empty: give a new folder, or remove it")
    from safetensors import SafetensorError

    from limen.model_files import fingerprint
    from limen.models import load_model
    from limen.provenance import provenance
    from limen.store.writer import write_json

    kind = dtype or stored_dtype(policy, trust_remote_code)
    first, second = (load_model(m, "cpu", kind, trust_remote_code) for m in (base, policy))
    _same_vocabulary(first, second)
    mix(first.model, second.model, share)
    temp = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temp, ignore_errors=True)
    try:
        temp.parent.mkdir(parents=True, exist_ok=True)
        second.model.save_pretrained(temp)
        second.tokenizer.save_pretrained(temp)
        origin = {
            name: {"model": str(m), "weights": fingerprint(m)} for name, m in (("base", base), ("policy", policy))
        }
        write_json(temp / RECORD, {"share": share, **origin, "provenance": provenance()})
        if target.exists():
            target.rmdir()
        temp.rename(target)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temp, ignore_errors=True)
        raise ModelError(f"cannot write {out}: {error}") from error
    return target


def mix(base: Any, policy: Any, share: float) -> None:
    """Move the policy's weights (a torch module's) to `share` of their way from the base's, in place.

    Raises `ModelError` where the two have other tensors, shapes, or integers; nothing is changed then.
    """
    ours, theirs = base.state_dict(), policy.state_dict()
    odd = sorted(ours.keys() ^ theirs.keys())
    if odd:
        owner = "base" if odd[0] in ours else "policy"
        raise ModelError(f"only the {owner} has a tensor '{odd[0]}' ({len(odd)} such): expected one architecture")
    if _groups(ours) != _groups(theirs):
        raise ModelError("one of the models shares weights between tensors that the other has apart: tie both or none")
    for name, tensor in theirs.items():
        if ours[name].shape != tensor.shape:
            shapes = tuple(ours[name].shape), tuple(tensor.shape)
            raise ModelError(f"tensor '{name}' is {shapes[0]} in the base and {shapes[1]} in the policy")
        if not tensor.is_floating_point() and not bool((ours[name] == tensor).all()):
            raise ModelError(f"tensor '{name}' holds integers that differ: nothing lies between them")
    for name in {names[0] for names in _groups(theirs)}:
        tensor = theirs[name]
        if tensor.is_floating_point():
            tensor.copy_((1 - share) * ours[name].float() + share * tensor.float())


def _groups(state: dict[str, Any]) -> set[tuple[str, ...]]:
    """Names of tensors that are one in memory, together."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for name, tensor in state.items():
        found.setdefault((tensor.data_ptr(), tensor.shape) if tensor.numel() else (name,), []).append(name)
    return {tuple(sorted(names)) for names in found.values()}


def _same_vocabulary(first: Any, second: Any) -> None:
    ours, theirs = first.tokenizer.get_vocab(), second.tokenizer.get_vocab()
    if ours != theirs:
        odd = sorted(ours.items() ^ theirs.items())[:3]
        raise ModelError(
            f"{first.name} and {second.name} have different vocabularies ({len(ours)} and {len(theirs)} tokens, such "
            f"as {', '.join(repr(word) for word, _ in odd)}): only a model and what was trained from it can be mixed"
        )


def stored_dtype(model: str | Path, trust_remote_code: bool = False) -> str:
    """The type of a model's weights by its config: `float32`, `bfloat16` or `float16`; float32 if it is another."""
    from transformers import AutoConfig

    from limen.models import adapter_base, model_errors, resolve_model

    folder, _ = adapter_base(resolve_model(model))
    with model_errors(model):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    named = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    return named if named in ("float32", "bfloat16", "float16") else "float32"
