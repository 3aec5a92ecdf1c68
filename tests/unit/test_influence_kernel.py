"""The kernel against closed forms, finite differences and itself; the sketch against its stated error."""

import numpy as np
import pytest
import torch

from influence_models import PROBE, TRAIN, Stubborn, Table, pair, table_gradient
from limen.dynamics.influence_gradients import Gradients
from limen.dynamics.influence_kernel import gradient_rows, gram, influence_kernel, norms, products
from limen.dynamics.influence_spectrum import effective_rank, spectrum
from limen.dynamics.sketch import CountSketch, standard_error
from limen.errors import ConfigError, DataError, ModelError


@pytest.mark.parametrize("reduce", ["mean", "sum"])
@pytest.mark.parametrize("policy", [Table, Stubborn])
def test_k_is_the_inner_product_of_gradients_by_hand(reduce, policy):
    model = policy()
    gradients = Gradients(model, reduce)
    kernel = influence_kernel(gradients, TRAIN, PROBE)
    rows = [[table_gradient(model.w.detach(), p, reduce == "mean") for p in part] for part in (TRAIN, PROBE)]
    want = torch.stack(rows[0]) @ torch.stack(rows[1]).T
    assert torch.allclose(kernel.k_NM, want, atol=1e-12)
    assert torch.allclose(kernel.train_norm_N, torch.stack(rows[0]).norm(dim=1), atol=1e-12)
    assert torch.allclose(kernel.gram(), torch.cat([torch.stack(r) for r in rows]) @ torch.cat(
        [torch.stack(r) for r in rows]).T, atol=1e-12)  # fmt: skip
    assert kernel.width == 0
    assert not kernel.error_NM.any()
    assert gradients.vmaps is (policy is Table)


def test_one_step_of_a_table_by_hand():
    """Two actions, uniform: ∇ log π(0) = (1/2, -1/2), so K = 1/2 with itself and -1/2 with the other action."""
    model = Table(2)
    torch.nn.init.zeros_(model.w)
    zero, one = pair("0", (0,), (0,)), pair("1", (0,), (1,))
    kernel = influence_kernel(Gradients(model), [zero], [zero, one])
    assert kernel.k_NM.tolist() == [[0.5, -0.5]]


def test_a_diagonal_metric_weighs_each_parameter():
    model = Table()
    scale = torch.rand(25, dtype=torch.float64) + 0.1
    kernel = influence_kernel(Gradients(model), TRAIN, PROBE, scale_D=scale)
    rows = [torch.stack([table_gradient(model.w.detach(), p) for p in part]) for part in (TRAIN, PROBE)]
    assert torch.allclose(kernel.k_NM, (rows[0] * scale) @ rows[1].T, atol=1e-12)


def test_vectors_are_taken_along_exactly():
    model, gradients = Table(), Gradients(Table())
    vector = torch.randn(25, dtype=torch.float64)
    kernel = influence_kernel(gradients, TRAIN, PROBE, sketch=64, vectors={"v": vector})
    want = torch.stack([table_gradient(model.w.detach(), p) for p in PROBE]) @ vector
    assert torch.allclose(kernel.along["v"], want, atol=1e-12)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_k_agrees_with_finite_differences(family):
    """(log π_j(θ + ε ∇_i) - log π_j(θ - ε ∇_i)) / 2ε."""
    from engine_models import random_model

    model = random_model(family, sharpness=1.0).model.double()
    gradients = Gradients(model)
    train, probe = (
        [pair("a", (2, 3), (4, 5, 1)), pair("b", (6,), (7, 1))],
        [pair("c", (2, 5), (6, 1)), pair("d", (9,), (2, 3, 4))],
    )
    kernel = influence_kernel(gradients, train, probe)
    rows, eps = gradient_rows(gradients, train), 1e-6 if family == "gpt2" else 1e-4
    for i in range(2):
        ends = []
        for sign in (1, -1):
            _move(gradients, sign * eps * rows[i])
            ends.append(gradients.logprobs(probe))
            _move(gradients, -sign * eps * rows[i])
        # llama's norm computes in float32 whatever its weights are, so differences are rougher there
        tolerance = 1e-5 if family == "gpt2" else 2e-3
        assert torch.allclose((ends[0] - ends[1]) / (2 * eps), kernel.k_NM[i], rtol=tolerance, atol=tolerance)


def _move(gradients, by):
    at = 0
    with torch.no_grad():
        for p in gradients.params.values():
            p += by[at : at + p.numel()].view_as(p)
            at += p.numel()


