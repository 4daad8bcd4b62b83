"""Varied tasks in the usual form: a reference, its inputs and its constructor arguments, as source text.

Every task is right by definition when its own reference is the candidate, so whatever a verification finds in
one is a false alarm.
"""

# one task a line reads best, however long the line
# ruff: noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One generated task."""

    name: str
    """Unique name; what comes before the first dash is its family."""
    source: str
    """Text of the reference file."""

    @property
    def family(self) -> str:
        """Kind of computation."""
        return self.name.split("-")[0]

    @property
    def candidate(self) -> str:
        """The reference itself as a candidate."""
        return re.sub(r"\bModel\b", "ModelNew", self.source)

    @property
    def compiled(self) -> str:
        """The reference under `torch.compile` (traced, run eagerly: no compiler is needed)."""
        source = re.sub(r"\bModel\b", "Reference", self.source)
        return source + (_COMPILED if "class Reference(" in source else _COMPILED_FUNCTION)

    @property
    def without_contiguous(self) -> str:
        """The reference without `.contiguous()`, but for its outputs; the reference itself where it has none."""
        if ".contiguous()" not in self.source:
            return self.candidate
        source = re.sub(r"\bModel\b", "Reference", self.source)
        return source.replace(".contiguous()", "").replace(".view(", ".reshape(") + _CONTIGUOUS_OUTPUTS


_COMPILED = '''

class ModelNew(Reference):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._traced = torch.compile(super().forward, backend="eager", dynamic=True)

    def forward(self, *args, **kwargs):
        return self._traced(*args, **kwargs)
'''


_CONTIGUOUS_OUTPUTS = '''

class ModelNew(Reference):
    def forward(self, *args, **kwargs):
        outputs = super().forward(*args, **kwargs)
        return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.contiguous, outputs)
'''


_COMPILED_FUNCTION = """

ModelNew = torch.compile(Reference, backend="eager", dynamic=True)
"""


def _file(sizes: str, forward: str, inputs: str, *, init: str = "", arguments: str = "", parameters: str = "x",
          init_inputs: str = "[]", before: str = "") -> str:
    """Text of one reference file; bodies are given as lines without indentation."""

    def body(text: str, depth: int) -> str:
        return "\n".join(" " * depth + line for line in text.strip().splitlines())

    constructor = ""
    if init:
        names = f", {arguments}" if arguments else ""
        constructor = f"    def __init__(self{names}):\n        super().__init__()\n{body(init, 8)}\n\n"
    return (
        "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
        f"{sizes.strip()}\n\n{before.strip()}\n\n"
        f"class Model(nn.Module):\n{constructor}"
        f"    def forward(self, {parameters}):\n{body(forward, 8)}\n\n"
        f"def get_inputs():\n    return {inputs}\n\n"
        f"def get_init_inputs():\n    return {init_inputs}\n"
    )


ROWS = "ROWS = 6\nCOLS = 150"
NORMAL = "[torch.randn(ROWS, COLS)]"
UNIFORM = "[torch.rand(ROWS, COLS)]"
TWO = "[torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]"


def tasks() -> tuple[Task, ...]:
    """All tasks, in a fixed order, their names unique."""
    made = [Task(name, text) for family in _FAMILIES for name, text in family()]
    assert len({task.name for task in made}) == len(made)
    return tuple(made)


def _elementwise() -> Iterator[tuple[str, str]]:
    for name, expression in {
        "relu": "torch.relu(x)", "sigmoid": "torch.sigmoid(x)", "tanh": "torch.tanh(x)", "gelu": "F.gelu(x)",
        "gelu_tanh": "F.gelu(x, approximate='tanh')", "silu": "F.silu(x)", "elu": "F.elu(x, 1.0)",
        "selu": "F.selu(x)", "leaky": "F.leaky_relu(x, 0.01)", "softplus": "F.softplus(x)",
        "softsign": "F.softsign(x)", "hardtanh": "F.hardtanh(x)", "hardsigmoid": "F.hardsigmoid(x)",
        "hardswish": "F.hardswish(x)", "mish": "F.mish(x)", "logsigmoid": "F.logsigmoid(x)", "exp": "torch.exp(x)",
        "sin": "torch.sin(x)", "cos": "torch.cos(x)", "erf": "torch.erf(x)", "abs": "x.abs()", "neg": "-x",
        "square": "x * x", "cube": "x ** 3", "sign": "torch.sign(x)", "floor": "torch.floor(x)",
        "round": "torch.round(x * 4) / 4", "clamp": "x.clamp(-0.5, 0.7)", "affine": "2.5 * x + 1.25",
        "where": "torch.where(x > 0, x, 0.1 * x)", "swish": "x * torch.sigmoid(1.7 * x)",
        "expm1": "torch.expm1(x)", "sinc": "torch.sinc(x)", "frac": "torch.frac(x)", "threshold": "F.threshold(x, 0.2, 0.0)",
        "celu": "F.celu(x, 1.3)", "relu6": "F.relu6(x)", "hardshrink": "F.hardshrink(x)",
        "tanhshrink": "F.tanhshrink(x)", "softshrink": "F.softshrink(x)",
    }.items():
        yield f"elementwise-{name}", _file(ROWS, f"return {expression}", NORMAL)
    for name, expression in {
        "log": "torch.log(x + 0.1)", "sqrt": "torch.sqrt(x)", "rsqrt": "torch.rsqrt(x + 1e-3)",
        "reciprocal": "1.0 / (x + 0.5)", "logit": "torch.logit(x, eps=1e-4)", "entropy": "-x * torch.log(x + 1e-6)",
        "pow": "x ** 1.5", "log1p": "torch.log1p(x)", "asin": "torch.asin(x)", "atanh": "torch.atanh(0.9 * x)",
    }.items():
        yield f"elementwise-{name}", _file(ROWS, f"return {expression}", UNIFORM)
    for name, expression in {
        "add": "x + y", "mul": "x * y", "sub": "x - 2 * y", "max": "torch.maximum(x, y)", "min": "torch.minimum(x, y)",
        "atan2": "torch.atan2(x, y)", "hypot": "torch.hypot(x, y)", "lerp": "torch.lerp(x, y, 0.3)",
        "glu": "x * torch.sigmoid(y)", "addcmul": "torch.addcmul(x, x, y, value=0.5)", "compare": "(x > y).float()",
        "logaddexp": "torch.logaddexp(x, y)", "copysign": "torch.copysign(x, y)",
    }.items():
        yield f"binary-{name}", _file(ROWS, f"return {expression}", TWO, parameters="x, y")
    yield "binary-div", _file(ROWS, "return x / (y.abs() + 0.1)", TWO, parameters="x, y")
    yield "binary-broadcast_row", _file(ROWS, "return x * y + y", "[torch.randn(ROWS, COLS), torch.randn(COLS)]",
                                        parameters="x, y")
    yield "binary-broadcast_column", _file(ROWS, "return x - y", "[torch.randn(ROWS, COLS), torch.randn(ROWS, 1)]",
                                           parameters="x, y")
    yield "binary-outer", _file("N = 37\nM = 53", "return x[:, None] * y[None, :]",
                                "[torch.randn(N), torch.randn(M)]", parameters="x, y")
    yield "binary-scalar_argument", _file(ROWS, "return x * scale + offset", "[torch.randn(ROWS, COLS), 2.5, 3]",
                                          parameters="x, scale, offset")
    yield "binary-none_argument", _file(ROWS, "return x if bias is None else x + bias",
                                        "[torch.randn(ROWS, COLS), None]", parameters="x, bias=None")


def _reductions() -> Iterator[tuple[str, str]]:
    for name, expression in {
        "sum_last": "x.sum(dim=-1)", "sum_first": "x.sum(dim=0)", "sum_all": "x.sum()", "mean_keep": "x.mean(dim=-1, keepdim=True)",
        "mean_all": "x.mean()", "max_values": "x.max(dim=-1).values", "max_both": "torch.max(x, dim=-1)",
        "min_both": "torch.min(x, dim=0)", "argmax": "x.argmax(dim=-1)", "argmin": "x.argmin(dim=-1)", "var": "x.var(dim=-1)",
        "std": "x.std(dim=-1, unbiased=False)", "norm": "x.norm(dim=-1)", "norm1": "x.norm(p=1, dim=-1)",
        "amax_amin": "x.amax(dim=-1) - x.amin(dim=-1)", "logsumexp": "torch.logsumexp(x, dim=-1)",
        "cumsum": "torch.cumsum(x, dim=-1)", "cumprod": "torch.cumprod(1 + 0.01 * x, dim=-1)", "cummax": "torch.cummax(x, dim=-1).values",
        "prod": "torch.prod(1 + 0.05 * x, dim=-1)", "any_positive": "(x > 2).any(dim=-1)", "count": "(x > 0).sum(dim=-1)",
        "median": "x.median(dim=-1).values", "topk": "torch.topk(x, 3, dim=-1)", "sort": "torch.sort(x, dim=-1)",
        "argsort": "torch.argsort(x, dim=-1, stable=True)", "reverse_cumsum": "torch.flip(torch.cumsum(torch.flip(x, [1]), 1), [1])",
        "exclusive_cumsum": "torch.cumsum(x, 1) - x", "frobenius": "x / torch.norm(x, p='fro')",
        "quantile": "torch.quantile(x, 0.75, dim=-1)", "kthvalue": "torch.kthvalue(x, 2, dim=-1).values",
        "nansum": "torch.nansum(x, dim=-1)", "var_mean": "torch.var_mean(x, dim=-1)",
    }.items():
        yield f"reduction-{name}", _file(ROWS, f"return {expression}", NORMAL)
    yield "reduction-three_dims", _file("B = 3\nS = 20\nD = 33", "return x.sum(dim=(1, 2))", "[torch.randn(B, S, D)]")
    yield "reduction-masked_cumsum", _file(ROWS, "return torch.cumsum(x * mask, dim=1)",
                                           "[torch.randn(ROWS, COLS), torch.randint(0, 2, (ROWS, COLS)).bool()]",
                                           parameters="x, mask")
    yield "reduction-dim_argument", _file(ROWS, "return x.sum(dim=self.dim)", NORMAL, init="self.dim = dim",
                                          arguments="dim", init_inputs="[1]")
    yield "reduction-log_geometric", _file(ROWS, "return x.log().mean(dim=-1).exp()", "[torch.rand(ROWS, COLS) + 0.5]")


