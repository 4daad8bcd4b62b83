"""Over Ray the rows are the same, and a worker that is killed is replaced."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from assay.audit.corpus import open_corpus
from assay.audit.run import Progress, open_audit, run_audit
from assay.audit.store import Store
from assay.errors import InputError

from .conftest import settings
from .test_run import results

ray_backend = pytest.importorskip("assay.audit.ray_backend")


@pytest.mark.slow
def test_rows_over_ray_are_those_of_one_machine_although_a_worker_is_killed(small: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    killed: list[int] = []
    with ray_backend.RayBackend(2) as backend, Store(tmp_path / "ray", write=True) as store:
        same = open_audit(store, open_corpus(small.parent / "corpus.jsonl"), settings())

        def show(progress: Progress) -> None:
            if progress.done == 2 and not killed:
                killed.append(backend.processes()[0])
                os.kill(killed[0], signal.SIGKILL)

        ended = run_audit(store, same, backend, show)
        assert ended.done == 9
        assert killed
    assert results(tmp_path / "ray") == results(small)


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_told(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="no Ray cluster"):
        ray_backend.RayBackend(1, address="127.0.0.1:1")
