"""CFG-01: every autotune configuration right by itself, first call as later calls."""

from __future__ import annotations

REFERENCE = """
class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=0)

ROWS = 12
COLS = 40

def get_inputs():
    return [torch.randn(ROWS, COLS)]

def get_init_inputs():
    return []
"""

KERNEL = """
@triton.autotune(configs=[triton.Config({"BLOCK": n}) for n in (16, 32, 64)], key=["cols"]RESET)
@triton.jit
def column_sum_kernel(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = MASK
    BODY

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.zeros(cols, dtype=x.dtype, device=x.device)
        column_sum_kernel[GRID](x, y, rows, cols)
        return y
"""
ATOMIC = "tl.atomic_add(y_ptr + offs, tl.load(x_ptr + tl.program_id(1) * cols + offs, mask=mask), mask=mask)"
IN_PLACE = """total = tl.load(y_ptr + offs, mask=mask)
    for row in range(rows):
        total += tl.load(x_ptr + row * cols + offs, mask=mask)
    tl.store(y_ptr + offs, total, mask=mask)"""
STORE = IN_PLACE.replace("tl.load(y_ptr + offs, mask=mask)", "tl.zeros((BLOCK,), tl.float32)")
BY_BLOCK = 'lambda meta: (triton.cdiv(cols, meta["BLOCK"]), ROWS)'


def candidate(body: str, *, reset: str = "", grid: str = "", mask: str = "offs < cols") -> str:
    rows = "rows" if body == ATOMIC else "1"
    grid = grid or BY_BLOCK.replace("ROWS", rows)
    return (
        KERNEL.replace("BODY", body)
        .replace("RESET", f", {reset}" if reset else "")
        .replace("GRID", grid)
        .replace("MASK", mask)
    )


def test_sums_that_pile_up_while_tuning_are_found(judge):
    seen = judge("schedules", REFERENCE, candidate(ATOMIC))
    assert seen.reasons == {"depends_on_history"}
    assert seen.findings[0].detail["schedule"] == "all configurations at the first call"


def test_reset_to_zero_makes_them_right(judge):
    seen = judge("schedules", REFERENCE, candidate(ATOMIC, reset='reset_to_zero=["y_ptr"]'))
    assert (seen.outcome, seen.findings) == ("pass", [])
    assert "column_sum_kernel: 3" in str(seen.gate.note)


def test_an_update_in_place_is_repeated_while_tuning_unless_restored(judge):
    assert judge("schedules", REFERENCE, candidate(IN_PLACE)).reasons == {"depends_on_history"}


def test_restore_value_makes_an_update_right(judge):
    seen = judge("schedules", REFERENCE, candidate(IN_PLACE, reset='restore_value=["y_ptr"]'))
    assert seen.outcome == "pass"


def test_a_kernel_that_only_stores_needs_neither(judge):
    assert judge("schedules", REFERENCE, candidate(STORE)).outcome == "pass"


def test_a_configuration_that_is_wrong_by_itself_is_named(judge):
    seen = judge("schedules", REFERENCE, candidate(STORE, mask="(offs < cols) & (tl.arange(0, BLOCK) < 32)"))
    assert "value" in seen.reasons
    assert "configuration 2" in {f.detail["schedule"] for f in seen.findings}


def test_a_grid_made_for_one_configuration_is_found(judge):
    seen = judge("schedules", REFERENCE, candidate(STORE, grid="(triton.cdiv(cols, 32),)"))
    assert seen.outcome == "inconclusive", "the default configuration is wrong already, which is for `values`"
    seen = judge("schedules", REFERENCE, candidate(STORE, grid="(triton.cdiv(cols, 16),)"))
    assert seen.outcome == "pass", "too many programs do no harm where the tail is masked"


def test_pruned_configurations_are_not_forced(judge):
    pruned = candidate(
        STORE,
        mask="(offs < cols) & (tl.arange(0, BLOCK) < 32)",
        reset='prune_configs_by={"early_config_prune": lambda configs, args, **kwargs: configs[:2]}',
    )
    assert judge("schedules", REFERENCE, pruned).outcome == "pass"


def test_a_candidate_without_autotuning_is_not_applicable(judge):
    seen = judge(
        "schedules",
        REFERENCE,
        """
    class ModelNew(nn.Module):
        def forward(self, x):
            return x.sum(dim=0)
    """,
    )
    assert (seen.outcome, str(seen.gate.reason)) == ("not_applicable", "nothing_to_vary")
    assert seen.gate.note == "no kernel is autotuned"
