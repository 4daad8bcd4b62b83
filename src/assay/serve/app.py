"""The HTTP application: routes, tokens, limits. Everything that decides lies in the broker."""

# annotations are evaluated here: the framework reads those of functions made inside another one

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from assay import __version__
from assay.contract.prompt import Redaction
from assay.errors import InputError
from assay.serve.broker import Broker, Entry, Full, Stopping, tier_of_trials
from assay.serve.metrics import CONTENT_TYPE
from assay.serve.model import FarmRequest, Verdict, VerdictRequest
from assay.serve.settings import Settings, Tenant

RETRY_SECONDS = 2
PAGE_POLICY = ("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
               "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


class _Limited:
    """Refuses bodies over a limit while they come in, whatever their header says."""

    def __init__(self, app: Any, limit: int, refused: Callable[[], None]) -> None:
        self._app, self._limit, self._refused = app, limit, refused

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._limit:
            await self._refuse(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            if len(body) > self._limit:
                await self._refuse(scope, receive, send)
                return
            if not message.get("more_body"):
                break
        given = False

        async def replay() -> Any:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        await self._app(scope, replay, send)

    async def _refuse(self, scope: Any, receive: Any, send: Any) -> None:
        self._refused()
        answer = JSONResponse({"detail": f"the request is larger than {self._limit} bytes"}, 413,
                              headers={"Connection": "close"})
        await answer(scope, receive, send)


def create_app(settings: Settings | None = None, broker: Broker | None = None) -> FastAPI:
    """The application of a service.

    Args:
        settings: how it works; None for the defaults.
        broker: a broker to use, which stays open; None starts one with the application and ends it with it.
    """
    given = settings or (broker.settings if broker is not None else Settings())
    state: dict[str, Broker] = {} if broker is None else {"broker": broker}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if broker is None:
            state["broker"] = await run_in_threadpool(Broker, given)
        yield
        if broker is None:
            await run_in_threadpool(state["broker"].drain, given.drain_s)
            await run_in_threadpool(state["broker"].close)

    app = FastAPI(title="Assay", version=__version__, lifespan=lifespan,
                  description="Decides whether a generated GPU kernel is the same program as its reference.")
    app.state.brokers = state
    bearer = HTTPBearer(auto_error=False)

    def broker_of() -> Broker:
        return state["broker"]

    def asking(credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> Tenant:
        tenant = given.tenant(credentials.credentials if credentials is not None else None)
        if tenant is None:
            broker_of().metrics.refused.labels("token").inc()
            raise HTTPException(401, "no such token", headers={"WWW-Authenticate": "Bearer"})
        return tenant

    Asking = Annotated[Tenant, Depends(asking)]

    @app.middleware("http")
    async def counted(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call(request)
        route = getattr(request.scope.get("route"), "path", "other")
        broker_of().metrics.requests.labels(route, str(response.status_code)).inc()
        return response

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # what was sent is not sent back: it may be large, and is nobody else's business
        told = [{"where": ".".join(map(str, e["loc"])), "what": e["msg"]} for e in error.errors()[:10]]
        return JSONResponse({"detail": told}, 422)

    async def taken(request: VerdictRequest, tenant: Tenant) -> Entry:
        try:
            return await run_in_threadpool(broker_of().submit, request, tenant)
        except InputError as error:
            broker_of().metrics.refused.labels("input").inc()
            raise HTTPException(422, " ".join(str(error).split())[:2000]) from None
        except Full as error:
            broker_of().metrics.refused.labels("full").inc()
            raise HTTPException(429, str(error), headers={"Retry-After": str(RETRY_SECONDS)}) from None
        except Stopping:
            raise HTTPException(503, "the service is going down", headers={"Retry-After": "30"}) from None

    async def settled(entry: Entry, seconds: float) -> None:
        if seconds > 0 and not entry.future.done():
            waiting = asyncio.wrap_future(entry.future)
            await asyncio.wait([waiting], timeout=seconds)

    def found(id: str) -> Entry:
        entry = broker_of().find(id)
        if entry is None:
            raise HTTPException(404, "no such verdict, or no longer: ask again with the sources")
        return entry

    @app.post("/v1/verdicts", response_model=Verdict, response_model_exclude_none=True)
    async def submit(request: VerdictRequest, tenant: Asking, response: Response) -> Verdict:
        """Decide a candidate. The same request again is the same verdict; its id may be asked for later."""
        entry = await taken(request, tenant)
        await settled(entry, request.wait)
        if not entry.future.done():
            response.status_code = 202
        return broker_of().answer(entry, tenant, request.redaction)

    @app.get("/v1/verdicts/{id}", response_model=Verdict, response_model_exclude_none=True)
    async def look(id: str, tenant: Asking, wait: Annotated[float, Query(ge=0, le=300)] = 0.0,
                   redaction: Redaction | None = None, report: bool = False) -> Verdict:
        """Where a verdict stands; with `wait`, after at most so many seconds."""
        entry = found(id)
        await settled(entry, wait)
        return broker_of().answer(entry, tenant, redaction, report)

    @app.delete("/v1/verdicts/{id}", response_model=Verdict, response_model_exclude_none=True)
    async def cancel(id: str, tenant: Asking) -> Verdict:
        """Take back a request; what others asked for as well goes on."""
        entry = found(id)
        if not await run_in_threadpool(broker_of().cancel, id, tenant):
            raise HTTPException(409, f"it is {broker_of().status(entry)}")
        return broker_of().answer(entry, tenant)

    @app.get("/v1/overview")
    async def overview(tenant: Asking) -> dict[str, Any]:
        """Queue, judges and the last verdicts."""
        return broker_of().overview()

    @app.post("/evaluate")
    async def evaluate(request: FarmRequest, tenant: Asking) -> dict[str, Any]:
        """The request of kernel farms: decided, and answered in their words. Nothing is timed here."""
        asked = VerdictRequest(reference=request.reference_code, candidate=request.kernel_code,
                               entry=request.entry_point, timeout=request.timeout,
                               tier=tier_of_trials(request.num_correct_trials).value)
        entry = await taken(asked, tenant)
        await settled(entry, request.timeout + 60.0)
        told = broker_of().answer(entry, tenant)
        right = told.label == "contract"
        return {"task_id": request.task_id or told.id,
                "status": {"done": "completed", "queued": "timeout", "running": "timeout"}.get(told.status, "failed"),
                "compiled": told.label is not None and told.stage != "never_ran", "correctness": right,
                "speedup": None, "reward": told.reward,
                "error_message": None if right else told.problem or told.feedback,
                "metadata": {"id": told.id, "label": told.label, "scope": told.scope, "gates": told.gates}}

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether it answers; no token needed."""
        return {"status": "stopping" if broker_of().stopping else "ok", "version": __version__}

    @app.get("/metrics")
    async def metrics(tenant: Asking) -> Response:
        """Numbers for Prometheus."""
        seen, numbers = broker_of().overview(), broker_of().metrics
        numbers.waiting.set(seen["waiting"])
        numbers.running.set(len(seen["running"]))
        numbers.workers.set(seen["workers"])
        numbers.lost.set(seen["lost_judges"])
        return Response(numbers.text(), media_type=CONTENT_TYPE)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> HTMLResponse:
        """Queue, judges and verdicts, for people."""
        text = resources.files("assay.serve").joinpath("page.html").read_text(encoding="utf-8")
        return HTMLResponse(text, headers={"Content-Security-Policy": PAGE_POLICY, "Referrer-Policy": "no-referrer",
                                           "X-Content-Type-Options": "nosniff"})

    def refused() -> None:
        broker_of().metrics.refused.labels("size").inc()

    app.add_middleware(_Limited, limit=given.body_bytes, refused=refused)
    return app
