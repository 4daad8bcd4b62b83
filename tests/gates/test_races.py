"""ORD-02 without a GPU: kernels whose result hangs on the order of their programs, and right ones beside them."""

from __future__ import annotations

import pytest
from tests.gates.conftest import IMPORTS

from assay.evidence import Store
from assay.evidence.replay import Outcome, replay
from assay.task import parse_candidate, parse_task
from assay.verify import Options, verify_task
from assay.vocabulary import EffortTier, Reason

COLUMN_SUM = """
class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=0)

ROWS = 10
COLS = 24

def get_inputs():
    return [torch.randn(ROWS, COLS)]

def get_init_inputs():
    return []
"""
ADDING = """
@triton.jit
def column_sum_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < cols
    x = tl.load(x_ptr + row * cols + offs, mask=mask, other=0.0)
    ADD

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)
        if x.numel():
            column_sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""
LOST_UPDATE = "tl.store(y_ptr + offs, tl.load(y_ptr + offs, mask=mask) + x, mask=mask)"
ATOMIC = "tl.atomic_add(y_ptr + offs, x, mask=mask)"

SHIFT = """
class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.pad(x, (1, 0))[:-1]

N = 200

def get_inputs():
    return [torch.randn(N)]

def get_init_inputs():
    return []
"""
ROLLED = """
@triton.jit
def roll_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    # the last block first, as grids are walked downwards here
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    offs = block * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y_ptr + offs, tl.load(x_ptr + offs - 1, mask=mask & (offs > 0), other=0.0), mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.numel()
        y = WHERE
        if n:
            roll_kernel[(triton.cdiv(n, 32),)](SOURCE, y, n, BLOCK=32)
        return y
"""

ROW_MAX = """
class Model(nn.Module):
    def forward(self, x):
        return x.max(dim=1).values

ROWS = 12
COLS = 70

def get_inputs():
    return [torch.randn(ROWS, COLS)]

def get_init_inputs():
    return []
"""
TILED_MAX = """
@triton.jit
def row_max_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    peak = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(FIRST, LAST, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + offs, mask=offs < cols, other=float("-inf"))
        peak = tl.maximum(peak, x, propagate_nan=tl.PropagateNan.ALL)
    isnan = tl.max((peak != peak).to(tl.int32), axis=0)
    found = tl.where(isnan > 0, float("nan"), tl.max(peak, axis=0))
    STORE

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.full((x.shape[0],), float("-inf"), dtype=x.dtype, device=x.device)
        row_max_kernel[(x.shape[0], 2)](x, y, x.shape[1], BLOCK=32)
        return y
"""


def tiled(first: str, last: str, store: str) -> str:
    return TILED_MAX.replace("FIRST", first).replace("LAST", last).replace("STORE", store)


# each of two programs has half of a row, and the second to come keeps the larger
HALVES = tiled(
    "tl.program_id(1) * tl.cdiv(cols, 64) * 32",
    "tl.minimum((tl.program_id(1) + 1) * tl.cdiv(cols, 64) * 32, cols)",
    """kept = tl.load(y_ptr + row)
    found = tl.where((found != found) | (kept != kept), found + kept, tl.maximum(found, kept))
    tl.store(y_ptr + row, found)""",
)
# both programs have the whole row, and store the same
TWICE = tiled("0", "cols", "tl.store(y_ptr + row, found)")

WRONG = {
    "an update that is lost": (COLUMN_SUM, ADDING.replace("ADD", LOST_UPDATE)),
    "a shift in place": (SHIFT, ROLLED.replace("WHERE", "x.clone()").replace("SOURCE", "y")),
    "a maximum of two programs without an atomic": (ROW_MAX, HALVES),
}
RIGHT = {
    "atomics": (COLUMN_SUM, ADDING.replace("ADD", ATOMIC)),
    "a shift into another tensor": (SHIFT, ROLLED.replace("WHERE", "torch.empty_like(x)").replace("SOURCE", "x")),
    "two programs that store the same": (ROW_MAX, TWICE),
    "a lock": (
        COLUMN_SUM,
        ADDING.replace("ADD", f"""while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    {LOST_UPDATE}
    tl.atomic_xchg(lock_ptr, 0)""")
        .replace("y_ptr, cols,", "y_ptr, lock_ptr, cols,")
        .replace("(x, y, x.shape[1],", "(x, y, torch.zeros(1, dtype=torch.int32, device=x.device), x.shape[1],"),
    ),
    "in place, each its own": (
        COLUMN_SUM.replace("x.sum(dim=0)", "torch.relu(x)"),
        ADDING.replace("ADD", "tl.store(y_ptr + row * cols + offs, "
                              "tl.maximum(tl.load(y_ptr + row * cols + offs, mask=mask), 0.0, "
                              "propagate_nan=tl.PropagateNan.ALL), mask=mask)")
        .replace("torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)", "x.clone()"),
    ),
    "one launch after another": (
        COLUMN_SUM,
        """
