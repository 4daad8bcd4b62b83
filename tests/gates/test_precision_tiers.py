"""Right in a lower precision is a divergence with a name; wrong in another way is wrong, in whatever precision."""

from __future__ import annotations

import pytest

from assay.vocabulary import Label

PRODUCT = """
M = 32
K = 96
N = 24

class Model(nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]

def get_init_inputs():
    return []
"""
MLP = """
ROWS = 24
IN = 48
HIDDEN = 96

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, IN)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.up(x)))

def get_inputs():
    return [torch.randn(ROWS, IN)]

def get_init_inputs():
    return []
"""
ATTENTION = """
HEADS = 2
KEYS = 40
DIM = 16

class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

def get_inputs():
    return [torch.randn(HEADS, KEYS, DIM) for _ in range(3)]

def get_init_inputs():
    return []
"""
SOFTMAX = """
ROWS = 24
COLS = 80

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)

def get_inputs():
    return [torch.randn(ROWS, COLS)]

def get_init_inputs():
    return []
"""
TF32 = "((t.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)"
TRUNCATED = "(t.view(torch.int32) & ~0x1FFF).view(torch.float32)"
BF16 = "t.bfloat16().float()"
FP16 = "t.half().float()"


def product(rounded: str, result: str = "c") -> str:
    return f"""
def narrow(t):
    t = t.contiguous()
    return {rounded}

class ModelNew(nn.Module):
    def forward(self, a, b):
        c = narrow(a) @ narrow(b)
        return {result}
"""


def mlp(rounded: str, form: str) -> str:
    return f"""
def narrow(t):
    t = t.contiguous()
    return {rounded}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, IN)

    def forward(self, x):
        linear, gelu = torch.nn.functional.linear, torch.nn.functional.gelu
        hidden = gelu(linear(narrow(x), narrow(self.up.weight), self.up.bias), approximate="{form}")
        return linear(narrow(hidden), narrow(self.down.weight), self.down.bias)
""".replace("IN", "48").replace("HIDDEN", "96")


def attention(narrow: str, factor: float = 1.0) -> str:
    return f"""
class ModelNew(nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.mT * ({factor} / q.shape[-1] ** 0.5)
        t = torch.exp(scores - scores.amax(-1, keepdim=True))
        return ({narrow}) @ v / t.sum(-1, keepdim=True)
"""


def softmax(body: str) -> str:
    return f"""
class ModelNew(nn.Module):
    def forward(self, x):
        return {body}
"""


DIVERGENT = [
    ("tf32", PRODUCT, product(TF32), {"precision_tf32"}),
    ("truncated tf32", PRODUCT, product(TRUNCATED), {"precision_tf32"}),
    ("bf16", PRODUCT, product(BF16), {"precision_bf16"}),
    ("bf16 in both layers", MLP, mlp(BF16, "none"), {"precision_bf16"}),
    ("bf16 probabilities", ATTENTION, attention(BF16), {"precision_bf16"}),
    ("fp16 result", SOFTMAX, softmax("torch.softmax(x.double(), -1).half().float()"), {"precision_fp16"}),
]
WRONG = [
    ("tf32 and one row off", PRODUCT, product(TF32, "torch.cat([c[:1] * 1.001, c[1:]])")),
    ("tf32 and scaled", PRODUCT, product(TF32, "c * 1.0002")),
    ("bf16 and the last term missing", PRODUCT, product(BF16, "c - narrow(a)[:, -1:] @ narrow(b)[-1:]")),
    ("bf16 and a neighbouring gelu", MLP, mlp(BF16, "tanh")),
    ("a neighbouring gelu", MLP, mlp("t", "tanh")),
    ("bf16 probabilities and another scale", ATTENTION, attention(BF16, 1.002)),
    ("fp16 result of scaled scores", SOFTMAX, softmax("torch.softmax(x.double() * 1.002, -1).half().float()")),
]
ANY_PRECISION = {"policy": {"allow_tiers": ["divergence"]}, "provenance": "none"}


SLOW = ("truncated tf32", "tf32 and scaled", "a neighbouring gelu", "bf16 and the last term missing", "bf16")


def parameters(cases):
    """Cases as parameters, those that say little beyond their neighbours in the slow suite."""
    return [pytest.param(*c[1:], id=c[0], marks=[pytest.mark.slow] if c[0] in SLOW else []) for c in cases]


@pytest.mark.parametrize(("reference", "candidate", "reasons"), parameters(DIVERGENT))
def test_what_a_lower_precision_accounts_for_is_a_divergence(judge, reference, candidate, reasons):
    seen = judge("values", reference, candidate)
    assert reasons <= seen.reasons
    assert {f.tier.value for f in seen.findings} == {"divergence"}
    assert all(f.detail["mode"] and f.detail["effective_bits"] > 4 for f in seen.findings)


@pytest.mark.parametrize(("reference", "candidate"), parameters(WRONG))
def test_a_fault_beside_a_lower_precision_is_wrong(judge, reference, candidate):
    seen = judge("values", reference, candidate)
    assert "wrong" in {f.tier.value for f in seen.findings}
    assert "value" in seen.reasons


def test_a_contract_that_allows_any_precision_still_rejects_faults(judge):
    gates = ("shapes", "dtypes", "reduction_order", "residency")
    right = judge("values", PRODUCT, product(BF16), beside=gates, contract=ANY_PRECISION)
    assert {f.tier.value for f in right.report.findings} == {"divergence"}
    assert right.report.label is Label.CONTRACT
    wrong = judge("values", PRODUCT, product(BF16, "c * 1.01"), beside=gates, contract=ANY_PRECISION)
    assert wrong.report.label is Label.REJECTED


TANH = """
ROWS = 24
COLS = 80

class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)

def get_inputs():
    return [torch.randn(ROWS, COLS)]

def get_init_inputs():
    return []
"""


def tanh(error: str) -> str:
    # tanh.approx.f32 is good to 2^-11 of the result, by errors that look random
    return f"""
class ModelNew(nn.Module):
    def forward(self, x):
        t = torch.tanh(x.double())
        return (t * (1 + 2.0 ** -11 * ({error}))).float()
"""


NOISE, SMOOTH = "torch.sin(1e7 * x.double())", "0.9"


def test_approximate_intrinsics_pass_where_the_contract_allows_them(judge):
    seen = judge("values", TANH, tanh(NOISE), contract={"numerics": {"fast_math": True}})
    assert (seen.outcome, seen.findings) == ("pass", [])


@pytest.mark.parametrize(("named", "tier"), [(True, "divergence"), (False, "wrong")])
def test_intrinsics_excuse_noise_only_where_the_source_names_them(judge, named, tier):
    seen = judge("values", TANH, f"# {'tanh.approx.f32' if named else 'tanh'}\n" + tanh(NOISE))
    assert {f.tier.value for f in seen.findings} == {tier}


def test_named_intrinsics_excuse_no_smooth_error(judge):
    seen = judge("values", TANH, "# tanh.approx.f32\n" + tanh(SMOOTH))
    assert "wrong" in {f.tier.value for f in seen.findings}
