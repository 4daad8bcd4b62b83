import torch
import torch.nn as nn

BATCH = 4
CHANNELS = 3
SIZE = 9
DTYPE = torch.float32


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 5, 3, stride=2, padding=1).to(DTYPE)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE).to(DTYPE)]


def get_init_inputs():
    return [CHANNELS]
