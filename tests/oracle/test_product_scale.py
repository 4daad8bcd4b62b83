"""The error scale of products against partial sums that are written out."""

import pytest
import torch

from assay.oracle.product_scale import convolution_scale, product_scale


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def walked(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """sqrt(Σ s_j²) over all partial sums of the products, the larger of both directions."""
    terms = a.unsqueeze(-1) * b
    sums = [t.cumsum(1).square().sum(1) for t in (terms, terms.flip(1))]
    return torch.maximum(*sums).sqrt()


@pytest.mark.parametrize("offset", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("shape", [(7, 500, 9), (3, 40, 5), (40, 1024, 300)])
def test_scale_is_that_of_the_partial_sums(shape: tuple[int, int, int], offset: float) -> None:
    m, k, n = shape
    a, b = draw(m, k) + offset, draw(k, n, seed=1) + offset
    ratio = product_scale(a, b, False) / walked(a, b)
    assert 0.95 < float(ratio.median()) < 1.6
    assert float(ratio.min()) > 0.75


def test_layout_and_batches_change_nothing() -> None:
    a, b = draw(3, 20, 200), draw(3, 200, 30, seed=1)
    together = product_scale(a, b, False)
    turned = product_scale(a.mT.contiguous().mT, b.mT.contiguous().mT, False)
    torch.testing.assert_close(turned, together, rtol=1e-4, atol=0.0)
    torch.testing.assert_close(product_scale(a[1], b[1], False), together[1], rtol=1e-4, atol=0.0)
    torch.testing.assert_close(product_scale(a[1, 0], b[1], False), together[1, 0], rtol=1e-4, atol=0.0)
    torch.testing.assert_close(product_scale(a[1], b[1, :, 0], False), together[1, :, 0], rtol=1e-4, atol=0.0)


def test_rows_that_vanish_in_float32_keep_their_scale() -> None:
    a, b = draw(6, 100), draw(100, 8, seed=1)
    expected = product_scale(a, b, False)
    sizes = torch.tensor([1.0, 1e-30, 1e-60, 1e-100, 1e30, 1e100], dtype=torch.float64).unsqueeze(-1)
    torch.testing.assert_close(product_scale(a * sizes, b, False), expected * sizes, rtol=1e-4, atol=0.0)


def test_zero_rows_have_no_error() -> None:
    a, b = draw(4, 100), draw(100, 8, seed=1)
    a[2] = 0.0
    assert bool((product_scale(a, b, False)[2] == 0.0).all())


def test_repeated_terms_are_granted_errors_of_one_sign() -> None:
    ones = torch.ones(2, 4096, dtype=torch.float64)
    assert float(product_scale(ones, ones.T, True).min()) > 5.0 * float(product_scale(ones, ones.T, False).max())


@pytest.mark.parametrize(("groups", "channels"), [(1, 40), (3, 30), (1, 3), (40, 40)])
def test_convolution_has_the_scale_of_its_unfolded_product(groups: int, channels: int) -> None:
    x, w = draw(2, channels, 6, 6), draw(2 * groups, channels // groups, 3, 3, seed=1)

    def convolve(u: torch.Tensor, v: torch.Tensor, parts: int) -> torch.Tensor:
        return torch.nn.functional.conv2d(u, v, groups=parts)

    scale = convolution_scale(x, w, groups, False, False, convolve)
    for group in range(groups):
        each = slice(group * channels // groups, (group + 1) * channels // groups)
        patches = torch.nn.functional.unfold(x[:, each], 3)
        rows = w[2 * group : 2 * group + 2].flatten(1)
        unfolded = product_scale(rows.expand(2, *rows.shape), patches, False).view(2, 2, 4, 4)
        ratio = scale[:, 2 * group : 2 * group + 2] / unfolded
        assert 0.8 < float(ratio.median()) < 1.25
