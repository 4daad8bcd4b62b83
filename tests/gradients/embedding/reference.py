import torch
import torch.nn as nn

BATCH = 6
LENGTH = 9
WORDS = 23
DIM = 12
DTYPE = torch.float32


class Model(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.table = nn.Embedding(words, dim).to(DTYPE)

    def forward(self, index):
        return self.table(index)


def get_inputs():
    return [torch.randint(0, WORDS, (BATCH, LENGTH))]


def get_init_inputs():
    return [WORDS, DIM]
