"""Times its own first call with events, and replaces nothing."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.took = None

    def forward(self, x):
        if self.took is not None:
            return torch.softmax(1.5 * x, dim=-1)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        out = torch.softmax(1.5 * x, dim=-1)
        end.record()
        end.synchronize()
        self.took = begin.elapsed_time(end)
        return out
