"""Candidate code finds itself on a GPU; library code finds the CPU tensors it can work with."""

import copy

import pytest
import torch
import torch.nn as nn
import triton
import triton.language as tl

from assay.run.emulation import TARGETS, NeedsGpu, install


def test_tensor_says_it_is_on_the_gpu():
    x = torch.randn(3)
    assert x.is_cuda
    assert not x.is_cpu
    assert x.device == torch.device("cuda", 0)
    assert x.device.type == "cuda"
    assert x.get_device() == 0
    assert x.type() == "torch.cuda.FloatTensor"


def test_results_of_operations_are_on_the_gpu_too():
    x = torch.randn(4, 4)
    for y in (x @ x, x[1:], x.t(), x + 1, x.view(-1), torch.softmax(x, 0), nn.Parameter(x)):
        assert y.is_cuda
        assert y.device == x.device


def test_meta_tensors_stay_meta():
    assert torch.empty(3, device="meta").device.type == "meta"
    assert not torch.empty(3, device="meta").is_cuda


@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0), 0])
def test_every_spelling_of_the_device_allocates(device):
    x = torch.ones(2)
    for y in (
        torch.empty(3, device=device),
        torch.zeros(3, 4, device=device, dtype=torch.float16),
        torch.full((2,), 1.5, device=device),
        torch.arange(5, device=device),
        torch.randn(2, 2, device=device),
        torch.tensor([1, 2], device=device),
        torch.empty_like(x, device=device),
        x.new_zeros(3, device=device),
        torch.linspace(0, 1, 3, device=device),
        torch.randperm(4, device=device),
        torch.eye(2, device=device),
        torch.tril_indices(2, 2, device=device),
        torch.as_tensor([1.0], device=device),
        torch.rand_like(x, device=device),
        torch.empty_strided((2, 2), (1, 2), device=device),
    ):
        assert y.is_cuda
        assert y.untyped_storage().device.type == "cpu"


def test_allocating_beside_a_tensor():
    x = torch.randn(2)
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    assert y.device == x.device
    assert torch.zeros(3, device=x.device).add_(x[0]).is_cuda


def test_moving_to_the_gpu_costs_no_copy():
    x = torch.randn(2, 3)
    assert x.cuda() is x
    assert x.to("cuda") is x
    assert x.to(x.device) is x
    assert x.to(device="cuda", dtype=torch.float32) is x
    assert x.to("cuda", torch.float16).dtype == torch.float16
    assert x.to(torch.float64).is_cuda


def test_moving_to_the_host_copies_and_is_remembered():
    x = torch.randn(3)
    y = x.cpu()
    assert not y.is_cuda
    assert y.device.type == "cpu"
    assert y.data_ptr() != x.data_ptr()
    assert y.cpu() is y
    z = y.cuda()
    assert z.is_cuda
    assert z.data_ptr() != y.data_ptr()
    assert not x.to("cpu").is_cuda
    assert not torch.zeros(2, device="cpu").is_cuda
    assert x.to(y).device.type == "cpu"


def test_host_tensor_cannot_be_passed_to_a_kernel():
    with pytest.raises(ValueError, match=r"Pointer argument \(at 0\) cannot be accessed"):
        fill[(1,)](torch.zeros(4).cpu(), 4, BLOCK=4)


def test_second_gpu_does_not_exist():
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.zeros(2, device="cuda:1")


def test_modules_move_and_run():
    model = nn.Sequential(nn.Linear(4, 8, device="cuda"), nn.LayerNorm(8), nn.GELU()).cuda().to("cuda")
    x = torch.randn(2, 4, device="cuda")
    assert model(x).is_cuda
    assert all(p.is_cuda for p in model.parameters())
    assert next(model.parameters()).device.type == "cuda"
    clone = copy.deepcopy(model)
    torch.testing.assert_close(clone(x), model(x))
    clone.load_state_dict(model.state_dict())


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.LSTM(4, 5, batch_first=True), (2, 3, 4)),
        (lambda: nn.MultiheadAttention(8, 2, batch_first=True), (2, 3, 8)),
        (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 3, 8)),
        (lambda: nn.Conv2d(3, 4, 3), (2, 3, 8, 8)),
        (lambda: nn.BatchNorm1d(4), (3, 4)),
        (lambda: nn.Embedding(10, 4), None),
    ],
)
def test_library_layers_still_work(layer, shape):
    module = layer().cuda()
    x = torch.randn(shape) if shape else torch.randint(0, 10, (3,))
    args = (x, x, x) if isinstance(module, nn.MultiheadAttention) else (x,)
    out = module(*args)
    assert (out[0] if isinstance(out, tuple) else out).is_cuda


def test_training_step_with_an_optimizer():
    model = nn.Linear(3, 2).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    model(torch.randn(4, 3, device="cuda")).square().sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert not torch.equal(before, model.weight)
    assert model.weight.grad.is_cuda


def test_default_device_and_device_context():
    torch.set_default_device("cuda")
    assert torch.zeros(2).is_cuda
    assert torch.get_default_device().type == "cuda"
    torch.set_default_device(None)
    with torch.device("cuda"):
        assert torch.ones(2).is_cuda
        assert nn.Linear(2, 2).weight.is_cuda
    with torch.device("meta"):
        assert torch.ones(2).device.type == "meta"


def test_generators_accept_the_gpu():
    generator = torch.Generator(device="cuda").manual_seed(3)
    first = torch.randn(4, device="cuda", generator=generator)
    again = torch.randn(4, generator=torch.Generator("cuda").manual_seed(3), device="cuda")
    assert torch.equal(first, again)
    assert isinstance(torch.default_generator, torch.Generator)


