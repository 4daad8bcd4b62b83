"""Every test here runs in a process of its own: emulation cannot be undone.

The test's module is executed again in a forked child after `install`, so that its kernels
are jitted under emulation, as a candidate's are.
"""

import importlib.util
import os
import pickle
import sys
import traceback
import warnings

import pytest
import torch
import triton  # noqa: F401  (the warm parent of a worker has imported these)

import assay.run.emulation  # noqa: F401


def _child(item, write_end):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    from assay.run.emulation import install

    mark = item.get_closest_marker("emulate")
    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames if name != "emulation"}
    try:
        emulation = install(mark.args[0]) if mark else install()
        spec = importlib.util.spec_from_file_location("candidate_module", item.path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate_module"] = module
        spec.loader.exec_module(module)
        if "emulation" in item._fixtureinfo.argnames:
            arguments["emulation"] = emulation
        getattr(module, item.originalname)(**arguments)
        outcome = None
    except BaseException:
        outcome = traceback.format_exc()
    os.write(write_end, pickle.dumps(outcome))


@pytest.fixture
def emulation():
    """The emulated device of the child."""


def pytest_configure(config):
    config.addinivalue_line("markers", "emulate(target): the target to emulate instead of the default")


def pytest_pyfunc_call(pyfuncitem):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_end)
            _child(pyfuncitem, write_end)
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(pid, 0)
    if not data:
        pytest.fail(f"the child died with status {status}", pytrace=False)
    outcome = pickle.loads(data)
    if outcome is not None:
        pytest.fail(outcome, pytrace=False)
    return True