def _normalisation() -> Iterator[tuple[str, str]]:
    yield "norm-layer", _file("ROWS = 6\nDIM = 96", "return self.norm(x)", "[torch.randn(ROWS, DIM)]",
                              init="self.norm = nn.LayerNorm(dim)", arguments="dim", init_inputs="[DIM]")
    yield "norm-layer_shape", _file("B = 4\nF1 = 3\nF2 = 10\nF3 = 9", "return self.norm(x)", "[torch.randn(B, F1, F2, F3)]",
                                    init="self.norm = nn.LayerNorm(shape)", arguments="shape", init_inputs="[(F1, F2, F3)]")
    yield "norm-rms", _file("ROWS = 6\nDIM = 96", "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight",
                            "[torch.randn(ROWS, DIM)]", init="self.weight = nn.Parameter(torch.ones(dim))",
                            arguments="dim", init_inputs="[DIM]")
    yield "norm-rms_channels", _file("B = 4\nC = 12\nH = 7\nW = 6",
                                     "rms = torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + self.eps)\nreturn x / rms",
                                     "[torch.rand(B, C, H, W)]", init="self.eps = eps", arguments="c, eps=1e-5", init_inputs="[C]")
    yield "norm-group", _file("B = 4\nC = 12\nG = 4\nH = 6\nW = 6", "return self.norm(x)", "[torch.randn(B, C, H, W)]",
                              init="self.norm = nn.GroupNorm(groups, channels)", arguments="channels, groups", init_inputs="[C, G]")
    yield "norm-instance", _file("B = 4\nC = 5\nH = 9\nW = 8", "return self.norm(x)", "[torch.randn(B, C, H, W)]",
                                 init="self.norm = nn.InstanceNorm2d(channels)", arguments="channels", init_inputs="[C]")
    yield "norm-batch_train", _file("B = 8\nC = 5\nH = 6\nW = 6", "return self.norm(x)", "[torch.randn(B, C, H, W)]",
                                    init="self.norm = nn.BatchNorm2d(channels)", arguments="channels", init_inputs="[C]")
    yield "norm-batch_eval", _file("B = 8\nC = 5\nH = 6\nW = 6", "return self.norm(x)", "[torch.randn(B, C, H, W)]",
                                   init="self.norm = nn.BatchNorm2d(channels)\nself.eval()", arguments="channels", init_inputs="[C]")
    yield "norm-batch_1d", _file("B = 16\nC = 10", "return torch.relu(self.norm(x))", "[torch.randn(B, C)]",
                                 init="self.norm = nn.BatchNorm1d(channels)", arguments="channels", init_inputs="[C]")
    yield "norm-l2", _file(ROWS, "return F.normalize(x, p=2, dim=1)", NORMAL)
    yield "norm-l1", _file(ROWS, "return x / x.abs().sum(dim=1, keepdim=True)", NORMAL)
    yield "norm-local_response", _file("B = 3\nC = 8\nH = 6\nW = 5", "return self.norm(x)", "[torch.randn(B, C, H, W)]",
                                       init="self.norm = nn.LocalResponseNorm(3)", init_inputs="[]")
    yield "norm-add_layer", _file("B = 3\nS = 9\nD = 40", "return self.norm(x + residual), x + residual",
                                  "[torch.randn(B, S, D), torch.randn(B, S, D)]", parameters="x, residual",
                                  init="self.norm = nn.LayerNorm(dim)", arguments="dim", init_inputs="[D]")
    yield "norm-weight", _file("I = 20\nO = 12\nB = 5", "return self.linear(x)", "[torch.randn(B, I)]",
                               init="self.linear = nn.utils.parametrizations.weight_norm(nn.Linear(i, o))",
                               arguments="i, o", init_inputs="[I, O]")


def _products() -> Iterator[tuple[str, str]]:
    sizes = "M = 34\nK = 70\nN = 45"
    yield "matmul-plain", _file(sizes, "return x @ y", "[torch.randn(M, K), torch.randn(K, N)]", parameters="x, y")
    yield "matmul-uniform", _file(sizes, "return torch.matmul(x, y)", "[torch.rand(M, K), torch.rand(K, N)]", parameters="x, y")
    yield "matmul-transposed", _file(sizes, "return x.T @ y", "[torch.randn(K, M), torch.randn(K, N)]", parameters="x, y")
    yield "matmul-both", _file(sizes, "return x.T @ y.T", "[torch.randn(K, M), torch.randn(N, K)]", parameters="x, y")
    yield "matmul-batched", _file("B = 3\nM = 20\nK = 30\nN = 25", "return torch.bmm(x, y)",
                                  "[torch.randn(B, M, K), torch.randn(B, K, N)]", parameters="x, y")
    yield "matmul-vector", _file("M = 60\nK = 90", "return x @ y", "[torch.randn(M, K), torch.randn(K, 1)]", parameters="x, y")
    yield "matmul-dot", _file("N = 500", "return torch.dot(x, y)", "[torch.randn(N), torch.randn(N)]", parameters="x, y")
    yield "matmul-square", _file("N = 48", "return x @ y", "[torch.randn(N, N), torch.randn(N, N)]", parameters="x, y")
    yield "matmul-expression_sizes", _file("M = 8 * 3\nK = 2 * 20\nN = 16", "return x @ y",
                                           "[torch.randn(M, K), torch.randn(K, N)]", parameters="x, y")
    yield "matmul-diagonal", _file("N = 30\nM = 40", "return torch.diag(a) @ b", "[torch.randn(N), torch.randn(N, M)]", parameters="a, b")
    yield "matmul-upper", _file("N = 40", "return torch.triu(a @ b)", "[torch.triu(torch.randn(N, N)), torch.triu(torch.randn(N, N))]",
                                parameters="a, b")
    yield "matmul-lower", _file("N = 40", "return torch.tril(a @ b)", "[torch.tril(torch.randn(N, N)), torch.tril(torch.randn(N, N))]",
                                parameters="a, b")
    yield "matmul-symmetric", _file("N = 40", "return a @ b",
                                    "[(lambda m: (m + m.T) / 2)(torch.randn(N, N)), (lambda m: (m + m.T) / 2)(torch.randn(N, N))]",
                                    parameters="a, b")
    yield "matmul-einsum", _file("B = 2\nI = 5\nJ = 6\nL = 7\nK = 8", "return torch.einsum('bijl,lk->bijk', a, b)",
                                 "[torch.randn(B, I, J, L), torch.randn(L, K)]", parameters="a, b")
    yield "matmul-linear", _file("B = 9\nI = 50\nO = 30", "return self.linear(x)", "[torch.randn(B, I)]",
                                 init="self.linear = nn.Linear(i, o)", arguments="i, o", init_inputs="[I, O]")
    yield "matmul-linear_chain", _file("B = 9\nI = 40\nH = 60\nO = 20", "return self.b(torch.relu(self.a(x)))", "[torch.randn(B, I)]",
                                       init="self.a = nn.Linear(i, h)\nself.b = nn.Linear(h, o)", arguments="i, h, o", init_inputs="[I, H, O]")
    yield "matmul-linear_no_bias", _file("B = 9\nI = 50\nO = 30", "return F.gelu(self.linear(x)) * self.scale", "[torch.randn(B, I)]",
                                         init="self.linear = nn.Linear(i, o, bias=False)\nself.scale = scale", arguments="i, o, scale",
                                         init_inputs="[I, O, 0.5]")
    yield "matmul-layers", _file("B = 5\nI = 20\nWIDTHS = [24, 32]\nO = 10", "return self.net(x)", "[torch.randn(B, I)]",
                                 init="layers = []\nfor w in widths:\n    layers += [nn.Linear(i, w), nn.ReLU()]\n    i = w\n"
                                      "self.net = nn.Sequential(*layers, nn.Linear(i, o))",
                                 arguments="i, widths, o", init_inputs="[I, WIDTHS, O]")
    yield "matmul-gemm_reduce", _file("B = 8\nI = 40\nO = 24", "x = self.linear(x)\nx = x - x.max(dim=1, keepdim=True).values\nreturn torch.logsumexp(x, 1, keepdim=True)",
                                      "[torch.randn(B, I)]", init="self.linear = nn.Linear(i, o)", arguments="i, o", init_inputs="[I, O]")
    yield "matmul-bilinear", _file("B = 6\nI = 12\nJ = 10\nO = 7", "return self.layer(x, y)", "[torch.randn(B, I), torch.randn(B, J)]",
                                   parameters="x, y", init="self.layer = nn.Bilinear(i, j, o)", arguments="i, j, o", init_inputs="[I, J, O]")
    yield "matmul-cdist", _file("B = 2\nM = 12\nN = 15\nD = 8", "return torch.cdist(x, y)", "[torch.randn(B, M, D), torch.randn(B, N, D)]",
                                parameters="x, y")
    yield "matmul-kron", _file("M = 5\nN = 6", "return torch.kron(x, y)", "[torch.randn(M, N), torch.randn(N, M)]", parameters="x, y")
    yield "matmul-keywords", _file("B = 4\nD = 10", "return x @ w + bias", "{'x': torch.randn(B, D), 'w': torch.randn(D, D), 'bias': torch.randn(D)}",
                                   parameters="x, w, bias")
    yield "matmul-init_keywords", _file("B = 4\nD = 10\nO = 12", "return self.linear(x)", "[torch.randn(B, D)]",
                                        init="self.linear = nn.Linear(i, o, bias=bias)", arguments="i, o, bias=True",
                                        init_inputs="[[D], {'o': O, 'bias': False}]")


def _convolutions() -> Iterator[tuple[str, str]]:
    def convolution(dims: int, kind: str, *, options: str = "", counts: str = "I = 3\nO = 5", tail: str = "return x") -> str:
        space = {1: "L = 24", 2: "H = 12\nW = 11", 3: "D = 6\nH = 7\nW = 6"}[dims]
        names = {1: "L", 2: "H, W", 3: "D, H, W"}[dims]
        return _file(f"B = 3\n{counts}\nK = 3\n{space}", f"x = self.conv(x)\n{tail}", f"[torch.randn(B, I, {names})]",
                     init=f"self.conv = nn.{kind}(i, o, k{options})", arguments="i, o, k", init_inputs="[I, O, K]")

    for dims in (1, 2, 3):
        yield f"conv-{dims}d", convolution(dims, f"Conv{dims}d")
        yield f"conv-{dims}d_transposed", convolution(dims, f"ConvTranspose{dims}d")
        yield f"conv-{dims}d_strided", convolution(dims, f"Conv{dims}d", options=", stride=2, padding=1")
        yield f"conv-{dims}d_relu", convolution(dims, f"Conv{dims}d", options=", padding=1", tail="return F.hardswish(torch.relu(x))")
    yield "conv-2d_dilated", convolution(2, "Conv2d", options=", dilation=2")
    yield "conv-2d_no_bias", convolution(2, "Conv2d", options=", bias=False")
    yield "conv-2d_depthwise", convolution(2, "Conv2d", options=", groups=i", counts="I = 4\nO = 4")
    yield "conv-2d_grouped", convolution(2, "Conv2d", options=", groups=2", counts="I = 4\nO = 6")
    yield "conv-2d_transposed_strided", convolution(2, "ConvTranspose2d", options=", stride=2, output_padding=1")
    yield "conv-2d_norm_pool", convolution(2, "Conv2d", tail="return F.max_pool2d(F.group_norm(x, 1), 2)")
    yield "conv-2d_bias_min", convolution(2, "Conv2d", tail="return torch.tanh(torch.min(x, dim=1, keepdim=True)[0])")
    yield "conv-3d_softmax", convolution(3, "Conv3d", tail="return torch.softmax(x, dim=1)")
    yield "conv-2d_global_mean", convolution(2, "Conv2d", tail="return x.mean(dim=(2, 3), keepdim=True)")
    yield "conv-2d_asymmetric", _file("B = 3\nI = 3\nO = 5\nKH = 3\nKW = 5\nH = 12\nW = 13", "return self.conv(x)", "[torch.randn(B, I, H, W)]",
                                      init="self.conv = nn.Conv2d(i, o, k)", arguments="i, o, k", init_inputs="[I, O, (KH, KW)]")
    yield "conv-2d_separable", _file("B = 3\nI = 4\nO = 6\nH = 10\nW = 10", "return self.point(self.depth(x))", "[torch.randn(B, I, H, W)]",
                                     init="self.depth = nn.Conv2d(i, i, 3, groups=i)\nself.point = nn.Conv2d(i, o, 1)", arguments="i, o",
                                     init_inputs="[I, O]")
    yield "conv-2d_shape_tuple", _file("SHAPE = (3, 4, 10, 9)\nO = 6", "return self.conv(x).contiguous()", "[torch.randn(*SHAPE)]",
                                       init="self.conv = nn.Conv2d(i, o, 3)", arguments="i, o", init_inputs="[SHAPE[1], O]")
    yield "conv-2d_added_bias", _file("B = 3\nI = 3\nO = 5\nH = 10\nW = 9", "return torch.relu(self.conv(x)) + self.bias", "[torch.randn(B, I, H, W)]",
                                      init="self.conv = nn.Conv2d(i, o, 3)\nself.bias = nn.Parameter(torch.randn(shape))", arguments="i, o, shape",
                                      init_inputs="[I, O, (O, 1, 1)]")
    yield "conv-2d_channels_last", _file("B = 3\nI = 4\nO = 5\nH = 10\nW = 9", "return self.conv(x)",
                                         "[torch.randn(B, I, H, W).to(memory_format=torch.channels_last)]",
                                         init="self.conv = nn.Conv2d(i, o, 3)", arguments="i, o", init_inputs="[I, O]")


