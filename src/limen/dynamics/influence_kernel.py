"""K_ij = <∇ log π(y_i|x_i), P ∇ log π(y'_j|x'_j)> between training samples and probe pairs (RBP prop. 3.1, eq. 17).

P is the identity for a plain gradient step (the paper's form), and Adam's preconditioner for an Adam step
(`limen.dynamics.influence_adam`). Exact where the training gradients fit into memory, by a count sketch with a stated
error beyond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from limen.dynamics.influence_gradients import Gradients, Pair
from limen.dynamics.sketch import CountSketch, standard_error
from limen.engines.batching import available_memory

EXACT_BYTES = {"cpu": 2 << 30, "cuda": 48 << 30}
"""Gradients that are kept whole, unless the caller says."""
SKETCH_WIDTH = 1 << 18
PART = 1 << 16
"""Columns that are summed in float32 at one time."""


@dataclass(frozen=True)
class Kernel:
    """`k_NM`: training samples × probe pairs; `train_norm_N`, `probe_norm_M`: √<g, P g>; all float64, on the CPU.

    `width`: of the sketch, 0 where exact. `along`: exact <vector, ∇_j> (M,) of the vectors that were asked for.
    `train_rows`, `probe_rows`: √P-scaled gradients or their sketches, where they were kept.
    """

    k_NM: Tensor
    train_norm_N: Tensor
    probe_norm_M: Tensor
    width: int = 0
    along: Mapping[str, Tensor] = field(default_factory=dict)
    train_rows: Tensor | None = None
    probe_rows: Tensor | None = None

    @property
    def error_NM(self) -> Tensor:
        """Bound on the standard error of each entry that the sketch causes; 0 where the kernel is exact."""
        if not self.width:
            return torch.zeros_like(self.k_NM)
        return standard_error(self.train_norm_N, self.probe_norm_M, self.k_NM, self.width)

    def gram(self) -> Tensor:
        """<o_i, o_j> over training samples and probe pairs together (N+M, N+M): eq. 17's matrix, float64."""
        assert self.train_rows is not None, "rows were not kept"
        assert self.probe_rows is not None, "rows were not kept"
        return gram(torch.cat([self.train_rows, self.probe_rows]))


def influence_kernel(
    gradients: Gradients,
    train: Sequence[Pair],
    probe: Sequence[Pair],
    scale_D: Tensor | None = None,
    sketch: int | None = None,
    vectors: Mapping[str, Tensor] | None = None,
    exact_bytes: int | None = None,
    keep_rows: bool = True,
    seed: int = 0,
) -> Kernel:
    """The kernel between `train` (N) and `probe` (M).

    scale_D: diagonal of P, positive; None: the identity. sketch: its width k; 0: exact; None: exact if the training
    gradients take at most `exact_bytes`, else k = 262,144. vectors: directions (D,) whose inner product with every
    probe gradient is wanted exactly. keep_rows: keep what `gram` needs (exact: only where both sides fit).
    """
    device = gradients.device
    limit = exact_limit(device) if exact_bytes is None else exact_bytes
    bytes_each = gradients.size * gradients.dtype.itemsize
    width = (0 if len(train) * bytes_each <= limit else SKETCH_WIDTH) if sketch is None else sketch
    keep = keep_rows and bool(width or (len(train) + len(probe)) * bytes_each <= limit)
    project = CountSketch(gradients.size, width, seed, device) if width else None
    root_D = None if scale_D is None else scale_D.to(device, gradients.dtype).sqrt()
    vectors_VD = torch.stack([v.to(device, gradients.dtype) for v in vectors.values()]) if vectors else None

    train_NR = torch.empty(len(train), width or gradients.size, dtype=gradients.dtype, device=device)
    for places, rows_BD in gradients.blocks(train):
        train_NR[places] = _feature(rows_BD, root_D, project)
    k_NM = torch.zeros(len(train), len(probe), dtype=torch.float64)
    norm_M = torch.zeros(len(probe), dtype=torch.float64)
    along_VM = torch.zeros(len(vectors or ()), len(probe), dtype=torch.float64)
    probe_MR = torch.empty(len(probe), train_NR.shape[1], dtype=gradients.dtype, device=device) if keep else None
    for places, rows_BD in gradients.blocks(probe):
        if vectors_VD is not None:
            along_VM[:, places] = products(vectors_VD, rows_BD)
        feature_BR = _feature(rows_BD, root_D, project)
        k_NM[:, places] = products(train_NR, feature_BR)
        norm_M[places] = norms(feature_BR)
        if probe_MR is not None:
            probe_MR[places] = feature_BR
    norm_N = norms(train_NR)
    along = dict(zip(vectors or {}, along_VM, strict=True))
    return Kernel(k_NM, norm_N, norm_M, width, along, train_NR if keep else None, probe_MR)


def exact_limit(device: torch.device) -> int:
    """Bytes of gradients that may be kept whole on this device."""
    most = EXACT_BYTES.get(device.type, 2 << 30)
    return min(most, available_memory(device) // 2) if device.type == "cuda" else most


def gradient_rows(
    gradients: Gradients, pairs: Sequence[Pair], scale_D: Tensor | None = None, sketch: int = 0, seed: int = 0
) -> Tensor:
    """√P-scaled gradients (N, D) of the pairs, or their sketches (N, k)."""
    project = CountSketch(gradients.size, sketch, seed, gradients.device) if sketch else None
    root_D = None if scale_D is None else scale_D.to(gradients.device, gradients.dtype).sqrt()
    out_NR = torch.empty(len(pairs), sketch or gradients.size, dtype=gradients.dtype, device=gradients.device)
    for places, rows_BD in gradients.blocks(pairs):
        out_NR[places] = _feature(rows_BD, root_D, project)
    return out_NR


def gram(rows_NR: Tensor) -> Tensor:
    """Inner products of rows (N, N), float64 on the CPU."""
    return products(rows_NR, rows_NR)


def products(a_NR: Tensor, b_MR: Tensor) -> Tensor:
    """Inner products (N, M), float64 on the CPU. Over 10^8 numbers a float32 sum is off by a percent on the CPU, so
    parts of the rows are summed in float64."""
    out_NM = torch.zeros(len(a_NR), len(b_MR), dtype=torch.float64, device=a_NR.device)
    for a_NC, b_MC in zip(a_NR.split(PART, dim=1), b_MR.split(PART, dim=1), strict=True):
        out_NM += a_NC @ b_MC.T
    return out_NM.cpu()


def norms(rows_NR: Tensor) -> Tensor:
    """Norms (N,), float64 on the CPU, summed in float64."""
    return torch.stack([torch.linalg.vector_norm(row_R, dtype=torch.float64) for row_R in rows_NR]).cpu()


def _feature(rows_BD: Tensor, root_D: Tensor | None, project: CountSketch | None) -> Tensor:
    if root_D is not None:
        rows_BD = rows_BD * root_D
    return rows_BD if project is None else project(rows_BD)
