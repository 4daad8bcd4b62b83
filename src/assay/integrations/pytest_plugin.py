"""The pytest plugin: options, markers, a test per gate. Loaded in every run, so it imports next to nothing."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from assay.testing import Settings

TIERS = ("quick", "standard", "deep")
DEVICES = ("auto", "cpu", "cuda")
MARKER_NAMES = ("tier", "device", "seed", "timeout")
GATE_OPTIONS = ("inputs", "init", "contract", "tier", "device", "only", "seed", "timeout", "undecided")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that win over markers."""
    group = parser.getgroup("assay", "contracts of GPU kernels")
    group.addoption("--assay-tier", choices=TIERS, default=None, help="effort of each verdict")
    group.addoption("--assay-device", choices=DEVICES, default=None, help="where kernels run")
    group.addoption("--assay-seed", type=int, metavar="N", default=None,
                    help="seed of the probes; drawn for each verdict by default")
    group.addoption("--assay-html", metavar="DIR", default=None, help="write a page of each verdict into this folder")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the markers."""
    config.addinivalue_line("markers", "assay(tier, device, seed, timeout): what verdicts of this test are asked with")
    config.addinivalue_line(
        "markers", "assay_gates(candidate, reference, **options): one case per gate, as the argument `assay_gate`")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case per gate for tests with the marker `assay_gates`."""
    marker = metafunc.definition.get_closest_marker("assay_gates")
    if marker is None:
        return
    where = metafunc.definition.nodeid
    unknown = sorted(set(marker.kwargs) - set(GATE_OPTIONS))
    if len(marker.args) != 2 or unknown:
        said = f"unknown option {', '.join(unknown)}" if unknown else f"{len(marker.args)} positional arguments"
        raise pytest.UsageError(f"{where}: assay_gates takes a candidate, a reference and "
                                f"{', '.join(GATE_OPTIONS)}; got {said}")
    if "assay_gate" not in metafunc.fixturenames:
        raise pytest.UsageError(f"{where}: a test with the marker assay_gates takes the argument `assay_gate`")
    from assay import accept
    from assay.errors import InputError
    from assay.gates import BATTERY
    from assay.integrations.gate_cases import GateCase
    from assay.testing import Question

    try:
        question = Question(*marker.args, **marker.kwargs)
        chosen = accept.gates(question.only)
    except InputError as error:
        raise pytest.UsageError(f"{where}: {error}") from None
    slugs = [gate.slug for gate in BATTERY if (not gate.opt_in if chosen is None else gate.slug in chosen)]
    metafunc.parametrize("assay_gate", [GateCase(question, slug) for slug in slugs], ids=slugs)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse markers that nobody reads, and keep the cases of one verdict together."""
    for item in items:
        for marker in item.iter_markers("assay"):
            unknown = sorted(set(marker.kwargs) - set(MARKER_NAMES))
            if marker.args or unknown:
                said = ", ".join(unknown) or "a positional argument"
                raise pytest.UsageError(f"{item.nodeid}: the marker assay takes {', '.join(MARKER_NAMES)}; got {said}")
        if item.get_closest_marker("assay_gates") is not None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("[")[0]))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, None, None]:
    """Let verdicts of this test know what they are asked with."""
    from assay import testing

    before = testing.state.settings
    testing.state.settings = _settings(item)
    try:
        yield
    finally:
        testing.state.settings = before


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Put the verdicts of a test among its properties, which JUnit XML shows."""
    from assay import testing

    testing.state.seen.clear()
    yield
    for report in testing.state.seen:
        item.user_properties += [("assay_label", report.label.value), ("assay_scope", report.scope),
                                 ("assay_seed", report.seed)]
    testing.state.seen.clear()


def pytest_unconfigure() -> None:
    """End the warm parent, if one was started."""
    if "assay.warm" in sys.modules:
        sys.modules["assay.warm"].close()


def _settings(item: pytest.Item) -> Settings:
    """What verdicts of a test are asked with: the command line, then the nearest marker."""
    from assay.testing import Settings, merged

    found = Settings(beside=item.path.parent, name=_page_name(item.nodeid))
    for marker in reversed(list(item.iter_markers("assay"))):
        found = merged(found, **marker.kwargs)
    given = item.config.option
    html = given.assay_html
    return merged(found, tier=given.assay_tier, device=given.assay_device, seed=given.assay_seed,
                  html=None if html is None else Path(item.config.invocation_params.dir, html),
                  shared=_shared(item.config))


def _shared(config: Any) -> Path | None:
    """A folder that all processes of one run under xdist agree on; None without xdist."""
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        return None
    factory = getattr(config, "_tmp_path_factory", None)
    return None if factory is None else Path(factory.getbasetemp()).parent / "assay"


def _page_name(nodeid: str) -> str:
    """A file name for a test; cases of one test share it, as they share a verdict."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", nodeid.partition("[")[0].removesuffix(".py"))[-150:].strip("-.") or "assay"
