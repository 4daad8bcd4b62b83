"""A task, and candidates for it in Triton and CUDA C++: a wrong kernel for each tool beside its right twin."""

from __future__ import annotations

TASK = """
import torch
N = 37
class Model(torch.nn.Module):
    def forward(self, x):
        return 2.0 * x
def get_inputs():
    return [torch.randn(5, N)]
def get_init_inputs():
    return []
"""
TRITON = '''
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    y = tl.load(y_ptr + i, mask=inside, other=0.0)
    x = tl.load(x_ptr + i, mask=inside, other=0.0)
    tl.store(y_ptr + i, 2.0 * x + y, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.zeros_like(x)
        scale[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
'''
BEYOND = TRITON.replace("tl.load(x_ptr + i, mask=inside, other=0.0)", "tl.load(x_ptr + i)")
UNWRITTEN = TRITON.replace("zeros_like", "empty_like")
CUDA = '''
import os

import torch
from torch.utils.cpp_extension import load

SOURCE = r"""
#include <ATen/ATen.h>
#include <torch/library.h>
__global__ void copy_within(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}
__global__ void copy_beyond(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) y[i] = 2.0f * x[i];
}
__global__ void add_to(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += 2.0f * x[i];
}
__global__ void through_shared(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[255 - t] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) y[i] = 2.0f * s[255 - t];
}
__global__ void neighbour_early(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[(t + 32) % 256] = i < n ? x[i] : 0.0f;
  float seen = s[t];
  __syncthreads();
  if (i < n) y[i] = 2.0f * s[(t + 32) % 256] + 0.0f * (seen - seen);
}
__global__ void leaves_early(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (i >= n) return;
  s[t] = x[i];
  __syncthreads();
  y[i] = 2.0f * s[t];
}
__global__ void odd_threads_wait(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? x[i] : 0.0f;
  if (t % 2) __syncthreads();
  if (i < n) y[i] = 2.0f * s[t];
}
at::Tensor run(const at::Tensor& x, int64_t which) {
  auto a = x.contiguous();
  auto y = which == 3 ? at::zeros_like(a) : at::empty_like(a);
  int n = a.numel(), blocks = (n + 255) / 256;
  const float* from = a.data_ptr<float>();
  float* to = y.data_ptr<float>();
  switch (which) {
    case 0: copy_within<<<blocks, 256>>>(from, to, n); break;
    case 1: copy_beyond<<<blocks, 256>>>(from, to, n); break;
    case 2: add_to<<<blocks, 256>>>(from, to, n); break;
    case 3: add_to<<<blocks, 256>>>(from, to, n); break;
    case 4: through_shared<<<blocks, 256>>>(from, to, n); break;
    case 5: neighbour_early<<<blocks, 256>>>(from, to, n); break;
    case 6: leaves_early<<<blocks, 256>>>(from, to, n); break;
    case 7: odd_threads_wait<<<blocks, 256>>>(from, to, n); break;
  }
  return y;
}
TORCH_LIBRARY(sanitized_kernels, m) { m.def("run(Tensor x, int which) -> Tensor", &run); }
"""
with open("kernels.cu", "w") as file:
    file.write(SOURCE)
load("sanitized_kernels", [os.path.abspath("kernels.cu")], is_python_module=False)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.ops.sanitized_kernels.run(x, {which})
'''
WITHIN, COPY_BEYOND, ADD_TO_EMPTY, ADD_TO_ZEROS, THROUGH_SHARED, RACES, LEAVES_EARLY, ODD_WAIT = range(8)
