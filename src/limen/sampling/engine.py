"""The engine, tokenizer and template that the settings name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from limen.config import SampleSettings
from limen.engines.protocol import Engine
from limen.problems.prompt import Template, load_template


def make_engine(settings: SampleSettings) -> Engine:
    """Load the model, find the servers, or join the cluster. Raises `ModelError`."""
    if settings.ray:
        from limen.engines.ray_cluster import RayEngine

        return RayEngine.start(settings)
    return local_engine(settings)


@contextmanager
def opened(settings: SampleSettings, engine: Engine | None = None) -> Iterator[Engine]:
    """The engine that is given, or one of the settings', whose workers end with the block."""
    if engine is not None:
        yield engine
        return
    with closing(make_engine(settings)) as made:
        yield made


@contextmanager
def closing(engine: Engine) -> Iterator[Engine]:
    """End an engine's workers, where it has any, with the block."""
    try:
        yield engine
    finally:
        close = getattr(engine, "close", None)
        if close is not None:
            close()


def local_engine(settings: SampleSettings) -> Engine:
    """The engine in this process (vLLM: in processes of this machine)."""
    if settings.engine == "vllm":
        from limen.engines.vllm import open_vllm

        return open_vllm(settings)
    if settings.engine == "http":
        from limen.engines.http import HTTPEngine

        return HTTPEngine(
            settings.model,
            settings.url,
            settings.api,
            find_tokenizer(settings, None),
            settings.concurrency,
            timeout=settings.timeout,
        )
    if settings.gpus is not None and settings.gpus > 1:
        from limen.engines.processes import spread_over_gpus

        return spread_over_gpus(settings, settings.gpus)
    from limen.engines.hf import TransformersEngine
    from limen.models import load_model

    loaded = load_model(settings.model, settings.device, settings.dtype, settings.trust_remote_code)
    return TransformersEngine(loaded, settings.batch_size, settings.logprobs, settings.decoding)


def find_tokenizer(settings: SampleSettings, engine: Engine | None) -> Any:
    """What prompts are tokenised with: the engine's own, the one that is named, or the model's; None: a server's."""
    own = getattr(engine, "tokenizer", None)
    if own is not None:
        return own
    if settings.engine == "http" and settings.tokenizer is None:
        return None
    from limen.models import load_tokenizer

    return load_tokenizer(settings.tokenizer or settings.model, settings.trust_remote_code)


def prompt_tokenizer(settings: SampleSettings, engine: Engine | None) -> Any:
    """What prompts are rendered with. None over a chat API: the server's own chat template is put on there, and a
    prompt that has been through the tokenizer's would have it twice."""
    chat = settings.engine == "http" and settings.api == "chat"
    return None if chat or getattr(engine, "api", None) == "chat" else find_tokenizer(settings, engine)


def make_template(settings: SampleSettings) -> Template:
    """The template; `auto` over a chat API is a user's turn, and without a tokenizer the bare problem."""
    name = settings.template
    if name == "auto" and settings.engine == "http":
        if settings.api == "chat":
            name = "chat"
        elif settings.tokenizer is None:
            name = "plain"
    return load_template(name)
