"""flashinfer-bench: definitions with named axes, workloads, and solutions that write to given outputs."""

from __future__ import annotations

import ast
import datetime
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from assay.contract.model import Contract, Domain, SizeDomain
from assay.errors import InputError
from assay.report.model import Report
from assay.task.formats.loaded import (
    PLACE,
    Loaded,
    bound_names,
    field_of,
    fresh,
    has_function,
    module,
    on_host,
    parse,
    read_json,
    read_text,
)
from assay.task.model import Candidate, parse_candidate, parse_task
from assay.vocabulary import Label, Outcome, Reason

NAME = "flashinfer-bench"
USUAL_SIZE = 8
"""Value of a variable axis where no workload gives one."""
DTYPES = {
    "float64": "torch.float64",
    "float32": "torch.float32",
    "float16": "torch.float16",
    "bfloat16": "torch.bfloat16",
    "float8_e4m3": "torch.float8_e4m3fn",
    "float8_e4m3fn": "torch.float8_e4m3fn",
    "float8_e5m2": "torch.float8_e5m2",
    "int64": "torch.int64",
    "int32": "torch.int32",
    "int16": "torch.int16",
    "int8": "torch.int8",
    "uint8": "torch.uint8",
    "bool": "torch.bool",
}
_PYTHON = ("python", "triton", "pytorch", "torch", "cute_dsl", "cutile", "tilelang", "helion", "gluon")


def recognises(path: Path) -> bool:
    """Whether a folder is the root of a data set: it has `definitions`."""
    return (path / "definitions").is_dir()


def load(path: Path) -> tuple[Loaded, ...]:
    """Every definition with its solutions, at its first workload. Raises InputError."""
    files = sorted((path / "definitions").rglob("*.json"))
    if not files:
        raise InputError("no definition", str(path / "definitions"), "give the root of a data set")
    return tuple(load_definition(path, file) for file in files)


def load_definition(root: Path, file: Path, workload: int = 0) -> Loaded:
    """One definition and its solutions.

    Args:
        root: root of the data set.
        file: the definition.
        workload: which of its workloads gives the native sizes and scalar inputs.

    Raises:
        InputError: a file is at fault, or there is no such workload.
    """
    where = str(file)
    data = read_json(file)
    name = field_of(data, "name", str, where)
    tree = parse(field_of(data, "reference", str, where), f"{where}: reference")
    run = has_function(tree, "run")
    if run is None:
        raise InputError("the reference defines no function `run`", where, "define `run` at its top level")
    workloads = _workloads(root, name)
    if workloads and workload >= len(workloads):
        raise InputError(f"no workload {workload}, there are {len(workloads)}", where, "choose one of them")
    chosen = workloads[workload] if workloads else {}
    notes = [] if workloads else [f"no workload: variable axes are {USUAL_SIZE}"]
    axes, fixed = _axes(data, chosen, where)
    taken = bound_names(tree) | {"Model", "get_inputs", "get_init_inputs", "torch"}
    names = {axis: fresh(axis, taken) for axis in axes}
    inputs = field_of(data, "inputs", dict, where)
    outputs = field_of(data, "outputs", dict, where)
    made = [_input(key, spec, names, chosen, where, notes) for key, spec in inputs.items()]
    if data.get("constraints"):
        notes.append("constraints are not used: the reference decides which sizes are legal")
    arguments = ", ".join(fresh(key, ()) for key in inputs)
    source = module(
        [
            "import torch",
            PLACE,
            "\n".join(f"{names[axis]} = {value}" for axis, value in axes.items()),
            ast.unparse(on_host(tree)),
            "class Model(torch.nn.Module):\n"
            f"    def forward(self, {arguments}):\n"
            f"        tensors = [t for t in ({arguments},) if isinstance(t, torch.Tensor)]\n"
            "        _PLACE[0] = tensors[0].device if tensors else 'cpu'\n"
            f"        return _ordered(run({arguments}), {list(outputs)!r})",
            _ORDERED,
            "def get_inputs():\n    _PLACE[0] = 'cpu'\n    return [\n"
            + "".join(f"        {m},\n" for m in made)
            + "    ]",
            "def get_init_inputs():\n    return []",
        ]
    )
    sizes = {names[axis]: SizeDomain(fixed=True) for axis in fixed}
    # solutions fill memory they are given, and references run without gradients
    contract = Contract(domain=Domain(sizes=sizes), gradients="none")
    candidates = tuple(_candidates(root, data, inputs, outputs, notes))
    return Loaded(
        parse_task(source, path=where, id=name),
        candidates,
        contract,
        NAME,
        tuple(notes),
        {"definition": name, "workload": chosen},
        lambda found: _solution(found, data, inputs, outputs),
    )