def _pooling() -> Iterator[tuple[str, str]]:
    plane = "B = 3\nC = 4\nH = 12\nW = 11"
    for name, expression in {
        "max_2d": "F.max_pool2d(x, 3, 2, 1)", "average_2d": "F.avg_pool2d(x, 2)", "adaptive": "F.adaptive_avg_pool2d(x, (3, 2))",
        "adaptive_max": "F.adaptive_max_pool2d(x, 1)", "lp": "F.lp_pool2d(x, 2.0, 2)", "dilated": "F.max_pool2d(x, 2, dilation=2)",
        "upsample": "F.interpolate(x, scale_factor=2, mode='nearest')", "bilinear": "F.interpolate(x, scale_factor=2, mode='bilinear')",
        "unfold": "F.unfold(x, 3)", "pixel_shuffle": "F.pixel_shuffle(x, 2)", "pad_reflect": "F.pad(x, (1, 2, 2, 1), mode='reflect')",
        "max_indices": "F.max_pool2d(x, 2, return_indices=True)",
    }.items():
        yield f"pool-{name}", _file(plane, f"return {expression}", "[torch.randn(B, C, H, W)]")
    yield "pool-max_1d", _file("B = 3\nC = 4\nL = 40", "return self.pool(x)", "[torch.randn(B, C, L)]",
                               init="self.pool = nn.MaxPool1d(k, stride=s)", arguments="k, s", init_inputs="[4, 2]")
    yield "pool-average_3d", _file("B = 2\nC = 3\nD = 6\nH = 6\nW = 7", "return self.pool(x)", "[torch.randn(B, C, D, H, W)]",
                                   init="self.pool = nn.AvgPool3d(k)", arguments="k", init_inputs="[2]")


def _softmax() -> Iterator[tuple[str, str]]:
    for name, expression in {
        "last": "torch.softmax(x, dim=-1)", "first": "torch.softmax(x, dim=0)", "log": "F.log_softmax(x, dim=-1)",
        "min": "F.softmin(x, dim=-1)", "scaled": "torch.softmax(x / 8.0, dim=-1)", "masked": "torch.softmax(x.masked_fill(x < -1, float('-inf')), dim=-1)",
        "max_of": "torch.softmax(x, dim=-1).max(dim=-1)",
    }.items():
        yield f"softmax-{name}", _file(ROWS, f"return {expression}", NORMAL)
    yield "softmax-causal", _file("B = 2\nS = 20",
                                  "mask = torch.triu(torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool, device=x.device), 1)\n"
                                  "return torch.softmax(x.masked_fill(mask, float('-inf')), dim=-1)", "[torch.randn(B, S, S)]")
    yield "softmax-with_mask_input", _file("B = 4\nS = 20", "return torch.softmax(x.masked_fill(~mask, -1e9), dim=-1)",
                                           "[torch.randn(B, S), torch.rand(B, S) > 0.3]", parameters="x, mask")
    yield "softmax-additive_mask", _file("S = 24", "return torch.softmax(x + mask, dim=-1)",
                                         "[torch.randn(S, S), torch.triu(torch.full((S, S), float('-inf')), 1)]", parameters="x, mask")
    yield "softmax-channels", _file("B = 3\nC = 6\nH = 5\nW = 4", "return torch.softmax(x, dim=1)", "[torch.randn(B, C, H, W)]")


def _losses() -> Iterator[tuple[str, str]]:
    sizes = "B = 24\nC = 10"
    pairs = "[torch.randn(B, C), torch.randn(B, C)]"
    for name, expression in {
        "mse": "F.mse_loss(x, y)", "l1": "F.l1_loss(x, y)", "smooth": "F.smooth_l1_loss(x, y)", "huber": "F.huber_loss(x, y)",
        "cosine": "(1 - F.cosine_similarity(x, y, dim=1)).mean()", "mse_none": "F.mse_loss(x, y, reduction='none')",
        "pairwise": "F.pairwise_distance(x, y)",
    }.items():
        yield f"loss-{name}", _file(sizes, f"return {expression}", pairs, parameters="x, y")
    yield "loss-cross_entropy", _file(sizes, "return F.cross_entropy(x, y)", "[torch.randn(B, C), torch.randint(0, C, (B,))]", parameters="x, y")
    yield "loss-cross_entropy_sum", _file(sizes, "return F.cross_entropy(x, y, reduction='sum', label_smoothing=0.1)",
                                          "[torch.randn(B, C), torch.randint(0, C, (B,))]", parameters="x, y")
    yield "loss-nll", _file(sizes, "return F.nll_loss(x, y)", "[torch.log_softmax(torch.randn(B, C), 1), torch.randint(0, C, (B,))]", parameters="x, y")
    yield "loss-kl", _file(sizes, "return F.kl_div(torch.log(x), y, reduction='batchmean')",
                           "[torch.softmax(torch.randn(B, C), -1), torch.softmax(torch.randn(B, C), -1)]", parameters="x, y")
    yield "loss-bce", _file(sizes, "return F.binary_cross_entropy(x, y)", "[torch.sigmoid(torch.randn(B, C)), torch.randint(0, 2, (B, C)).float()]",
                            parameters="x, y")
    yield "loss-bce_logits", _file(sizes, "return F.binary_cross_entropy_with_logits(x, y)", "[torch.randn(B, C), torch.rand(B, C)]", parameters="x, y")
    yield "loss-hinge", _file("B = 30", "return torch.mean(torch.clamp(1 - x * y, min=0))", "[torch.randn(B), torch.randint(0, 2, (B,)).float() * 2 - 1]",
                              parameters="x, y")
    yield "loss-triplet", _file("B = 12\nD = 20", "return self.loss(a, p, n)", "[torch.randn(B, D), torch.randn(B, D), torch.randn(B, D)]",
                                parameters="a, p, n", init="self.loss = nn.TripletMarginLoss(margin=margin)", arguments="margin", init_inputs="[1.0]")
    yield "loss-one_hot", _file(sizes, "return -(y * F.log_softmax(x, -1)).sum(-1).mean()",
                                "[torch.randn(B, C), F.one_hot(torch.randint(0, C, (B,)), C).float()]", parameters="x, y")
    yield "loss-nll_two_dims", _file("B = 4\nC = 5\nS = 7", "return F.cross_entropy(x, y, ignore_index=0)",
                                     "[torch.randn(B, C, S), torch.randint(0, C, (B, S))]", parameters="x, y")


def _indexing() -> Iterator[tuple[str, str]]:
    yield "index-embedding", _file("V = 40\nD = 16\nB = 5\nS = 6", "return self.table(x)", "[torch.randint(0, V, (B, S))]",
                                   init="self.table = nn.Embedding(v, d)", arguments="v, d", init_inputs="[V, D]")
    yield "index-embedding_bag", _file("V = 40\nD = 16\nB = 5\nS = 6", "return self.table(x)", "[torch.randint(0, V, (B, S))]",
                                       init="self.table = nn.EmbeddingBag(v, d, mode='mean')", arguments="v, d", init_inputs="[V, D]")
    yield "index-gather", _file("B = 6\nN = 30\nK = 4", "return torch.gather(x, 1, i)", "[torch.randn(B, N), torch.randint(0, N, (B, K))]", parameters="x, i")
    yield "index-select", _file("N = 30\nD = 9\nK = 12", "return x[i]", "[torch.randn(N, D), torch.randint(0, N, (K,))]", parameters="x, i")
    yield "index-scatter_add", _file("N = 30\nD = 9\nK = 12", "return torch.zeros_like(x).index_add(0, i, s)",
                                     "[torch.randn(N, D), torch.randint(0, N, (K,)), torch.randn(K, D)]", parameters="x, i, s")
    yield "index-permutation", _file("N = 40\nD = 7", "return x[i]", "[torch.randn(N, D), torch.randperm(N)]", parameters="x, i")
    yield "index-searchsorted", _file("N = 30\nM = 20", "return torch.searchsorted(edges, x)", "[torch.sort(torch.randn(N)).values, torch.randn(M)]",
                                      parameters="edges, x")
    yield "index-bincount", _file("N = 60\nC = 8", "return torch.bincount(x, minlength=8)", "[torch.randint(0, 8, (N,))]")
    yield "index-masked_fill", _file(ROWS, "return x.masked_fill(mask, 0.0)", "[torch.randn(ROWS, COLS), torch.rand(ROWS, COLS) > 0.5]", parameters="x, mask")
    yield "index-nearest", _file("N = 20\nM = 15\nD = 4", "return torch.cdist(x, y).argmin(dim=1)", "[torch.randn(N, D), torch.randn(M, D)]", parameters="x, y")
    yield "index-one_hot", _file("N = 20\nC = 6", "return F.one_hot(x, 6)", "[torch.randint(0, 6, (N,))]")
    yield "index-sorted_segments", _file("N = 40", "return torch.cumsum(x, 0) * (s[1:] - s[:-1]).sum()", "[torch.randn(N), torch.sort(torch.rand(N)).values]",
                                         parameters="x, s")
    yield "index-positional", _file("V = 30\nD = 12\nB = 3\nS = 8", "return self.tok(x) + self.pos(torch.arange(x.shape[1], device=x.device))",
                                    "[torch.randint(0, V, (B, S))]", init="self.tok = nn.Embedding(v, d)\nself.pos = nn.Embedding(64, d)",
                                    arguments="v, d", init_inputs="[V, D]")


