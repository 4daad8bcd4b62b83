"""Captures a graph once, copies the input into it before each replay and the result out after it."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, x):
        key = tuple(x.shape)
        if key not in self.graphs:
            own = x.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.softmax(1.5 * own, dim=-1)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = torch.softmax(1.5 * own, dim=-1)
            self.graphs[key] = (graph, own, out)
        graph, own, out = self.graphs[key]
        own.copy_(x)
        graph.replay()
        return out.clone()