_ORDERED = '''def _ordered(result, names):
    """Results by name, one alone or several in the order of the definition, as a tensor or a tuple."""
    if isinstance(result, dict):
        result = tuple(result[name] for name in names)
    if isinstance(result, (list, tuple)):
        return result[0] if len(names) == 1 and len(result) == 1 else tuple(result)
    return result'''


def _workloads(root: Path, name: str) -> list[dict[str, Any]]:
    """Workloads of a definition, from every file named after it."""
    found = []
    for file in sorted((root / "workloads").rglob(f"{name}.jsonl")):
        for number, line in enumerate(read_text(file).splitlines(), start=1):
            if line.strip():
                try:
                    data = json.loads(line)
                except json.JSONDecodeError as error:
                    raise InputError(
                        f"not valid JSON: {error.msg}", f"{file}:{number}", "correct it"
                    ) from None
                found.append(field_of(data, "workload", dict, f"{file}:{number}"))
    return found


def _axes(data: Any, workload: Mapping[str, Any], where: str) -> tuple[dict[str, int], list[str]]:
    """Value of every axis, and the names of those that are constant."""
    values, fixed = {}, []
    for name, axis in field_of(data, "axes", dict, where).items():
        kind = axis.get("type") if isinstance(axis, dict) else None
        if kind == "const":
            values[name] = field_of(axis, "value", int, f"{where}: axes.{name}")
            fixed.append(name)
        elif kind == "var":
            value = workload.get("axes", {}).get(name, USUAL_SIZE)
            if not isinstance(value, int) or value < 0:
                raise InputError(f"axis `{name}` is {value!r} in the workload", where, "give a whole number")
            values[name] = value
        else:
            raise InputError(f"axis `{name}` is of type {kind!r}", where, "use const or var")
    return values, fixed


def _shape(spec: Any, names: Mapping[str, str], where: str) -> list[str] | None:
    """Names of a tensor's axes; None for a scalar."""
    if not isinstance(spec, dict):
        raise InputError("an input or output is no table", where, "give its shape and dtype")
    shape = spec.get("shape")
    if shape is None:
        return None
    for axis in shape:
        if axis not in names:
            raise InputError(f"no axis `{axis}`", where, f"known: {', '.join(names)}")
    return [names[axis] for axis in shape]


def _dtype(spec: Any, where: str) -> str:
    dtype = spec.get("dtype")
    if dtype not in DTYPES:
        raise InputError(f"unknown dtype {dtype!r}", where, f"known: {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _input(
    key: str, spec: Any, names: Mapping[str, str], workload: Mapping[str, Any], where: str, notes: list[str]
) -> str:
    """Expression that makes one input."""
    place = f"{where}: inputs.{key}"
    shape = _shape(spec, names, place)
    dtype = _dtype(spec, place)
    given = workload.get("inputs", {}).get(key, {"type": "random"})
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "scalar" or shape is None:
        value = given.get("value", 1)
        if isinstance(value, bool | int | float):
            return repr(value)
        raise InputError(f"the scalar is {value!r}", place, "give a number")
    if kind not in ("random", "safetensors"):
        raise InputError(f"made by {kind!r}", place, "use random, scalar or safetensors")
    if kind == "safetensors":
        notes.append(
            f"input {key} is stored in {given.get('path')}: random values of its shape take its place"
        )
    size = f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"
    if dtype == "torch.bool":
        return f"torch.randint(0, 2, {size}).bool()"
    if dtype.startswith(("torch.int", "torch.uint")):
        low, high = (0, 2) if dtype == "torch.uint8" else (0, 128 if dtype == "torch.int8" else 8)
        notes.append(f"input {key} holds whole numbers of unknown range: drawn from {low} to {high - 1}")
        return f"torch.randint({low}, {high}, {size}, dtype={dtype})"
    drawn = f"torch.randn({size})"
    return drawn if dtype == "torch.float32" else f"{drawn}.to({dtype})"


