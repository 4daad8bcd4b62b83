"""One contender in a worker of its own: fed, filled, timed by the judge's clock, and read."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from assay.bench.clocks import Batch
from assay.bench.draws import Known
from assay.bench.schedule import Filling
from assay.probe.record import Truth
from assay.run import codec, reply
from assay.run.candidate import CandidateSession, Weights
from assay.run.process import Death
from assay.run.reply import printable
from assay.run.wire import Frame

SMALL_REPLY = 4 << 20
SLACK = 64 << 20


class Stopped(Exception):
    """A contender cannot be timed any more.

    Args:
        status: how it ended, as an Observation names it.
        text: what it said.
        forged: whether it answered what nobody asked, or nonsense.
    """

    def __init__(self, status: str, text: str) -> None:
        self.status, self.text = status, text
        super().__init__(f"{status}: {text}" if text else status)

    @property
    def forged(self) -> bool:
        """Whether its process broke the protocol."""
        return self.status in ("forged", "flooded", "guardian_lost")


class Contender:
    """A model in a candidate's worker.

    Args:
        name: such as `candidate`.
        session: where it runs; it is closed with the contender.
        weights: constructor arguments and weights.
        options: `compile` (torch.compile round it), `tf32` (mode of float32 products, None to leave it).
        patience: seconds that a step may take; the first calls, which compile, get twelve times that.
    """

    def __init__(self, name: str, session: CandidateSession, weights: Weights, *, compile: bool = False,
                 tf32: bool | None = None, patience: float = 20.0) -> None:
        self.name, self._session, self._weights = name, session, weights
        self._extra: dict[str, Any] = {"compile": compile, "tf32": tf32}
        self._patience = patience
        self._worker: Any = None
        self._token = 0
        self.facts: dict[str, Any] = {}
        self.peak: int | None = None
        self.compiled: bool | None = None
        self.stopped: Stopped | None = None
        """Why it could not be loaded."""

    def prepare(self, tree: Any, forms: Sequence[codec.TensorForm], *, buffers: int, flush: int) -> None:
        """Load it and make room for inputs. Raises Stopped.

        Args:
            tree: nesting of the inputs.
            forms: how each tensor input lies.
            buffers: how many sets of inputs there are at a time.
            flush: bytes whose writing empties the caches; 0 for none.
        """
        opened = self._session.opened(self._weights, self.name)
        if not hasattr(opened, "request"):
            error = f"{opened.error['type']}: {opened.error['message']}" if opened.error else opened.text
            raise Stopped(opened.status, error[:500])
        self._worker = opened
        self._ask({"step": "prepare", "key": self._weights.key, "tree": tree, "forms": [f.to_json() for f in forms],
                   "buffers": buffers, "flush": flush, **self._extra}, timeout=12 * self._patience)

    @property
    def usable(self) -> bool:
        """Whether it still runs, or never did: trying again would change nothing."""
        return self.stopped is not None or self._worker is not None

    def load(self, known: Known, *, buffers: int, flush: int) -> None:
        """Prepare it and hand it the inputs of all draws; `stopped` says why that failed."""
        try:
            self.prepare(known.truths[0].tree, known.forms, buffers=buffers, flush=flush)
            for number, truth in enumerate(known.truths):
                self.feed(number, truth)
        except Stopped as stop:
            self.stopped = stop

    def feed(self, number: int, truth: Truth) -> None:
        """Hand over the inputs of a draw. Raises Stopped."""
        part = {"forms": [codec.form_of(t).to_json() for t in truth.inputs]}
        self._ask({"step": "feed", "draw": number, "inputs": part}, [codec.tensor_bytes(t) for t in truth.inputs])

    def fill(self, filling: Filling) -> None:
        """Write the contents of a batch into the buffers. Raises Stopped."""
        self._ask({"step": "fill", "contents": [list(c) for c in filling.contents]})

    def batch(self, kind: str, order: Sequence[int], watched: Mapping[int, int] | None = None, *,
              first: bool = False) -> Batch:
        """Run a batch, timed from the question to the answer. Raises Stopped.

        Args:
            kind: `warm`, `cold`, `flush` or `witness`.
            order: buffers in the order in which they are passed.
            watched: by position, the draw that a witness puts there at the last moment.
            first: whether it may take longer, as what compiles does.
        """
        header = {"step": "batch", "kind": kind, "order": list(order),
                  "watched": {str(k): v for k, v in (watched or {}).items()}}
        answer, wall = self._timed(header, self._patience * (12 if first else 1))
        found = answer.header
        try:
            each = tuple(reply.seconds(s, wall) for s in found["calls"][:len(order)])
            types = tuple(printable(t, 100) for t in found["types"][:5])
            return Batch(kind, max(1, len(order)), wall, reply.seconds(found["total"], wall), each,
                         reply.seconds(found["tail"], wall), types)
        except (KeyError, TypeError, ValueError) as error:
            raise Stopped("forged", f"the reply makes no sense: {error}") from None

    def collect(self, calls: Sequence[int], places: Sequence[Sequence[int]] | None, most: int
                ) -> list[list[tuple[tuple[int, ...], torch.Tensor]]]:
        """Shape and values of every output tensor of some calls of the last batch. Raises Stopped.

        Args:
            calls: positions in the batch.
            places: per output tensor, the flat positions asked for; empty lists, or None, for all elements.
            most: bytes that one call's outputs take.
        """
        asked = None if places is None else [list(where) for where in places]
        header = {"step": "collect", "calls": list(calls), "places": asked}
        answer = self._ask(header, payload_limit=SLACK + 2 * len(calls) * most)
        view, used, found = memoryview(answer.payload), 0, []
        try:
            for record in answer.header["calls"][:len(calls)]:
                tensors, count = codec.unpack_tensors(record["outputs"], view[used:])
                used += count
                shapes = [tuple(int(n) for n in shape) for shape in record["shapes"]]
                found.append(list(zip(shapes, tensors, strict=True)))
        except (codec.CodecError, KeyError, TypeError, ValueError) as error:
            raise Stopped("forged", f"the reply makes no sense: {error}") from None
        if len(found) != len(calls):
            raise Stopped("forged", "fewer calls than asked for")
        return found

    def finish(self) -> None:
        """Ask for its memory and what its process says of itself. Raises Stopped."""
        found = self._ask({"step": "memory"}).header
        try:
            self.facts = reply.facts(found.get("facts"))
        except codec.CodecError as error:
            raise Stopped("forged", str(error)) from None
        graphs = found.get("graphs")
        self.compiled = None if graphs is None else bool(graphs)
        size = found.get("bytes")
        self.peak = size if type(size) is int and 0 <= size < 1 << 48 else None

    def close(self) -> None:
        """End its worker."""
        self._session.close()

    def _ask(self, header: dict[str, Any], chunks: Sequence[memoryview] = (), *, timeout: float | None = None,
             payload_limit: int = SMALL_REPLY) -> Frame:
        return self._timed(header, timeout or 2 * self._patience, chunks, payload_limit)[0]

    def _timed(self, header: dict[str, Any], timeout: float, chunks: Sequence[memoryview] = (),
               payload_limit: int = SMALL_REPLY) -> tuple[Frame, float]:
        """One exchange, and how long it took."""
        if self._worker is None:
            raise Stopped("closed", "it ended before")
        self._token += 1
        header = {"op": "time", "name": self._weights.key, "token": self._token, **header}
        began = time.monotonic()
        answer = self._worker.request(header, list(chunks), timeout=timeout, payload_limit=payload_limit)
        wall = time.monotonic() - began
        if isinstance(answer, Death):
            self._worker = None
            seen = self._session.lost(answer, self.name)
            raise Stopped(seen.status, seen.text[-500:])
        if answer.header.get("token") != self._token:
            raise Stopped("forged", "a late or repeated answer")
        error = answer.header.get("error")
        if isinstance(error, dict):
            told = reply.clean_error(error)
            raise Stopped("raised", f"{told['type']}: {told['message']} {told['place']}".strip()[:500])
        return answer, wall if math.isfinite(wall) else 0.0
