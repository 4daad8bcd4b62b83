"""BAT-01: a row's bits do not depend on the batch it is in."""

from __future__ import annotations

REFERENCE = """
class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)

BATCH = 24
COLS = 96

def get_inputs():
    return [torch.randn(BATCH, COLS)]

def get_init_inputs():
    return []
"""

KERNEL = """
@triton.jit
def row_sum_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        total += tl.load(x_ptr + row * cols + start + offs, mask=start + offs < cols, other=0.0)
    tl.store(y_ptr + row, tl.sum(total, axis=0))

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        row_sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=BLOCKS)
        return y
"""
ASKED = {"batch_invariance": True}


def test_another_order_for_small_batches_is_found_where_the_contract_asks(judge):
    seen = judge(
        "batch_invariance",
        REFERENCE,
        KERNEL.replace("BLOCKS", "64 if x.shape[0] > 4 else 16"),
        contract=ASKED,
        tier="standard",
    )
    assert seen.reasons == {"not_repeatable"}
    assert "in a batch of" in seen.findings[0].actual


def test_one_order_for_any_batch_passes(judge):
    seen = judge(
        "batch_invariance", REFERENCE, KERNEL.replace("BLOCKS", "32"), contract=ASKED, tier="standard"
    )
    assert (seen.outcome, seen.findings) == ("pass", [])


def test_rows_that_depend_on_one_another_are_not_applicable(judge):
    coupled = REFERENCE.replace("x.sum(dim=1)", "torch.softmax(x, dim=0)")
    source = """
    class ModelNew(nn.Module):
        def forward(self, x):
            return torch.softmax(x, dim=0)
    """
    assert judge("batch_invariance", coupled, source, contract=ASKED).outcome == "not_applicable"


def test_it_is_not_part_of_the_battery_unless_asked_for():
    from assay.contract import Contract
    from assay.gates import BATTERY
    from assay.planning import chosen_gates

    assert "batch_invariance" not in {g.slug for g in chosen_gates(BATTERY, Contract(), None)}
    assert "batch_invariance" in {
        g.slug for g in chosen_gates(BATTERY, Contract(batch_invariance=True), None)
    }
