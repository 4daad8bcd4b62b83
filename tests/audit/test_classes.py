"""The operators of a reference give its class."""

from __future__ import annotations

import pytest

from assay.audit.classes import CLASSES, classify


@pytest.mark.parametrize(("operators", "expected"), [
    ("bmm mul masked_fill _softmax amax exp sum div bmm", "attention"),
    ("_scaled_dot_product_flash_attention_for_cpu", "attention"),
    ("convolution relu", "conv"),
    ("addmm mm add gelu", "matmul"),
    ("mm _softmax", "matmul"),
    ("cumsum", "scan"),
    ("native_layer_norm var_mean rsqrt mul", "norm"),
    ("pow mean add rsqrt mul", "norm"),
    ("linalg_vector_norm pow sum clamp_min div", "norm"),
    ("linalg_vector_norm pow sum", "reduction"),
    ("_softmax amax sub exp sum div", "softmax"),
    ("_log_softmax amax sub exp sum log nll_loss_forward gather neg", "loss"),
    ("avg_pool2d", "pooling"),
    ("topk", "sort"),
    ("sum", "reduction"),
    ("embedding", "indexing"),
    ("add silu sigmoid mul", "elementwise"),
    ("", "unknown"),
])
def test_class(operators: str, expected: str) -> None:
    names = operators.split()
    assert classify({name: names.count(name) for name in names}) == expected
    assert expected in CLASSES
