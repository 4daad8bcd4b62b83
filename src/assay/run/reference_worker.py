"""The process that runs the reference and its float64 replay. Trusted code, still apart from the judge."""

from __future__ import annotations

import copy
import dataclasses
import functools
import socket
import time
from collections import OrderedDict
from typing import Any

import torch

from assay.oracle import memory
from assay.probe.model import Draw
from assay.run import backward, codec, mixed, training, ways, wire
from assay.run.cost import cost_of
from assay.run.reference_gradients import NoGradient, arriving, gradients_of, handed_to, legal, second, tied
from assay.run.reference_inputs import arranged, cast, draw_inputs, layout_applies, otherwise, own_copy
from assay.run.work import LibraryWork, affine_of, digest, digests_of
from assay.task.instance import seed_all
from assay.task.model import Task, TaskError

KEPT_INSTANCES = 6
SMALL_ELEMENTS = 1 << 17


class _State:
    """What the worker keeps between requests."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.device = str(options.get("device", "cpu"))
        self.needs_cuda = False
        self.task: Task | None = None
        self.study: Any = None
        self.declared: dict[int, Any] = {}
        self.instances: OrderedDict[str, Any] = OrderedDict()
        self.screened: Any = None

    def device_for(self, tensors: list[torch.Tensor]) -> str:
        """Where to evaluate: on a GPU only what is large, since a small replay is all launch overhead there."""
        if self.device == "cpu" or self.needs_cuda:
            return self.device
        return self.device if sum(t.numel() for t in tensors) > SMALL_ELEMENTS else "cpu"

    def instance(self, sizes: dict[str, int], seed: int) -> Any:
        """The task at some sizes, kept while it is among the last few used."""
        from assay.task import instantiate

        key = f"{sorted(sizes.items())}/{seed}"
        if key not in self.instances:
            assert self.task is not None
            self.instances[key] = instantiate(self.task, sizes, seed)
            while len(self.instances) > KEPT_INSTANCES:
                self.instances.popitem(last=False)
        self.instances.move_to_end(key)
        return self.instances[key]


def main(sock: socket.socket, arena_fd: int, spec: dict[str, Any]) -> None:
    """Answer requests until the judge closes the channel."""
    torch.set_num_threads(1)
    memory.keep_freed()
    state = _State(spec["options"])
    handlers = {"task": _task, "study": _study, "restore": _restore, "instance": _instance, "truth": _truth,
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


def _task(state: _State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
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


def _study(state: _State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    from assay.task.study import study

    assert state.task is not None
    state.study = study(state.task, **header.get("options", {}))
    return {"study": state.study.model_dump(mode="json")}, []


def _restore(state: _State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """A study made before, and the inputs whose domain a contract changes."""
    from assay.contract.domain import Declared
    from assay.task.facts import Study

    state.study = Study.model_validate(header["study"])
    state.declared = {int(i): Declared.model_validate(c) for i, c in header.get("declared", {}).items()}
    return {"ok": True}, []


def _seeded(state: _State, header: dict[str, Any]) -> Any:
    return state.instance(dict(header["sizes"]), int(header["seed"]))


def _state_of(model: Any) -> tuple[dict[str, torch.Tensor], list[str]]:
    if not isinstance(model, torch.nn.Module):
        return {}, []
    tensors = {n: t.detach() for n, t in model.state_dict().items() if isinstance(t, torch.Tensor)}
    buffers = {n for n, _ in model.named_buffers()}
    return tensors, [n for n in tensors if n in buffers]


def _model(instance: Any, parameters: int, dtype: str | None, device: str = "cpu") -> Any:
    """The reference with its parameters varied and cast as asked; the shared one when nothing is asked."""
    model = instance.model
    if not isinstance(model, torch.nn.Module) or (not parameters and dtype is None and device == "cpu"):
        return model
    # built anew: what closures of a copied module call is still the module that they were made in
    # and from copies, as a parameter may be one of the arguments
    seed_all(instance.seed)
    anew = instance.make_model(instance.init.map_tensors(lambda _, tensor: tensor.clone()))
    model = anew if anew is not model else copy.deepcopy(model)
    if parameters:
        vary(model, parameters)
    return model.to(device=device, dtype=codec.DTYPES[dtype] if dtype is not None else None)


def vary(model: torch.nn.Module, seed: int) -> None:
    """Give trained parameters and running statistics other values of the same kind, in place.

    Other buffers (masks, tables) are part of the definition and stay.

    Positive tensors (variances, scales) stay positive: they are multiplied by 0.5 to 1.5. Others get normal
    noise of half their own standard deviation, or of 0.25 where they are constant, so that an affine weight
    of ones or a bias of zeros is no longer invisible.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        statistics = [b for n, b in model.named_buffers() if n.rsplit(".", 1)[-1] in ("running_mean", "running_var")]
        for tensor in [*(p for p in model.parameters() if p.requires_grad), *statistics]:
            if not tensor.is_floating_point() or tensor.numel() == 0:
                continue
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            uniform = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
            wide = tensor.double()
            if bool((wide > 0).all()):
                changed = wide * (0.5 + uniform)
            else:
                spread = float(wide.std()) if tensor.numel() > 1 else 0.0
                changed = wide + noise * (0.5 * spread if spread > 0 else 0.25)
            tensor.copy_(changed)


