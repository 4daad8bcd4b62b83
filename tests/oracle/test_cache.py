"""Truths on disk: the same bits as evaluated, whoever else writes, whatever the file system does."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from pathlib import Path

import pytest
import torch

from assay import pages
from assay.oracle.cache import DIRECTORY_VARIABLE, TruthCache, default_directory, key_of, package_version
from assay.probe.model import Draw
from assay.run.process import Zygote
from assay.run.reference import ReferenceSession
from assay.task import load_task
from assay.verify import Options, load_pair, verify_task
from assay.vocabulary import EffortTier

PAYLOAD = [memoryview(b"\x00\x01\xff" * 500), memoryview(b"")]
HEADER = {"names": ["y"], "value": 0.1}


@pytest.fixture
def cache(tmp_path: Path) -> TruthCache:
    return TruthCache(tmp_path / "truths")


def files(cache: TruthCache) -> list[Path]:
    return [p for p in cache.directory.rglob("*") if p.is_file()]


def test_gives_back_what_was_put(cache: TruthCache) -> None:
    key = key_of("a", {"x": 1, "y": 2})
    assert cache.get(key) is None
    assert cache.put(key, HEADER, PAYLOAD)
    assert cache.get(key) == (HEADER, bytearray(b"\x00\x01\xff" * 500))
    assert (cache.hits, cache.misses) == (1, 1)


def test_key_follows_content_and_not_the_order_of_a_dictionary() -> None:
    assert key_of({"x": 1, "y": 2}) == key_of({"y": 2, "x": 1})
    assert key_of({"x": 1}, "a") != key_of({"x": 1}, "b")
    assert key_of("ab", "c") != key_of("a", "bc")
    assert len(package_version()) == 64


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b[:40], lambda b: b"", lambda b: b + b"x",
                                   lambda b: b[:-700] + bytes([b[-700] ^ 1]) + b[-699:]])
def test_a_damaged_file_is_no_truth_and_goes_away(cache: TruthCache, spoil) -> None:  # type: ignore[no-untyped-def]
    key = key_of("damaged")
    cache.put(key, HEADER, PAYLOAD)
    (path,) = files(cache)
    path.write_bytes(spoil(path.read_bytes()))
    assert cache.get(key) is None
    assert files(cache) == []


def test_least_recently_used_files_go_first(tmp_path: Path) -> None:
    cache = TruthCache(tmp_path / "small", limit=20_000)
    block = [memoryview(bytes(4_000))]
    keys = [key_of(i) for i in range(8)]
    for i, key in enumerate(keys):
        assert cache.put(key, HEADER, block)
        path = cache._path(key)
        os.utime(path, (1_000 + i, 1_000 + i))
        if i == 3:
            assert cache.get(keys[0]) is not None  # used again just now
    assert cache.get(keys[0]) is not None
    assert cache.get(keys[1]) is None
    assert sum(p.stat().st_size for p in files(cache)) <= 20_000


def test_a_file_too_large_for_the_cache_is_not_kept(tmp_path: Path) -> None:
    cache = TruthCache(tmp_path / "small", limit=20_000)
    assert not cache.put(key_of("large"), HEADER, [memoryview(bytes(6_000))])


def test_a_directory_that_cannot_be_made_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = TruthCache(tmp_path / "file" / "truths")
    assert not cache.put(key_of("a"), HEADER, PAYLOAD)
    assert cache.get(key_of("a")) is None


def test_a_directory_that_others_may_write_is_not_trusted(tmp_path: Path) -> None:
    cache = TruthCache(tmp_path / "shared")
    assert cache.put(key_of("a"), HEADER, PAYLOAD)
    cache.directory.chmod(0o777)
    assert cache.get(key_of("a")) is None
    assert not cache.put(key_of("b"), HEADER, PAYLOAD)


def _write_beyond_the_limit(directory: str) -> None:
    # the kernel refuses to let a file grow, as it does on a full disk
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
    os._exit(int(TruthCache(Path(directory)).put(key_of("a"), HEADER, PAYLOAD)))


def test_a_write_that_fails_leaves_nothing_behind(cache: TruthCache) -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_write_beyond_the_limit, args=(str(cache.directory),))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert files(cache) == []


def _write_and_read(directory: str, number: int) -> None:
    cache = TruthCache(Path(directory), limit=60_000)
    whole = 0
    for i in range(120):
        key = key_of(i % 12)
        body = bytes([i % 12]) * (1_000 + i % 12)
        cache.put(key, {"i": i % 12}, [memoryview(body)])
        for other in range(12):
            found = cache.get(key_of(other))
            if found is not None:
                whole += 1
                if found != ({"i": other}, bytearray(bytes([other]) * (1_000 + other))):
                    os._exit(1)
    os._exit(0 if whole else 2)


def test_concurrent_writers_never_show_half_a_file(cache: TruthCache) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write_and_read, args=(str(cache.directory), n)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [w.exitcode for w in workers] == [0, 0, 0, 0]
    assert all(p.name.endswith(".truth") for p in files(cache))


def test_the_environment_names_the_directory_or_turns_the_cache_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, "/somewhere")
    assert default_directory() == Path("/somewhere")
    monkeypatch.setenv(DIRECTORY_VARIABLE, "")
    assert default_directory() is None


def test_a_kept_truth_has_the_bits_of_an_evaluated_one(cache: TruthCache, zygote: Zygote) -> None:
    task = load_task(pages.examples() / "layer_norm" / "reference.py")
    draw = Draw(seed=5, variant="tiny_variance")
    truths = []
    for kept in (None, cache, cache):
        session = ReferenceSession(zygote, task, cache=kept)
        try:
            session.study()
            truths.append(session.truth({}, None, draw, 9, modes=True, grad="normal"))
        finally:
            session.close()
    assert (cache.hits, cache.misses) == (1, 1)
    for other in truths[1:]:
        assert other.status == truths[0].status == "ok"
        assert other.ops == truths[0].ops
        assert [t.tolist() for t in other.inputs] == [t.tolist() for t in truths[0].inputs]
        for a, b in zip(truths[0].leaves, other.leaves, strict=True):
            for name in ("native", "y", "spread", "pooled", "decided"):
                assert torch.equal(getattr(a, name), getattr(b, name))
            assert torch.equal(a.tolerance, b.tolerance)
        assert other.gradients.keys() == truths[0].gradients.keys()
        for name, leaf in truths[0].gradients.items():
            assert torch.equal(leaf.tolerance, other.gradients[name].tolerance)
        assert [m.mode for m in other.modes] == [m.mode for m in truths[0].modes]


def test_other_numerics_sizes_or_draws_are_other_truths(cache: TruthCache, zygote: Zygote) -> None:
    task = load_task(pages.examples() / "softmax" / "reference.py")
    for numerics in ({}, {"fast_math": True}):
        session = ReferenceSession(zygote, task, numerics, cache=cache)
        try:
            session.study()
            for seed in (1, 2):
                session.truth({}, None, Draw(seed=seed), seed)
        finally:
            session.close()
    assert (cache.hits, cache.misses) == (0, 4)


@pytest.mark.parametrize("kernel", ["right.py", "wrong"])
def test_a_report_is_the_same_without_cold_and_warm_cache(
    kernel: str, tmp_path: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pages.examples() / "softmax"
    path = folder / kernel if kernel.endswith(".py") else next(p for p in sorted(folder.glob("wrong*.py")))
    task, candidate = load_pair(folder / "reference.py", path)
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "truths"))
    seen = []
    for use in (False, True, True):
        gates = ("values", "order_sensitive")
        options = Options(device="cpu", tier=EffortTier.QUICK, only=gates, seed=3, cache=use)
        report = verify_task(task, candidate, options=options, zygote=zygote)
        seen.append((report.label, [(g.slug, g.outcome, g.findings) for g in report.gates]))
    assert seen[0] == seen[1] == seen[2]
