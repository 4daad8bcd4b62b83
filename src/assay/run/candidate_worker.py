"""The only place where candidate source is imported.

Holds no reference, no expected value, no tolerance and no plan: each request brings the inputs, and what goes
back is a description and raw bytes. Whatever this process says about itself is marked as attested by it.
"""

from __future__ import annotations

import importlib.util
import linecache
import os
import socket
import sys
import time
from typing import Any

import torch

from assay.run import codec, integrity, timed, traces, wire
from assay.run.attested import describe, device_lost, facts_of
from assay.run.candidate_calls import run
from assay.run.candidate_state import State, instantiate


def main(sock: socket.socket, arena_fd: int, spec: dict[str, Any]) -> None:
    """Answer requests until the judge closes the channel."""
    state = State(spec["options"], arena_fd)
    torch.set_num_threads(1)
    while True:
        try:
            frame = wire.receive(sock)
        except wire.WireFault:
            return
        operation = frame.header.get("op")
        handler = {"warm": _warm, "load": load, "instance": instance, "run": run, "time": _time}[str(operation)]
        try:
            header, chunks = handler(state, frame)
        except SystemExit as stop:
            # an exit asked for by the candidate is an exit: nothing is reported over the channel
            os._exit(stop.code if isinstance(stop.code, int) else 1)
        except BaseException as error:
            header, chunks = {"error": describe(error, "worker")}, []
            if state.device != "cpu" and device_lost():
                # the device's doing, and no answer that makes no sense
                header = {"error": {**header["error"], "sticky": True}, "calls": []}
        offered = state.builds.offered()
        if offered:
            header["built"] = [[key, name, len(data)] for key, name, data in offered]
            chunks = [*chunks, *[memoryview(data) for _, _, data in offered]]
        if (told := state.stubs.told()) is not None:
            header["stubs"] = told
        header["token"] = frame.header.get("token")
        wire.send(sock, header, chunks)


def _enter_device(state: State) -> None:
    """Make the process one of the device, or of its emulation; nothing where it is one already."""
    if state.entered:
        return
    state.entered = True
    if state.options.get("mode") == "compile":
        from assay.run import compile_only

        state.compiler = compile_only.install(str(state.options["target"]))
    elif state.options.get("device", "cpu") == "cpu":
        from assay.run import emulation

        state.emulation = emulation.install(str(state.options.get("target", "sm_90")))
    else:
        state.device = "cuda"
        began = time.perf_counter()
        torch.zeros(1, device="cuda")
        library_arithmetic()
        if state.options.get("mode") != "time":
            # writing launches down takes time itself
            from assay.run import on_device

            state.on_device = on_device.install(state.stubs)
            state.on_device.spent["context"] = round(1e6 * (time.perf_counter() - began))
    state.builds.install()


def library_arithmetic() -> None:
    """Have torch's own products and convolutions compute in this process as they do in the reference's: IEEE.

    Convolutions take TF32 unless told otherwise, and half-precision products may be summed in half precision. A
    candidate that leaves an operation to torch owes no other arithmetic than torch was asked for; one that asks for
    less has asked itself.
    """
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def _warm(state: State, frame: wire.Frame) -> tuple[dict[str, Any], list[memoryview]]:
    """Do what a candidate's first launch would have to wait for. No candidate has been here."""
    state.stubs.restore(frame.header.get("stubs"), memoryview(frame.payload))
    _enter_device(state)
    if state.on_device is not None:
        from assay.run import warm_kernel

        warm_kernel.launch()
        state.on_device.reset()
        state.on_device.took()
    return {"ok": True}, []


def load(state: State, frame: wire.Frame) -> tuple[dict[str, Any], list[memoryview]]:
    """Import the candidate's source from a file of its own."""
    header = frame.header
    view, kept = memoryview(frame.payload), []
    for key, name, size in header.get("builds", []):
        kept.append((key, name, bytes(view[:size])))
        view = view[size:]
    state.stubs.restore(header.get("stubs"), view)
    _enter_device(state)
    state.builds.restore(kept)
    state.watched = integrity.snapshot()
    state.threads, state.environment = frozenset(traces.native_threads()), dict(os.environ)
    path = os.path.join(os.getcwd(), "candidate.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(header["source"])
    linecache.checkcache(path)
    began = time.perf_counter()
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit:
        raise
    except BaseException as error:
        return {"error": describe(error, "import")}, []
    state.module = module
    for name in header["entries"]:
        found = getattr(module, name, None)
        if callable(found):
            state.entry = found
            return {"ok": True, "entry": name, "seconds": time.perf_counter() - began,
                    "facts": facts_of(state)}, []
    return {"error": {"type": "NoEntry", "message": f"the candidate defines none of {header['entries']}",
                      "phase": "import", "place": "", "needs_gpu": None, "memory": False}}, []


def instance(state: State, frame: wire.Frame) -> tuple[dict[str, Any], list[memoryview]]:
    """Remember constructor arguments and the reference's weights under a key."""
    header, view = frame.header, memoryview(frame.payload)
    (args, kwargs), used = codec.unpack(header["init"], view)
    tensors, _ = codec.unpack_tensors(header["state"], view[used:])
    weights_by_name = dict(zip(header["names"], tensors, strict=True))
    state.instances[header["key"]] = (tuple(args), dict(kwargs), weights_by_name, header)
    return {"ok": True}, []


def _time(state: State, frame: wire.Frame) -> tuple[dict[str, Any], list[memoryview]]:
    """One step of a benchmark."""
    header = frame.header

    def build() -> Any:
        if header.get("tf32") is not None:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = bool(header["tf32"])
        model, found = instantiate(state, header["key"], None)
        if found.how == "unmatched":
            raise RuntimeError(f"its weights do not match: {found.text}")
        return model

    try:
        return timed.answer(state.benches, frame, state.device, build, lambda: facts_of(state))
    except SystemExit:
        raise
    except BaseException as error:
        return {"error": describe(error, str(header.get("step")))}, []
