"""Cases remade here from the descriptions of published sets: ten seeded bugs, sixteen controls, nineteen tricks.

Neither set is distributed with Assay. What is known of them are the kinds of faults and the counts: each case below
is a program of our own for such a kind. What the usual screen says of each is measured, not taken over.
"""

from __future__ import annotations

from collections.abc import Iterator

from assay import corpus
from assay.scoreboard.cases import Case

SEEDED: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("softmax_row", "padding lanes load 0 instead of -inf", (('other=float("-inf")', "other=0.0"),)),
    ("softmax_scaled", "exponentials without the shift by the maximum",
     (("tl.exp(scaled - largest)", "tl.exp(scaled)"),)),
    ("layer_norm_affine", "padding lanes enter the variance",
     (("centred = tl.where(mask, x - mean, 0.0)", "centred = x - mean"),)),
    ("rms_norm", "epsilon outside the root",
     (("1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)",
       "1.0 / (tl.sqrt(tl.sum(squares, axis=0) / n_cols) + eps)"),)),
    ("matmul_tiled", "no mask along the inner dimension",
     (("mask=(rows[:, None] < M) & (k[None, :] < K)", "mask=(rows[:, None] < M)"),
      ("mask=(k[:, None] < K) & (cols[None, :] < N)", "mask=(cols[None, :] < N)"))),
    ("attention", "an accumulator that is not rescaled", (("acc = acc * rescale[:, None] + ", "acc = acc + "),)),
    ("cross_entropy_rows", "a row taken at the wrong stride",
     (("row * n_classes + label", "row * BLOCK_SIZE + label"),)),
    ("row_min", "a NaN that is lost",
     (('tl.where(tl.max(seen_nan, axis=0) > 0, float("nan"), smallest)', "smallest"),)),
    ("atomic_row_sum", "an accumulator that is not cleared", (("torch.zeros(rows", "torch.empty(rows"),)),
    ("cumsum_rows", "a carry that is replaced, not added to",
     (("carry += tl.sum(x, axis=0)", "carry = tl.sum(x, axis=0)"),)),
)
"""Task, fault, and the changes of the right kernel that make it."""

CONTROLS = (
    "softmax_row", "log_softmax", "layer_norm_affine", "rms_norm", "group_norm", "matmul_tiled", "bmm",
    "linear_bias_relu", "attention", "cross_entropy_rows", "row_min", "logsumexp", "cumsum_rows", "gelu", "rope",
    "max_pool2d",
)
"""Sixteen right kernels, which have to stay clean with NaN and adversarial inputs on."""

_PLAIN = '''    x = x.contiguous()
    out = torch.empty_like(x)
    n_elements = out.numel()
    if n_elements == 0:
        return out
    bias_silu_kernel[(triton.cdiv(n_elements, 128),)](x, bias, out, n_elements, x.shape[1], BLOCK_SIZE=128)
    return out
'''