def _candidates(
    root: Path, definition: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any], notes: list[str]
) -> Iterator[Candidate]:
    """Solutions of a definition."""
    for file in sorted((root / "solutions").rglob("*.json")):
        data = read_json(file)
        if data.get("definition") == definition["name"]:
            found = load_solution(data, definition, inputs, outputs, str(file))
            if isinstance(found, str):
                notes.append(found)
            else:
                yield found


def _solution(
    file: Path, definition: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> Candidate:
    """A solution from its file: JSON, or a Python file that defines `run`. Raises InputError.

    A `run` with a parameter for every input and output is destination-passing.
    """
    where = str(file)
    if file.suffix == ".json":
        data = read_json(file)
    else:
        text = read_text(file)
        run = has_function(parse(text, where), "run")
        if run is None:
            raise InputError("no function `run`", where, "define `run` at its top level")
        taken = len(run.args.posonlyargs) + len(run.args.args)
        data = {"name": file.stem, "sources": [{"path": file.name, "content": text}],
                "spec": {"language": "python", "entry_point": f"{file.name}::run",
                         "destination_passing_style": taken == len(inputs) + len(outputs)}}
    found = load_solution(data, definition, inputs, outputs, where)
    if isinstance(found, str):
        raise InputError(found, where, "give a solution in Python or Triton")
    return found


def load_solution(
    data: Any, definition: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any], where: str
) -> Candidate | str:
    """One solution as a candidate; text where its language cannot be wrapped here. Raises InputError."""
    name = field_of(data, "name", str, where)
    spec = field_of(data, "spec", dict, where)
    languages = spec.get("language") or spec.get("languages")
    language = languages if isinstance(languages, str) else (languages or [""])[0]
    if language.lower() not in _PYTHON:
        return f"solution {name} is written in {language}: only solutions in Python are wrapped"
    entry = field_of(spec, "entry_point", str, where)
    file, _, function = entry.partition("::")
    if not function.isidentifier():
        raise InputError(f"entry point `{entry}`", where, "write it as file.py::function")
    sources = {}
    for item in field_of(data, "sources", list, where):
        place = field_of(item, "path", str, f"{where}: sources")
        if PurePosixPath(place).is_absolute() or ".." in PurePosixPath(place).parts:
            raise InputError(f"source path `{place}`", where, "keep it inside the solution")
        sources[place] = field_of(item, "content", str, f"{where}: sources.{place}")
    if file not in sources:
        raise InputError(f"no source `{file}`", where, f"there are: {', '.join(sources) or 'none'}")
    if has_function(parse(sources[file], f"{where}: {file}"), function) is None:
        raise InputError(f"`{file}` defines no function `{function}`", where, "correct the entry point")
    beside = {place: text for place, text in sources.items() if place != file and place.endswith(".py")}
    source = module(
        [
            _beside(beside),
            sources[file],
            _adapter(
                definition,
                inputs,
                outputs,
                function,
                destination=bool(spec.get("destination_passing_style", True)),
                where=where,
            ),
        ]
    )
    return parse_candidate(source, path=where, id=name, strict=False)


def _beside(sources: Mapping[str, str]) -> str:
    """Code that writes a solution's other files beside it, so that it can import them."""
    if not sources:
        return ""
    return (
        "import os as _os, sys as _sys\n"
        f"for _path, _text in {dict(sources)!r}.items():\n"
        "    _os.makedirs(_os.path.dirname(_os.path.abspath(_path)), exist_ok=True)\n"
        "    with open(_path, 'w', encoding='utf-8') as _file:\n"
        "        _file.write(_text)\n"
        "_sys.path.insert(0, _os.getcwd())"
    )


def _adapter(
    definition: Any,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    function: str,
    *,
    destination: bool,
    where: str,
) -> str:
    """The class that calls a solution's function."""
    arguments = [fresh(key, (function, "self")) for key in inputs]
    head = (
        "import torch as _torch\n\n\nclass ModelNew(_torch.nn.Module):\n"
        f"    def forward(self, {', '.join(arguments)}):\n"
    )
    if not destination:
        return head + (
            f"        return _ordered({function}({', '.join(arguments)}), {list(outputs)!r})\n\n\n" + _ORDERED
        )
    device = next((a for a, key in zip(arguments, inputs, strict=True) if inputs[key].get("shape")), None)
    made = []
    for number, (key, spec) in enumerate(outputs.items()):
        place = f"{where}: outputs.{key}"
        sizes = [_extent(axis, definition, inputs, arguments, place) for axis in spec.get("shape") or []]
        where_made = f", device={device}.device" if device else ""
        made.append(
            f"        _out{number} = _torch.empty([{', '.join(sizes)}], "
            f"dtype=_{_dtype(spec, place)}{where_made})\n"
        )
    names = [f"_out{number}" for number in range(len(outputs))]
    result = names[0] if len(names) == 1 else f"({', '.join(names)})"
    return (
        head
        + "".join(made)
        + (f"        {function}({', '.join([*arguments, *names])})\n        return {result}")
    )


