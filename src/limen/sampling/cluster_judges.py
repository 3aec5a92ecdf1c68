"""Verifying on a Ray cluster: one pool of killable workers on every node, behind the face of a local pool."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from limen.config import SampleSettings
from limen.engines.ray_cluster import join
from limen.types import Verdict
from limen.verify import JudgeItem, VerifierPool

log = logging.getLogger(__name__)


class NodeJudge:
    """What an actor is: a pool on its node."""

    def __init__(self, verifier: Any, workers: int | None, deadline: float) -> None:
        self.pool = VerifierPool(verifier, workers=workers, deadline=deadline)

    def judge(self, items: list[JudgeItem]) -> list[Verdict]:
        return self.pool.judge_many(items)


class ClusterJudges(VerifierPool):
    """A pool that deals what it is given to all nodes. What a lost node was given is judged here."""

    def __init__(self, verifier: Any, settings: SampleSettings) -> None:
        super().__init__(verifier, workers=settings.verify_workers, deadline=settings.verify_deadline)
        self._given = (verifier, settings.verify_workers, settings.verify_deadline)
        join(settings.ray_address, settings.workers)
        self._actors: dict[str, Any] = {}

    def judge_many(self, items: Iterable[JudgeItem]) -> list[Verdict]:
        """Verdicts in the order of the items, whichever node gave them."""
        import ray

        todo = list(items)
        actors = self._nodes()
        if not actors:
            return super().judge_many(todo)
        parts = [todo[i :: len(actors)] for i in range(len(actors))]
        refs = [a.judge.remote(part) if part else None for a, part in zip(actors.values(), parts, strict=True)]
        verdicts: list[Verdict | None] = [None] * len(todo)
        for i, (node, ref) in enumerate(zip(actors, refs, strict=True)):
            if ref is None:
                continue
            try:
                found = ray.get(ref)
            except ray.exceptions.RayTaskError:
                raise
            except ray.exceptions.RayError as error:
                log.warning("a node's verifier is lost (%s): judging here", type(error).__name__)
                self._actors.pop(node, None)
                found = super().judge_many(parts[i])
            verdicts[i :: len(actors)] = found
        return [v for v in verdicts if v is not None]

    def _nodes(self) -> dict[str, Any]:
        """An actor for every node that is alive now."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if not ray.is_initialized():
            return {}
        alive = [n["NodeID"] for n in ray.nodes() if n["Alive"]]
        for node in alive:
            if node not in self._actors:
                place = NodeAffinitySchedulingStrategy(node, soft=False)
                options = ray.remote(NodeJudge).options(num_cpus=0, scheduling_strategy=place)
                self._actors[node] = options.remote(*self._given)
        self._actors = {node: actor for node, actor in self._actors.items() if node in alive}
        return self._actors.copy()

    def close(self) -> None:
        import ray

        if ray.is_initialized():
            for actor in self._actors.values():
                ray.kill(actor)
        self._actors = {}
        super().close()
