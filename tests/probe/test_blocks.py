"""Block constants found in a candidate's text."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.probe.blocks import block_constants, launched_blocks

CASES = Path(__file__).parents[1] / "cases"


@pytest.mark.parametrize(
    ("source", "blocks"),
    [
        ("k[grid](x, BLOCK=128)", (128,)),
        ("k[grid](x, BLOCK_M=16, BLOCK_N=64, num_warps=8)", (16, 64)),
        ("BLOCK_SIZE = 256\nk[grid](x, BLOCK_SIZE)", (256,)),
        ("SIZE = 512\nk[grid](x, BLOCK=SIZE)", (512,)),
        ("class M:\n    block = 96\n", (96,)),
        ("self.block = 96", (96,)),
        ("triton.Config({'BLOCK_M': 32, 'BLOCK_K': 64}, num_stages=3)", (32, 64)),
        ("grid = (triton.cdiv(n, 1024),)", (1024,)),
        ("b = min(triton.next_power_of_2(n), 4096)", (4096,)),
        ("def k(x, BLOCK: tl.constexpr = 64): pass", (64,)),
        ("def k(x, width: 'tl.constexpr' = 48): pass", (48,)),
        ("offs = tl.arange(0, 32)", (32,)),
        ("y = torch.zeros(300, 700)", ()),
        ("if n <= 2048:\n    pass", (2048,)),
        ("BLOCK = 2 ** 7", (128,)),
        ("BLOCK = 1 << 9 if n > 4 else 16 * 2", (4, 32, 512)),
        ("BLOCK = 3", ()),
        ("x = 77", ()),
        ("def broken(", ()),
    ],
)
def test_blocks_are_found_where_candidates_keep_them(source: str, blocks: tuple[int, ...]) -> None:
    assert block_constants(source) == blocks


def test_cuda_constants_are_found_in_text() -> None:
    text = "#define TILE_SIZE 32\nconstexpr int kThreads = 256;\n__global__ void k() {}\ndim3 block(128);\n"
    assert block_constants(text) == (32, 128, 256)
    assert block_constants(f'source = """{text}"""') == (32, 128, 256)


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("a01-online-softmax", (256,)),
        ("r17-second-output-inverse", (4096,)),
        ("r29-autotune-atomic-no-reset", (16, 32, 64, 128)),
        ("r34-small-batch-path", (4, 256)),
    ],
)
def test_blocks_of_real_candidates(name: str, blocks: tuple[int, ...]) -> None:
    assert block_constants((CASES / name / "candidate.py").read_text()) == blocks


def launch(**constants: object) -> dict[str, object]:
    return {"kernel": "k", "constexprs": {name: repr(value) for name, value in constants.items()}}


@pytest.mark.parametrize(
    ("facts", "blocks"),
    [
        ({"launches": [launch(BLOCK=96, width=100), launch(N=128, EPS=1e-5)]}, (96, 128)),
        ({"launches": [launch(WIDE=True, BLOCK_M=16, kind="x", stages=2)]}, (16,)),
        ({"launches": [launch(BLOCK=10**9)]}, ()),
        ({"launches": [{"constexprs": ["BLOCK"]}, "launch", None, {}]}, ()),
        ({"launches": "BLOCK=64"}, ()),
        ({}, ()),
        (None, ()),
    ],
)
def test_blocks_that_a_candidate_computes_are_found_in_its_launches(facts: object, blocks: tuple[int, ...]) -> None:
    assert launched_blocks(facts) == blocks