def _attention() -> Iterator[tuple[str, str]]:
    sizes = "B = 2\nHEADS = 2\nS = 18\nD = 16"
    three = "[torch.randn(B, HEADS, S, D), torch.randn(B, HEADS, S, D), torch.randn(B, HEADS, S, D)]"
    yield "attention-scaled", _file(sizes, "return F.scaled_dot_product_attention(q, k, v)", three, parameters="q, k, v")
    yield "attention-causal", _file(sizes, "return F.scaled_dot_product_attention(q, k, v, is_causal=True)", three, parameters="q, k, v")
    yield "attention-manual", _file(sizes, "s = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])\nreturn torch.softmax(s, -1) @ v", three,
                                    parameters="q, k, v")
    yield "attention-linear", _file(sizes, "q, k = F.elu(q) + 1, F.elu(k) + 1\nkv = torch.einsum('bhsd,bhse->bhde', k, v)\n"
                                    "z = 1 / (torch.einsum('bhsd,bhd->bhs', q, k.sum(2)) + 1e-6)\n"
                                    "return torch.einsum('bhsd,bhde,bhs->bhse', q, kv, z)", three, parameters="q, k, v")
    yield "attention-module", _file("B = 2\nS = 9\nD = 16", "return self.attention(x, x, x, need_weights=False)[0]", "[torch.randn(B, S, D)]",
                                    init="self.attention = nn.MultiheadAttention(d, 4, batch_first=True)", arguments="d", init_inputs="[D]")
    yield "attention-relu", _file(sizes, "s = torch.relu(q @ k.transpose(-2, -1)) / 18\nreturn s @ v", three, parameters="q, k, v")
    yield "attention-rotary", _file("B = 2\nS = 10\nD = 16", "h = x.shape[-1] // 2\na, b = x[..., :h], x[..., h:]\nreturn torch.cat([a * c - b * s, b * c + a * s], -1)",
                                    "[torch.randn(B, S, D), torch.cos(torch.rand(S, D // 2)), torch.sin(torch.rand(S, D // 2))]", parameters="x, c, s")
    yield "attention-block", _file("B = 2\nS = 8\nD = 16", "return self.block(x)", "[torch.randn(B, S, D)]",
                                   init="self.block = nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, batch_first=True)", arguments="d", init_inputs="[D]")


def _recurrent() -> Iterator[tuple[str, str]]:
    sizes = "S = 6\nB = 3\nI = 8\nH = 12"
    yield "recurrent-gru", _file(sizes, "return self.rnn(x)[0]", "[torch.randn(S, B, I)]", init="self.rnn = nn.GRU(i, h)", arguments="i, h", init_inputs="[I, H]")
    yield "recurrent-gru_state", _file(sizes, "return self.rnn(x, h)", "[torch.randn(S, B, I), torch.randn(1, B, H)]", parameters="x, h",
                                       init="self.rnn = nn.GRU(i, h)", arguments="i, h", init_inputs="[I, H]")
    yield "recurrent-lstm", _file(sizes, "y, (h, c) = self.rnn(x)\nreturn y[-1], h, c", "[torch.randn(S, B, I)]",
                                  init="self.rnn = nn.LSTM(i, h, 2)", arguments="i, h", init_inputs="[I, H]")
    yield "recurrent-bidirectional", _file(sizes, "return self.rnn(x)[0]", "[torch.randn(S, B, I)]",
                                           init="self.rnn = nn.GRU(i, h, bidirectional=True)", arguments="i, h", init_inputs="[I, H]")
    yield "recurrent-cell", _file("B = 4\nI = 8\nH = 12", "return torch.tanh(self.a(x) + self.b(h))", "[torch.randn(B, I), torch.randn(B, H)]",
                                  parameters="x, h", init="self.a = nn.Linear(i, h)\nself.b = nn.Linear(h, h)", arguments="i, h", init_inputs="[I, H]")
    yield "recurrent-scan", _file("B = 3\nS = 12\nD = 5", "h = torch.zeros_like(x[:, 0])\nys = []\nfor t in range(x.shape[1]):\n    h = a * h + x[:, t]\n    ys.append(h)\nreturn torch.stack(ys, 1)",
                                  "[torch.randn(B, S, D), torch.rand(D)]", parameters="x, a")


def _forms() -> Iterator[tuple[str, str]]:
    yield "form-view", _file(ROWS, "return x.transpose(0, 1)", NORMAL)
    yield "form-slice", _file(ROWS, "return x[:, ::2]", NORMAL)
    yield "form-reshape", _file("B = 4\nC = 6\nH = 5", "return x.reshape(x.shape[0], -1)", "[torch.randn(B, C, H)]")
    yield "form-expand", _file(ROWS, "return x.sum(1, keepdim=True).expand(-1, 4)", NORMAL)
    yield "form-identity", _file(ROWS, "return x", NORMAL)
    yield "form-zero", _file(ROWS, "return x * 0", NORMAL)
    yield "form-constant", _file(ROWS, "return torch.full_like(x, 0.25)", NORMAL)
    yield "form-tuple", _file(ROWS, "return x + 1, x * 2", NORMAL)
    yield "form-dict", _file(ROWS, "return {'sum': x.sum(-1), 'double': 2 * x}", NORMAL)
    yield "form-nested", _file(ROWS, "return [x + 1, (x * 2, {'mean': x.mean()})]", NORMAL)
    yield "form-scalar_output", _file(ROWS, "return x + 1, x.shape[0], 3.5", NORMAL)
    yield "form-none_output", _file(ROWS, "return x + 1, None", NORMAL)
    yield "form-chunk", _file("ROWS = 5\nCOLS = 60", "a, b = x.chunk(2, dim=-1)\nreturn a * torch.sigmoid(b)", NORMAL)
    yield "form-list_input", _file(ROWS, "return torch.cat(xs, dim=1)", "[[torch.randn(ROWS, COLS), torch.randn(ROWS, 7)]]", parameters="xs")
    yield "form-dict_input", _file(ROWS, "return batch['a'] * batch['b']", "[{'a': torch.randn(ROWS, COLS), 'b': torch.randn(ROWS, COLS)}]", parameters="batch")
    yield "form-string_argument", _file(ROWS, "return x.exp() if mode == 'exp' else x", "[torch.randn(ROWS, COLS), 'exp']", parameters="x, mode")
    yield "form-stack_heads", _file("B = 3\nS = 8\nHD = 4\nD = 6", "return x.view(*x.shape[:2], 4, -1).permute(0, 2, 1, 3).contiguous()",
                                    "[torch.randn(B, S, HD * D)]")
    yield "form-frozen_width", _file("ROWS = 5\nWIDTH = 64", "return x.reshape(-1, WIDTH).sum(-1)", "[torch.randn(ROWS, WIDTH)]")
    yield "form-local_sizes", (
        "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return x.cumsum(-1)\n\n"
        "def get_inputs():\n    rows = 5\n    cols = 70\n    return [torch.randn(rows, cols)]\n\ndef get_init_inputs():\n    return []\n")
    yield "form-literal_sizes", (
        "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return torch.tanh(x).mean(1)\n\n"
        "def get_inputs():\n    return [torch.randn(5, 70)]\n\ndef get_init_inputs():\n    return []\n")
    yield "form-config_dict", _file("CONFIG = {'rows': 5, 'dim': 32}", "return self.linear(x)", "[torch.randn(CONFIG['rows'], CONFIG['dim'])]",
                                    init="self.linear = nn.Linear(dim, dim)", arguments="dim", init_inputs="[CONFIG['dim']]")
    yield "form-buffer", _file("ROWS = 5\nDIM = 20", "return x * self.scale", "[torch.randn(ROWS, DIM)]",
                               init="self.register_buffer('scale', torch.arange(dim).float() / dim)", arguments="dim", init_inputs="[DIM]")
    yield "form-init_tensor", _file("ROWS = 5\nDIM = 20", "return x + self.shift", "[torch.randn(ROWS, DIM)]",
                                    init="self.shift = nn.Parameter(shift)", arguments="shift", init_inputs="[torch.randn(DIM)]")
    yield "form-closure", _file("ROWS = 5\nDIM = 20", "return self.block(x)", "[torch.randn(ROWS, DIM)]",
                                init="self.inner = inner = nn.Linear(dim, dim)\nself.block = lambda x: torch.relu(inner(x))",
                                arguments="dim", init_inputs="[DIM]")
    yield "form-in_place", _file(ROWS, "y = x.clone()\ny += 1\nreturn y.mul_(2)", NORMAL)
    yield "form-mutates_input", _file(ROWS, "x.add_(1)\nreturn x * 2", NORMAL)
    yield "form-same_input_twice", _file(ROWS, "return x @ x.T", NORMAL)
    yield "form-empty_batch_safe", _file(ROWS, "return x.sum(0) / max(1, x.shape[0])", NORMAL)
    yield "form-large_offset", _file(ROWS, "return (x - x.mean(-1, keepdim=True)).pow(2).mean(-1)", "[torch.randn(ROWS, COLS) + 100]")
    yield "form-tiny_values", _file(ROWS, "return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-12)", "[torch.randn(ROWS, COLS) * 1e-4]")
    yield "form-nonfinite_reference", _file(ROWS, "return torch.log(x)", NORMAL)
    yield "form-one_row", _file("COLS = 130", "return torch.relu(x)", "[torch.randn(COLS)]")
    yield "form-zero_dim", _file("N = 3", "return x * 2", "[torch.randn(())]")
    yield "form-five_dims", _file("A = 2\nB = 3\nC = 4\nD = 5\nE = 6", "return x.permute(4, 3, 2, 1, 0).sum(0)", "[torch.randn(A, B, C, D, E)]")
    yield "form-function_entry", (
        "import torch\n\nROWS = 5\nCOLS = 40\n\ndef Model(x):\n    return torch.softmax(x, -1)\n\n"
        "def get_inputs():\n    return [torch.randn(ROWS, COLS)]\n\ndef get_init_inputs():\n    return []\n")


def _dtypes() -> Iterator[tuple[str, str]]:
    for short, dtype in {"half": "float16", "bfloat": "bfloat16", "double": "float64"}.items():
        one = f"[torch.randn(ROWS, COLS, dtype=torch.{dtype})]"
        for name, expression in {"gelu": "F.gelu(x)", "softmax": "torch.softmax(x, -1)", "sum": "x.sum(-1)", "max": "x.max(-1).values",
                                 "mean_square": "x.pow(2).mean(-1)"}.items():
            yield f"{short}-{name}", _file(ROWS, f"return {expression}", one)
        yield f"{short}-matmul", _file("M = 20\nK = 64\nN = 24", "return x @ y",
                                       f"[torch.randn(M, K, dtype=torch.{dtype}), torch.randn(K, N, dtype=torch.{dtype})]", parameters="x, y")
        yield f"{short}-linear", _file("B = 6\nI = 40\nO = 24", "return self.linear(x)", f"[torch.randn(B, I, dtype=torch.{dtype})]",
                                       init=f"self.linear = nn.Linear(i, o).to(torch.{dtype})", arguments="i, o", init_inputs="[I, O]")
        yield f"{short}-layer_norm", _file("B = 6\nD = 40", "return F.layer_norm(x, x.shape[-1:])", f"[torch.randn(B, D, dtype=torch.{dtype})]")
    yield "mixed-upcast", _file(ROWS, "return (x.float() * 2).to(torch.float16)", "[torch.randn(ROWS, COLS).half()]")
    yield "mixed-half_weights", _file("M = 12\nK = 32\nN = 20", "return x.half() @ w", "[torch.randn(M, K), torch.randn(K, N).half()]", parameters="x, w")
    yield "mixed-dequantise", _file("N = 12\nK = 32", "return (q.float() - z) * s", "[torch.randint(-128, 128, (N, K), dtype=torch.int8), torch.rand(N, 1), torch.rand(N, 1)]",
                                    parameters="q, s, z")
    yield "mixed-quantise", _file("N = 12\nK = 32", "return torch.clamp(torch.round(x / 0.05), -128, 127).to(torch.int8)", "[torch.randn(N, K)]")
    yield "integer-add", _file(ROWS, "return x + y", "[torch.randint(-50, 50, (ROWS, COLS)), torch.randint(0, 9, (ROWS, COLS))]", parameters="x, y")
    yield "integer-sum", _file(ROWS, "return x.sum(-1)", "[torch.randint(0, 100, (ROWS, COLS), dtype=torch.int32)]")
    yield "integer-bits", _file(ROWS, "return (x & 15) ^ (x >> 2)", "[torch.randint(0, 255, (ROWS, COLS))]")
    yield "integer-divide", _file(ROWS, "return x // 3, x % 7", "[torch.randint(-50, 50, (ROWS, COLS))]")
    yield "boolean-logic", _file(ROWS, "return (x & ~y) | (y & ~x)", "[torch.rand(ROWS, COLS) > 0.5, torch.rand(ROWS, COLS) > 0.5]", parameters="x, y")
    yield "boolean-compare", _file(ROWS, "return x >= y", TWO, parameters="x, y")
    yield "complex-multiply", _file(ROWS, "return x * y", "[torch.randn(ROWS, COLS, dtype=torch.complex64), torch.randn(ROWS, COLS, dtype=torch.complex64)]",
                                    parameters="x, y")
    yield "complex-abs", _file(ROWS, "return x.abs()", "[torch.randn(ROWS, COLS, dtype=torch.complex64)]")
    yield "complex-fft", _file("ROWS = 4\nCOLS = 64", "return torch.fft.rfft(x)", NORMAL)
    yield "complex-fft_magnitude", _file("ROWS = 4\nCOLS = 64", "return torch.fft.fft(x).abs()", NORMAL)


