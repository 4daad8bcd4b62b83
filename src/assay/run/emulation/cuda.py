"""`torch.cuda` answered as the target would: one device, streams that run at once, no time.

Work is done when the call that asks for it returns, so synchronising, waiting and
recording have nothing left to do. Everything else in `torch.cuda` raises `NeedsGpu`.
"""

from __future__ import annotations

import contextlib
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .errors import NeedsGpu
from .graphs import CUDAGraph, graph, make_graphed_callables
from .targets import Target
from .tensors import device_of, map_device

_DEVICE = torch.device("cuda", 0)


class Stream:
    """A stream; its work is finished as soon as it is issued."""

    _next_id = 1

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        map_device(device)
        self.device = _DEVICE
        self.priority = priority
        self.device_index = 0
        self.device_type = 1
        self.stream_id = kwargs.get("stream_id", Stream._next_id)
        self.cuda_stream = kwargs.get("stream_ptr", self.stream_id * 64)
        Stream._next_id += 1
        self._context: Any = None

    @classmethod
    def _default(cls) -> Stream:
        return cls(stream_id=0, stream_ptr=0)

    def wait_event(self, event: Any) -> None:
        """Return at once: the event's work is finished."""

    def wait_stream(self, stream: Any) -> None:
        """Return at once: the stream's work is finished."""

    def record_event(self, event: Any = None) -> Any:
        """Record `event`, or a new one, and return it."""
        event = event if event is not None else Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """True: all work is finished."""
        return True

    def synchronize(self) -> None:
        """Return at once."""

    def is_capturing(self) -> bool:
        """Whether a graph is being captured."""
        return graph.capturing is not None

    def __enter__(self) -> Stream:
        self._context = StreamContext(self)
        self._context.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._context.__exit__(*exc)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.cuda_stream:#x}>"

    @property
    def _as_parameter_(self) -> Any:
        raise NeedsGpu("torch.cuda.Stream._as_parameter_")


_DEFAULT_STREAM = Stream._default()
_current: list[Stream] = [_DEFAULT_STREAM]


class StreamContext:
    """`with torch.cuda.stream(s)`; None does nothing, as in torch."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before = _current[0]

    def __enter__(self) -> None:
        self._before = _current[0]
        if self.stream is not None:
            _current[0] = self.stream

    def __exit__(self, *exc: Any) -> None:
        _current[0] = self._before


class Event:
    """An event; reached as soon as it is recorded. Its times are of this host, not of a GPU."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, **kwargs: Any) -> None:
        self.enable_timing = enable_timing
        self.device = _DEVICE
        self.cuda_event = id(self)
        self._time: float | None = None

    def record(self, stream: Any = None) -> None:
        """Take the time."""
        self._time = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Return at once."""

    def query(self) -> bool:
        """True: the event is reached."""
        return True

    def synchronize(self) -> None:
        """Return at once."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds of host time between two recorded events, never 0.

        Raises:
            RuntimeError: if either was not recorded or was made without timing, as in torch.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end_event._time is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return max(1e3 * (end_event._time - self._time), 1e-3)

    def ipc_handle(self) -> bytes:
        """Raise: there is no other process to share with."""
        raise NeedsGpu("torch.cuda.Event.ipc_handle")


class Device:
    """`with torch.cuda.device(d)` for anything that names a device, or None."""

    def __init__(self, device: Any = None) -> None:
        if isinstance(device, torch.device) and device.type == "cpu":
            device = None
        if isinstance(device, int) and device < 0:
            device = None
        map_device(device)
        self.idx = 0
        self.prev_idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        return None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function


class DeviceOf(Device):
    """`with torch.cuda.device_of(tensor)`."""

    def __init__(self, obj: Any) -> None:
        super().__init__(None)


class DeviceProperties(types.SimpleNamespace):
    """What `torch.cuda.get_device_properties` returns."""