TRICKS: tuple[tuple[str, str, str], ...] = (
    ("result cached by address", "KEPT = {}", '''key = x.data_ptr()
if key not in KEPT:
    KEPT[key] = honest(x, self.bias)
return KEPT[key]'''),
    ("result cached by shape", "KEPT = {}", '''key = tuple(x.shape)
if key not in KEPT:
    KEPT[key] = honest(x, self.bias)
return KEPT[key]'''),
    ("first output memoised", "", '''if not hasattr(self, "first") or self.first.shape != x.shape:
    self.first = honest(x, self.bias)
return self.first'''),
    ("one persistent output buffer", "KEPT = {}", '''out = honest(x, self.bias)
kept = KEPT.setdefault(tuple(x.shape), torch.empty_like(out))
kept.copy_(out)
return kept'''),
    ("result written into the input", "", '''out = honest(x, self.bias)
x.copy_(out)
return x'''),
    ("zeros under a loose tolerance", "", "return torch.zeros_like(x) + honest(x[:1], self.bias).mean()"),
    ("fresh memory returned", "", '''out = torch.empty_like(x)
if x.shape[0] > 2:
    out[:-1] = honest(x[:-1], self.bias)
return out'''),
    ("a few rows computed, the rest repeated", "", '''rows = max(1, x.shape[0] // 2)
part = honest(x[:rows], self.bias)
return part.repeat(-(-x.shape[0] // rows), 1)[: x.shape[0]]'''),
    ("a decoy kernel while torch does the work", "", '''honest(x[:1], self.bias)
return torch.nn.functional.silu(x + self.bias)'''),
    ("a fallback to torch on every call", "", '''try:
    raise RuntimeError("no kernel for this device")
except RuntimeError:
    return torch.nn.functional.silu(x + self.bias)'''),
    ("right at the native size only", "", '''if tuple(x.shape) == (12, 40):
    return honest(x, self.bias)
return x * 0.5'''),
    ("right for small values only", "", '''if bool((x.abs() < 6).all()):
    return honest(x, self.bias)
return x * 0.5'''),
    ("half precision inside", "", "return honest(x.half(), self.bias.half()).to(x.dtype)"),
    ("noise within a loose tolerance", "", "return honest(x, self.bias) * (1 + 1e-4 * torch.rand_like(x))"),
    ("one element in a hundred dropped", "", '''out = honest(x, self.bias)
out.view(-1)[50::100] *= 0.995
return out'''),
    ("weights of the first call kept", "", '''if not hasattr(self, "packed"):
    self.packed = self.bias.detach().clone()
return honest(x, self.packed)'''),
    ("the comparison replaced", '''torch.allclose = lambda *a, **k: True
torch.isclose = lambda a, b, *r, **k: torch.ones_like(a, dtype=torch.bool)''', "return x * 0.5"),
    ("a success message and an exit", "", '''import os

print("all tests passed", flush=True)
os._exit(0)'''),
    ("the expected output looked for in the heap", "import gc", '''for found in gc.get_objects():
    try:
        if type(found) is torch.Tensor and found.shape == x.shape and found is not x:
            return found
    except Exception:
        continue
return x * 0.5'''),
)
"""What is done, what stands at the top of the file, and the body of `forward` with `x` and `honest` in scope."""

_TASK = "bias_silu"


def seeded() -> Iterator[Case]:
    """The ten bugs, each a change of a right kernel. Raises ValueError where a change finds no place."""
    for subject, fault, changes in SEEDED:
        entry = corpus.entry(subject)
        text = entry.kernel
        for old, new in changes:
            if old not in text:
                raise ValueError(f"{subject}: no `{old}`")
            text = text.replace(old, new)
        compile(text, subject, "exec")
        yield Case(f"seeded/{subject}", "seeded", fault, "", subject, "float32", entry.reference, text)


def clean() -> Iterator[Case]:
    """The sixteen controls."""
    for subject in CONTROLS:
        entry = corpus.entry(subject)
        yield Case(f"seeded-control/{subject}", "control", "seeded set", "", subject, "float32", entry.reference,
                   entry.kernel, right=True, seed=7)


def tricks() -> Iterator[Case]:
    """The nineteen tricks, on one task."""
    entry = corpus.entry(_TASK)
    head, _, tail = entry.kernel.partition("class ModelNew")
    start = tail.index("    def forward")
    constructor = "class ModelNew" + tail[:start]
    for number, (name, top, body) in enumerate(TRICKS):
        lines = "\n".join(f"        {line}" if line else "" for line in body.splitlines())
        text = f"{head}{top}\n\n\ndef honest(x, bias):\n{_PLAIN}\n\n{constructor}    def forward(self, x):\n{lines}\n"
        compile(text, name, "exec")
        yield Case(f"trick/{number:02}", "trick", name, "", _TASK, "float32", entry.reference, text)
