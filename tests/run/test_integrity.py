"""What right candidates do to their process is not held against them; what cheats do is."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.run.peek import DEVICE
from tests.run.test_workers import TASK

from assay.probe.model import Call, Draw, Probe
from assay.probe.record import Observation
from assay.run import sandbox
from assay.run.candidate import CandidateSession
from assay.run.lanes import Budget, Run
from assay.run.process import Limits, Zygote
from assay.run.reference import ReferenceSession
from assay.task import parse_task

PLAIN = """
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""

RIGHT = {
    "sets precision, modes and seeds": """
        import random
        import numpy as np
        torch.set_float32_matmul_precision("high")
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(2)
        torch.manual_seed(3)
        random.seed(1)
        np.random.seed(2)
    """ + PLAIN,
    "sets up logging, warnings and an exit handler": """
        import atexit
        import logging
        import sys
        import warnings
        logging.basicConfig(level=logging.INFO)
        logging.captureWarnings(True)
        warnings.filterwarnings("ignore")
        atexit.register(lambda: None)
        sys.setrecursionlimit(5000)
    """ + PLAIN,
    "sets up libraries through the environment": """
        import os
        os.environ["TRITON_CACHE_DIR"] = os.path.abspath("cache")
        os.environ["CUDA_LAUNCH_BLOCKING"] = "0"
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
        os.environ["PATH"] += os.pathsep + "/usr/local/cuda/bin"
    """ + PLAIN,
    "sets flags for a call and puts them back": """
        import contextlib
        import functools
        import logging
        import time
        import warnings
        @functools.lru_cache(maxsize=None)
        def compiled(width):
            return torch.compile(torch.relu)
        class ModelNew(nn.Module):
            def forward(self, x):
                began = time.perf_counter()
                before = torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision()
                torch.backends.cuda.matmul.allow_tf32 = True
                torch.set_float32_matmul_precision("high")
                with warnings.catch_warnings(), torch.no_grad(), torch.autocast("cuda", enabled=False):
                    warnings.simplefilter("ignore")
                    y = compiled(x.shape[-1])(x)
                torch.backends.cuda.matmul.allow_tf32 = before[0]
                torch.set_float32_matmul_precision(before[1])
                logging.getLogger(__name__).debug("took %f", time.perf_counter() - began)
                return y
    """,
    "draws random numbers, also from a generator of its own": """
        class ModelNew(nn.Module):
            def forward(self, x):
                own = torch.Generator().manual_seed(3)
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(4)
                    torch.rand(3)
                return torch.relu(x) + 0 * torch.rand(1) + 0 * torch.rand(1, generator=own)
    """,
    "asks the device": """
        class ModelNew(nn.Module):
            def forward(self, x):
                torch.cuda.current_stream().synchronize()
                with torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.current_stream()):
                    torch.cuda.get_device_properties(0).multi_processor_count
                    start = torch.cuda.Event(enable_timing=True)
                    start.record()
                    return torch.relu(x)
    """,
    "keeps pools of threads that wait": """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        torch.set_num_threads(2)
        class ModelNew(nn.Module):
            def forward(self, x):
                return torch.cat(list(pool.map(torch.relu, x.chunk(2)))) + 0 * (x @ x.mT).sum()
    """,
    "imports what torch loads late": """
        import torch._dynamo
        import torch._inductor
        import torch.distributions
        import torch.fx
        import torch.optim
        import torch.utils.checkpoint
        import torch.utils.cpp_extension
    """ + PLAIN,
    "compiles": """
        @torch.compile
        def relu(x):
            return torch.relu(x)
        class ModelNew(nn.Module):
            def forward(self, x):
                return relu(x)
    """,
    "scripts and maps": """
        from torch.func import vmap
        @torch.jit.script
        def relu(x):
            return torch.relu(x)
        class ModelNew(nn.Module):
            def forward(self, x):
                return vmap(torch.relu)(x) + relu(x) - torch.relu(x)
    """,
    "registers operators": """
        @torch.library.custom_op("mine::relu", mutates_args=())
        def mine(x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x)
        @mine.register_fake
        def _(x):
            return torch.empty_like(x)
        library = torch.library.Library("other", "DEF")
        library.define("relu(Tensor x) -> Tensor")
        library.impl("relu", lambda x: torch.relu(x), "CPU")
        class ModelNew(nn.Module):
            def forward(self, x):
                return mine(x) + torch.ops.other.relu(x) - torch.relu(x)
    """,
    "uses a pool of threads and gives it back": """
        from concurrent.futures import ThreadPoolExecutor
        class ModelNew(nn.Module):
            def forward(self, x):
                with ThreadPoolExecutor(2) as pool:
                    return torch.cat(list(pool.map(torch.relu, x.chunk(2))))
    """,
    "runs a tool and uses temporary files": """
        import os
        import subprocess
        import tempfile
        class ModelNew(nn.Module):
            def forward(self, x):
                subprocess.run(["true"], check=True)
                with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "a"), "w") as file:
                    file.write("x")
                return torch.relu(x)
    """,
    "launches an autotuned kernel": """
        import triton
        import triton.language as tl
        @triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
        @triton.jit
        def kernel(x, y, n, BLOCK: tl.constexpr):
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(y + i, tl.maximum(tl.load(x + i, mask=i < n), 0), mask=i < n)
        class ModelNew(nn.Module):
            def forward(self, x):
                y = torch.empty_like(x)
                kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
                return y
    """,
}

