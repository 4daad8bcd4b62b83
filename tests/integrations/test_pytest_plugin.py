"""The pytest plugin, in pytest runs of their own that find it by its entry point."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
ROW_SUM = ROOT / "examples/row_sum"


@pytest.fixture
def installed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder to run pytest in, with the plugin installed as pyproject.toml says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = pytester.mkdir("site") / "assay_plugin-0.dist-info"
    found.mkdir()
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: assay-plugin\nVersion: 0\n")
    points = project["entry-points"]["pytest11"]
    (found / "entry_points.txt").write_text("[pytest11]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
    monkeypatch.setenv("PYTHONPATH", f"{found.parent}:{ROOT / 'src'}")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    for name in ("reference", "right", "wrong_fixed_width"):
        (pytester.path / f"{name}.py").write_text((ROW_SUM / f"{name}.py").read_text())
    return pytester


def test_a_run_without_kernels_pays_nothing(installed: pytest.Pytester) -> None:
    installed.makepyfile(test_plain="""
        import sys

        def test_nothing_heavy_is_imported(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("assay")
            assert not {"torch", "triton", "pydantic", "numpy", "assay.verify"} & set(sys.modules)
    """)
    installed.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


SUITE = '''
    import os
    import pytest
    from assay.errors import InputError
    from assay.testing import assert_contract, assay_gates

    pytestmark = pytest.mark.assay(tier="quick", seed=5)

    def test_right():
        report = assert_contract("right.py", "reference.py", only=["values", "shapes"])
        assert (report.label.value, report.tier, report.seed) == ("contract", "quick", 5)

    def test_wrong():
        assert_contract("wrong_fixed_width.py", "reference.py", only=["values", "shapes"])

    def test_arguments_win():
        assert assert_contract("right.py", "reference.py", only="repeatability", seed=6).seed == 6

    def test_undecided():
        policy = {"policy": {"scope": "gpu"}}
        with pytest.raises(AssertionError, match="the contract asks for more"):
            assert_contract("right.py", "reference.py", only="repeatability", contract=policy)
        assert_contract("right.py", "reference.py", only="repeatability", contract=policy, undecided="accept")
        assert_contract("right.py", "reference.py", only="repeatability", contract=policy, undecided="skip")

    def test_bad_input():
        assert_contract("missing.py", "reference.py")

    def test_one_warm_parent():
        from assay import warm
        assert warm._shared is not None and warm._shared[0] == os.getpid()

    test_gates = assay_gates("wrong_fixed_width.py", "reference.py", only=["values", "shapes", "streams"])

    @pytest.mark.assay_gates("gone.py", "reference.py", only="values")
    def test_gates_of_nothing(assay_gate):
        assay_gate.check()
'''


def test_contracts_as_tests(installed: pytest.Pytester) -> None:
    installed.makepyfile(test_kernels=SUITE)
    # from another folder: kernels lie beside the test
    other = installed.mkdir("elsewhere")
    result = installed.run("env", "-C", str(other), *installed._getpytestargs(), "..", "-v", "-p", "no:cacheprovider",
                           "--assay-html", "pages", "--junitxml", "out.xml")
    lines = result.outlines
    text = "\n".join(lines)
    result.assert_outcomes(passed=4, failed=4, skipped=2)

    # as readable as the terminal's report, and without a look inside
    failure = text[text.index("_ test_wrong _"): text.index("_ test_bad_input _")]
    assert "E       assay.report.model.AssayFailure: rejected on cpu-emulation: 1 of 2 gates failed (shapes)" in failure
    for words in ("1. shapes (CMP-03): ", "expected   ", "got        ", "where      ", "probe      ",
                  "replay     assay verify ", "--seed 5", "--tier quick"):
        assert words in failure
    assert "test_kernels.py" in failure
    assert "src/assay" not in failure
    bad = text[text.index("_ test_bad_input _"): text.index("_ test_gates[shapes] _")]
    assert "missing.py: no such file for the candidate (check the path)" in bad
    assert "src/assay" not in bad

    # one test per gate
    statuses = dict(re.findall(r"::test_gates\[(\w+)\] (\w+) ", text))
    assert statuses == {"values": "PASSED", "shapes": "FAILED", "streams": "SKIPPED"}
    assert "needs a GPU" in text
    assert re.search(r"test_gates_of_nothing\[values\] FAILED", text)
    assert "assay: gone.py: no such file for the candidate" in text

    # a page for each verdict, one for all gates
    pages = {page.stem for page in (other / "pages").iterdir()}
    assert {"test_kernels.py-test_right", "test_kernels.py-test_wrong", "test_kernels.py-test_gates"} <= {
        page.removeprefix("..-") for page in pages}
    assert sum("test_gates" in page for page in pages) == 1

    # the verdict among the properties of the test
    cases = {case.get("name"): case for case in ElementTree.parse(other / "out.xml").iter("testcase")}
    found = {p.get("name"): p.get("value") for p in cases["test_right"].iter("property")}
    assert found == {"assay_label": "contract", "assay_scope": "cpu-emulation", "assay_seed": "5"}


@pytest.mark.slow
def test_processes_of_one_run_share_a_verdict(installed: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    installed.makepyfile(test_kernels="""
        import pytest
        from assay.testing import assay_gates

        test_kernel = pytest.mark.assay(tier="quick")(
            assay_gates("right.py", "reference.py", only=["values", "shapes", "repeatability", "residency"]))
    """)
    result = installed.runpytest_subprocess("-n", "2", "--dist", "load", "--assay-html", "pages", "-p",
                                            "no:cacheprovider")
    result.assert_outcomes(passed=4)
    assert len(list((installed.path / "pages").iterdir())) == 1


@pytest.mark.parametrize(("test", "said"), [
    ("@pytest.mark.assay(tir='quick')\ndef test_x(): pass", "assay takes tier, device, seed, timeout; got tir"),
    ("@pytest.mark.assay_gates('a.py', 'b.py')\ndef test_x(): pass", "takes the argument `assay_gate`"),
    pytest.param("@pytest.mark.assay_gates('a.py', 'b.py', only='shaeps')\ndef test_x(assay_gate): pass",
                 "no gate `shaeps`; did you mean `shapes`?", marks=pytest.mark.slow),
    pytest.param("@pytest.mark.assay('quick')\ndef test_x(): pass", "got a positional argument",
                 marks=pytest.mark.slow),
    pytest.param("@pytest.mark.assay_gates('a.py', 'b.py', speed=1)\ndef test_x(assay_gate): pass",
                 "unknown option speed", marks=pytest.mark.slow),
], ids=["keyword", "argument", "gate", "positional", "option"])
def test_what_nobody_would_read_is_refused(installed: pytest.Pytester, test: str, said: str) -> None:
    (installed.path / "test_bad.py").write_text(f"import pytest\n\n{test}\n")
    result = installed.runpytest_subprocess("--collect-only", "-p", "no:cacheprovider")
    assert result.ret != 0
    assert said in "\n".join([*result.outlines, *result.errlines])


def test_options_are_checked(installed: pytest.Pytester) -> None:
    result = installed.runpytest_subprocess("--assay-tier", "fast")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "invalid choice: 'fast'" in "\n".join(result.errlines)
