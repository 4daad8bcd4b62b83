"""Trees of tensors and plain values, to and from a JSON description plus raw bytes.

A tree is any nesting of lists, tuples, dicts, named tuples, None, bool, int, float, complex, str and
tensors. Tensors travel as contiguous row-major bytes beside a description of how they lay in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

MAX_DEPTH = 24
MAX_LEAVES = 4096
MAX_TEXT = 1 << 16


class CodecError(ValueError):
    """A value that cannot travel, or a description that does not make sense."""


DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
        torch.float8_e5m2, torch.complex64, torch.complex128, torch.int64, torch.int32, torch.int16,
        torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
    )
}


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class TensorForm:
    """How a tensor lay in its process: all that its bytes alone do not say."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    requires_grad: bool
    storage_ptr: int
    """Address of the storage in the process that held it."""
    storage_bytes: int
    """Size of that storage."""
    has_grad_fn: bool = False
    contiguous: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of the contiguous copy that travels."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def to_json(self) -> list[Any]:
        """As a compact JSON list."""
        return [self.dtype, list(self.shape), list(self.stride), self.device, self.requires_grad,
                self.storage_ptr, self.storage_bytes, self.has_grad_fn, self.contiguous]

    @staticmethod
    def from_json(data: Any) -> TensorForm:
        """Checked inverse of `to_json`. Raises CodecError."""
        try:
            dtype, shape, stride, device, grad, ptr, size, fn, contiguous = data
        except (TypeError, ValueError):
            raise CodecError("malformed tensor description") from None
        if dtype not in DTYPES or not isinstance(device, str) or len(device) > 64:
            raise CodecError("unknown dtype or device")
        dims = [*_ints(shape), *_ints(stride)]
        if len(dims) > 128 or any(not 0 <= n < 1 << 48 for n in _ints(shape)):
            raise CodecError("malformed shape")
        if not all(isinstance(n, int) for n in (ptr, size)):
            raise CodecError("malformed storage")
        return TensorForm(dtype, tuple(_ints(shape)), tuple(_ints(stride)), device, bool(grad), ptr, size,
                          bool(fn), bool(contiguous))


def _ints(data: Any) -> list[int]:
    if not isinstance(data, list) or not all(type(n) is int for n in data):
        raise CodecError("expected a list of integers")
    return data


