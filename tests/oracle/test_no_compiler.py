"""The first truth in a process does not import torch's compiler, and a reference that uses it is replayed as well."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import torch

from assay import oracle
from assay.oracle.reference import quiet_state

BODIES = ("torch.clamp(x, -1, 1)", "torch.nn.functional.gelu(x)", "torch.nn.functional.elu(x)", "x.logsumexp(-1)",
          "torch.nn.functional.mish(x)", "torch.nn.functional.softplus(x)", "torch.nn.functional.layer_norm(x, (8,))",
          "torch.nn.functional.kl_div(x, x.softmax(-1), reduction='batchmean')", "x @ x.T", "x.std(-1)")


def test_the_first_truth_imports_no_compiler() -> None:
    program = textwrap.dedent(f"""
        import sys
        import torch
        from assay import oracle
        from assay.oracle.no_compiler import spare_compiler
        assert spare_compiler() > 20
        assert spare_compiler() == 0
        for body in {BODIES!r}:
            made = eval("lambda x: " + body)
            found = oracle.evaluate(made, [torch.randn(4, 8)], {{}}, runs=4)
            assert found.raised is None, body
            assert not found.unmodelled, body
            assert "torch._dynamo" not in sys.modules, body
            assert "torch._inductor" not in sys.modules, body
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_flags_are_set_and_come_back_whether_the_compiler_is_there_or_not() -> None:
    program = textwrap.dedent("""
        import torch
        from assay.oracle.reference import quiet_state
        for late in (False, True):
            if late:
                import torch._inductor.config
            for mode, warn in ((False, False), (True, False), (True, True)):
                torch._C._set_deterministic_algorithms(mode, warn_only=warn)
                with quiet_state():
                    assert torch.are_deterministic_algorithms_enabled()
                    assert torch.is_deterministic_algorithms_warn_only_enabled()
                assert torch.are_deterministic_algorithms_enabled() == mode
                assert torch.is_deterministic_algorithms_warn_only_enabled() == warn
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_a_reference_that_compiles_is_replayed_like_one_that_does_not() -> None:
    def plain(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x).sum(-1) / x.norm(dim=-1)

    compiled = torch.compile(plain, backend="eager")
    x = torch.randn(6, 40)
    with quiet_state():
        compiled(x)
    one, two = (oracle.evaluate(f, [x], {}, runs=6) for f in (plain, compiled))
    assert two.raised is None
    assert one.ops == two.ops
    [a], [b] = one.leaves, two.leaves
    assert torch.equal(a.y, b.y)
    assert torch.equal(a.tolerance, b.tolerance)