def _structured() -> Iterator[tuple[str, str]]:
    yield "structure-cholesky", _file("N = 12", "return torch.linalg.cholesky(a)", "[(lambda m: m @ m.T + N * torch.eye(N))(torch.randn(N, N))]", parameters="a")
    yield "structure-solve", _file("N = 10\nM = 4", "return torch.linalg.solve(a, b)", "[torch.randn(N, N) + 10 * torch.eye(N), torch.randn(N, M)]", parameters="a, b")
    yield "structure-triangular_solve", _file("N = 10\nM = 4", "return torch.linalg.solve_triangular(a, b, upper=True)",
                                              "[torch.triu(torch.randn(N, N)) + 4 * torch.eye(N), torch.randn(N, M)]", parameters="a, b")
    yield "structure-trace", _file("N = 30", "return torch.trace(a)", "[torch.randn(N, N)]", parameters="a")
    yield "structure-positive", _file(ROWS, "return x.log().sum(-1)", "[torch.rand(ROWS, COLS) + 0.1]")
    yield "structure-probabilities", _file(ROWS, "return -(p * p.log()).sum(-1)", "[torch.softmax(torch.randn(ROWS, COLS), -1)]", parameters="p")
    yield "structure-signs", _file(ROWS, "return (x * s).sum(-1)", "[torch.randn(ROWS, COLS), torch.randint(0, 2, (ROWS, COLS)).float() * 2 - 1]", parameters="x, s")
    yield "structure-unit_rows", _file("N = 20\nD = 16", "return a @ a.T", "[F.normalize(torch.randn(N, D), dim=1)]", parameters="a")
    yield "structure-banded", _file("N = 20", "return a @ x", "[torch.triu(torch.tril(torch.randn(N, N), 1), -1), torch.randn(N, 5)]", parameters="a, x")
    yield "structure-orthogonal", _file("N = 12", "return q @ x @ q.T", "[torch.linalg.qr(torch.randn(N, N))[0], torch.randn(N, N)]", parameters="q, x")
    yield "structure-lengths", _file("B = 4\nS = 16", "mask = torch.arange(x.shape[1], device=x.device)[None] < n[:, None]\nreturn (x * mask).sum(1) / n",
                                     "[torch.randn(B, S), torch.randint(1, S + 1, (B,))]", parameters="x, n")
    yield "structure-constant_input", _file(ROWS, "return x * t", "[torch.randn(ROWS, COLS), torch.ones(COLS)]", parameters="x, t")


def _modes() -> Iterator[tuple[str, str]]:
    yield "mode-dropout_eval", _file("B = 6\nD = 40", "return self.drop(self.linear(x))", "[torch.randn(B, D)]",
                                     init="self.linear = nn.Linear(d, d)\nself.drop = nn.Dropout(0.3)\nself.eval()", arguments="d", init_inputs="[D]")
    yield "mode-dropout_train", _file("B = 6\nD = 40", "return self.drop(x)", "[torch.randn(B, D)]", init="self.drop = nn.Dropout(0.3)", init_inputs="[]")
    yield "mode-dropout_chain", _file("B = 6\nD = 40", "return self.drop(torch.relu(self.linear(x)))", "[torch.randn(B, D)]",
                                      init="self.linear = nn.Linear(d, d)\nself.drop = nn.Dropout(0.2)", arguments="d", init_inputs="[D]")
    yield "mode-dropout_sum", _file("B = 6\nD = 40", "return F.dropout(x, 0.5, training=True).sum(-1)", "[torch.randn(B, D)]")
    yield "mode-noise", _file("B = 6\nD = 40", "return x + 0.1 * torch.randn_like(x)", "[torch.randn(B, D)]")
    yield "mode-batch_norm_chain", _file("B = 10\nI = 12\nO = 8", "return torch.relu(self.norm(self.linear(x)))", "[torch.randn(B, I)]",
                                         init="self.linear = nn.Linear(i, o)\nself.norm = nn.BatchNorm1d(o)", arguments="i, o", init_inputs="[I, O]")
    yield "mode-batch_norm_conv", _file("B = 5\nI = 3\nO = 4\nH = 9\nW = 9", "return self.norm(self.conv(x)) * 2", "[torch.randn(B, I, H, W)]",
                                        init="self.conv = nn.Conv2d(i, o, 3)\nself.norm = nn.BatchNorm2d(o)", arguments="i, o", init_inputs="[I, O]")
    yield "mode-counter", _file("B = 6\nD = 40", "self.calls += 1\nreturn x * self.calls", "[torch.randn(B, D)]",
                                init="self.register_buffer('calls', torch.zeros(()))", init_inputs="[]")


def _more_products() -> Iterator[tuple[str, str]]:
    def two(name: str, sizes: str, expression: str, x: str, y: str) -> tuple[str, str]:
        return f"matmul-{name}", _file(sizes, f"return {expression}", f"[torch.randn({x}), torch.randn({y})]", parameters="x, y")

    yield two("small_k", "M = 40\nK = 3\nN = 50", "x @ y", "M, K", "K, N")
    yield two("large_k", "M = 6\nK = 1500\nN = 5", "x @ y", "M, K", "K, N")
    yield two("tall_skinny", "M = 500\nK = 8\nN = 6", "x @ y", "M, K", "K, N")
    yield two("wide", "M = 5\nK = 8\nN = 600", "x @ y", "M, K", "K, N")
    yield two("three_dims", "B = 3\nM = 10\nK = 24\nN = 15", "x @ y", "B, M, K", "K, N")
    yield two("broadcast_batch", "A = 2\nB = 3\nM = 6\nK = 10\nN = 7", "x @ y", "A, 1, M, K", "B, K, N")
    yield two("row_by_matrix", "K = 70\nN = 40", "x @ y", "K", "K, N")
    yield two("batched_transposed", "B = 3\nM = 9\nK = 20\nN = 11", "(x @ y.transpose(1, 2)).contiguous()", "B, M, K", "B, N, K")
    yield two("gram", "M = 30\nN = 20", "x.T @ x + 0.1 * y", "M, N", "N, N")
    yield two("outer_sum", "M = 30\nN = 20", "x[:, None] + y[None, :]", "M", "N")
    yield "matmul-scalar", _file("M = 30\nN = 20", "return x * s", "[torch.randn(M, N), 3.14]", parameters="x, s")
    yield "matmul-upper_lower", _file("N = 32", "return a @ b", "[torch.triu(torch.randn(N, N)), torch.tril(torch.randn(N, N))]", parameters="a, b")
    yield "matmul-triangular_vector", _file("N = 48", "return a @ b", "[torch.tril(torch.randn(N, N)), torch.randn(N)]", parameters="a, b")
    yield "matmul-masked_weight", _file("B = 6\nI = 24\nO = 16", "return F.linear(x, self.weight * self.mask)", "[torch.randn(B, I)]",
                                        init="self.weight = nn.Parameter(torch.randn(o, i))\nself.register_buffer('mask', torch.ones(o, i).tril())",
                                        arguments="i, o", init_inputs="[I, O]")
    yield "matmul-addmm", _file("M = 12\nK = 20\nN = 14", "return torch.addmm(c, a, b, beta=0.5, alpha=2.0)",
                                "[torch.randn(M, K), torch.randn(K, N), torch.randn(M, N)]", parameters="a, b, c")
    yield "matmul-baddbmm", _file("B = 2\nM = 8\nK = 12\nN = 9", "return torch.baddbmm(c, a, b)",
                                  "[torch.randn(B, M, K), torch.randn(B, K, N), torch.randn(B, M, N)]", parameters="a, b, c")
    yield "matmul-chain", _file("N = 14", "return a @ b @ c", "[torch.randn(N, N), torch.randn(N, N), torch.randn(N, N)]", parameters="a, b, c")
    yield "matmul-low_rank", _file("B = 6\nI = 30\nR = 4\nO = 20", "return x @ self.weight.T + (x @ self.down) @ self.up * 2.0", "[torch.randn(B, I)]",
                                   init="self.weight = nn.Parameter(torch.randn(o, i))\nself.down = nn.Parameter(torch.randn(i, r))\n"
                                        "self.up = nn.Parameter(torch.randn(r, o))", arguments="i, r, o", init_inputs="[I, R, O]")
    yield "matmul-experts", _file("T = 10\nD = 12\nE = 3\nH = 8", "return torch.einsum('td,edh,te->th', x, self.weight, torch.softmax(gate, -1))",
                                  "[torch.randn(T, D), torch.randn(T, E)]", parameters="x, gate",
                                  init="self.weight = nn.Parameter(torch.randn(e, d, h))", arguments="e, d, h", init_inputs="[E, D, H]")
    yield "matmul-tensor_dot", _file("A = 4\nB = 5\nC = 6\nD = 7", "return torch.tensordot(x, y, dims=([1, 2], [0, 1]))",
                                     "[torch.randn(A, B, C), torch.randn(B, C, D)]", parameters="x, y")


