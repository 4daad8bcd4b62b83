"""The process that runs the reference and its float64 replay. Trusted code, still apart from the judge."""

from __future__ import annotations

import dataclasses
import socket
from typing import Any

import torch

from assay.oracle import memory
from assay.oracle.no_compiler import spare_compiler
from assay.run import codec, wire
from assay.run.cost import cost_of
from assay.run.reference_inputs import arranged, cast, own_copy
from assay.run.reference_state import State, model_of, seeded, state_of
from assay.run.reference_truth import truth
from assay.task.instance import seed_all
from assay.task.model import Task, TaskError


def main(sock: socket.socket, arena_fd: int, spec: dict[str, Any]) -> None:
    """Answer requests until the judge closes the channel."""
    torch.set_num_threads(1)
    spare_compiler()
    memory.keep_freed()
    state = State(spec["options"])
    handlers = {"task": _task, "study": _study, "restore": _restore, "instance": _instance, "truth": truth,
                "screen": _screen, "cost": _cost}
    while True:
        try:
            frame = wire.receive(sock)
        except wire.WireFault:
            return
        try:
            header, chunks = handlers[str(frame.header["op"])](state, frame.header)
        except TaskError as error:
            header, chunks = {"task_error": [error.what, error.where, error.todo]}, []
        except MemoryError as error:
            header, chunks = {"memory": str(error)[:500]}, []
        except Exception as error:
            kind = type(error).__name__
            header, chunks = {"failed": f"{kind}: {error}"[:2000]}, []
            if _out_of_memory(str(error)[:400].lower()):
                header = {"memory": str(error)[:500]}
        header["token"] = frame.header.get("token")
        wire.send(sock, header, chunks)
        del chunks
        memory.give_back()


def _out_of_memory(text: str) -> bool:
    return "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text


def _task(state: State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    state.task = Task.model_validate(header["task"])
    state.instances.clear()
    # a reference that names the device itself runs where the name means something
    names_cuda = "cuda" in state.task.source
    state.needs_cuda = names_cuda and state.device == "cuda"
    if names_cuda and state.device == "cpu":
        from assay.run.emulation import TARGETS
        from assay.run.emulation.cuda import install_cuda
        from assay.run.emulation.tensors import install_tensors

        install_tensors()
        install_cuda(TARGETS[str(state.options.get("target", "sm_90"))])
    return {"ok": True}, []


def _study(state: State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    from assay.task.study import study

    assert state.task is not None
    state.study = study(state.task, **header.get("options", {}))
    return {"study": state.study.model_dump(mode="json")}, []


def _restore(state: State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """A study made before, and the inputs whose domain a contract changes."""
    from assay.contract.domain import Declared
    from assay.task.facts import Study

    state.study = Study.model_validate(header["study"])
    state.declared = {int(i): Declared.model_validate(c) for i, c in header.get("declared", {}).items()}
    return {"ok": True}, []


def _instance(state: State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """Constructor arguments and weights at some sizes."""
    instance = seeded(state, header)
    init, chunks = codec.pack([list(instance.init_args), dict(instance.init_kwargs)])
    model = model_of(instance, int(header.get("parameters", 0)), None)
    tensors, buffers = state_of(model)
    return {
        "init": init, "names": list(tensors), "buffers": buffers,
        "state": {"forms": [codec.form_of(t).to_json() for t in tensors.values()]},
        "training": bool(model.training) if isinstance(model, torch.nn.Module) else None,
    }, [*chunks, *[codec.tensor_bytes(t) for t in tensors.values()]]


def _cost(state: State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """Bytes and operations of one forward."""
    instance = seeded(state, header)
    arguments = instance.inputs(int(header["call_seed"]))
    device = state.device_for(arguments.tensors())
    model = model_of(instance, 0, None, device)
    fed = arranged(arguments, (), device)
    found = cost_of(own_copy(model), fed.args, dict(fed.kwargs), int(header["call_seed"]))
    return {"cost": dataclasses.asdict(found)}, []


def _screen(state: State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """Inputs and native outputs of one trial of the screen, all trials on one model."""
    instance = seeded(state, {"sizes": {}, **header})
    dtype = codec.DTYPES[header["dtype"]] if header.get("dtype") else None
    seed = int(header["input_seed"])
    arguments = cast(instance.inputs(seed), dtype)
    drawn, drawn_chunks = codec.pack([list(arguments.args), dict(arguments.kwargs)])
    drawn_chunks = [memoryview(bytes(c)) for c in drawn_chunks]
    if dtype is not None and state.screened is None:
        seed_all(instance.seed)
        state.screened = instance.make_model(cast(instance.init, dtype))
    model = instance.model if state.screened is None else state.screened
    if dtype is not None and isinstance(model, torch.nn.Module):
        model = model.to(dtype)
    seed_all(seed)
    before = torch.get_rng_state()
    with torch.no_grad():
        outputs = model(*arguments.args, **arguments.kwargs)
    drew = not torch.equal(before, torch.get_rng_state())
    call_seed = int(torch.randint(0, 2**31 - 1, (1,))) if drew else seed
    if not header["private"]:
        drawn, drawn_chunks = codec.pack([list(arguments.args), dict(arguments.kwargs)])
    packed, pieces = codec.pack(outputs)
    return {"inputs": drawn, "outputs": packed, "call_seed": call_seed}, [*drawn_chunks, *pieces]
