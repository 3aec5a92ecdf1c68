"""A Johnson–Lindenstrauss sketch of long vectors that costs one pass over them whatever its width: the count sketch.

    S: R^D -> R^k,  (Sx)_b = Σ_{i: h(i) = b} s(i) x_i,   h uniform on 0..k-1, s uniform on ±1

(Charikar, Chen, Farach-Colton 2002; Weinberger et al. 2009.) Inner products are kept without bias:

    E <Sx, Sy> = <x, y>,   Var <Sx, Sy> = (‖x‖²‖y‖² + <x,y>² - 2 Σ x_i² y_i²) / k  <=  (‖x‖²‖y‖² + <x,y>²) / k

so an entry of a kernel is off by more than t standard errors with probability below 1/t² (Chebyshev), over the draw
of h and s. A dense Gaussian projection has the same variance bound and costs k times more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from limen.errors import ConfigError
from limen.types import derive_seed


class CountSketch:
    """`size` numbers to `width`. h and s depend on (seed, size, width) alone, not on the device."""

    def __init__(self, size: int, width: int, seed: int = 0, device: torch.device | str = "cpu") -> None:
        if width < 1:
            raise ConfigError(f"sketch width is {width}: give at least 1 (262144 is a good start)")
        generator = torch.Generator().manual_seed(derive_seed(seed, "sketch", size, width))
        self.size, self.width = size, width
        self.bucket_D = torch.randint(width, (size,), generator=generator, dtype=torch.int32).to(device)
        self.sign_D = (torch.randint(2, (size,), generator=generator, dtype=torch.int8) * 2 - 1).to(device)

    def __call__(self, rows_BD: Tensor) -> Tensor:
        """Sketches (B, k) of rows (B, D), in the rows' dtype."""
        out_Bk = torch.zeros(len(rows_BD), self.width, dtype=rows_BD.dtype, device=rows_BD.device)
        for row_D, out_k in zip(rows_BD, out_Bk, strict=True):
            out_k.index_add_(0, self.bucket_D, row_D * self.sign_D)
        return out_Bk


def standard_error(norm_N: Tensor, norm_M: Tensor, product_NM: Tensor, width: int) -> Tensor:
    """Bound on the standard error of each sketched inner product, (N, M), from the norms and products themselves."""
    squares_NM = norm_N[:, None].square() * norm_M[None].square() + product_NM.square()
    return (squares_NM / width).sqrt()
