"""robust-kbench's backward form: `func_backward.py`, whose `AutogradFunction` calls a backward that is a candidate's.

The task is the forward, under the training contract: its gradients are the reference's own, by autograd. The
candidate is the task's `Model` with `AutogradFunction.apply` in the place of `forward_fn`, and a `backward_fn`
from a CUDA file that exports `backward` or a Python file that defines `backward_fn`.
"""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

from assay.contract.model import Contract
from assay.errors import InputError
from assay.task.formats.loaded import PLACE, Loaded, has_function, module, on_host, parse, read_json, read_text
from assay.task.model import Candidate, parse_candidate, parse_task

FILE, CONFIG = "func_backward.py", "config_backward.json"
NOTE = "the forward is the task's own, so that its kernels owe the gradients alone"
_MODEL = ("class ModelNew(Model):\n    def forward(self, *arguments):\n"
          "        return super().forward(*arguments, fn=AutogradFunction.apply)")


def is_backward(text: str) -> bool:
    """Whether a CUDA file exports `backward`."""
    return 'm.def("backward"' in text.replace(" ", "").replace("\n", "")


def load_backward(path: Path) -> tuple[Loaded, ...]:
    """The backward task at each combination of configurations; none where there is no such file.

    Raises:
        InputError: the file lacks `AutogradFunction`, `forward_fn`, `Model` or `get_inputs`, or a
            configuration is no list of tables.
    """
    # it loads this form beside its own
    from assay.task.formats import robust_kbench as forward

    file = path / FILE
    if not file.is_file():
        return ()
    where = str(file)
    tree = parse(read_text(file), where)
    maker = has_function(tree, "get_inputs")
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    missing = [name for name in ("AutogradFunction", "Model") if name not in classes]
    missing += [name for name in ("forward_fn", "get_inputs") if has_function(tree, name) is None]
    if missing or maker is None:
        raise InputError(f"no `{missing[0]}`", where, "define it at the top level")
    config_file = path / CONFIG if (path / CONFIG).is_file() else path / "config_forward.json"
    config = read_json(config_file) if config_file.is_file() else {}
    notes = [NOTE] if config else [NOTE, f"no {CONFIG}: the defaults of get_inputs are the native sizes"]
    inputs, inits = (forward.configs(config, names, str(config_file)) for names in forward.LISTS)
    shared = forward.configs(config, ("single_shared_configs", "multi_shared_configs"), str(config_file))
    candidates = tuple(candidate(found, tree) for found in sorted(path.glob("*.cu"))
                       if is_backward(read_text(found)))
    loaded = []
    for (i, given), (j, init) in itertools.product(enumerate(inputs), enumerate(inits)):
        common = shared[(i * len(inits) + j) % len(shared)]
        source = forward.source(tree, maker, {**given, **common}, {**init, **common}, where)
        number = "" if len(inputs) * len(inits) == 1 else f"-{i}-{j}"
        loaded.append(Loaded(
            parse_task(source, path=where, id=f"{path.name}-backward{number}"), candidates,
            Contract(gradients="training", provenance="none"), forward.NAME, tuple(notes),
            {"input_config": given, "init_config": init}, lambda found: candidate(found, tree)))
    return tuple(loaded)


def candidate(file: Path, tree: ast.Module) -> Candidate:
    """A candidate's backward in the place that the task's `AutogradFunction` calls. Raises InputError."""
    text = read_text(file)
    if file.suffix == ".py":
        own = parse(text, str(file))
        if has_function(own, "backward_fn") is None:
            raise InputError("no function `backward_fn` and no class `ModelNew`", str(file), "define one of them")
        parts = [ast.unparse(own), "AutogradFunction.backward_fn = staticmethod(backward_fn)"]
    else:
        parts = [
            "import os as _os\n\nfrom torch.utils.cpp_extension import load as _load",
            f"_SOURCE = {text!r}",
            "with open('kernel.cu', 'w', encoding='utf-8') as _file:\n    _file.write(_SOURCE)",
            "_built = _load(name='assay_kernel', sources=[_os.path.abspath('kernel.cu')], with_cuda=True)",
            "AutogradFunction.backward_fn = staticmethod(_built.backward)",
        ]
    whole = module([PLACE, ast.unparse(on_host(parse(ast.unparse(tree), str(file)))), *parts, _MODEL])
    return parse_candidate(whole, path=str(file), id=file.stem, strict=False)
