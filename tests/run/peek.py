"""Run a few lines inside a candidate's worker and hear what they found."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from assay.run.process import Death, Limits, Worker, Zygote

DEVICE = {"device": "cpu", "target": "sm_90"}


def load(worker: Worker, source: str, timeout: float = 60.0) -> Any:
    """The reply to loading `source`: a Frame, or the worker's Death."""
    return worker.request({"op": "load", "source": textwrap.dedent(source), "entries": ["ModelNew"]},
                          timeout=timeout, payload_limit=1 << 20)


def inside(zygote: Zygote, code: str, **options: Any) -> dict[str, Any]:
    """What `code` puts into the dict `found`, in the process that imports candidates."""
    source = "import json\nfound = {}\n" + textwrap.dedent(code) + "\nraise RuntimeError(json.dumps(found))\n"
    worker = zygote.spawn("candidate", options=DEVICE, limits=Limits(address_space=8 << 30), **options)
    try:
        reply = load(worker, source)
        assert not isinstance(reply, Death), reply
        error = reply.header["error"]
        assert error["type"] == "RuntimeError", error
        return dict(json.loads(error["message"]))
    finally:
        worker.close()
