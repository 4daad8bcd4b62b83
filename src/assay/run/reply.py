"""Reading what a candidate's worker answers: all of it bounded, typed and printable before anyone uses it."""

from __future__ import annotations

import math
from typing import Any

import torch

from assay.probe.record import CallResult, Output, Pass
from assay.run import codec

TEXT = 2000
LARGEST_CONFIGS = 4096

_SHAPES: dict[str, Any] = {
    "patched": [str], "threads": [str], "handlers": [str], "bait": int, "traced": bool,
    "launches": [{"kernel": str}], "launch_count": int, "access": [dict], "configs": {"*": int},
    "reordered": int, "conflicts": [dict],
    "inputs": {"*": [[int]]}, "parameters": [[int]], "fences": [dict], "fenced": int, "per_call": [dict],
    "replaced": int, "module": bool,
    "spent": {"*": int}, "compiled": [dict], "environment": [str], "modes": [str],
}


def printable(text: object, limit: int = TEXT) -> str:
    """Text without control characters, cut to `limit`: nothing that moves a cursor or colours a terminal."""
    kept = str(text)[:limit]
    return "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in kept)


def clean_error(error: dict[str, Any]) -> dict[str, Any]:
    """The candidate's error as bounded, printable text."""
    return {key: printable(error.get(key, "")) for key in ("type", "message", "phase", "place")}


def facts(value: Any) -> dict[str, Any]:
    """What the worker says of itself, with the shapes that gates rely on.

    Raises:
        CodecError: a fact of another type than it has.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise codec.CodecError("the facts are no object")
    for name, shape in _SHAPES.items():
        if name in value and value[name] is not None and not _fits(value[name], shape):
            raise codec.CodecError(f"the fact `{name}` has another type")
    for call in value.get("per_call") or []:
        for kernel in call.get("kernels") or []:
            if not (isinstance(kernel, list) and len(kernel) == 2 and isinstance(kernel[0], str)
                    and type(kernel[1]) is int and kernel[1] >= 0):
                raise codec.CodecError("a kernel's time has another type")
        spent = call.get("library_ns") or {}
        if not (isinstance(spent, dict) and all(type(n) is int and n >= 0 for n in (call.get("own_ns") or 0,
                                                                                    *spent.values()))):
            raise codec.CodecError("a time on the device has another type")
    if any(not 0 <= count <= LARGEST_CONFIGS for count in (value.get("configs") or {}).values()):
        raise codec.CodecError("a number of configurations that cannot be")
    return {printable(key, 80): _cleaned(item) for key, item in value.items()}


def _fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(item, shape[0]) for item in value)
    if isinstance(shape, dict) and "*" in shape:
        return isinstance(value, dict) and all(_fits(item, shape["*"]) for item in value.values())
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(k in value and _fits(value[k], v) for k, v in shape.items())
    if shape is int:
        return type(value) is int and abs(value) < 1 << 64
    return isinstance(value, shape)


def _cleaned(node: Any) -> Any:
    if isinstance(node, str):
        return printable(node)
    if isinstance(node, list):
        return [_cleaned(item) for item in node]
    if isinstance(node, dict):
        return {printable(key): _cleaned(item) for key, item in node.items()}
    return node


def seconds(value: Any, most: float) -> float:
    """A duration that the worker claims, never longer than the whole exchange took."""
    claimed = float(value)
    return min(max(claimed, 0.0), most) if math.isfinite(claimed) else most


def call_result(record: Any, view: memoryview, used: int, most: float) -> tuple[CallResult, int]:
    """One call's outputs and gradients, and the bytes of the payload used up.

    Args:
        record: the call's part of the header.
        view: the whole payload.
        used: bytes that earlier calls took.
        most: seconds that the exchange took.

    Raises:
        CodecError, or another exception of a description that makes no sense.
    """
    part = record["outputs"]
    tensors, count = codec.unpack_tensors(part, view[used:])
    codec.unflatten(part["tree"], tensors)
    used += count
    paths = codec.leaf_paths(part["tree"])
    if len(paths) != len(tensors):
        raise codec.CodecError("outputs without a place in the structure")
    forms = [codec.TensorForm.from_json(f) for f in part["forms"]]
    outputs = tuple(
        Output(printable(path, 200), tensor, form.dtype, form.shape, form.stride, printable(form.device, 64),
               form.contiguous, form.requires_grad, form.storage_ptr, form.storage_bytes)
        for path, tensor, form in zip(paths, tensors, forms, strict=True)
    )
    extra: dict[str, Any] = {}
    if record.get("gradients") is not None:
        grads, count = codec.unpack_tensors(record["gradients"], view[used:])
        used += count
        tree = codec.unflatten(record["gradients"]["tree"], grads)
        inputs, parameters = tuple(tree["inputs"]), dict(tree["parameters"])
        further = tuple(Pass(printable(name, 40), tuple(theirs), {str(k): v for k, v in dict(trained).items()})
                        for name, theirs, trained in tree["further"])
        every = [*inputs, *parameters.values(), *(g for p in further for g in (*p.inputs, *p.parameters.values()))]
        if not all(g is None or isinstance(g, torch.Tensor) for g in every):
            raise codec.CodecError("a gradient that is no tensor")
        extra = {"input_grads": inputs, "parameter_grads": {str(k): v for k, v in parameters.items()},
                 "claims": tuple(bool(c) for c in tree["claims"]), "further": further,
                 "wrote": tuple(printable(name, 40) for name in tree.get("wrote", [])[:20])}
    return CallResult(codec.skeleton(part["tree"]), scalars(part["tree"]), outputs,
                      seconds(record["seconds"], most), **extra), used


def scalars(description: Any) -> dict[str, Any]:
    """Plain numbers of a flattened tree, by path."""
    found: dict[str, Any] = {}

    def walk(node: Any, path: str) -> None:
        if isinstance(node, dict) and "l" in node:
            for i, item in enumerate(node["l"]):
                walk(item, f"{path}.{i}" if path else str(i))
        elif isinstance(node, dict) and "d" in node:
            for key, item in node["d"]:
                walk(item, f"{path}.{key}" if path else str(key))
        elif not (isinstance(node, dict) and "t" in node):
            value = codec.unflatten(node, [])
            found[path or "out"] = printable(value) if isinstance(value, str) else value

    walk(description, "")
    return found