@triton.jit
def copy_kernel(x_ptr, s_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    tl.store(s_ptr + row * cols + offs, tl.load(x_ptr + row * cols + offs, mask=offs < cols), mask=offs < cols)

@triton.jit
def sum_kernel(s_ptr, y_ptr, rows, cols):
    col = tl.program_id(0)
    total = 0.0
    for row in range(rows):
        total += tl.load(s_ptr + row * cols + col)
    tl.store(y_ptr + col, total)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        scratch, y = torch.empty_like(x), torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)
        if x.numel():
            copy_kernel[(x.shape[0],)](x, scratch, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
            sum_kernel[(x.shape[1],)](scratch, y, x.shape[0], x.shape[1])
        return y
""",
    ),
    "reads of neighbours that come to nothing": (
        SHIFT.replace("torch.nn.functional.pad(x, (1, 0))[:-1]", "torch.relu(x)"),
        ROLLED.replace("tl.load(x_ptr + offs - 1, mask=mask & (offs > 0), other=0.0)",
                       "tl.where(mask, tl.maximum(tl.load(x_ptr + offs, mask=mask), 0.0, "
                       "propagate_nan=tl.PropagateNan.ALL), tl.load(x_ptr + (offs + 40) % n))")
        .replace("WHERE", "x.clone()").replace("SOURCE", "y"),
    ),
    "the last of indices that repeat": (
        COLUMN_SUM.replace("x.sum(dim=0)", "torch.zeros(4).scatter(0, (torch.arange(ROWS) % 4), x[:, 0])")
        .replace("torch.zeros(4)", "torch.zeros(4, dtype=x.dtype)").replace("torch.arange(ROWS)",
                                                                            "torch.arange(x.shape[0])"),
        ADDING.replace("ADD", "tl.store(y_ptr + row % 4, tl.load(x_ptr + row * cols))")
        .replace("torch.zeros(x.shape[1],", "torch.zeros(4,"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_race_is_found_without_a_gpu(judge, name):
    reference, source = WRONG[name]
    seen = judge("repeatability", reference, source, tier="standard")
    assert seen.reasons == {"data_race"}
    found = seen.findings[0]
    assert found.tier.value == "wrong"
    assert found.detail["kernel"] in source
    line = source.splitlines()[found.detail["line"] - 6]
    assert "y_ptr" in line or "x_ptr" in line
    assert f"candidate.py:{found.detail['line']}: a program" in found.detail["place"]
    assert found.source is not None
    assert found.source.line == found.detail["line"]
    # what any single order gives is right: nothing else can see it
    assert {f.slug for f in judge("values", reference, source).report.findings} == set()


@pytest.mark.parametrize("name", RIGHT)
def test_programs_that_may_run_in_any_order_pass(judge, name):
    reference, source = RIGHT[name]
    seen = judge("repeatability", reference, source, tier="standard", beside=("faults",))
    assert (seen.outcome, seen.report.findings) == ("pass", ())


SCALED = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, COLS))

    def forward(self, x):
        return x * self.scale

ROWS = 9
COLS = 20

def get_inputs():
    return [torch.randn(ROWS, COLS)]

def get_init_inputs():
    return []
"""
TRAINED = """
@triton.jit
def grad_kernel(x_ptr, g_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < cols
    part = tl.load(x_ptr + row * cols + offs, mask=mask) * tl.load(g_ptr + row * cols + offs, mask=mask)
    ADD

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        flat, grads = x.reshape(-1, x.shape[-1]).contiguous(), grad.reshape(-1, x.shape[-1]).contiguous()
        out = torch.zeros_like(scale)
        if flat.numel():
            grad_kernel[(flat.shape[0],)](flat, grads, out, flat.shape[1], BLOCK=triton.next_power_of_2(flat.shape[1]))
        return grad * scale, out

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 20))

    def forward(self, x):
        return Scaled.apply(x, self.scale)
"""


def test_a_race_of_a_backward_pass_is_found_in_the_gradients(judge):
    wrong = TRAINED.replace("ADD", LOST_UPDATE.replace("y_ptr", "out_ptr").replace("+ x", "+ part"))
    right = TRAINED.replace("ADD", ATOMIC.replace("y_ptr", "out_ptr").replace(", x,", ", part,"))
    seen = judge("gradients", SCALED, wrong, tier="standard")
    assert seen.reasons == {"data_race"}
    assert seen.findings[0].detail["kernel"] == "grad_kernel"
    assert judge("gradients", SCALED, right, tier="standard").outcome == "pass"


def test_a_race_replays_from_the_store(zygote, tmp_path):
    reference, source = WRONG["an update that is lost"]
    options = Options(device="cpu", seed=5, tier=EffortTier.QUICK, only=("repeatability",), store=str(tmp_path / "s"))
    report = verify_task(parse_task(IMPORTS + reference, path="reference.py", id="column sum"),
                         parse_candidate(IMPORTS + source, path="candidate.py"), options=options, zygote=zygote)
    with Store.open(tmp_path / "s") as store:
        again = replay(store, report.findings[0].id, zygote)
    assert again.outcome is Outcome.REPRODUCED
    assert again.found is not None
    assert again.found.reason is Reason.DATA_RACE


def test_the_quick_tier_finds_it_too(judge):
    seen = judge("repeatability", *WRONG["an update that is lost"])
    assert seen.reasons == {"data_race"}


def test_a_contract_of_bounded_results_allows_no_race(judge):
    bounded = {"determinism": "bounded"}
    assert judge("repeatability", *WRONG["an update that is lost"], contract=bounded).reasons == {"data_race"}
    assert judge("repeatability", *RIGHT["atomics"], contract=bounded).outcome == "pass"
