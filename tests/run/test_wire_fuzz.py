"""Whatever a worker writes, the judge lives, keeps its deadline and its memory, and blames the worker."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import struct
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.run.peer import peer

from assay.probe.model import Call, Draw, Probe
from assay.run import codec, wire
from assay.run.candidate import CandidateSession
from assay.run.process import OUTPUT_TAIL, Death, Limits, Worker
from assay.run.reply import facts
from assay.run.wire import Frame, FrameReader, WireFault, encode

PROBE = Probe(id="values/draw-0", gate="values", draws=(Draw(seed=1),), calls=(Call(),))
ROOM = 64 << 20
fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def answer(**changes: Any) -> tuple[dict[str, Any], bytes]:
    """A right answer to the one call of PROBE, as header and payload."""
    out = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    part, chunks = codec.pack(out)
    header = {"token": 0, "calls": [{"outputs": part, "seconds": 0.1}], "facts": {}, "weights": "none",
              "seconds": 0.2, "parameters_changed": []}
    return {**header, **changes}, b"".join(bytes(c) for c in chunks)


def frame(header: dict[str, Any] | bytes, payload: bytes = b"", announced: int | None = None) -> bytes:
    size = len(payload) if announced is None else announced
    if isinstance(header, bytes):
        return struct.pack("<4sIQ", wire.MAGIC, len(header), size) + header + payload
    return encode(header, size) + payload


def read_all(data: bytes, limit: int = 1 << 20) -> Frame | WireFault:
    """What the judge's reader makes of bytes that end with a closed channel."""
    ours, theirs = socket.socketpair()
    writer = threading.Thread(target=_write, args=(theirs, data))
    writer.start()
    reader = FrameReader(ours, 1 << 20, limit, strict=True)
    try:
        while True:
            found = reader.step()
            if found is not None:
                return found
    except WireFault as fault:
        return fault
    finally:
        ours.close()
        writer.join()


def _write(sock: socket.socket, data: bytes) -> None:
    with sock:
        try:
            sock.sendall(data)
        except OSError:
            return


def judged(header: Any, payload: bytes) -> str:
    """Status of the observation that a session makes of an answer, or `refused`."""
    session = CandidateSession(None, "", [], {}, Limits())  # type: ignore[arg-type]
    try:
        return session._read(PROBE, Frame(header, bytearray(payload)), 1.0).status
    except Exception:
        # `run` makes `forged` of whatever a description breaks
        return "refused"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2**70, 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20) | st.sampled_from(["float32", "t", "d", "l", "0x1p99999", "nan", "\ud800"]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(
        st.sampled_from(["t", "l", "d", "i", "f", "c", "k", "tree", "forms", "outputs", "seconds", "x"]),
        inner, max_size=5), max_leaves=30)
PARTS = ["calls", "facts", "weights", "seconds", "parameters_changed", "late", "error", "token"]
STATUSES = ("ok", "raised", "weights", "refused", "memory", "needs_gpu", "toolchain")


@fuzz
@given(st.binary(max_size=400))
def test_garbage_is_no_frame(data: bytes) -> None:
    assert isinstance(read_all(data), WireFault)


@fuzz
@given(st.data())
def test_a_mutated_frame_is_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(frame(*answer()))
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    found = read_all(bytes(raw))
    if isinstance(found, Frame):
        assert judged(found.header, bytes(found.payload)) in STATUSES


@fuzz
@given(st.integers(0, 600))
def test_a_truncated_frame_is_a_closed_channel(length: int) -> None:
    raw = frame(*answer())
    found = read_all(raw[:length])
    if length < len(raw):
        assert isinstance(found, WireFault)
        assert found.kind == "closed"
    else:
        assert isinstance(found, Frame)


@fuzz
@given(st.sampled_from(PARTS), JSON)
def test_an_answer_of_another_type_never_crashes_the_judge(key: str, value: Any) -> None:
    header, payload = answer(**{key: value})
    assert judged(header, payload) in STATUSES


@fuzz
@given(JSON, JSON)
def test_forged_outputs_never_crash_the_judge(tree: Any, forms: Any) -> None:
    header, payload = answer(calls=[{"outputs": {"tree": tree, "forms": forms}, "seconds": 0.1}])
    assert judged(header, payload) in ("ok", "refused")