def _more_convolutions() -> Iterator[tuple[str, str]]:
    def one(name: str, sizes: str, shape: str, layer: str, arguments: str, values: str, tail: str = "return self.conv(x)") -> tuple[str, str]:
        return f"conv-{name}", _file(sizes, tail, f"[torch.randn({shape})]", init=f"self.conv = {layer}", arguments=arguments, init_inputs=values)

    line, plane, volume = "B = 3\nI = 4\nO = 6\nL = 30", "B = 3\nI = 4\nO = 6\nH = 11\nW = 12", "B = 2\nI = 4\nO = 6\nD = 6\nH = 7\nW = 8"
    yield one("1d_depthwise", line, "B, I, L", "nn.Conv1d(i, i, 3, groups=i)", "i", "[I]")
    yield one("1d_dilated_strided", line, "B, I, L", "nn.Conv1d(i, o, 3, stride=3, dilation=2)", "i, o", "[I, O]")
    yield one("1d_causal", line, "B, I, L", "nn.Conv1d(i, o, 4)", "i, o", "[I, O]", "return self.conv(F.pad(x, (3, 0)))")
    yield one("1d_transposed_dilated", line, "B, I, L", "nn.ConvTranspose1d(i, o, 3, stride=2, padding=1, dilation=2)", "i, o", "[I, O]")
    yield one("1d_transposed_depthwise", line, "B, I, L", "nn.ConvTranspose1d(i, i, 3, groups=i)", "i", "[I]")
    yield one("2d_pointwise", plane, "B, I, H, W", "nn.Conv2d(i, o, 1)", "i, o", "[I, O]")
    yield one("2d_transposed_grouped", plane, "B, I, H, W", "nn.ConvTranspose2d(i, o, 3, stride=2, padding=1, groups=2)", "i, o", "[I, O]")
    yield one("2d_transposed_asymmetric", plane, "B, I, H, W", "nn.ConvTranspose2d(i, o, (3, 5), padding=(1, 2), bias=False)", "i, o", "[I, O]")
    yield one("2d_depthwise_wide", plane, "B, I, H, W", "nn.Conv2d(i, 2 * i, (3, 1), groups=i, padding=(1, 0))", "i", "[I]")
    yield one("2d_reflect", plane, "B, I, H, W", "nn.Conv2d(i, o, 3, padding=1, padding_mode='reflect')", "i, o", "[I, O]")
    yield one("3d_grouped", volume, "B, I, D, H, W", "nn.Conv3d(i, o, 3, groups=2)", "i, o", "[I, O]")
    yield one("3d_transposed_grouped", volume, "B, I, D, H, W", "nn.ConvTranspose3d(i, o, (2, 3, 3), stride=2, padding=1, output_padding=1, groups=2)", "i, o", "[I, O]")
    yield one("3d_asymmetric", volume, "B, I, D, H, W", "nn.Conv3d(i, o, (3, 1, 2), stride=(2, 1, 1))", "i, o", "[I, O]")


_LAYERS = {
    "linear": ("B = 6\nI = 20\nO = 16", "[torch.randn(B, I)]", "self.layer = nn.Linear(i, o)", "i, o", "[I, O]"),
    "conv": ("B = 3\nI = 3\nO = 8\nH = 9\nW = 10", "[torch.randn(B, I, H, W)]", "self.layer = nn.Conv2d(i, o, 3)", "i, o", "[I, O]"),
    "transposed": ("B = 2\nI = 3\nO = 4\nD = 4\nH = 5\nW = 4", "[torch.randn(B, I, D, H, W)]",
                   "self.layer = nn.ConvTranspose3d(i, o, 3, stride=2, padding=1)", "i, o", "[I, O]"),
}


def _chains() -> Iterator[tuple[str, str]]:
    """A layer and what is fused behind it."""
    for layer, tails in {
        "linear": {
            "scale_residual": "return x * 0.5 + x.clone().detach()", "mish_mish": "return F.mish(F.mish(x))", "sum_scale": "return x.sum(1, keepdim=True) * 1.5",
            "group_norm_hardtanh": "return F.hardtanh(F.group_norm(x, 4), -2.0, 2.0)", "sigmoid_sum": "return torch.sigmoid(x).sum(1, keepdim=True)",
            "logsumexp_gelu": "return F.gelu(torch.logsumexp(x, 1, keepdim=True))", "max_subtract": "m = x.max(1, keepdim=True).values\nreturn F.gelu(m - m.mean(1, keepdim=True))",
            "divide_swish": "return (x / 2.0) * torch.sigmoid(x)", "pool_max": "return F.avg_pool1d(x.unsqueeze(1), 4).squeeze(1).max(dim=1).values",
            "softmax_bias": "return torch.softmax(x + 0.1, dim=1)", "instance_norm": "return F.instance_norm(x[:, None, None])[:, 0, 0] * 2.0", "min_constant": "return torch.min(x, torch.tensor(0.3, device=x.device)) - 0.3",
            "clamp_chain": "return torch.clamp(torch.tanh(torch.clamp(x / 2, -1.0, 1.0)), -0.9, 0.9)",
        },
        "conv": {
            "subtract_tanh_pool": "return F.avg_pool2d(torch.tanh(x - 0.5) - 0.2, 2)", "group_norm_scale": "return F.group_norm(x, 4) * 2.0", "divide_leaky": "return F.leaky_relu(x / 2.0, 0.01)",
            "gelu_global": "return F.adaptive_avg_pool2d(F.gelu(x), 1).squeeze(-1).squeeze(-1)", "instance_norm": "return F.instance_norm(x) / 2.0",
            "min_channel": "return torch.min(x * 2.0, dim=1, keepdim=True).values", "norm_logsumexp": "return torch.logsumexp(x + torch.tanh(F.group_norm(x, 4)), dim=1, keepdim=True)",
            "sigmoid_sum": "return torch.sigmoid(F.avg_pool2d(x, 2)).sum(dim=[1, 2, 3])", "activation": "return torch.tanh(F.softplus(x)) * x",
            "channels_last": "return x.to(memory_format=torch.channels_last).relu().contiguous()",
        },
        "transposed": {
            "clamp_divide": "return torch.clamp(x, min=-0.5) / 2.0", "softmax_sigmoid": "return torch.sigmoid(torch.softmax(x, dim=1))", "max_sum": "return F.max_pool3d(F.max_pool3d(x, 2), 2).sum(dim=1, keepdim=True)",
            "layer_norm_gelu": "return F.gelu(F.layer_norm(x, x.shape[-1:]))", "swish_group_norm": "return F.hardswish(F.group_norm(torch.sigmoid(x) * x, 2))",
            "mean_add_softmax": "return torch.tanh(torch.softmax(x.mean(dim=2, keepdim=True) + 0.1, dim=1)) * 2.0",
        },
    }.items():
        sizes, inputs, init, arguments, values = _LAYERS[layer]
        for name, tail in tails.items():
            yield f"chain-{layer}_{name}", _file(sizes, f"x = self.layer(x)\n{tail}", inputs, init=init, arguments=arguments, init_inputs=values)


def _blocks() -> Iterator[tuple[str, str]]:
    """Small networks."""
    yield "block-residual", _file("B = 2\nC = 4\nH = 8\nW = 8", "return torch.relu(self.b(torch.relu(self.a(x))) + x)", "[torch.randn(B, C, H, W)]",
                                  init="self.a = nn.Conv2d(c, c, 3, padding=1)\nself.b = nn.Conv2d(c, c, 3, padding=1)", arguments="c", init_inputs="[C]")
    yield "block-residual_norm", _file("B = 3\nC = 4\nH = 8\nW = 8", "return torch.relu(self.n(self.a(x)) + x)", "[torch.randn(B, C, H, W)]",
                                       init="self.a = nn.Conv2d(c, c, 3, padding=1, bias=False)\nself.n = nn.BatchNorm2d(c)\nself.eval()", arguments="c", init_inputs="[C]")
    yield "block-squeeze_excite", _file("B = 2\nC = 8\nH = 6\nW = 6", "s = x.mean(dim=(2, 3))\ns = torch.sigmoid(self.b(torch.relu(self.a(s))))\nreturn x * s[:, :, None, None]",
                                        "[torch.randn(B, C, H, W)]", init="self.a = nn.Linear(c, 4)\nself.b = nn.Linear(4, c)", arguments="c", init_inputs="[C]")
    yield "block-inception", _file("B = 2\nC = 4\nH = 8\nW = 8", "return torch.cat([self.a(x), self.b(x), F.max_pool2d(x, 3, 1, 1)], dim=1)", "[torch.randn(B, C, H, W)]",
                                   init="self.a = nn.Conv2d(c, 3, 1)\nself.b = nn.Conv2d(c, 5, 3, padding=1)", arguments="c", init_inputs="[C]")
    yield "block-dense", _file("B = 2\nC = 4\nH = 6\nW = 6", "for layer in self.layers:\n    x = torch.cat([x, torch.relu(layer(x))], 1)\nreturn x", "[torch.randn(B, C, H, W)]",
                               init="self.layers = nn.ModuleList([nn.Conv2d(c + 3 * i, 3, 3, padding=1) for i in range(depth)])", arguments="c, depth", init_inputs="[C, 3]")
    yield "block-shuffle", _file("B = 2\nG = 2\nC = 6\nH = 5\nW = 5", "b, c, h, w = x.shape\nreturn x.view(b, self.g, c // self.g, h, w).transpose(1, 2).contiguous().view(b, c, h, w)",
                                 "[torch.randn(B, C, H, W)]", init="self.g = g", arguments="g", init_inputs="[G]")
    yield "block-mlp_swiglu", _file("B = 4\nD = 12\nH = 20", "return self.down(F.silu(self.gate(x)) * self.up(x))", "[torch.randn(B, D)]",
                                    init="self.gate = nn.Linear(d, h, bias=False)\nself.up = nn.Linear(d, h, bias=False)\nself.down = nn.Linear(h, d, bias=False)",
                                    arguments="d, h", init_inputs="[D, H]")
    yield "block-mixer", _file("B = 2\nS = 7\nD = 10", "x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)\nreturn x + self.channels(x)", "[torch.randn(B, S, D)]",
                               init="self.tokens = nn.Linear(s, s)\nself.channels = nn.Linear(d, d)", arguments="s, d", init_inputs="[S, D]")
    yield "block-lenet", _file("B = 2\nCLASSES = 5", "x = F.max_pool2d(torch.relu(self.a(x)), 2)\nx = F.max_pool2d(torch.relu(self.b(x)), 2)\nreturn self.c(x.flatten(1))",
                               "[torch.randn(B, 1, 20, 20)]", init="self.a = nn.Conv2d(1, 4, 5)\nself.b = nn.Conv2d(4, 6, 3)\nself.c = nn.Linear(6 * 9, n)",
                               arguments="n", init_inputs="[CLASSES]")
    yield "block-patches", _file("B = 2\nC = 3\nP = 4\nSIDE = 16\nD = 10", "p = x.unfold(2, self.p, self.p).unfold(3, self.p, self.p)\np = p.permute(0, 2, 3, 1, 4, 5).contiguous().flatten(3).flatten(1, 2)\nreturn self.project(p)",
                                 "[torch.randn(B, C, SIDE, SIDE)]", init="self.p = p\nself.project = nn.Linear(c * p * p, d)", arguments="c, p, d", init_inputs="[C, P, D]")
    yield "block-vlad", _file("B = 2\nN = 9\nK = 4\nD = 6", "a = torch.softmax(x @ self.clusters, -1)\nv = torch.einsum('bnk,bnd->bkd', a, x) - a.sum(1)[..., None] * self.centres\nreturn F.normalize(v, dim=-1).flatten(1)",
                              "[torch.randn(B, N, D)]", init="self.clusters = nn.Parameter(torch.randn(d, k))\nself.centres = nn.Parameter(torch.randn(k, d))", arguments="k, d", init_inputs="[K, D]")
    yield "block-encoder_norm_first", _file("B = 2\nS = 6\nD = 12", "y = self.n(x)\nx = x + self.a(y, y, y, need_weights=False)[0]\nreturn x + self.m(x)", "[torch.randn(B, S, D)]",
                                            init="self.n = nn.LayerNorm(d)\nself.a = nn.MultiheadAttention(d, 2, batch_first=True)\nself.m = nn.Linear(d, d)", arguments="d", init_inputs="[D]")