def _extent(axis: str, definition: Any, inputs: Mapping[str, Any], arguments: list[str], where: str) -> str:
    """Expression for the extent of an axis: read off an input, or constant."""
    for argument, spec in zip(arguments, inputs.values(), strict=True):
        shape = spec.get("shape") or []
        if axis in shape:
            return f"{argument}.shape[{shape.index(axis)}]"
    known = definition["axes"].get(axis, {})
    if known.get("type") == "const":
        return str(known["value"])
    raise InputError(
        f"axis `{axis}` is no dimension of an input",
        where,
        "give the solution `destination_passing_style: false`",
    )


_STATUS = {
    Reason.SHAPE: "INCORRECT_SHAPE",
    Reason.STRUCTURE: "INCORRECT_SHAPE",
    Reason.DTYPE: "INCORRECT_DTYPE",
    Reason.TIMED_OUT: "TIMEOUT",
    Reason.COMPILE_FAILED: "COMPILE_ERROR",
}
_RUNTIME = frozenset(
    {
        Reason.RAISED,
        Reason.EXITED,
        Reason.SIGNALLED,
        Reason.SIZE_REJECTED,
        Reason.OUT_OF_MEMORY_CANDIDATE,
        Reason.FORGED_FRAME,
        Reason.OUTPUT_FLOOD,
    }
)


def to_trace(report: Report, loaded: Loaded, solution: str) -> dict[str, Any] | None:
    """A verdict as a trace of this format; None for one that decides nothing.

    The format wants timings beside `PASSED`, and a verdict has none: they are written as 0, which its schema
    admits, and `log` says so. Errors are the largest that any finding shows.
    """
    if report.label is Label.SCREENED:
        return None
    first = report.findings[0] if report.findings else None
    if first is None:
        status = "PASSED"
    elif first.reason in _STATUS:
        status = _STATUS[first.reason]
    else:
        status = "RUNTIME_ERROR" if first.reason in _RUNTIME else "INCORRECT_NUMERICAL"
    evaluation: dict[str, Any] = {
        "status": status,
        "environment": {"hardware": report.scope, "libs": _libraries(report)},
        "timestamp": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "log": _log(report),
    }
    if status in ("PASSED", "INCORRECT_NUMERICAL"):
        evaluation["correctness"] = _correctness(report)
    if status == "PASSED":
        evaluation["performance"] = {"latency_ms": 0.0, "reference_latency_ms": 0.0, "speedup_factor": 0.0}
    return {
        "definition": loaded.details["definition"],
        "workload": loaded.details["workload"],
        "solution": solution,
        "evaluation": evaluation,
    }


def _libraries(report: Report) -> dict[str, str]:
    return {
        name: str(report.environment[name]) for name in ("torch", "triton") if report.environment.get(name)
    }


def _log(report: Report) -> str:
    lines = [f"{report.label.value} on {report.scope}; not timed"]
    lines += [f"{f.slug}: {f.reason.value}: expected {f.expected}, got {f.actual}" for f in report.findings]
    open_gates = [g.slug for g in report.gates if g.outcome in (Outcome.INCONCLUSIVE, Outcome.ERROR)]
    if open_gates:
        lines.append("undecided: " + ", ".join(open_gates))
    return "\n".join(lines)


def _correctness(report: Report) -> dict[str, Any]:
    absolute, relative = 0.0, 0.0
    for found in report.findings:
        if found.error is None or not math.isfinite(found.error):
            continue
        absolute = max(absolute, found.error)
        try:
            size = abs(float(found.expected or "nan"))
        except ValueError:
            continue
        if size > 0:
            relative = max(relative, found.error / size)
    return {
        "max_absolute_error": absolute,
        "max_relative_error": relative,
        "extra": {"label": report.label.value, "findings": len(report.findings)},
    }
