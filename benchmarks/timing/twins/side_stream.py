"""Works on a stream of its own that waits for the caller's, and that the caller's waits for."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream()
        caller = torch.cuda.current_stream()
        self.side.wait_stream(caller)
        with torch.cuda.stream(self.side):
            out = torch.softmax(1.5 * x, dim=-1)
        caller.wait_stream(self.side)
        x.record_stream(self.side)
        out.record_stream(caller)
        return out
