"""robust-kbench: a folder with `func_forward.py`, its configurations, and one CUDA file as candidate."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.contract.model import Contract
from assay.errors import InputError
from assay.task.formats.loaded import (
    PLACE,
    Loaded,
    bound_names,
    fresh,
    has_function,
    module,
    on_host,
    parse,
    read_json,
    read_text,
)
from assay.task.formats.robust_kbench_backward import FILE as BACKWARD
from assay.task.formats.robust_kbench_backward import is_backward, load_backward
from assay.task.model import Candidate, parse_candidate, parse_task

NAME = "robust-kbench"
LISTS = ("single_input_configs", "multi_input_configs"), ("single_init_configs", "multi_init_configs")


def recognises(path: Path) -> bool:
    """Whether a folder holds `func_forward.py` or `func_backward.py`."""
    return (path / "func_forward.py").is_file() or (path / BACKWARD).is_file()


def load(path: Path) -> tuple[Loaded, ...]:
    """The task at each combination of input and constructor configurations, the forward before the backward.

    Raises InputError.
    """
    file = path / "func_forward.py"
    if not file.is_file():
        return load_backward(path)
    where = str(file)
    tree = parse(read_text(file), where)
    maker = has_function(tree, "get_inputs")
    if maker is None or not any(isinstance(n, ast.ClassDef) and n.name == "Model" for n in tree.body):
        raise InputError("no `Model` or no `get_inputs`", where, "define both at the top level")
    if has_function(tree, "forward_fn") is None:
        raise InputError("no function `forward_fn`", where, "define the reference computation")
    config_file = path / "config_forward.json"
    config = read_json(config_file) if config_file.is_file() else {}
    notes = [] if config else ["no config_forward.json: the defaults of get_inputs are the native sizes"]
    inputs, inits = (configs(config, names, str(config_file)) for names in LISTS)
    shared = configs(config, ("single_shared_configs", "multi_shared_configs"), str(config_file))
    candidates = tuple(_candidate(file, tree) for file in sorted(path.glob("*.cu"))
                       if not is_backward(read_text(file)))
    found = []
    for (i, given), (j, init) in itertools.product(enumerate(inputs), enumerate(inits)):
        common = shared[(i * len(inits) + j) % len(shared)]
        text = source(tree, maker, {**given, **common}, {**init, **common}, where)
        name = path.name if len(inputs) * len(inits) == 1 else f"{path.name}-{i}-{j}"
        found.append(
            Loaded(
                parse_task(text, path=where, id=name),
                candidates,
                Contract(),
                NAME,
                tuple(notes),
                {"input_config": given, "init_config": init},
                lambda found: _candidate(found, tree),
            )
        )
    return (*found, *load_backward(path))


def configs(config: Any, names: tuple[str, str], where: str) -> list[dict[str, Any]]:
    """The multiple configurations where there are any, else the single ones, else one that is empty."""
    for name in reversed(names):
        value = config.get(name) if isinstance(config, dict) else None
        if value is None or value == []:
            continue
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise InputError(f"`{name}` should be a list of tables", where, "correct the file")
        return value
    return [{}]


def source(
    tree: ast.Module, maker: ast.FunctionDef, given: Mapping[str, Any], init: Mapping[str, Any], where: str
) -> str:
    """Text in the usual form: the file itself, its `get_inputs` renamed and called with integers by name."""
    defaults = _defaults(maker)
    accepted = {a.arg for a in (*maker.args.args, *maker.args.kwonlyargs)}
    if maker.args.kwarg is None:
        given = {k: v for k, v in given.items() if k in accepted}
    arguments = {**defaults, **given}
    constructor = _constructor(tree)
    init = {k: v for k, v in init.items() if constructor is None or k in constructor}
    taken = bound_names(tree) | {"_make_inputs"}
    sizes: dict[str, int] = {}
    named: dict[str, str] = {}
    for key, value in {**arguments, **init}.items():
        if type(value) is int:
            named[key] = fresh(key, taken)
            sizes[named[key]] = value
    renamed = parse(ast.unparse(tree), where)
    for node in renamed.body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_inputs":
            node.name = "_make_inputs"
    body = [n for n in renamed.body if not (isinstance(n, ast.FunctionDef) and n.name == "get_init_inputs")]
    text = ast.unparse(on_host(ast.Module(body=body, type_ignores=[])))

    def call(values: Mapping[str, Any]) -> str:
        return "{" + ", ".join(f"{k!r}: {named.get(k, repr(v))}" for k, v in values.items()) + "}"

    return module(
        [
            PLACE,
            text,
            "\n".join(f"{name} = {value}" for name, value in sizes.items()),
            f"def get_inputs():\n    return _make_inputs(**{call(arguments)})",
            f"def get_init_inputs():\n    return [[], {call(init)}]",
        ]
    )


def _defaults(maker: ast.FunctionDef) -> dict[str, Any]:
    """Defaults of `get_inputs` that are literals."""
    found = {}
    plain = maker.args.args
    pairs = list(zip(plain[len(plain) - len(maker.args.defaults) :], maker.args.defaults, strict=True))
    pairs += [
        (a, d) for a, d in zip(maker.args.kwonlyargs, maker.args.kw_defaults, strict=True) if d is not None
    ]
    for argument, default in pairs:
        try:
            found[argument.arg] = ast.literal_eval(default)
        except ValueError:
            continue
    return found


def _constructor(tree: ast.Module) -> set[str] | None:
    """Parameters of `Model.__init__`; None where it takes any keyword."""
    model = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
    for node in model.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            if node.args.kwarg is not None:
                return None
            return {a.arg for a in (*node.args.args[1:], *node.args.kwonlyargs)}
    return set()


def _candidate(file: Path, tree: ast.Module) -> Candidate:
    """A CUDA file that exports `forward`, or a Python file that defines `forward_fn`, called in the place of
    `forward_fn` by the reference's Model. Raises InputError."""
    if file.suffix == ".py":
        return _python_candidate(file, tree)
    model = ast.unparse(on_host(parse(ast.unparse(tree), str(file))))
    source = module(
        [
            PLACE,
            model,
            "import os as _os\n\nfrom torch.utils.cpp_extension import load as _load",
            f"_SOURCE = {read_text(file)!r}",
            "with open('kernel.cu', 'w', encoding='utf-8') as _file:\n    _file.write(_SOURCE)",
            "_built = _load(name='assay_kernel', sources=[_os.path.abspath('kernel.cu')], with_cuda=True)",
            "class ModelNew(Model):\n    def forward(self, *arguments):\n"
            "        return super().forward(*arguments, fn=_built.forward)",
        ]
    )
    return parse_candidate(source, path=str(file), id=file.stem, strict=False)


def _python_candidate(file: Path, tree: ast.Module) -> Candidate:
    own = parse(read_text(file), str(file))
    if has_function(own, "forward_fn") is None:
        raise InputError("no function `forward_fn` and no class `ModelNew`", str(file), "define one of them")
    source = module(
        [
            PLACE,
            ast.unparse(on_host(parse(ast.unparse(tree), str(file)))),
            ast.unparse(own),
            "class ModelNew(Model):\n    def forward(self, *arguments):\n"
            "        return super().forward(*arguments, fn=forward_fn)",
        ]
    )
    return parse_candidate(source, path=str(file), id=file.stem, strict=False)
