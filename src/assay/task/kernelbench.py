"""KernelBench-style files: ``Model``, ``get_inputs``, ``get_init_inputs``.

The source is executed as a real module from a real file, so that ``inspect``, tracebacks and Triton find its
lines.
"""

from __future__ import annotations

import importlib.util
import inspect
import linecache
import os
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.task import integers
from assay.task.instance import Instance, seed_all, user_code
from assay.task.model import Task, TaskError, content_hash
from assay.task.tree import Arguments


def instantiate(task: Task, sizes: dict[str, int], seed: int) -> Instance:
    """Execute a task file with some integers overridden; see :func:`assay.task.instance.instantiate`."""
    try:
        source = integers.override(task.source, sizes)
    except KeyError as error:
        raise TaskError(str(error.args[0]), task.shown, "use this file's names") from None
    module, file = _execute(task, source)

    def make_inputs(input_seed: int) -> Arguments:
        seed_all(input_seed)
        with user_code("get_inputs()", file, task.shown, "make get_inputs return a list of inputs"):
            value = module.get_inputs()
        return _as_inputs(value, task, module)

    def make_model(init: Arguments) -> Any:
        entry = getattr(module, task.entry)
        if not inspect.isclass(entry):
            return entry
        _check_signature(entry, init, task)
        advice = f"make get_init_inputs return what {task.entry}.__init__ takes"
        with user_code(f"{task.entry}.__init__", file, task.shown, advice):
            return init.call(entry)

    seed_all(seed)
    with user_code("get_init_inputs()", file, task.shown, "make get_init_inputs return a list of arguments"):
        init = _as_init(module.get_init_inputs(), getattr(module, task.entry), task, module)
    return Instance(
        task=task,
        sizes=sizes,
        seed=seed,
        init=init,
        make_model=make_model,
        make_inputs=make_inputs,
        integers=_values(module),
    )


def _execute(task: Task, source: str) -> tuple[ModuleType, str]:
    """Import the source from a file of its own; the module stays in ``sys.modules``, as classes need it."""
    digest = content_hash(source)[:20]
    name = f"assay_task_{digest}"
    path = _directory() / f"{name}.py"
    if not path.exists():
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(source, encoding="utf-8")
        scratch.replace(path)
    file = str(path)
    linecache.checkcache(file)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with user_code("the module", file, task.shown, "make the file importable on its own"):
        try:
            # compiled from the text at hand: byte-code caches would cost a write for each variant
            exec(compile(source, file, "exec"), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
    for needed in (task.entry, *integers.INPUT_MAKERS):
        if not callable(getattr(module, needed, None)):
            raise TaskError(f"{needed} is not callable once the file has run", task.shown, f"define {needed}")
    return module, file


@cache
def _directory() -> Path:
    """Folder for the files of this user, named by content, so that processes share and never collide."""
    path = Path(tempfile.gettempdir()) / f"assay-tasks-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    facts = path.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        return Path(tempfile.mkdtemp(prefix="assay-tasks-"))
    return path


def _as_inputs(value: Any, task: Task, module: ModuleType) -> Arguments:
    """What ``get_inputs`` returned, as arguments: a list or tuple, a dict of keywords, or one tensor."""
    if isinstance(value, dict):
        return Arguments(kwargs={str(key): item for key, item in value.items()})
    if isinstance(value, list | tuple):
        return Arguments(tuple(value))
    if hasattr(value, "shape"):
        return Arguments((value,))
    raise TaskError(
        f"get_inputs() returned {type(value).__name__}, not a list of inputs",
        _place(module.get_inputs, task),
        "return a list with the arguments of forward",
    )


def _as_init(value: Any, entry: Any, task: Task, module: ModuleType) -> Arguments:
    """What ``get_init_inputs`` returned, as arguments: a list, ``[args, kwargs]`` or a dict of keywords."""
    if value is None:
        return Arguments()
    if isinstance(value, dict):
        return Arguments(kwargs=dict(value))
    if isinstance(value, list | tuple):
        items = tuple(value)
        if len(items) == 2 and isinstance(items[0], list | tuple) and _is_keywords(items[1]):
            split = Arguments(tuple(items[0]), dict(items[1]))
            # a constructor may also take a list and a dict as its two arguments: its signature decides
            if _binds(entry, split) or not _binds(entry, Arguments(items)):
                return split
        if len(items) == 1 and _is_keywords(items[0]) and items[0]:
            keywords = Arguments(kwargs=dict(items[0]))
            if _binds(entry, keywords) and not _binds(entry, Arguments(items)):
                return keywords
        return Arguments(items)
    raise TaskError(
        f"get_init_inputs() returned {type(value).__name__}, not a list of arguments",
        _place(module.get_init_inputs, task),
        "return a list, [args, kwargs] or a dict with the arguments of the constructor",
    )


def _is_keywords(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def _binds(entry: Any, init: Arguments) -> bool:
    """Whether a signature takes these arguments; True where it cannot be read."""
    try:
        inspect.signature(entry).bind(*init.args, **init.kwargs)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _check_signature(entry: Any, init: Arguments, task: Task) -> None:
    """Raise a TaskError at the constructor's line when it does not take the arguments."""
    try:
        inspect.signature(entry).bind(*init.args, **init.kwargs)
    except TypeError as error:
        raise TaskError(
            f"{task.entry}.__init__ does not take what get_init_inputs returns: {error}",
            _place(entry.__init__, task),
            f"make get_init_inputs and {task.entry}.__init__ agree",
        ) from None
    except ValueError:
        return


def _place(function: Any, task: Task) -> str:
    """``file:line`` of a function of the task."""
    code = getattr(function, "__code__", None)
    return f"{task.shown}:{code.co_firstlineno if code else 1}"


def _values(module: ModuleType) -> dict[str, int]:
    """Module-level integers by name; items of tuples, lists and dicts as ``name.item``."""
    found: dict[str, int] = {}

    def visit(name: str, value: Any, depth: int) -> None:
        if type(value) is int:
            found[name] = value
        elif isinstance(value, list | tuple) and depth < 3 and len(value) <= 32:
            for index, item in enumerate(value):
                visit(f"{name}.{index}", item, depth + 1)
        elif isinstance(value, dict) and depth < 3 and len(value) <= 64:
            for key, item in value.items():
                if isinstance(key, str):
                    visit(f"{name}.{key}", item, depth + 1)

    for name, value in vars(module).items():
        if not name.startswith("__"):
            visit(name, value, 0)
    return found