def _more_attention() -> Iterator[tuple[str, str]]:
    sizes = "B = 2\nHEADS = 4\nS = 12\nD = 8"
    yield "attention-cross", _file("B = 2\nHEADS = 2\nS = 7\nT = 11\nD = 8", "return F.scaled_dot_product_attention(q, k, v)",
                                   "[torch.randn(B, HEADS, S, D), torch.randn(B, HEADS, T, D), torch.randn(B, HEADS, T, D)]", parameters="q, k, v")
    yield "attention-grouped", _file(sizes + "\nGROUPS = 2", "k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)\nv = v.repeat_interleave(q.shape[1] // v.shape[1], 1)\nreturn F.scaled_dot_product_attention(q, k, v)",
                                     "[torch.randn(B, HEADS, S, D), torch.randn(B, GROUPS, S, D), torch.randn(B, GROUPS, S, D)]", parameters="q, k, v")
    yield "attention-key_mask", _file(sizes, "s = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5\nreturn torch.softmax(s.masked_fill(~keep[:, None, None, :], -1e9), -1) @ v",
                                      "[torch.randn(B, HEADS, S, D), torch.randn(B, HEADS, S, D), torch.randn(B, HEADS, S, D), torch.rand(B, S) > 0.2]", parameters="q, k, v, keep")
    yield "attention-window", _file("B = 2\nS = 16\nD = 8", "i = torch.arange(q.shape[1], device=q.device)\nnear = (i[:, None] - i[None]).abs() < 4\n"
                                    "return torch.softmax((q @ k.transpose(1, 2)).masked_fill(~near, float('-inf')), -1) @ v",
                                    "[torch.randn(B, S, D), torch.randn(B, S, D), torch.randn(B, S, D)]", parameters="q, k, v")
    yield "attention-slopes", _file(sizes, "i = torch.arange(q.shape[2], device=q.device)\nbias = -(i[:, None] - i[None]).abs().to(q.dtype) * self.slope[:, None, None]\n"
                                    "return torch.softmax(q @ k.transpose(-2, -1) / 3 + bias, -1) @ v",
                                    "[torch.randn(B, HEADS, S, D), torch.randn(B, HEADS, S, D), torch.randn(B, HEADS, S, D)]", parameters="q, k, v",
                                    init="self.register_buffer('slope', 2.0 ** -torch.arange(1, heads + 1).float())", arguments="heads", init_inputs="[HEADS]")
    yield "attention-projected", _file("B = 2\nS = 8\nHEADS = 2\nD = 12", "b, s, d = x.shape\nq, k, v = self.qkv(x).view(b, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)\n"
                                       "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\nreturn self.out(y.transpose(1, 2).contiguous().view(b, s, d))",
                                       "[torch.randn(B, S, D)]", init="self.heads = heads\nself.qkv = nn.Linear(d, 3 * d)\nself.out = nn.Linear(d, d)", arguments="d, heads", init_inputs="[D, HEADS]")
    yield "attention-decode", _file("B = 3\nT = 30\nD = 16", "return torch.softmax(q @ k.transpose(1, 2) / 4.0, -1) @ v", "[torch.randn(B, 1, D), torch.randn(B, T, D), torch.randn(B, T, D)]", parameters="q, k, v")
    yield "attention-sigmoid", _file("B = 2\nS = 10\nD = 8", "return torch.sigmoid(q @ k.transpose(1, 2) - 2.3) @ v", "[torch.randn(B, S, D), torch.randn(B, S, D), torch.randn(B, S, D)]", parameters="q, k, v")


def _more_losses() -> Iterator[tuple[str, str]]:
    sizes = "B = 20\nC = 9"
    indexed = "[torch.randn(B, C), torch.randint(0, C, (B,))]"
    for name, expression, inputs in (
        ("cross_entropy_probabilities", "F.cross_entropy(x, y)", "[torch.randn(B, C), torch.softmax(torch.randn(B, C), -1)]"),
        ("cross_entropy_none", "F.cross_entropy(x, y, reduction='none')", indexed), ("multi_margin", "F.multi_margin_loss(x, y)", indexed),
        ("focal", "((1 - torch.exp(-F.cross_entropy(x, y, reduction='none'))) ** 2 * F.cross_entropy(x, y, reduction='none')).mean()", indexed),
        ("perplexity", "torch.exp(F.cross_entropy(x, y))", indexed), ("accuracy", "(x.argmax(1) == y).float().mean()", indexed),
        ("poisson", "F.poisson_nll_loss(x, y)", "[torch.randn(B, C), torch.randint(0, 5, (B, C)).float()]"),
        ("soft_margin", "F.soft_margin_loss(x, y)", "[torch.randn(B, C), torch.randint(0, 2, (B, C)).float() * 2 - 1]"),
        ("dice", "1 - (2 * (x * y).sum() + 1) / (x.sum() + y.sum() + 1)", "[torch.rand(B, C), torch.randint(0, 2, (B, C)).float()]"),
        ("js", "0.5 * (F.kl_div(((x + y) / 2).log(), x, reduction='batchmean') + F.kl_div(((x + y) / 2).log(), y, reduction='batchmean'))",
         "[torch.softmax(torch.randn(B, C), -1), torch.softmax(torch.randn(B, C), -1)]"),
        ("info_nce", "F.cross_entropy(F.normalize(x, dim=1) @ F.normalize(y, dim=1).T / 0.2, torch.arange(x.shape[0], device=x.device))", "[torch.randn(B, C), torch.randn(B, C)]"),
        ("log_cosh", "torch.log(torch.cosh(x - y)).mean()", "[torch.randn(B, C), torch.randn(B, C)]"),
        ("hinge_squared", "torch.clamp(1 - x * y, min=0).pow(2).mean(dim=1)", "[torch.randn(B, C), torch.randint(0, 2, (B, C)).float() * 2 - 1]"),
    ):
        yield f"loss-{name}", _file(sizes, f"return {expression}", inputs, parameters="x, y")
    yield "loss-gaussian", _file(sizes, "return F.gaussian_nll_loss(m, y, v)", "[torch.randn(B, C), torch.randn(B, C), torch.rand(B, C) + 0.1]", parameters="m, y, v")
    yield "loss-ranking", _file("B = 20", "return F.margin_ranking_loss(a, b, y, margin=0.3)", "[torch.randn(B), torch.randn(B), torch.randint(0, 2, (B,)).float() * 2 - 1]", parameters="a, b, y")
    yield "loss-weighted", _file(sizes, "return F.cross_entropy(x, y, weight=self.weight)", indexed, parameters="x, y",
                                 init="self.register_buffer('weight', torch.arange(1, c + 1).float() / c)", arguments="c", init_inputs="[C]")


def _more_indexing() -> Iterator[tuple[str, str]]:
    yield "index-cumulative", _file(ROWS, "return torch.logcumsumexp(x, dim=-1), torch.cummin(x, dim=-1).values", NORMAL)
    yield "index-cumulative_first", _file("N = 20\nD = 7", "return torch.cumsum(x, dim=0)", "[torch.randn(N, D)]")
    yield "index-cumulative_product", _file(ROWS, "return torch.cumprod(x, dim=1)", "[torch.rand(ROWS, COLS) + 0.5]")
    yield "index-cumulative_integer", _file(ROWS, "return torch.cumsum(x, dim=1)", "[torch.randint(0, 9, (ROWS, COLS))]")
    yield "index-padding", _file("V = 30\nD = 10\nB = 4\nS = 7", "return self.table(x).sum(1)", "[torch.randint(0, V, (B, S))]",
                                 init="self.table = nn.Embedding(v, d, padding_idx=0)", arguments="v, d", init_inputs="[V, D]")
    yield "index-tied", _file("V = 30\nD = 10\nB = 4\nS = 7", "return self.table(x) @ self.table.weight.T", "[torch.randint(0, V, (B, S))]",
                              init="self.table = nn.Embedding(v, d)", arguments="v, d", init_inputs="[V, D]")
    yield "index-bag_offsets", _file("V = 30\nD = 10\nN = 24", "return F.embedding_bag(x, self.weight, torch.arange(0, x.shape[0], 4, device=x.device), mode='sum')", "[torch.randint(0, V, (N,))]",
                                     init="self.weight = nn.Parameter(torch.randn(v, d))", arguments="v, d", init_inputs="[V, D]")
    yield "index-router", _file("T = 12\nE = 8", "w, i = torch.topk(torch.softmax(x, -1), 2, dim=-1)\nreturn w / w.sum(-1, keepdim=True), i", "[torch.randn(T, E)]")
    yield "index-router_dense", _file("T = 12\nE = 8", "w, i = torch.topk(x, 2, dim=-1)\nreturn torch.zeros_like(x).scatter(1, i, torch.softmax(w, -1))", "[torch.randn(T, E)]")
    yield "index-argsort_descending", _file(ROWS, "return torch.argsort(x, dim=-1, descending=True)", NORMAL)
    yield "index-sort_descending", _file(ROWS, "v, i = torch.sort(x, dim=0, descending=True)\nreturn v, i", NORMAL)
    yield "index-min_indices", _file(ROWS, "return torch.min(x, dim=-1)", NORMAL)
    yield "index-nonzero_count", _file(ROWS, "return torch.count_nonzero(x > 0.5, dim=-1)", NORMAL)
    yield "index-take_along", _file("B = 6\nN = 20", "return torch.take_along_dim(x, x.argsort(dim=1), dim=1)", "[torch.randn(B, N)]")
    yield "index-scatter_mean", _file("N = 40\nG = 6\nD = 5", "s = torch.zeros(self.g, x.shape[1], device=x.device, dtype=x.dtype).index_add(0, g, x)\nc = torch.zeros(self.g, device=x.device, dtype=x.dtype).index_add(0, g, torch.ones_like(x[:, 0]))\nreturn s / c.clamp(min=1)[:, None]",
                                      "[torch.randn(N, D), torch.randint(0, G, (N,))]", parameters="x, g", init="self.g = g", arguments="g", init_inputs="[G]")
    yield "index-roll", _file(ROWS, "return torch.roll(x, 3, dims=1) + torch.flip(x, [0])", NORMAL)
    yield "index-bucketize", _file(ROWS, "return torch.bucketize(x, self.edges)", NORMAL, init="self.register_buffer('edges', torch.linspace(-2, 2, 9))", init_inputs="[]")
    yield "index-where_index", _file("B = 8\nC = 12", "return x[torch.arange(x.shape[0], device=x.device), y]", "[torch.randn(B, C), torch.randint(0, C, (B,))]", parameters="x, y")