@fuzz
@given(st.lists(st.integers(-2**40, 2**62), max_size=5), st.lists(st.integers(-2**70, 2**70), max_size=5))
def test_forged_shapes_never_crash_the_judge(shape: list[int], stride: list[int]) -> None:
    form = ["float32", shape, stride, "cpu", False, 0, 0, False, True]
    header, payload = answer(calls=[{"outputs": {"tree": {"t": 0}, "forms": [form]}, "seconds": 0.1}])
    status = judged(header, payload)
    assert status == "refused" or (status == "ok" and 4 * torch.Size(shape).numel() <= len(payload))


@pytest.mark.parametrize("text", [
    b"[" * 100_000, b'{"a":' * 100_000, b'{"a":' + b"9" * 10_000 + b"}", b'{"a": NaN}', b'{"a": -Infinity}',
    b"[]", b"7", b"null", b'"text"', b"", b"{", b"\xff\xfe", b'{"a": 1}{"b": 2}', b"\x00" * 64,
])
def test_what_is_no_json_object_is_refused(text: bytes) -> None:
    found = read_all(frame(text))
    assert isinstance(found, WireFault)
    assert found.kind == "header"


def test_of_a_repeated_key_the_last_counts() -> None:
    found = read_all(frame(b'{"token": 1, "token": 2}'))
    assert isinstance(found, Frame)
    assert found.header == {"token": 2}


def test_half_a_character_is_replaced() -> None:
    found = read_all(frame(b'{"error": {"message": "\\ud800 and \\ud83d\\ude00", "\\udfff": 1}}'))
    assert isinstance(found, Frame)
    assert found.header["error"]["message"] == "\N{REPLACEMENT CHARACTER} and \N{GRINNING FACE}"
    json.dumps(found.header, ensure_ascii=False).encode()


@pytest.mark.parametrize(("header", "payload"), [
    (1 << 31, 0), (20, 1 << 62), (20, (1 << 20) + 1), ((1 << 20) + 1, 0),
])
def test_a_frame_over_the_limit_is_refused_unread(header: int, payload: int) -> None:
    found = read_all(struct.pack("<4sIQ", wire.MAGIC, header, payload))
    assert isinstance(found, WireFault)
    assert found.kind == "size"


def test_announced_bytes_are_not_allocated_before_they_come() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack("<4sIQ", wire.MAGIC, 2, 15 << 30) + b"{}" + b"x" * 1000)
        reader = FrameReader(ours)
        before = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, before[1]))
        try:
            for _ in range(3):
                assert reader.step() is None
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("facts_", [
    {"patched": 5}, {"threads": [1]}, {"launches": [{"kernel": 1}]}, {"launches": "many"},
    {"configs": {"k": "x"}}, {"configs": {"k": 10**9}}, {"inputs": [[1]]}, {"inputs": {"0": [["a"]]}},
    {"access": [1]}, {"launch_count": 2**65},
    {"per_call": {}}, [], "facts",
])
def test_facts_of_another_type_are_a_forgery(facts_: Any) -> None:
    with pytest.raises(codec.CodecError):
        facts(facts_)
    header, payload = answer(facts=facts_)
    assert judged(header, payload) == "refused"


def test_claimed_seconds_stay_within_the_exchange() -> None:
    session = CandidateSession(None, "", [], {}, Limits())  # type: ignore[arg-type]
    for claimed, seen in ((1e308, 1.0), (-5.0, 0.0), (0.5, 0.5)):
        header, payload = answer(seconds=claimed)
        assert session._read(PROBE, Frame(header, bytearray(payload)), 1.0).seconds == seen


def test_text_of_a_candidate_is_printable() -> None:
    header, payload = answer(error={"type": "E\x1b[2J", "message": "a\rb\x00c\N{RIGHT-TO-LEFT OVERRIDE}",
                                    "phase": "call", "place": ""})
    session = CandidateSession(None, "", [], {}, Limits())  # type: ignore[arg-type]
    error = session._read(PROBE, Frame(header, bytearray(payload)), 1.0).error
    assert error is not None
    assert all(c.isprintable() for c in error["type"] + error["message"])


REQUEST = {"op": "run", "token": 0}


