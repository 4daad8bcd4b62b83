import torch
import torch.nn as nn

BATCH = 5
STEPS = 9
DIM = 12
DTYPE = torch.float32


class Model(nn.Module):
    def forward(self, x, gate):
        keep = torch.sigmoid(gate.float())
        state = torch.zeros_like(x[:, 0].float())
        states = []
        for t in range(x.shape[1]):
            state = keep[:, t] * state + x[:, t].float()
            states.append(state)
        return torch.stack(states, dim=1).to(x.dtype)


def get_inputs():
    return [torch.randn(BATCH, STEPS, DIM).to(DTYPE) for _ in range(2)]


def get_init_inputs():
    return []