def _more_forms() -> Iterator[tuple[str, str]]:
    yield "form-scalar_parameter", _file(ROWS, "return torch.tanh(self.alpha * x) * self.gain", NORMAL,
                                         init="self.alpha = nn.Parameter(torch.tensor(0.7))\nself.gain = nn.Parameter(torch.ones(1))", init_inputs="[]")
    yield "form-scalar_options", _file(ROWS, "return torch.clamp(x * self.scale, self.low, self.high)", NORMAL,
                                       init="self.scale, self.low, self.high = scale, low, high", arguments="scale, low=-1.0, high=1.0", init_inputs="[1.5, -0.5, 0.75]")
    yield "form-flag_option", _file(ROWS, "y = F.softmax(x, -1)\nreturn y.log() if self.log else y", NORMAL, init="self.log = log", arguments="log=False", init_inputs="[True]")
    yield "form-list_of_sizes", _file("ROWS = 4\nDIMS = [12, 20, 8]", "for layer in self.layers:\n    x = torch.relu(layer(x))\nreturn x", "[torch.randn(ROWS, DIMS[0])]",
                                      init="self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(dims, dims[1:])])", arguments="dims", init_inputs="[DIMS]")
    yield "form-nested_input", _file(ROWS, "return batch['x'] * batch['pair'][0] + batch['pair'][1]",
                                     "[{'x': torch.randn(ROWS, COLS), 'pair': [torch.randn(ROWS, COLS), torch.randn(COLS)]}]", parameters="batch")
    yield "form-tuple_input", _file(ROWS, "a, b = pair\nreturn torch.maximum(a, b)", "[(torch.randn(ROWS, COLS), torch.randn(ROWS, COLS))]", parameters="pair")
    yield "form-keyword_dict", _file(ROWS, "y = x if weight is None else x * weight\nreturn y + 1 if bias is None else y + bias",
                                     "{'x': torch.randn(ROWS, COLS), 'bias': torch.randn(COLS)}", parameters="x, weight=None, bias=None")
    yield "form-many_outputs", _file(ROWS, "return x.mean(-1), x.var(-1), x.amax(-1), x.argmin(-1), (x > 0)", NORMAL)
    yield "form-named_outputs", _file(ROWS, "return {'logits': x, 'loss': (x * x).mean(), 'best': x.argmax(-1)}", NORMAL)
    yield "form-unused_input", _file(ROWS, "return torch.relu(x)", TWO, parameters="x, y")
    yield "form-unused_parameter", _file("ROWS = 5\nDIM = 12", "return self.a(x)", "[torch.randn(ROWS, DIM)]", init="self.a = nn.Linear(d, d)\nself.idle = nn.Linear(d, 3)", arguments="d", init_inputs="[DIM]")
    yield "form-shared_parameter", _file("ROWS = 5\nDIM = 12", "return self.b(torch.relu(self.a(x)))", "[torch.randn(ROWS, DIM)]",
                                         init="self.a = nn.Linear(d, d)\nself.b = self.a", arguments="d", init_inputs="[DIM]")
    for name, expression in {
        "permute": "x.permute(0, 2, 1).contiguous()", "transpose_sum": "x.transpose(1, 2).contiguous().sum(-1)", "view_heads": "x.view(x.shape[0], x.shape[1], 2, -1).transpose(1, 2).contiguous()",
        "slice": "x[:, 1:].contiguous() * 2", "strided": "x[..., ::2].contiguous().cumsum(-1)", "expand": "x.mean(1, keepdim=True).expand_as(x).contiguous()",
        "unbind": "torch.stack([t.contiguous() for t in x.unbind(1)], 0)", "flip": "torch.flip(x.transpose(1, 2).contiguous(), [1])", "chain": "torch.relu(x.contiguous().transpose(0, 1).contiguous())",
    }.items():
        yield f"contiguous-{name}", _file("B = 3\nS = 7\nD = 10", f"return {expression}", "[torch.randn(B, S, D)]")
    yield "contiguous-input", _file("M = 12\nN = 20", "return x.contiguous() * 2 + 1", "[torch.randn(N, M).t()]")


def _more_modes() -> Iterator[tuple[str, str]]:
    yield "mode-dropout2d", _file("B = 4\nC = 8\nH = 5\nW = 5", "return self.drop(x)", "[torch.randn(B, C, H, W)]", init="self.drop = nn.Dropout2d(0.4)", init_inputs="[]")
    yield "mode-dropout_softmax", _file("B = 8\nD = 30", "return torch.softmax(F.dropout(x, 0.3, training=True), -1)", "[torch.randn(B, D)]")
    yield "mode-dropout_residual", _file("B = 8\nD = 30", "return x + F.dropout(torch.relu(x), 0.1, self.training)", "[torch.randn(B, D)]")
    yield "mode-alpha_dropout", _file("B = 8\nD = 30", "return self.drop(x)", "[torch.randn(B, D)]", init="self.drop = nn.AlphaDropout(0.2)", init_inputs="[]")
    yield "mode-bernoulli", _file("B = 8\nD = 30", "return torch.bernoulli(x)", "[torch.rand(B, D)]")
    yield "mode-attention_dropout", _file("B = 2\nS = 8\nD = 8", "return F.dropout(torch.softmax(q @ k.transpose(1, 2) / 3, -1), 0.2, True) @ v",
                                          "[torch.randn(B, S, D), torch.randn(B, S, D), torch.randn(B, S, D)]", parameters="q, k, v")
    yield "mode-batch_norm_1d_eval", _file("B = 8\nC = 10\nL = 6", "return self.norm(x)", "[torch.randn(B, C, L)]", init="self.norm = nn.BatchNorm1d(c).eval()", arguments="c", init_inputs="[C]")
    yield "mode-batch_norm_3d", _file("B = 4\nC = 3\nD = 4\nH = 4\nW = 5", "return self.norm(x)", "[torch.randn(B, C, D, H, W)]", init="self.norm = nn.BatchNorm3d(c)", arguments="c", init_inputs="[C]")
    yield "mode-batch_norm_no_affine", _file("B = 8\nC = 6\nH = 4\nW = 4", "return self.norm(x)", "[torch.randn(B, C, H, W)]",
                                             init="self.norm = nn.BatchNorm2d(c, affine=False, track_running_stats=False)", arguments="c", init_inputs="[C]")
    yield "mode-running_mean", _file("B = 8\nD = 12", "if self.training:\n    self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)\nreturn x - self.mean", "[torch.randn(B, D)]",
                                     init="self.register_buffer('mean', torch.zeros(d))", arguments="d", init_inputs="[D]")


def _more_recurrent() -> Iterator[tuple[str, str]]:
    sizes = "B = 4\nI = 8\nH = 10"
    yield "recurrent-gru_cell", _file(sizes, "return self.cell(x, h)", "[torch.randn(B, I), torch.randn(B, H)]", parameters="x, h", init="self.cell = nn.GRUCell(i, h)", arguments="i, h", init_inputs="[I, H]")
    yield "recurrent-lstm_cell", _file(sizes, "return self.cell(x, (h, c))", "[torch.randn(B, I), torch.randn(B, H), torch.randn(B, H)]", parameters="x, h, c",
                                       init="self.cell = nn.LSTMCell(i, h)", arguments="i, h", init_inputs="[I, H]")
    yield "recurrent-rnn", _file("S = 5\n" + sizes, "return self.rnn(x)", "[torch.randn(S, B, I)]", init="self.rnn = nn.RNN(i, h, nonlinearity='relu')", arguments="i, h", init_inputs="[I, H]")
    yield "recurrent-lstm_head", _file("S = 5\n" + sizes + "\nO = 3", "return self.head(self.rnn(x)[0][:, -1])", "[torch.randn(B, S, I)]",
                                       init="self.rnn = nn.LSTM(i, h, 1, batch_first=True)\nself.head = nn.Linear(h, o)", arguments="i, h, o", init_inputs="[I, H, O]")
    yield "recurrent-state_space", _file("B = 2\nS = 10\nD = 4\nN = 3", "h = x.new_zeros(x.shape[0], x.shape[2], b.shape[2])\nys = []\nfor t in range(x.shape[1]):\n"
                                         "    h = torch.exp(-dt[:, t, :, None]) * h + x[:, t, :, None] * b[:, t, None]\n    ys.append((h * c[:, t, None]).sum(-1))\nreturn torch.stack(ys, 1)",
                                         "[torch.randn(B, S, D), torch.rand(B, S, D), torch.randn(B, S, N), torch.randn(B, S, N)]", parameters="x, dt, b, c")
    yield "recurrent-linear_attention", _file("B = 2\nS = 8\nD = 6", "s = q.new_zeros(q.shape[0], q.shape[2], v.shape[2])\nys = []\nfor t in range(q.shape[1]):\n"
                                              "    s = 0.9 * s + k[:, t, :, None] * v[:, t, None]\n    ys.append((q[:, t, :, None] * s).sum(1))\nreturn torch.stack(ys, 1)",
                                              "[torch.randn(B, S, D), torch.randn(B, S, D), torch.randn(B, S, D)]", parameters="q, k, v")


def _more_numbers() -> Iterator[tuple[str, str]]:
    complexes = "[torch.randn(ROWS, COLS, dtype=torch.complex64)]"
    yield "complex-exp", _file("ROWS = 4\nCOLS = 30", "return torch.exp(x)", complexes)
    yield "complex-matmul", _file("M = 8\nK = 12\nN = 9", "return x @ y", "[torch.randn(M, K, dtype=torch.complex64), torch.randn(K, N, dtype=torch.complex64)]", parameters="x, y")
    yield "complex-polar", _file(ROWS, "return torch.polar(r, a)", "[torch.rand(ROWS, COLS) + 0.1, torch.randn(ROWS, COLS)]", parameters="r, a")
    yield "complex-rotary", _file("B = 2\nS = 6\nD = 8", "z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))\nreturn torch.view_as_real(z * f).flatten(-2)",
                                  "[torch.randn(B, S, D), torch.polar(torch.ones(S, D // 2), torch.rand(S, D // 2))]", parameters="x, f")
    yield "complex-ifft", _file("ROWS = 4\nCOLS = 32", "return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(k, n=x.shape[-1]), n=x.shape[-1])", "[torch.randn(ROWS, COLS), torch.randn(5)]", parameters="x, k")
    yield "integer-matmul", _file("M = 10\nK = 24\nN = 8", "return x.int() @ y.int()", "[torch.randint(-8, 8, (M, K), dtype=torch.int8), torch.randint(-8, 8, (K, N), dtype=torch.int8)]", parameters="x, y")
    yield "integer-minimum", _file(ROWS, "return torch.minimum(x, y), x.abs().amax(-1)", "[torch.randint(-50, 50, (ROWS, COLS)), torch.randint(-50, 50, (ROWS, COLS))]", parameters="x, y")
    yield "integer-pack", _file("N = 16\nK = 32", "return (x[:, ::2] & 15) | ((x[:, 1::2] & 15) << 4)", "[torch.randint(0, 16, (N, K), dtype=torch.uint8)]")
    yield "mixed-unpack", _file("N = 16\nK = 16", "low, high = (q & 15).to(x.dtype) - 8, (q >> 4).to(x.dtype) - 8\nreturn x @ (torch.stack([low, high], -1).flatten(1) * s).T",
                                "[torch.randn(4, 2 * K), torch.randint(0, 256, (N, K), dtype=torch.uint8), torch.rand(N, 1)]", parameters="x, q, s")
    yield "mixed-rms_half", _file("ROWS = 5\nDIM = 48", "y = x.float()\nreturn (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w",
                                  "[torch.randn(ROWS, DIM, dtype=torch.bfloat16), torch.randn(DIM, dtype=torch.bfloat16)]", parameters="x, w")
    yield "mixed-index_weight", _file("N = 20\nD = 8\nK = 10", "return x[i] * w[:, None].to(x.dtype)", "[torch.randn(N, D).half(), torch.randint(0, N, (K,)), torch.rand(K)]", parameters="x, i, w")
    yield "boolean-any_all", _file(ROWS, "return x.any(-1), x.all(0), x.sum(-1)", "[torch.rand(ROWS, COLS) > 0.1]")
    yield "boolean-mask_mean", _file(ROWS, "return (x * m).sum(-1) / m.sum(-1).clamp(min=1)", "[torch.randn(ROWS, COLS), torch.rand(ROWS, COLS) > 0.4]", parameters="x, m")


_FAMILIES = (_elementwise, _reductions, _normalisation, _products, _convolutions, _pooling, _softmax, _losses, _indexing,
             _attention, _recurrent, _forms, _dtypes, _structured, _modes, _more_products, _more_convolutions, _chains, _blocks,
             _more_attention, _more_losses, _more_indexing, _more_forms, _more_modes, _more_recurrent, _more_numbers)
