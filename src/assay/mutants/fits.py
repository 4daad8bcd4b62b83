"""Compile a candidate's kernels for sm_90, on any machine, and say whether they fit.

Run as `python -m assay.mutants.fits FOLDER`, with reference.py and candidate.py in the folder.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any


def main(folder: str) -> dict[str, Any]:
    """`{"how": "compile", ...}` where a kernel does not compile or does not fit, else `{}`."""
    import torch

    from assay.run import compile_only

    recorder = compile_only.install("sm_90")
    modules = []
    for name in ("reference", "candidate"):
        spec = importlib.util.spec_from_file_location(name, Path(folder, f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        modules.append(module)
    reference, candidate = modules
    torch.manual_seed(0)
    with torch.no_grad():
        candidate.ModelNew(*reference.get_init_inputs())(*reference.get_inputs())
    for fact in recorder.facts():
        if fact["error"]:
            return {"how": "compile", "where": str(fact["error"])[-150:]}
        if fact["over"]:
            return {"how": "compile", "where": str(fact["over"])}
    return {}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