def _instance(state: _State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """Constructor arguments and weights at some sizes."""
    instance = _seeded(state, header)
    init, chunks = codec.pack([list(instance.init_args), dict(instance.init_kwargs)])
    model = _model(instance, int(header.get("parameters", 0)), None)
    tensors, buffers = _state_of(model)
    return {
        "init": init, "names": list(tensors), "buffers": buffers,
        "state": {"forms": [codec.form_of(t).to_json() for t in tensors.values()]},
        "training": bool(model.training) if isinstance(model, torch.nn.Module) else None,
    }, [*chunks, *[codec.tensor_bytes(t) for t in tensors.values()]]


class _WithBuffers(torch.nn.Module):
    """A reference that also returns some of its buffers as a call leaves them."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names
        self.train(model.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs, and the buffers by name."""
        outputs = self.model(*args, **kwargs)
        found = dict(self.model.named_buffers())
        return [outputs, {name: found[name].clone() for name in self.names}]


def _truth(state: _State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """Inputs, native output and float64 truth of one draw."""
    from assay import oracle

    draw = Draw.model_validate(header["draw"])
    dtype = header.get("dtype")
    instance = _seeded(state, header)
    arguments, reason = draw_inputs(state, instance, draw, dtype)
    if reason:
        return {"inapplicable": reason}, []
    if draw.layouts and not layout_applies(arguments.tensors(), draw.layouts):
        return {"inapplicable": "the layout says nothing new for these shapes"}, []
    device = state.device_for(arguments.tensors())
    model = _model(instance, int(header.get("parameters", 0)), dtype, device)
    if header.get("eval") and isinstance(model, torch.nn.Module):
        model = copy.deepcopy(model).eval()
    if header.get("autocast"):
        model = mixed.under(model, str(header["autocast"]), device)
    if header.get("buffers"):
        model = _WithBuffers(model, header["buffers"])
    targets: list[torch.Tensor] = []
    if header.get("follow") == "train":
        plain = _native(state, model, arranged(arguments, draw.layouts, device), int(header["call_seed"]))[0]
        targets = handed_to(plain, int(header["call_seed"]), "normal")
        model = training.Trained(model, [t.to(device) for t in targets], backward.TRAINING_STEPS)
    packed, chunks = codec.pack([list(arguments.args), dict(arguments.kwargs)])
    chunks = [memoryview(bytes(c)) for c in chunks]
    fed = arranged(arguments, draw.layouts, device)
    evaluation = oracle.evaluate(
        model, list(fed.args), dict(fed.kwargs), seed=int(header["call_seed"]),
        arithmetic=_arithmetic(_widest(arguments.tensors(), model), dict(header.get("numerics") or {})),
        runs=int(header.get("runs", 12)),
    )
    if evaluation.raised is not None:
        return {"raised": f"{evaluation.raised.type}: {evaluation.raised.message}"[:1000], "inputs": packed}, chunks
    if header.get("modes"):
        shares = oracle.contributions(model, list(fed.args), dict(fed.kwargs), arithmetic=evaluation.arithmetic)
        evaluation = oracle.with_dominant(evaluation, shares)
    try:
        outputs, seconds, mutated, aliases = _native(state, model, arranged(arguments, draw.layouts, device),
                                                     int(header["call_seed"]))
    except RuntimeError as error:
        # what only the real layout shows, such as writing in place to an expanded input
        return {"raised": f"{type(error).__name__}: {error}"[:1000], "inputs": packed}, chunks
    description, tensors = codec.flatten(outputs)
    kept = [i for i, leaf in enumerate(evaluation.leaves) if leaf.kind not in ("scalar", "none")]
    leaves = [evaluation.leaves[i] for i in kept]
    if any(layout != "task" for layout in draw.layouts) and len(leaves) == len(tensors):
        leaves = [_laid_out(leaf, tensor) for leaf, tensor in zip(leaves, tensors, strict=True)]
    if draw.injections and not all(bool(torch.isfinite(leaf.native).all()) for leaf in leaves):
        leaves = _dependent(state, instance, model, draw, dtype, leaves, int(header["call_seed"]), device)
    metas, names = [], []
    for leaf in leaves:
        meta, parts = leaf.to_parts()
        metas.append(meta)
        names.append(list(parts))
    parts_of = [leaf.to_parts()[1] for leaf in leaves]
    flat = [t for parts in parts_of for t in parts.values()]
    modes = []
    for mode in _modes(model, fed, evaluation.arithmetic, kept, bool(header.get("approximate"))) \
            if header.get("modes") else []:
        meta, parts = mode.to_parts()
        modes.append([meta, list(parts)])
        flat += parts.values()
    gradients: list[Any] = []
    handed: list[torch.Tensor] = []
    requires: list[bool] = []
    refused: list[str] = []
    masks: dict[str, torch.Tensor] = {}
    for number, way in enumerate(header.get("ways") or ()):
        fed = arranged(arguments, draw.layouts, device)
        if not _same_any_way(model, fed, way, tensors, int(header["call_seed"])):
            refused.append(f"{number}/{way}")
    # the seed of the last native call, unless the reference sets one itself
    reseeds = torch.initial_seed() != int(header["call_seed"])
    work: dict[str, Any] = {}
    if header.get("work"):
        work = _work(model, arranged(arguments, draw.layouts, device), int(header["call_seed"]))
    if header.get("follow") == "train":
        handed = targets
        flat += handed
    elif header.get("grad"):
        def again() -> Any:
            return tied(arranged(arguments, draw.layouts, device), header.get("tie"))

        seed, kind = int(header["call_seed"]), str(header["grad"])
        requires = _requires_grad(model, again(), seed)
        found: dict[str, Any] = {}
        if any(requires):
            handed = handed_to(outputs, seed, kind)
            if header.get("follow") == "second":
                try:
                    found, beyond = second(model, again(), evaluation.arithmetic, handed, seed)
                except NoGradient as error:
                    return {"inapplicable": f"the reference has no second derivative: {error}"[:300]}, []
                handed += beyond
            else:
                try:
                    found = gradients_of(model, again(), evaluation.arithmetic, seed, kind)
                except NoGradient:
                    # what has no backward owes no gradient
                    requires = [False] * len(requires)
                refused, masks = legal(model, again, handed, str(header.get("steps") or ""), seed, found)
                if draw.injections and found:
                    masks = arriving(state, instance, model, draw, dtype, handed, found, seed, device)
        for name, leaf in found.items():
            meta, parts = leaf.to_parts()
            gradients.append([name, meta, list(parts)])
            flat += parts.values()
        flat += handed
        flat += masks.values()
    reply: dict[str, Any] = {
        "gradients": gradients, "cotangents": len(handed), "requires_grad": requires,
        "refused": refused, "nan": list(masks), "work": work, "reseeds": reseeds,
        "inputs": packed, "output": {"tree": description},
        "contiguous": [t.is_contiguous() for t in tensors], "leaves": metas, "names": names,
        "parts": {"forms": [codec.form_of(t).to_json() for t in flat]},
        "random": evaluation.random if state.study is None else state.study.random and (
            evaluation.random or not header.get("eval")),
        "unmodelled": list(evaluation.unmodelled), "seconds": seconds,
        "ops": evaluation.ops, "arithmetic": evaluation.arithmetic.to_json(), "modes": modes,
        "mutated": mutated, "aliases": aliases,
        # a number read off a tensor keeps no trace of its dtype, and so cannot be known to be exact
        "numbers": [[float(leaf.y.real), float(dataclasses.replace(leaf, exact=False).tolerance.amax())]
                    for leaf in evaluation.leaves if leaf.kind == "scalar" and leaf.dtype == "float"],
    }
    return reply, [*chunks, *[codec.tensor_bytes(t) for t in flat]]


def _laid_out(leaf: Any, native: torch.Tensor) -> Any:
    """A truth whose native value is what the reference makes of the layout itself.

    The evaluation works on dense copies. Where an operator is less accurate on a strided input than its own
    arithmetic allows, the reference disagrees with its replay, and such elements decide nothing.
    """
    from assay.oracle.compare import excess

    native = native.detach().resolve_conj().resolve_neg()
    if leaf.native is None or native.shape != leaf.native.shape or native.dtype != leaf.native.dtype:
        return leaf
    wrong = excess(leaf, native.to(leaf.y.device))
    return dataclasses.replace(leaf, native=native.to(leaf.native.device), decided=leaf.decided & ~wrong)


def _requires_grad(model: Any, arguments: Any, seed: int) -> list[bool]:
    """Per output tensor, whether it carries a gradient when every floating input asks for one."""
    own = own_copy(model)
    for tensor in arguments.tensors():
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.requires_grad_(True)
    torch.manual_seed(seed)
    try:
        with torch.enable_grad():
            return [t.requires_grad for t in _leaves_of(own(*arguments.args, **arguments.kwargs))]
    except RuntimeError:
        # in-place on a leaf that requires grad: such a reference is not for training
        return []


def _same_any_way(model: Any, fed: Any, way: str, expected: list[torch.Tensor], seed: int) -> bool:
    """Whether the reference returns the same bits when it is called another way."""
    own = own_copy(model)
    torch.manual_seed(seed)
    try:
        seen = _leaves_of(ways.take(way, own, functools.partial(own, *fed.args, **fed.kwargs), fed.tensors()))
    except Exception:
        return False
    return len(seen) == len(expected) and all(
        bytes(codec.tensor_bytes(a.detach())) == bytes(codec.tensor_bytes(b))
        for a, b in zip(seen, expected, strict=True))


def _work(model: Any, fed: Any, seed: int) -> dict[str, Any]:
    """Operations of the reference by operator, and how many of its results each output is but a multiple of."""
    own = own_copy(model)
    torch.manual_seed(seed)
    counted = LibraryWork()
    with torch.no_grad(), counted:
        outputs = own(*fed.args, **fed.kwargs)
    leaves = _leaves_of(outputs)
    results = list(counted.results)
    affine = [row[2] for row in affine_of(results, leaves)]
    marks = [digest(leaf) for leaf in leaves]
    equal = [mark for _, mark in digests_of(results, leaves)]
    return {"library": dict(counted.operations), "affine": [affine.count(i) for i in range(len(leaves))],
            "equal": [equal.count(mark) if mark else 0 for mark in marks]}


def _arithmetic(dtype: torch.dtype, numerics: dict[str, Any]) -> Any:
    """The declared arithmetic: that of the dtype, with what the contract says otherwise."""
    from assay import oracle

    own = {name: numerics[name] for name in ("accumulate", "operands") if name in numerics}
    rest = {name: value for name, value in numerics.items() if name not in own}
    return dataclasses.replace(oracle.arithmetic_for(dtype, **rest), **own)


def _modes(model: Any, fed: Any, declared: Any, kept: list[int], approximate: bool) -> list[Any]:
    """What each arithmetic coarser than the declared one would do to the outputs that are tensors."""
    from assay import oracle

    found = oracle.alternatives(model, list(fed.args), dict(fed.kwargs), arithmetic=declared, approximate=approximate)
    return [dataclasses.replace(mode, leaves=[mode.leaves[i] for i in kept]) for mode in found]


def _native(state: _State, model: Any, arguments: Any, seed: int) -> tuple[Any, float, list[int], list[int]]:
    """One native forward: outputs, seconds, inputs it changed, and inputs whose storage an output shares."""
    if isinstance(model, torch.nn.Module) and any(b.requires_grad is False for b in model.buffers()):
        model = copy.deepcopy(model)
    tensors = arguments.tensors()
    before = [t.detach().clone() for t in tensors]
    torch.manual_seed(seed)
    began = time.perf_counter()
    with torch.no_grad():
        outputs = model(*arguments.args, **arguments.kwargs)
    seconds = time.perf_counter() - began
    mutated = [i for i, (a, b) in enumerate(zip(before, tensors, strict=True))
               if bytes(codec.tensor_bytes(a)) != bytes(codec.tensor_bytes(b))]
    _, leaves = codec.flatten(outputs)
    storages = {t.untyped_storage().data_ptr() for t in leaves}
    aliases = [i for i, t in enumerate(tensors) if t.numel() and t.untyped_storage().data_ptr() in storages]
    return outputs, seconds, mutated, aliases


def _dependent(state: _State, instance: Any, model: Any, draw: Draw, dtype: str | None, leaves: list[Any],
               seed: int, device: str) -> list[Any]:
    """Leave undecided what is not finite although it does not depend on the poisoned elements.

    An output reached only through a factor that is zero for every input of the domain (a triangle's other
    half, a masked key) is 0 · NaN in the reference, and a kernel may skip it. Dependence is what some finite
    value in the poisoned place changes.
    """
    plain, _ = draw_inputs(state, instance, draw.model_copy(update={"injections": ()}), dtype)
    base = _leaves_of(_native(state, model, arranged(plain, draw.layouts, device), seed)[0])
    depends = [torch.zeros(t.shape, dtype=torch.bool) for t in base]
    for other in otherwise(plain, draw):
        try:
            seen = _leaves_of(_native(state, model, arranged(other, draw.layouts, device), seed)[0])
        except Exception:
            # a value outside the domain tells nothing; the other turns do
            continue
        for mask, a, b in zip(depends, base, seen, strict=True):
            if a.shape == b.shape:
                mask |= ((a != b) & ~((a != a) & (b != b))).to(mask.device)
    return [
        leaf if leaf.kind not in ("float", "complex") or leaf.native.shape != mask.shape else
        dataclasses.replace(leaf, decided=leaf.decided & (mask.to(leaf.decided.device) | torch.isfinite(leaf.native)))
        for leaf, mask in zip(leaves, depends, strict=True)
    ]


def _leaves_of(outputs: Any) -> list[torch.Tensor]:
    return codec.flatten(outputs)[1]


def _widest(tensors: list[torch.Tensor], model: Any) -> torch.dtype:
    """The widest floating dtype the task computes in; float32 where there is none."""
    dtypes = [t.dtype for t in tensors if t.is_floating_point() or t.is_complex()]
    if not dtypes and isinstance(model, torch.nn.Module):
        dtypes = [p.dtype for p in model.parameters() if p.is_floating_point()]
    if not dtypes:
        return torch.float32
    return max(dtypes, key=lambda d: d.itemsize)


def _cost(state: _State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """Bytes and operations of one forward."""
    instance = _seeded(state, header)
    arguments = instance.inputs(int(header["call_seed"]))
    device = state.device_for(arguments.tensors())
    model = _model(instance, 0, None, device)
    fed = arranged(arguments, (), device)
    found = cost_of(own_copy(model), fed.args, dict(fed.kwargs), int(header["call_seed"]))
    return {"cost": dataclasses.asdict(found)}, []


def _screen(state: _State, header: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """Inputs and native outputs of one trial of the screen, all trials on one model."""
    instance = _seeded(state, {"sizes": {}, **header})
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