def test_vmap_and_one_by_one_agree_on_the_tiny_model_whatever_the_block():
    from limen.models import load_model

    model = load_model("tiny", "cpu").model  # input and output embedding are one matrix
    pairs = [pair(str(i), (5, 6, 7, 8, 9, 10), (3 + i % 7,) * (1 + i % 4)) for i in range(9)]
    gradients = Gradients(model)
    assert gradients.size == 334_080
    assert sum(p.numel() for p in gradients.params.values()) == gradients.size
    vmapped = gradient_rows(gradients, pairs)
    assert gradients.vmaps
    gradients.vmaps = False
    one_by_one = gradient_rows(gradients, pairs)
    assert torch.allclose(vmapped, one_by_one, atol=1e-4 * float(one_by_one.abs().max()))
    small = gradient_rows(Gradients(model, block_bytes=1), pairs)
    assert torch.allclose(vmapped, small, atol=1e-4 * float(one_by_one.abs().max()))
    weight = torch.arange(9.0)
    assert torch.allclose(gradients.total(pairs, weight), weight @ one_by_one, atol=1e-3)


def test_what_has_no_gradient_is_refused():
    with pytest.raises(ModelError, match="empty prompt or response"):
        influence_kernel(Gradients(Table()), [pair("a", (1,), ())], PROBE)
    with pytest.raises(ModelError, match="no trainable parameters"):
        Gradients(Table().requires_grad_(False))


def test_the_sketch_is_unbiased_and_as_wrong_as_it_says():
    """Over many draws: mean error within 4 standard errors of 0; variance as the closed form says, below the bound."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(2, 300, generator=generator, dtype=torch.float64) for _ in range(2))
    y = y + 0.5 * x
    exact, width, draws = x @ y.T, 40, 3000
    errors = torch.stack([(s(x) @ s(y).T) - exact for s in (CountSketch(300, width, seed=i) for i in range(draws))])
    squares = x.square() @ y.square().T
    variance = (x.norm(dim=1)[:, None] ** 2 * y.norm(dim=1)[None] ** 2 + exact**2 - 2 * squares) / width
    assert (errors.mean(0).abs() < 4 * (variance / draws).sqrt()).all()
    assert torch.allclose(errors.var(0), variance, rtol=0.12)
    stated = standard_error(x.norm(dim=1), y.norm(dim=1), exact, width)
    assert (variance <= stated**2).all()
    assert ((errors.abs() > 3 * stated).double().mean(0) < 1 / 9).all()


def test_a_sketched_kernel_lies_inside_its_stated_error():
    from limen.models import load_model

    rng = np.random.default_rng(0)
    pairs = [pair(str(i), rng.integers(3, 13, 6).tolist(), rng.integers(3, 13, 4).tolist()) for i in range(24)]
    gradients = Gradients(load_model("tiny", "cpu").model)
    exact = influence_kernel(gradients, pairs[:8], pairs[8:], sketch=0)
    rough = influence_kernel(gradients, pairs[:8], pairs[8:], sketch=4096)
    z = (rough.k_NM - exact.k_NM) / rough.error_NM
    assert 0.5 < float(z.square().mean().sqrt()) < 1.5
    assert float((z.abs() > 3).double().mean()) < 1 / 9
    again = influence_kernel(gradients, pairs[:8], pairs[8:], exact_bytes=1)  # does not fit: a sketch by itself
    assert again.width == 262_144
    assert float((again.k_NM - exact.k_NM).abs().max()) < 5 * float(again.error_NM.max())


def test_a_sketch_keeps_single_coordinates_and_depends_on_its_seed_only():
    sketch = CountSketch(10, 1000, seed=3)
    one = torch.eye(10)
    assert torch.equal(sketch(one).norm(dim=1), torch.ones(10))
    assert torch.equal(sketch(one), CountSketch(10, 1000, seed=3)(one))
    assert not torch.equal(sketch(one), CountSketch(10, 1000, seed=4)(one))
    with pytest.raises(ConfigError, match="width is 0"):
        CountSketch(10, 0)


@pytest.mark.parametrize(
    ("eigenvalues", "rank"),
    [([1, 1, 1, 1], 4), ([5, 0, 0], 1), ([3, 1], 4 / 3**0.75), ([2, 2, 0], 2)],
)
def test_effective_rank_has_these_closed_forms(eigenvalues, rank):
    assert effective_rank(np.array(eigenvalues, dtype=float)) == pytest.approx(rank, rel=1e-12)


def test_a_spectrum_by_hand():
    rows = torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    s = spectrum(gram(rows))
    assert s.eigenvalue_R == pytest.approx([9, 2, 0], abs=1e-12)
    assert s.top_share == pytest.approx(9 / 11)
    assert s.participation == pytest.approx(121 / 85)
    assert s.mean_cosine == pytest.approx(1 / 3)  # one of three pairs is parallel, the others are at right angles
    p = np.array([1, 2]) / 3
    assert s.effective_rank_cosine == pytest.approx(np.exp(-(p * np.log(p)).sum()))
    with pytest.raises(DataError, match="at least two"):
        spectrum(torch.ones(1, 1))


def test_sums_over_many_parameters_keep_their_digits():
    """A plain float32 sum over 3e7 numbers is off by far more than this on the CPU."""
    x = torch.full((1, 30_000_000), 0.1)
    y = torch.full((1, 30_000_000), 0.3)
    assert float(products(x, y)) == pytest.approx(30_000_000 * 0.03, rel=5e-5)
    assert float(norms(x)) == pytest.approx(0.1 * 30_000_000**0.5, rel=1e-6)
