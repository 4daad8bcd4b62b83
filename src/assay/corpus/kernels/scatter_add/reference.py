import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
ROWS = 24
COLS = 20
SEGMENTS = 5


class Model(nn.Module):
    """Rows added up by the segment they belong to."""

    def __init__(self, segments):
        super().__init__()
        self.segments = segments

    def forward(self, x: torch.Tensor, segment: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(self.segments, x.shape[1], device=x.device, dtype=x.dtype)
        return out.index_add(0, segment, x)


def get_inputs():
    return [torch.randn(ROWS, COLS).to(DTYPE), torch.randint(0, SEGMENTS, (ROWS,))]


def get_init_inputs():
    return [SEGMENTS]
