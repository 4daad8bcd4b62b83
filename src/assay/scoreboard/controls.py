"""Candidates that are right, and have to be accepted: kernels, references, other algorithms, PyTorch's operators."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from assay import corpus
from assay.corpus import DTYPES, Entry
from assay.scoreboard.cases import Case

SEEDS = (0, 1)
"""Seeds of the verdicts on each right kernel."""

INDUCTOR = "inductor.py"
"""Beside a kernel: what TorchInductor wrote for the same task, see `assay.scoreboard.inductor`."""

SPLIT = (
    "bias_silu", "bmm", "center_rows", "clamp", "conv1d", "cumsum_rows", "dequantize", "gelu", "group_norm",
    "l2_normalize", "layer_norm_affine", "linear_bias_relu", "log_softmax", "logsumexp", "max_pool2d", "min_max",
    "mish", "relu", "rms_norm", "rope", "row_mean", "row_var", "softmax_row", "top_k", "where_mask",
)
"""Tasks whose rows do not depend on each other."""

OTHER: dict[str, tuple[tuple[str, str], ...]] = {
    "gelu": (("erf", "wide = x.float()\nreturn (0.5 * wide * (1.0 + torch.erf(wide * 0.5**0.5))).to(x.dtype)"),),
    "silu": (("quotient", "wide = x.float()\nreturn (wide / (1 + torch.exp(-wide))).to(x.dtype)"),),
    "sigmoid": (("tanh", "return (0.5 * torch.tanh(0.5 * x.float()) + 0.5).to(x.dtype)"),),
    "relu": (("where", "return torch.where(x < 0, torch.zeros_like(x), x)"), ("clamp", "return x.clamp(min=0)")),
    "leaky_relu": (("maximum", "return torch.maximum(x, 0.01 * x.float()).to(x.dtype)"),),
    "hardswish": (("clamp", "wide = x.float()\nreturn (wide * (wide + 3).clamp(0, 6) / 6).to(x.dtype)"),),
    "clamp": (("two steps", "return x.clamp(min=-0.8).clamp(max=1.1)"),),
    "softsign": (("quotient", "wide = x.float()\nreturn (wide / (1 + wide.abs())).to(x.dtype)"),),
    "residual_add": (("add", "return torch.add(x, y, alpha=0.5)"),),
    "glu": (("joined", "return F.glu(torch.cat((x, y), dim=-1), dim=-1)"),),
    "row_mean": (("sum", "return (x.float().sum(dim=1) / x.shape[1]).to(x.dtype)"),),
    "row_var": (("two passes", "wide = x.float()\ncentred = wide - wide.mean(dim=1, keepdim=True)\n"
                 "return (centred.square().sum(dim=1) / (x.shape[1] - 1)).to(x.dtype)"),),
    "row_norm": (("root", "return x.double().square().sum(dim=1).sqrt().to(x.dtype)"),),
    "row_min": (("min", "return x.min(dim=1).values"),),
    "logsumexp": (("shifted", "wide = x.float()\ntop = wide.amax(dim=1, keepdim=True).detach()\n"
                   "top = torch.where(top.abs() == float('inf'), torch.zeros_like(top), top)\n"
                   "return ((wide - top).exp().sum(dim=1).log() + top[:, 0]).to(x.dtype)"),),
    "row_abs_sum": (("norm", "return torch.linalg.vector_norm(x.float(), ord=1, dim=1).to(x.dtype)"),),
    "min_max": (("aminmax", "low, high = torch.aminmax(x, dim=1)\nreturn low, high"),),
    "softmax_row": (("exp", "wide = x.float()\nweights = (wide - wide.amax(dim=1, keepdim=True).detach()).exp()\n"
                     "return (weights / weights.sum(dim=1, keepdim=True)).to(x.dtype)"),
                    ("via logarithm", "return torch.log_softmax(x.float(), dim=1).exp().to(x.dtype)")),
    "log_softmax": (("shifted", "wide = x.float()\nwide = wide - wide.amax(dim=1, keepdim=True).detach()\n"
                     "return (wide - wide.exp().sum(dim=1, keepdim=True).log()).to(x.dtype)"),),
    "l2_normalize": (("quotient", "wide = x.float()\n"
                      "norm = wide.square().sum(dim=1, keepdim=True).sqrt().clamp_min(1e-6)\n"
                      "return (wide / norm).to(x.dtype)"),),
    "layer_norm_affine": (("two passes", "wide = x.float()\ncentred = wide - wide.mean(dim=-1, keepdim=True)\n"
                           "scale = torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + 1e-5)\n"
                           "return (centred * scale * self.weight.float() + self.bias.float()).to(x.dtype)"),),
    "matmul_tiled": (("outer loop", "kept, a, b = a.dtype, a.float(), b.float()\n"
                      "total = torch.zeros(a.shape[0], b.shape[1], device=a.device)\n"
                      "for start in range(0, a.shape[1], 16):\n"
                      "    total = total + a[:, start : start + 16] @ b[start : start + 16]\n"
                      "return total.to(kept)"),),
    "bmm": (("einsum", "return torch.einsum('bmk,bkn->bmn', a, b)"),),
    "matvec": (("sum", "return (a.float() * x.float()).sum(dim=1).to(a.dtype)"),),
    "linear_bias_relu": (("addmm", "return torch.addmm(self.bias, x, self.weight.t()).relu()"),),
    "conv1d": (("unfolded", "wide = F.pad(x.float(), (1, 1)).unfold(2, 3, 1)\n"
                "out = torch.einsum('bclk,fck->bfl', wide, self.weight.float())\n"
                "return (out + self.bias.float()[:, None]).to(x.dtype).contiguous()"),),
    "conv2d": (("channels last", "x = x.contiguous(memory_format=torch.channels_last)\n"
                "return F.conv2d(x, self.weight, self.bias, stride=2).contiguous()"),
               ("unfolded", "wide = x.float().unfold(2, 3, 2).unfold(3, 3, 2)\n"
                "out = torch.einsum('bchwij,fcij->bfhw', wide, self.weight.float())\n"
                "return (out + self.bias.float()[:, None, None]).to(x.dtype).contiguous()")),
    "max_pool2d": (("channels last", "x = x.contiguous(memory_format=torch.channels_last)\n"
                    "return F.max_pool2d(x, 2).contiguous()"),
                   ("unfolded", "return x.unfold(2, 2, 2).unfold(3, 2, 2).amax(dim=(-2, -1))")),
    "attention": (("fused", "return F.scaled_dot_product_attention(q, k, v)"),),
    "embedding": (("index", "return self.table[tokens]"),),
    "gather_rows": (("take", "return torch.take_along_dim(x, index, dim=1)"),),
    "transpose": (("permute", "return x.permute(1, 0).clone(memory_format=torch.contiguous_format)"),),
    "tril": (("mask", "keep = torch.ones(x.shape, dtype=torch.bool, device=x.device).tril()\n"
              "return x.masked_fill(~keep, 0)"),),
    "dequantize": (("mul", "return torch.mul(codes, scale[:, None])"),),
    "top_k": (("sort", "values, indices = x.sort(dim=1, descending=True)\n"
               "if x.shape[1] < 3:\n    raise RuntimeError('too few columns')\n"
               "return values[:, :3].contiguous(), indices[:, :3].contiguous()"),),
    "cosine_similarity": (("normalised", "return (F.normalize(x.float(), dim=1, eps=1e-6)"
                           " * F.normalize(y.float(), dim=1, eps=1e-6)).sum(dim=1).to(x.dtype)"),),
    "mse": (("mean", "return (x.float() - y.float()).square().mean().to(x.dtype)"),),
    "cumsum_rows": (("widened", "wide = x.float()\n"
                     "return torch.cumsum(wide, dim=1).to(x.dtype)"),),
    "rope": (("halves", "half = cos.shape[-1]\na, b = x[..., :half].float(), x[..., half:].float()\n"
              "c, s = cos.float(), sin.float()\n"
              "return torch.cat((a * c - b * s, b * c + a * s), dim=-1).to(x.dtype)"),),
}
"""Other bodies of `forward`, by task: the same function by another algorithm."""



def controls(seeds: Iterable[int] = SEEDS) -> Iterator[Case]:
    """Every control but those of the operator database, which are slow to make."""
    wanted = tuple(seeds)
    for entry in corpus.entries(DTYPES):
        for seed in wanted:
            yield _control(entry, "kernel", entry.kernel, seed)
        own = entry.reference.replace("class Model(", "class ModelNew(")
        yield _control(entry, "reference", own)
        if entry.name in SPLIT:
            yield _control(entry, "split batch", split(entry))
        compiled = corpus.HERE / entry.name / INDUCTOR
        if entry.dtype == "float32" and compiled.exists():
            text = compiled.read_text(encoding="utf-8")
            if runs_here(text):
                yield _control(entry, "inductor", text)
        for name, body in OTHER.get(entry.name, ()):
            yield _control(entry, f"other algorithm: {name}", with_body(entry, body))


def _control(entry: Entry, kind: str, candidate: str, seed: int = 0) -> Case:
    name = f"control/{entry.id}/{kind}" + (f"/{seed}" if kind == "kernel" else "")
    return Case(name, "control", kind.partition(":")[0], "", entry.name, entry.dtype, entry.reference, candidate,
                corpus.CONTRACTS.get(entry.name, {}), right=True, seed=seed)


def split(entry: Entry, *, wide: bool = True) -> str:
    """The reference on the two halves of the batch, joined again.

    Args:
        wide: whether weights of half precision are widened once for both halves. Else autograd rounds the gradient of
            each half to the weight's dtype and adds up the two in it, which is a sum with a narrow accumulator.
    """
    narrow = entry.dtype != "float32" and "nn.Parameter" in entry.reference
    text = entry.reference.replace("class Model(", "class Whole(") + _SPLIT
    text += _WIDENED if narrow and wide else _PLAIN
    return text.replace("BATCHED", "(0,)" if entry.name == "rope" else "(0, 1, 2)")


_SPLIT = '''

class ModelNew(Whole):
    def forward(self, *inputs, part=False):
        if part:
            return super().forward(*inputs)
        batch = inputs[0].shape[0]
        if batch < 2 or any(x.shape[:1] != inputs[0].shape[:1] for x in inputs[:1]):
            return super().forward(*inputs)
        cut = batch // 2
        one, two = self.halves([[x[rows] if x.shape[:1] == (batch,) and i in self.batched else x
                                 for i, x in enumerate(inputs)] for rows in (slice(cut), slice(cut, None))])
        if isinstance(one, tuple):
            return tuple(torch.cat(pair) for pair in zip(one, two))
        return torch.cat((one, two))

    batched = BATCHED
'''
_PLAIN = '''
    def halves(self, parts):
        return [Whole.forward(self, *part) for part in parts]
'''
_WIDENED = '''
    def halves(self, parts):
        weights = {name: weight.float() for name, weight in self.named_parameters()}
        parts = [[x.float() if x.is_floating_point() else x for x in part] for part in parts]
        return [torch.func.functional_call(self, weights, tuple(part), {"part": True}).to(DTYPE) for part in parts]
'''


def with_body(entry: Entry, body: str) -> str:
    """The reference with another body of `forward`."""
    text = entry.reference.replace("class Model(", "class ModelNew(")
    lines = "\n".join(f"        {line}" if line else "" for line in body.splitlines())
    return re.sub(r"(    def forward\([^\n]*\n).*?(?=\n\n\ndef )", lambda m: m[1] + lines, text, count=1, flags=re.S)


def database() -> Iterator[Case]:
    """Operators of PyTorch's database: the operator itself, and PyTorch's decomposition of it where there is one."""
    import torch
    from torch._decomp import decomposition_table

    for name, reference in json.loads((corpus.HERE.parent / "operators.json").read_text(encoding="utf-8")).items():
        base, overload = name.split(".")
        packet = getattr(torch.ops.aten, base, None)
        operator = getattr(packet, overload, None)
        if operator is None:
            continue
        own = reference.replace("class Model(", "class ModelNew(")
        yield Case(f"control/{name}/operator", "control", "operator", "", name, "float32", reference, own, right=True)
        if operator in decomposition_table:
            other = own.replace(f"torch.ops.aten.{name}(", f"_decomposition_table[torch.ops.aten.{name}](")
            other = "from torch._decomp import decomposition_table as _decomposition_table\n" + other
            # they are meant for tracing, and many of the operators that they end in have no backward
            yield Case(f"control/{name}/decomposition", "control", "decomposition", "", name, "float32", reference,
                       other, contract={"gradients": "none"}, right=True)


def runs_here(text: str) -> bool:
    """Whether this torch has the helpers that a kernel of Inductor's calls; they come and go with its versions."""
    from torch._inductor.runtime import triton_helpers

    used = set(re.findall(r"\btriton_helpers\.(\w+)", text)) - {"libdevice"}
    return all(hasattr(triton_helpers, name) for name in used)
