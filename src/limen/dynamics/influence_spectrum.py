"""How entangled gradients are: spectrum and effective rank of the kernel matrix (RBP app. C.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from limen.errors import DataError


@dataclass(frozen=True)
class Spectrum:
    """`eigenvalue_R`: of the kernel matrix, largest first, rounding below 0 cut off.

    `effective_rank`: exp of the entropy of the eigenvalues' shares (Roy & Vetterli 2007), between 1 and n;
    `participation`: (Σλ)² / Σλ²; `top_share`: of the largest; `mean_cosine`: mean off-diagonal cosine; `effective_rank
    _cosine`: of the matrix of cosines, in which every pair has the same weight however large its gradient.
    """

    eigenvalue_R: NDArray[np.float64]
    effective_rank: float
    participation: float
    top_share: float
    mean_cosine: float
    effective_rank_cosine: float

    def to_json(self, most: int = 64) -> dict[str, Any]:
        return {
            "n": len(self.eigenvalue_R),
            "effective_rank": self.effective_rank,
            "effective_rank_cosine": self.effective_rank_cosine,
            "participation": self.participation,
            "top_share": self.top_share,
            "mean_cosine": self.mean_cosine,
            "eigenvalues": self.eigenvalue_R[:most].tolist(),
        }


def spectrum(gram_NN: Tensor) -> Spectrum:
    """Spectrum of a kernel matrix (N, N), symmetric and positive semidefinite up to rounding."""
    values_NN = gram_NN.double().numpy()
    if len(values_NN) < 2:
        raise DataError(f"a spectrum needs at least two pairs, came {len(values_NN)}")
    values_NN = (values_NN + values_NN.T) / 2
    norm_N = np.sqrt(np.clip(np.diag(values_NN), 1e-300, None))
    cosine_NN = values_NN / norm_N / norm_N[:, None]
    off = ~np.eye(len(values_NN), dtype=bool)
    value_R = _eigenvalues(values_NN)
    total = value_R.sum()
    return Spectrum(
        eigenvalue_R=value_R,
        effective_rank=effective_rank(value_R),
        participation=float(total**2 / (value_R**2).sum()) if total else float("nan"),
        top_share=float(value_R[0] / total) if total else float("nan"),
        mean_cosine=float(cosine_NN[off].mean()),
        effective_rank_cosine=effective_rank(_eigenvalues(cosine_NN)),
    )


def effective_rank(value_R: NDArray[np.float64]) -> float:
    """exp(-Σ p ln p), p = λ / Σλ. NaN where all are 0."""
    total = value_R.sum()
    if not total > 0:
        return float("nan")
    p_R = value_R[value_R > 0] / total
    return float(np.exp(-(p_R * np.log(p_R)).sum()))


def _eigenvalues(matrix_NN: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(np.linalg.eigvalsh(matrix_NN)[::-1], 0.0, None)
