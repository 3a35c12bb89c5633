"""The HTTP application: one searcher behind ``/v1``, health, and the page.

The application listens before the index is open: ``/livez`` answers at once, ``/readyz`` says why not yet,
and a search is told when to come back. Work runs in threads, so the event loop always has time to answer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from indexer.images import THUMBNAIL_MEDIA_TYPE
from parser import SAYINGS
from service import problems
from service.errors import NotOffered, SearchError
from service.facts import brief_facts, index_facts
from service.pictures import THUMBNAIL_SIDES
from service.problems import MEDIA_TYPE, BodyTooLarge, NotReady, problem_of, problem_of_validation, respond
from service.query import K_RANGE, QUERY_LIMIT, SearchRequest
from service.results import SearchResult
from service.schemas import (
    BATCH_LIMIT,
    BatchAnswer,
    BatchBody,
    PictureModel,
    Problem,
    SearchAnswer,
    SearchBody,
    one_query,
    search_parameters,
)
from service.search import Searcher
from service.settings import Settings
from service.work import Together, Workers

_LOG = logging.getLogger(__name__)
STATIC = Path(__file__).parent / "static"
BODY_LIMIT = 4 << 20

# Everything the page needs comes from this server; a file name that holds markup stays text.
_SECURITY = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_MEDIA_TYPES = {
    "JPEG": "image/jpeg",
    "MPO": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "TIFF": "image/tiff",
    "BMP": "image/bmp",
    "AVIF": "image/avif",
    "HEIF": "image/heic",
    "JPEG2000": "image/jp2",
}


class Holder:
    """Holds the searcher from the moment it is open, and swaps it for that of a newer index."""

    def __init__(self) -> None:
        self.reason = "the index is being opened"
        self._searcher: Searcher | None = None

    @property
    def searcher(self) -> Searcher:
        """The open searcher.

        Raises
        ------
        NotReady
        """
        if self._searcher is None:
            raise NotReady(self.reason)
        return self._searcher

    def open(self, open_searcher: Callable[[], Searcher]) -> None:
        """Open it, or keep the reason why not."""
        try:
            self._searcher = open_searcher()
        except Exception as error:
            self.reason = f"the index could not be opened: {error}"
            raise

    def follow(self, stop: threading.Event, seconds: float) -> None:
        """Look for a newer index every so many seconds. Requests under way keep the one they began with."""
        told = ""
        while not stop.wait(seconds):
            if self._searcher is None:
                continue
            try:
                self._searcher = self._searcher.reopened() or self._searcher
                told = ""
            except Exception as error:  # whatever is wrong with the new one, the old one answers
                if told != str(error):
                    _LOG.warning(
                        "the index has changed and cannot be opened; the old one is served on: %s", error
                    )
                told = str(error)


def create_app(
    settings: Settings,
    *,
    open_searcher: Callable[[], Searcher] | None = None,
    on_ready: Callable[[Searcher], None] = lambda _: None,
    on_failure: Callable[[Exception], None] = lambda _: None,
) -> FastAPI:
    """Build the application; nothing is opened before it starts.

    Parameters
    ----------
    settings : Settings
    open_searcher : callable, optional
        What opens the index; by default :meth:`Searcher.open` with the settings.
    on_ready, on_failure : callable
        Told once, from another thread, when the searcher is open or cannot be.
    """
    holder = Holder()

    def open_from_settings() -> Searcher:
        return Searcher.open(
            settings.index,
            device=settings.device,
            pretrained=settings.pretrained,
            images=settings.images,
            onnx_texts=settings.texts == "onnx",
        )

    def open_and_tell() -> None:
        try:
            holder.open(open_searcher or open_from_settings)
        except Exception as error:
            on_failure(error)
        else:
            on_ready(holder.searcher)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.holder = holder
        app.state.started = time.time()
        app.state.asking = Together("ask", threads=settings.workers, queue=settings.queue)
        app.state.searches = Workers("search", threads=settings.workers, queue=settings.queue)
        app.state.pictures = Workers("picture", threads=settings.workers, queue=settings.queue)
        # A daemon: whoever stops the server while it loads does not wait for the load.
        threading.Thread(target=open_and_tell, name="open", daemon=True).start()
        stop = threading.Event()
        if settings.reload_seconds:
            follower = threading.Thread(
                target=holder.follow, args=(stop, settings.reload_seconds), name="follow", daemon=True
            )
            follower.start()
        yield
        stop.set()
        app.state.asking.close()
        app.state.searches.close()
        app.state.pictures.close()

    app = FastAPI(
        title="Beside",
        summary="Find photographs by what stands where.",
        version=_version(),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    problems.install(app)
    _add_searches(app)
    _add_pictures(app)
    _add_health(app, settings)
    _add_pages(app)
    build = app.build_middleware_stack
    # Around all else: an answer to a failure inside goes out past what add_middleware adds.
    app.build_middleware_stack = lambda: Guard(build())  # type: ignore[method-assign]
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _add_searches(app: FastAPI) -> None:
    answers: dict[int | str, dict[str, Any]] = {200: {"model": SearchAnswer}}

    async def answer(request: Request, asked: SearchRequest) -> JSONResponse:
        searcher: Searcher = request.app.state.holder.searcher
        result = await request.app.state.asking.ask(searcher.answer, asked)
        if isinstance(result, SearchError):
            raise result
        return JSONResponse(_result(searcher, result))

    # FastAPI would look for the fields of the model anew at each request.
    @app.get(
        "/v1/search",
        response_model=None,
        responses=answers,
        tags=["search"],
        openapi_extra={"parameters": search_parameters()},
    )
    async def search(request: Request) -> JSONResponse:
        """Search by text."""
        try:
            given: dict[str, Any] = dict(request.query_params)
            if "where" in given:
                given["where"] = request.query_params.getlist("where")
            asked = SearchBody.model_validate(given)
        except ValidationError as error:
            raise RequestValidationError(
                [{**one, "loc": ("query", *one["loc"])} for one in error.errors()]
            ) from None
        return await answer(request, asked.to_request())

    @app.post("/v1/search", response_model=None, responses=answers, tags=["search"])
    async def search_by_body(request: Request, asked: SearchBody) -> JSONResponse:
        """Search by text; the query may be longer than an address."""
        return await answer(request, asked.to_request())

    @app.post(
        "/v1/search/batch", response_model=None, responses={200: {"model": BatchAnswer}}, tags=["search"]
    )
    async def search_batch(request: Request, batch: BatchBody) -> JSONResponse:
        """Answer several queries together; one that is refused does not stop the others."""
        searcher: Searcher = request.app.state.holder.searcher
        items = [_item(item) for item in batch.queries]
        asked = [item for item in items if isinstance(item, SearchRequest)]
        answered = iter(await request.app.state.searches.run(searcher.answer, asked))
        results = []
        for item in items:
            one = next(answered) if isinstance(item, SearchRequest) else item
            if isinstance(one, SearchError):
                one = problem_of(one)
            results.append(_result(searcher, one) if isinstance(one, SearchResult) else {"error": one})
        return JSONResponse({"results": results})

    @app.get("/v1/parse", tags=["search"])
    async def parse(request: Request, q: str | None = None, query: str | None = None) -> JSONResponse:
        """Show how a query is read."""
        searcher: Searcher = request.app.state.holder.searcher
        parsed = await request.app.state.searches.run(searcher.parse, one_query(q, query))
        return JSONResponse(parsed.to_dict() | {"frame": "viewer"})

    @app.get("/v1/relations", tags=["search"])
    async def relations() -> JSONResponse:
        """List what can be said."""
        return JSONResponse({"frame": "viewer", "relations": [asdict(saying) for saying in SAYINGS]})


def _add_pictures(app: FastAPI) -> None:
    @app.get(
        "/v1/images/{image_id}",
        response_model=None,
        responses={200: {"model": PictureModel}},
        tags=["pictures"],
    )
    async def picture(request: Request, image_id: str) -> JSONResponse:
        """Say what the index knows about a picture."""
        found = request.app.state.holder.searcher.pictures[image_id]
        here = f"/v1/images/{found.id}"
        return JSONResponse(found.to_dict() | {"file": f"{here}/file", "thumb": f"{here}/thumb"})

    @app.get("/v1/images/{image_id}/file", response_class=FileResponse, tags=["pictures"])
    async def file(request: Request, image_id: str) -> Response:
        """Send the original file."""
        pictures = request.app.state.holder.searcher.pictures
        found = pictures[image_id]
        original = await request.app.state.pictures.run(pictures.read, found)
        media_type = _MEDIA_TYPES.get(found.format or "", "application/octet-stream")
        headers = {"cache-control": "private, no-cache"}
        if isinstance(original, bytes):
            return Response(original, media_type=media_type, headers=headers)
        return FileResponse(original, media_type=media_type, headers=headers)

    @app.get("/v1/images/{image_id}/thumb", response_class=Response, tags=["pictures"])
    async def thumb(
        request: Request,
        image_id: str,
        side: Annotated[int, Query(description="Longest side in pixels.")] = THUMBNAIL_SIDES[1],
    ) -> Response:
        """Send a small JPEG, upright and without metadata."""
        if side not in THUMBNAIL_SIDES:
            raise NotOffered("side", side, THUMBNAIL_SIDES)
        pictures = request.app.state.holder.searcher.pictures
        found = pictures[image_id]
        tag = f'"{(found.content_hash or found.id)[:32]}-{side}"'
        headers = {"etag": tag, "cache-control": "private, max-age=300"}
        if request.headers.get("if-none-match") == tag:
            await request.app.state.pictures.run(pictures.find, found)  # gone is gone, copy or not
            return Response(status_code=304, headers=headers)
        made = await request.app.state.pictures.run(pictures.thumbnail, found, side)
        return Response(made, media_type=THUMBNAIL_MEDIA_TYPE, headers=headers)


def _add_health(app: FastAPI, settings: Settings) -> None:
    @app.get("/livez", tags=["health"])
    async def livez() -> JSONResponse:
        """Answer while the process lives."""
        return JSONResponse({"status": "alive"})

    @app.get("/readyz", tags=["health"])
    async def readyz(request: Request) -> JSONResponse:
        """Answer 200 when searches are answered, 503 with the reason before."""
        _ = request.app.state.holder.searcher
        return JSONResponse({"status": "ready"})

    @app.get("/v1/info", tags=["health"])
    async def info(request: Request) -> JSONResponse:
        """Say what is served."""
        searcher: Searcher = request.app.state.holder.searcher
        return JSONResponse(
            {
                "version": _version(),
                "frame": "viewer",
                "index": index_facts(searcher.index.manifest),
                "engine": {"device": searcher.engine.device, "texts": settings.texts},
                "text_cache": asdict(searcher.texts.facts()),
                "uptime_s": round(time.time() - request.app.state.started, 1),
                "examples": list(settings.examples),
                "limits": {
                    "k": {"minimum": K_RANGE[0], "maximum": K_RANGE[1]},
                    "query_characters": QUERY_LIMIT,
                    "batch": BATCH_LIMIT,
                    "waiting": settings.queue,
                },
            }
        )


def _add_pages(app: FastAPI) -> None:
    revalidate = {"cache-control": "no-cache"}

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers=revalidate)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html", headers=revalidate)

    app.mount("/static", StaticFiles(directory=STATIC), name="static")


class Guard:
    """Adds the security headers, refuses bodies beyond :data:`BODY_LIMIT`, announced or not, and answers HEAD.

    HEAD is GET to the application; the server sends no body to who did not ask for one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > BODY_LIMIT:
                raise BodyTooLarge(BODY_LIMIT)
            return message

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), value.encode()) for name, value in _SECURITY.items()),
                ]
            await send(message)

        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > BODY_LIMIT:
            await respond(problem_of(BodyTooLarge(BODY_LIMIT)))(scope, receive, secured)
            return
        await self._app(scope, counted, secured)


def _item(item: Any) -> SearchRequest | SearchError | dict[str, Any]:
    """One item of a batch: a request, or why it is none."""
    try:
        return SearchBody.model_validate({"query": item} if isinstance(item, str) else item).to_request()
    except ValidationError as error:
        return problem_of_validation([{**one, "loc": ("body", *one["loc"])} for one in error.errors()])
    except SearchError as error:
        return error


def _result(searcher: Searcher, result: SearchResult) -> dict[str, Any]:
    return result.to_dict() | {"index": brief_facts(searcher.index.manifest)}


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Describe the interface, errors included."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        schemas = schema["components"]["schemas"]
        schemas["Problem"] = Problem.model_json_schema()
        schemas.pop("HTTPValidationError", None)
        schemas.pop("ValidationError", None)
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = {"description": "A problem.", "content": content}
                if path.endswith(("/file", "/thumb")):
                    operation["responses"]["200"] = {
                        "description": "The picture.",
                        "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}},
                    }
        app.openapi_schema = schema
    return app.openapi_schema


def _version() -> str:
    try:
        return version("beside")
    except PackageNotFoundError:  # run from a checkout
        return "0+unknown"
