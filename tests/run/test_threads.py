"""The judge's own operations leave the cores to the workers, and the caller's setting as it was."""

from __future__ import annotations

import threading

import torch

from assay.run.threads import at_most


def test_the_caller_s_setting_comes_back() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with at_most(1):
            assert torch.get_num_threads() == 1
            with at_most(1):
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_it_never_makes_more() -> None:
    before = torch.get_num_threads()
    with at_most(before + 3):
        assert torch.get_num_threads() == before


def test_it_holds_for_threads_that_start_inside() -> None:
    seen = []
    with at_most(1):
        thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        thread.start()
        thread.join()
    assert seen == [1]