@pytest.mark.parametrize(("steps", "kind"), [
    (["ask", b"\xff\x00 not a frame", "hang"], "forged"),
    ([frame(*answer()), "ask", "hang"], "forged"),
    (["ask", frame(*answer())[:50]], "exited"),
    (["ask", frame(*answer())[:50], "hang"], "timed_out"),
    (["ask", frame(*answer(), announced=1 << 40), "hang"], "forged"),
    (["ask", frame(b"[" * 4096), "hang"], "forged"),
    (["ask", "close", "hang"], "closed"),
    (["hang"], "timed_out"),
    ([], "exited"),
])
def test_a_worker_that_breaks_the_protocol_ends(steps: list[bytes | str], kind: str) -> None:
    with peer(steps) as worker:
        if steps and isinstance(steps[0], bytes):
            assert wire.ready(worker.channel, 20)
        began = time.monotonic()
        death = worker.request(REQUEST, timeout=1.0 if kind == "timed_out" else 20.0, payload_limit=1 << 20)
        assert isinstance(death, Death)
        assert death.kind == kind
        assert time.monotonic() - began < 30
        assert not os.path.exists(worker.directory)


RIGHT = frame(*answer())
GARBAGE = st.lists(st.tuples(st.sampled_from(["channel", "out", "err", "arena"]),
                             st.binary(max_size=300) | st.just(RIGHT)), max_size=6)
ARENA = 1 << 12


def _babble(ends: dict[str, Any], steps: list[tuple[str, bytes]]) -> None:
    """The worker's side of every channel: read a request, write garbage, end; as a guardian would report it."""
    with contextlib.suppress(OSError):
        head = ends["channel"].recv(16, socket.MSG_WAITALL)
        ends["channel"].recv(int.from_bytes(head[4:8], "little"), socket.MSG_WAITALL)
        for name, data in steps:
            if name == "channel":
                ends["channel"].sendall(data)
            elif name == "arena":
                os.pwrite(ends["arena"], data, len(data))
            else:
                os.write(ends[name], data)
    ends["channel"].close()
    with contextlib.suppress(OSError):
        ends["control"].send(json.dumps({"status": 0, "left": 0, "killed": False}).encode())


@fuzz
@given(GARBAGE)
def test_garbage_on_every_channel_ends_the_worker_or_is_ignored(steps: list[tuple[str, bytes]]) -> None:
    channel, theirs = socket.socketpair()
    control, control_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    out, out_write = os.pipe()
    err, err_write = os.pipe()
    arena = os.memfd_create("arena")
    # a process of that number cannot be
    worker = Worker(pid=2**31 - 1, channel=channel, control=control, out=out, err=err, arena=arena,
                    directory=tempfile.mkdtemp(prefix="assay-babble-"))
    worker.reserve(ARENA)
    ends = {"channel": theirs, "control": control_theirs, "out": out_write, "err": err_write, "arena": os.dup(arena)}
    thread = threading.Thread(target=_babble, args=(ends, steps))
    thread.start()
    found = worker.request({"op": "run", "token": 0}, timeout=20.0, payload_limit=1 << 20)
    if isinstance(found, Frame):
        assert judged(found.header, bytes(found.payload)) in STATUSES
    death = worker.close()
    thread.join()
    for end in (out_write, err_write, ends["arena"]):
        os.close(end)
    control_theirs.close()
    assert death.kind in ("exited", "forged", "closed_by_judge")
    assert len(death.text) <= OUTPUT_TAIL
    assert not os.path.exists(worker.directory)
    said = b"".join(data for name, data in steps if name == "channel")
    assert isinstance(found, Frame) == said.startswith(RIGHT)


def test_a_second_answer_is_a_forgery_of_the_next() -> None:
    raw = frame(*answer())
    with peer(["ask", raw + raw, "ask", "hang"]) as worker:
        first = worker.request(REQUEST, timeout=20.0, payload_limit=1 << 20)
        assert isinstance(first, Frame)
        second = worker.request(REQUEST, timeout=20.0, payload_limit=1 << 20)
        assert isinstance(second, Death)
        assert second.kind == "forged"


def test_a_right_frame_is_read_through_a_slow_channel() -> None:
    raw = frame(*answer())
    with peer(["ask", *[raw[i:i + 7] for i in range(0, len(raw), 7)], "hang"]) as worker:
        found = worker.request(REQUEST, timeout=20.0, payload_limit=1 << 20)
        assert isinstance(found, Frame)
        assert judged(found.header, bytes(found.payload)) == "ok"
