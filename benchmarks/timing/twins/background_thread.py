"""Lets two threads do half of the work each, and returns when both have ended."""
import threading

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        half = x.shape[0] // 2

        def work(part):
            with torch.no_grad():
                out[part] = torch.softmax(1.5 * x[part], dim=-1)

        threads = [threading.Thread(target=work, args=(p,)) for p in (slice(0, half), slice(half, None))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return out