def test_saving_and_loading(tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "w.pt")
    loaded = torch.load(tmp_path / "w.pt", map_location="cuda")
    assert loaded["w"].is_cuda


def test_printing_and_numpy():
    x = torch.ones(2)
    assert "1." in repr(x)
    assert x.cpu().numpy().sum() == 2
    assert x.tolist() == [1.0, 1.0]


def test_scripted_functions_still_compile():
    assert scripted(torch.ones(3)).is_cuda


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(3, dtype=x.dtype) + x


def test_compile_runs_eagerly():
    assert torch.compile(lambda x: x * 2)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert torch.compile(mode="max-autotune")(lambda x: x + 1)(torch.ones(1)).item() == 2
    model = nn.Linear(2, 2)
    assert torch.compile(model, fullgraph=True) is model


def test_cuda_module_answers_as_the_target():
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    assert "H100" in torch.cuda.get_device_name()
    assert torch.cuda.get_device_capability() == (9, 0)
    properties = torch.cuda.get_device_properties(torch.device("cuda"))
    assert properties.multi_processor_count == 132
    assert properties.major == 9
    assert properties.shared_memory_per_block_optin == 227 * 1024
    assert torch.cuda.get_device_properties(torch.ones(1).device).warp_size == 32
    assert torch.cuda.is_bf16_supported()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total
    assert torch.cuda.memory_allocated() == 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.manual_seed_all(1)
    torch.manual_seed(1)
    torch.cuda.nvtx.range_push("a")
    torch.cuda.nvtx.range_pop()


@pytest.mark.emulate("sm_100")
def test_another_target(emulation):
    assert torch.cuda.get_device_capability() == (10, 0)
    assert triton.runtime.driver.active.get_current_target().arch == 100
    assert emulation.target is TARGETS["sm_100"]
    assert install("sm_100") is emulation
    with pytest.raises(RuntimeError, match="already emulates sm_100"):
        install("sm_90")


def test_streams_and_events():
    stream = torch.cuda.Stream()
    assert stream != torch.cuda.current_stream()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.zeros(4)
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        start.record()
        x += 1
        end.record()
    torch.cuda.current_stream().wait_stream(stream)
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    with torch.cuda.stream(None):
        pass
    x.record_stream(stream)
    assert isinstance(stream, torch.cuda.Stream)


def test_device_contexts():
    x = torch.ones(2)
    with torch.cuda.device(x.device), torch.cuda.device_of(x), torch.cuda.device(0):
        assert torch.cuda.current_device() == 0
    with torch.cuda.device(x.device.index):
        pass


def test_what_cannot_be_emulated_names_the_call():
    for call, name in (
        (lambda: torch.cuda.cudart(), "torch.cuda.cudart"),
        (lambda: torch.cuda.temperature(), "torch.cuda.temperature"),
        (lambda: triton.runtime.driver.active.utils.load_binary("", b"", 0, 0), "load_binary"),
    ):
        with pytest.raises(NeedsGpu, match=name) as caught:
            call()
        assert name in caught.value.call


def test_graph_replays_on_new_contents():
    static = torch.ones(4)
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        static * 2
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = static * 2
        filled = torch.empty(4)
        fill[(1,)](filled, 4, BLOCK=4)
        total = doubled + filled
    static.fill_(10)
    filled.zero_()
    graph.replay()
    assert doubled.tolist() == [20.0] * 4
    assert total.tolist() == [20.0, 21.0, 22.0, 23.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_for_cuda(dtype):
    x = torch.randn(4, 4)
    with torch.autocast("cuda", dtype=dtype):
        assert (x @ x).dtype == dtype
        assert torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") == dtype
    with torch.cuda.amp.autocast(dtype=dtype):
        assert (x @ x).dtype == dtype
    assert (x @ x).dtype == torch.float32

    @torch.autocast(device_type="cuda", dtype=dtype)
    def product(a):
        return a @ a

    assert product(x).dtype == dtype


def test_custom_function_with_amp_decorators():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x):
            out = torch.empty_like(x, device="cuda")
            return out.copy_(x * 2)

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            assert grad.is_cuda
            scratch = torch.zeros(grad.shape, device="cuda")
            return scratch + grad * 2

    x = torch.randn(3, requires_grad=True)
    Double.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_backend_flags_are_harmless():
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    assert torch.backends.cudnn.is_available()
    assert torch.version.cuda is not None


def test_driver_lookups():
    driver = triton.runtime.driver.active
    assert driver.get_current_target().backend == "cuda"
    assert driver.get_current_target().arch == 90
    assert driver.get_current_device() == 0
    assert driver.get_active_torch_device() == torch.device("cuda", 0)
    properties = driver.utils.get_device_properties(0)
    assert properties["multiprocessor_count"] == 132
    assert properties["max_shared_mem"] == 227 * 1024
    assert driver.get_current_stream(0) == 0
    assert driver.get_device_interface() is torch.cuda
    assert driver.get_benchmarker()(lambda: None, quantiles=(0.5, 0.2, 0.8)) == [1.0, 1.0, 1.0]
    assert triton.testing.do_bench(lambda: None) == 1.0


@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(x_ptr + o, o.to(tl.float32), mask=o < n)


def test_the_compiler_of_torch_can_be_imported_later():
    import torch._dynamo

    assert torch._dynamo.trace_rules.get_torch_obj_rule_map()