def device_properties(target: Target) -> DeviceProperties:
    """The target's properties under the names torch uses."""
    return DeviceProperties(
        name=target.name,
        major=target.capability[0],
        minor=target.capability[1],
        total_memory=target.total_memory,
        multi_processor_count=target.multiprocessors,
        max_threads_per_multi_processor=target.threads_per_multiprocessor,
        max_threads_per_block=target.threads_per_block,
        regs_per_multiprocessor=target.registers_per_multiprocessor,
        warp_size=target.warp_size,
        shared_memory_per_block=target.shared_per_block,
        shared_memory_per_block_optin=target.shared_per_block_optin,
        shared_memory_per_multiprocessor=target.shared_per_multiprocessor,
        L2_cache_size=target.l2_cache,
        clock_rate=target.clock_khz,
        memory_clock_rate=target.memory_clock_khz,
        memory_bus_width=target.memory_bus_bits,
        is_integrated=0,
        is_multi_gpu_board=0,
        pci_bus_id=1,
        pci_device_id=0,
        pci_domain_id=0,
        gcnArchName=target.key,
        uuid="00000000-0000-0000-0000-000000000000",
    )


@contextlib.contextmanager
def _nothing(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


def _set_device(device: Any) -> None:
    map_device(device)


def _always(value: Any) -> Callable[..., Any]:
    """A function of its own for each name: torch's compiler tells functions apart by identity."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        return value

    return answer


def _answers(target: Target) -> dict[str, Any]:
    """Names in `torch.cuda` and what stands for them."""
    properties = device_properties(target)
    generator = torch.default_generator
    # On a GPU the state is a seed and an offset, 8 bytes each.
    numbers = torch.tensor([generator.initial_seed() & 0x7FFFFFFFFFFFFFFF, 0], dtype=torch.int64)
    state: list[Any] = [numbers.view(torch.uint8)]

    def current_stream(device: Any = None) -> Stream:
        return _current[0]

    def set_stream(stream: Stream | None) -> None:
        if stream is not None:
            _current[0] = stream

    def set_rng_state(new_state: Any, device: Any = None) -> None:
        state[0] = new_state

    def get_device_properties(device: Any = None) -> DeviceProperties:
        if not (isinstance(device, torch.device) and device.type == "cpu"):
            map_device(device)
        return properties

    answers: dict[str, Any] = {
        "Stream": Stream,
        "Event": Event,
        "StreamContext": StreamContext,
        "ExternalStream": lambda stream_ptr, device=None: Stream(stream_ptr=stream_ptr),
        "CUDAGraph": CUDAGraph,
        "graph": graph,
        "make_graphed_callables": make_graphed_callables,
        "device": Device,
        "_DeviceGuard": Device,
        "device_of": DeviceOf,
        "is_available": _always(True),
        "is_initialized": lambda: True,
        "init": _always(None),
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _set_device,
        "_get_device_index": lambda device=None, optional=False, allow_cpu=False: 0,
        "get_device_name": lambda device=None: target.name,
        "get_device_capability": lambda device=None: target.capability,
        "get_device_properties": get_device_properties,
        "get_arch_list": lambda: ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"],
        "get_gencode_flags": lambda: "",
        "can_device_access_peer": lambda device, peer: False,
        "synchronize": _always(None),
        "stream": StreamContext,
        "current_stream": current_stream,
        "default_stream": lambda device=None: _DEFAULT_STREAM,
        "get_stream_from_external": lambda data_ptr, device=None: Stream(stream_ptr=data_ptr),
        "set_stream": set_stream,
        "is_current_stream_capturing": lambda: graph.capturing is not None,
        "graph_pool_handle": lambda: (0, 0),
        "is_bf16_supported": lambda including_emulation=True: target.capability >= (8, 0),
        "is_tf32_supported": lambda: target.capability >= (8, 0),
        "empty_cache": _always(None),
        "ipc_collect": _always(None),
        "mem_get_info": lambda device=None: (target.total_memory - (1 << 30), target.total_memory),
        "memory_stats": lambda device=None: {},
        "memory_stats_as_nested_dict": lambda device=None: {},
        "memory_summary": lambda device=None, abbreviated=False: "",
        "memory_snapshot": lambda mempool_id=None: [],
        "list_gpu_processes": lambda device=None: "",
        "get_allocator_backend": lambda: "native",
        "use_mem_pool": _nothing,
        "caching_allocator_enable": _always(None),
        "set_per_process_memory_fraction": _always(None),
        "get_per_process_memory_fraction": lambda device=None: 1.0,
        "manual_seed": _always(None),
        "manual_seed_all": _always(None),
        "seed": _always(None),
        "seed_all": _always(None),
        "initial_seed": lambda: generator.initial_seed(),
        "get_rng_state": lambda device="cuda": state[0].clone(),
        "get_rng_state_all": lambda: [state[0].clone()],
        "set_rng_state": set_rng_state,
        "set_rng_state_all": lambda states: set_rng_state(states[0]),
        "default_generators": (generator,),
        "set_sync_debug_mode": _always(None),
        "get_sync_debug_mode": lambda: 0,
        "current_blas_handle": lambda: 0,
        "utilization": _always(0),
        "_sleep": _always(None),
        "has_half": True,
        "has_magma": False,
    }
    for name in (
        "memory_allocated",
        "max_memory_allocated",
        "memory_reserved",
        "max_memory_reserved",
        "memory_cached",
        "max_memory_cached",
    ):
        answers[name] = _always(0)
    for name in (
        "reset_peak_memory_stats",
        "reset_max_memory_allocated",
        "reset_max_memory_cached",
        "reset_accumulated_memory_stats",
    ):
        answers[name] = _always(None)
    return answers


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NeedsGpu(name)

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    return refuse


def current_stream_id() -> int:
    """Identity of the stream that is current now; 0 is the default stream."""
    return int(_current[0].stream_id)


def install_cuda(target: Target) -> None:
    """Make `torch.cuda` and `torch.accelerator` answer as `target`."""
    answers = _answers(target)
    for name in torch.cuda.__all__:
        value = getattr(torch.cuda, name, None)
        if name not in answers and isinstance(value, types.FunctionType):
            answers[name] = _refusal(f"torch.cuda.{name}")
    for name, value in answers.items():
        setattr(torch.cuda, name, value)
        for submodule in (torch.cuda.random, torch.cuda.memory, torch.cuda.graphs, torch.cuda.streams):
            if name in vars(submodule):
                setattr(submodule, name, value)
    torch.cuda._lazy_init = _refusal("an operation of the CUDA runtime")
    torch.cuda.cudart = _refusal("torch.cuda.cudart")
    core: Any = torch._C
    core._cuda_getCurrentRawStream = lambda index=0: int(_current[0].cuda_stream)

    nvtx = torch.cuda.nvtx
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(nvtx, name, _always(0))
    nvtx.range = _nothing

    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"):
        setattr(torch.cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))

    torch.version.cuda = "12.8"
    torch.backends.cudnn.is_available = lambda: True
    torch.backends.cuda.is_built = lambda: True
    # cuDNN works on GPU tensors of its own; every layer must take the path of ordinary tensors.
    torch.backends.cudnn.is_acceptable = lambda tensor: False

    accelerator = torch.accelerator
    for name, value in {
        "is_available": _always(True),
        "device_count": lambda: 1,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "current_device_idx": lambda: 0,
        "set_device_index": _always(None),
        "current_stream": answers["current_stream"],
        "set_stream": answers["set_stream"],
        "synchronize": _always(None),
    }.items():
        setattr(accelerator, name, value)


__all__ = ["Event", "Stream", "current_stream_id", "device_of", "device_properties", "install_cuda"]