WRONG: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "patches a comparison": ("torch.allclose = lambda *a, **k: True\n" + PLAIN,
                             lambda f: "torch.allclose" in f["patched"]),
    "patches a method": ("torch.Tensor.equal = lambda *a: True\n" + PLAIN,
                         lambda f: "torch.Tensor.equal" in f["patched"]),
    "patches a clock": ("import time\ntime.perf_counter = lambda: 0.0\n" + PLAIN,
                        lambda f: "time.perf_counter" in f["patched"]),
    "runs the reference that it found": ("""
        import sys
        class ModelNew(nn.Module):
            def forward(self, x):
                sys.modules["reference"].Model()(x)
                return torch.relu(x)
    """, lambda f: f["bait"] > 0),
    "patches what watches it": ("""
        import sys
        sys.modules["assay.run.integrity"].changed = lambda before: []
    """ + PLAIN, lambda f: "assay.run.integrity.changed" in f["patched"]),
    "changes where programs are searched": ("""
        import os
        os.environ["PATH"] = "/nowhere"
        os.environ["LD_PRELOAD"] = "fast.so"
    """ + PLAIN, lambda f: f["environment"] == ["LD_PRELOAD", "PATH"]),
    "leaves a mode": ("""
        class ModelNew(nn.Module):
            def forward(self, x):
                torch.set_grad_enabled(True)
                return torch.relu(x)
    """, lambda f: f["modes"] == ["gradients from False to True"]),
    "seeds the random numbers anew": ("""
        class ModelNew(nn.Module):
            def forward(self, x):
                torch.manual_seed(3)
                return torch.relu(x)
    """, lambda f: f["modes"][0].startswith("random seed from ")),
    "leaves a native thread asleep": ("""
        import ctypes
        class ModelNew(nn.Module):
            def forward(self, x):
                libc, handle = ctypes.CDLL(None), ctypes.c_ulong()
                libc.pthread_create(ctypes.byref(handle), None, libc.sleep, ctypes.c_void_p(600))
                return torch.relu(x)
    """, lambda f: any(name.startswith("native thread") for name in f["threads"])),
    "lets a thread end a little later": ("""
        import threading, time
        class ModelNew(nn.Module):
            def forward(self, x):
                threading.Thread(target=time.sleep, args=(1.0,), name="soon").start()
                return torch.relu(x)
    """, lambda f: "soon" in f["threads"]),
    "leaves a thread": ("""
        import threading, time
        class ModelNew(nn.Module):
            def forward(self, x):
                threading.Thread(target=time.sleep, args=(600,), daemon=True, name="later").start()
                return torch.relu(x)
    """, lambda f: "later" in f["threads"]),
}


@pytest.fixture(scope="module")
def reference(zygote: Zygote) -> Iterator[ReferenceSession]:
    session = ReferenceSession(zygote, parse_task(TASK))
    session.study()
    yield session
    session.close()


def observe(zygote: Zygote, reference: ReferenceSession, source: str) -> list[Observation]:
    text = "import torch\nimport torch.nn as nn\n" + textwrap.dedent(source)
    session = CandidateSession(zygote, text, ["ModelNew"], DEVICE, Limits(address_space=9 << 30))
    plan = [Probe(id=f"values/draw-{i}", gate="values", draws=(Draw(seed=i),), calls=(Call(),))
            for i in range(2)]
    try:
        records = Run(reference, [session], Budget(time.monotonic() + 300, floor=120.0), 1).all(plan)
    finally:
        session.close()
    return [r.observation for r in records]


def whole(source: str) -> str:
    """Source of which what comes before the plain module may be indented."""
    if source.endswith(PLAIN):
        return textwrap.dedent(source.removesuffix(PLAIN)) + PLAIN
    return source


@pytest.mark.parametrize("name", RIGHT)
def test_what_right_candidates_do_is_no_finding(zygote: Zygote, reference: ReferenceSession,
                                                name: str) -> None:
    for seen in observe(zygote, reference, whole(RIGHT[name])):
        assert (seen.status, seen.error, seen.left) == ("ok", None, 0)
        assert (seen.facts["patched"], seen.facts["threads"], seen.facts["bait"]) == ([], [], 0)
        assert (seen.facts["environment"], seen.facts["modes"], seen.files) == ([], [], ())
        assert not seen.facts["traced"]


@pytest.mark.skipif(not sandbox.level().full, reason=f"no namespaces here: {sandbox.level().missing}")
def test_files_and_segments_left_elsewhere_are_seen_from_outside(zygote: Zygote, reference: ReferenceSession) -> None:
    left = observe(zygote, reference, """
        import ctypes
        import os
        import tempfile
        class ModelNew(nn.Module):
            def forward(self, x):
                os.makedirs("/var/tmp/a/b", exist_ok=True)
                for path in ("/tmp/one", "/dev/shm/two", "own", os.path.join(tempfile.gettempdir(), "three")):
                    open(path, "w").close()
                ctypes.CDLL(None).shmget(77, 4096, 0o1666)
                return torch.relu(x)
    """)
    assert set(left[0].files) == {"/tmp/one", "/var/tmp/a", "/dev/shm/two", "shared memory segment 0"}


@pytest.mark.parametrize("name", WRONG)
def test_what_cheats_do_is_seen(zygote: Zygote, reference: ReferenceSession, name: str) -> None:
    source, seen = WRONG[name]
    assert any(seen(o.facts) for o in observe(zygote, reference, whole(source)))
