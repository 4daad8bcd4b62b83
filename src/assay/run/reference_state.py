"""What the reference's worker keeps: the task at some sizes, and its model with parameters varied and cast."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import torch

from assay.run import codec
from assay.task.instance import seed_all
from assay.task.model import Task

KEPT_INSTANCES = 6
SMALL_ELEMENTS = 1 << 17


class State:
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


def seeded(state: State, header: dict[str, Any]) -> Any:
    """The task at the sizes and seed that a request names."""
    return state.instance(dict(header["sizes"]), int(header["seed"]))


def state_of(model: Any) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Parameters and buffers of a module by name, and which of them are buffers."""
    if not isinstance(model, torch.nn.Module):
        return {}, []
    tensors = {n: t.detach() for n, t in model.state_dict().items() if isinstance(t, torch.Tensor)}
    buffers = {n for n, _ in model.named_buffers()}
    return tensors, [n for n in tensors if n in buffers]


def model_of(instance: Any, parameters: int, dtype: str | None, device: str = "cpu") -> Any:
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


class WithBuffers(torch.nn.Module):
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