def form_of(tensor: torch.Tensor, device: str | None = None) -> TensorForm:
    """Describe a strided tensor."""
    storage = tensor.untyped_storage()
    return TensorForm(
        dtype_name(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), device or str(tensor.device),
        tensor.requires_grad, storage.data_ptr(), storage.nbytes(), tensor.grad_fn is not None,
        tensor.is_contiguous(),
    )


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The contiguous row-major bytes of a tensor, on the CPU."""
    flat = tensor.detach()
    if flat.is_conj() or flat.is_neg():
        flat = flat.resolve_conj().resolve_neg()
    flat = flat.to("cpu").contiguous()
    if flat.numel() == 0:
        return memoryview(b"")
    # a single element counts as contiguous whatever its strides
    flat = flat.as_strided((flat.numel(),), (1,))
    array: Any = flat.view(torch.uint8).numpy()
    return memoryview(array).cast("B")


def tensor_from(data: memoryview | bytearray | bytes, form: TensorForm) -> torch.Tensor:
    """A contiguous CPU tensor over `data` (not copied when writable)."""
    if form.nbytes == 0:
        return torch.empty(form.shape, dtype=DTYPES[form.dtype])
    flat = torch.frombuffer(data, dtype=torch.uint8)
    if flat.data_ptr() % DTYPES[form.dtype].itemsize:
        flat = flat.clone()
    return flat.view(DTYPES[form.dtype]).reshape(form.shape)


def flatten(tree: Any) -> tuple[Any, list[torch.Tensor]]:
    """Split a tree into a JSON description and its tensors in order.

    Raises:
        CodecError: a value that cannot travel, or a tree too deep or too wide.
    """
    tensors: list[torch.Tensor] = []
    count = 0

    def walk(value: Any, depth: int) -> Any:
        nonlocal count
        count += 1
        if depth > MAX_DEPTH or count > MAX_LEAVES:
            raise CodecError("the structure is too deep or too wide")
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                value = value.to_dense()
            if value.dtype not in DTYPES.values():
                raise CodecError(f"a tensor of dtype {value.dtype} cannot travel")
            tensors.append(value)
            return {"t": len(tensors) - 1}
        if value is None or type(value) in (bool, str):
            if isinstance(value, str) and len(value) > MAX_TEXT:
                raise CodecError("text too long")
            return value
        if isinstance(value, int):
            return {"i": str(int(value))} if abs(int(value)) >= 1 << 53 else int(value)
        if isinstance(value, float):
            return {"f": float(value).hex() if math.isfinite(value) else str(float(value))}
        if isinstance(value, complex):
            return {"c": [repr(value.real), repr(value.imag)]}
        if isinstance(value, torch.Size):
            return {"l": [int(n) for n in value], "k": "tuple"}
        if isinstance(value, Mapping):
            return {"d": [[walk(k, depth + 1), walk(v, depth + 1)] for k, v in value.items()]}
        if isinstance(value, (list, tuple)):
            kind = "list" if isinstance(value, list) else "tuple"
            return {"l": [walk(v, depth + 1) for v in value], "k": kind}
        if isinstance(value, torch.dtype):
            return {"dtype": dtype_name(value)}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if hasattr(value, "item") and getattr(value, "shape", None) == ():
            return walk(value.item(), depth + 1)
        raise CodecError(f"a value of type {type(value).__module__}.{type(value).__qualname__} cannot travel")

    return walk(tree, 0), tensors


def unflatten(description: Any, tensors: Sequence[Any]) -> Any:
    """Inverse of `flatten`. Raises CodecError for a description that does not make sense."""

    def build(node: Any, depth: int) -> Any:
        if depth > MAX_DEPTH + 2:
            raise CodecError("the description is too deep")
        if node is None or type(node) in (bool, int, str):
            return node
        if not isinstance(node, dict):
            raise CodecError("malformed description")
        if "t" in node:
            if type(node["t"]) is not int or not 0 <= node["t"] < len(tensors):
                raise CodecError("no such tensor")
            return tensors[node["t"]]
        if "i" in node:
            return int(str(node["i"])[:64])
        if "f" in node:
            text = str(node["f"])
            return float.fromhex(text) if "0x" in text else float(text)
        if "c" in node:
            return complex(float(node["c"][0]), float(node["c"][1]))
        if "d" in node:
            return {build(k, depth + 1): build(v, depth + 1) for k, v in node["d"]}
        if "l" in node:
            items = [build(v, depth + 1) for v in node["l"]]
            return tuple(items) if node.get("k") == "tuple" else items
        if "dtype" in node:
            return DTYPES[node["dtype"]]
        if "device" in node:
            return torch.device(node["device"])
        raise CodecError("malformed description")

    try:
        return build(description, 0)
    except (TypeError, ValueError, KeyError, IndexError, RuntimeError) as error:
        raise CodecError(f"malformed description: {error}") from None


def leaf_paths(description: Any) -> list[str]:
    """A readable path for each tensor of a flattened tree, in order; `out` for a bare tensor."""
    paths: dict[int, str] = {}

    def walk(node: Any, path: str) -> None:
        if isinstance(node, dict):
            if "t" in node:
                paths[node["t"]] = path or "out"
            elif "l" in node:
                for i, item in enumerate(node["l"]):
                    walk(item, f"{path}.{i}" if path else str(i))
            elif "d" in node:
                for key, item in node["d"]:
                    walk(item, f"{path}.{key}" if path else str(key))

    walk(description, "")
    return [paths[i] for i in sorted(paths)]


def skeleton(description: Any) -> Any:
    """The description with scalar values erased and lists and tuples alike, to compare structure."""
    if isinstance(description, dict):
        if "t" in description:
            return "tensor"
        if "l" in description:
            return [skeleton(v) for v in description["l"]]
        if "d" in description:
            return {str(k): skeleton(v) for k, v in description["d"]}
        return "scalar"
    return "none" if description is None else "scalar"


def pack(tree: Any) -> tuple[dict[str, Any], list[memoryview]]:
    """A tree as a JSON header part and its payload chunks."""
    description, tensors = flatten(tree)
    return {"tree": description, "forms": [form_of(t).to_json() for t in tensors]}, [
        tensor_bytes(t) for t in tensors
    ]


def unpack(part: Any, payload: memoryview) -> tuple[Any, int]:
    """A tree from a header part and the payload that starts with its bytes; also the bytes used."""
    tensors, used = unpack_tensors(part, payload)
    return unflatten(part["tree"], tensors), used


def unpack_tensors(part: Any, payload: memoryview) -> tuple[list[torch.Tensor], int]:
    """The tensors of a header part. Raises CodecError when the payload is too short."""
    if not isinstance(part, dict) or not isinstance(part.get("forms"), list):
        raise CodecError("malformed part")
    if len(part["forms"]) > MAX_LEAVES:
        raise CodecError("too many tensors")
    tensors, used = [], 0
    for data in part["forms"]:
        form = TensorForm.from_json(data)
        if used + form.nbytes > len(payload):
            raise CodecError("the payload is shorter than its description")
        tensors.append(tensor_from(payload[used:used + form.nbytes], form))
        used += form.nbytes
    return tensors, used
