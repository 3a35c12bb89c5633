"""Errors over HTTP: one body (RFC 9457) and one table of what means which status."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from service.errors import ImageGone, SearchError, UnknownImage
from service.schemas import ALLOWED, BatchBody, SearchBody

MEDIA_TYPE = "application/problem+json"


class NotReady(SearchError):
    """The index is not open yet, or could not be opened."""

    title = "The index is not open"


class Overloaded(SearchError):
    """More requests wait than the server holds."""

    title = "Too many requests wait"

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} requests are waiting already: try again in a moment")


class BodyTooLarge(SearchError):
    """A request body beyond any use."""

    title = "The body is too large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"a body may have {limit} bytes", allowed={"maximum": limit})


_STATUS: Mapping[type[SearchError], HTTPStatus] = {
    UnknownImage: HTTPStatus.NOT_FOUND,
    ImageGone: HTTPStatus.GONE,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Overloaded: HTTPStatus.TOO_MANY_REQUESTS,
    NotReady: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Every other :class:`SearchError` is about the request itself: 422."""

_RETRY_AFTER: Mapping[type[SearchError], str] = {Overloaded: "1", NotReady: "2"}


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    kind: str = "about:blank",
    field: str | None = None,
    allowed: Any = None,
) -> dict[str, Any]:
    """Build a problem's body.

    Parameters
    ----------
    kind : str
        The problem's ``type``: where it is described, relative to the server.
    field : str, optional
        The input that was refused.
    allowed : optional
        A list of values, or a range with ``minimum`` and ``maximum``.
    """
    body: dict[str, Any] = {"type": kind, "title": title, "status": status, "detail": detail}
    if field:
        body["field"] = field
    if allowed:
        body["allowed"] = allowed
    return body


def problem_of(error: SearchError) -> dict[str, Any]:
    """Body of an error of a search."""
    status = _STATUS.get(type(error), HTTPStatus.UNPROCESSABLE_ENTITY)
    return problem(
        status,
        error.title,
        error.detail,
        kind=f"/docs#{slug(type(error))}",
        field=error.field,
        allowed=error.allowed,
    )


def slug(kind: type[SearchError]) -> str:
    """Name of a kind of error in the description of the interface."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def problem_of_validation(
    errors: Sequence[Mapping[str, Any]], known: Iterable[str] = SearchBody.model_fields
) -> dict[str, Any]:
    """Body of what pydantic refused: the first error, with its field and what is allowed.

    Parameters
    ----------
    errors : sequence of mapping
        With locations that begin with a place: ``query``, ``path`` or ``body``.
    known : iterable of str
        The fields that there are.
    """
    first = errors[0]
    place, *location = map(str, first["loc"])
    field = ".".join(location) or place
    if first["type"] == "json_invalid":
        return problem(
            422, "The body is not JSON", f"the body is not JSON: {first['ctx']['error']}", field="body"
        )
    allowed = [*known] if first["type"] == "extra_forbidden" else ALLOWED.get((*location, field)[0])
    return problem(
        422,
        "A value was refused",
        f"{field}: {first['msg'][:1].lower()}{first['msg'][1:]}",
        field=field,
        allowed=allowed,
    )


def respond(body: dict[str, Any], headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Send a problem."""
    return JSONResponse(body, body["status"], headers=headers, media_type=MEDIA_TYPE)


def _methods(request: Request) -> list[str]:
    """What a path takes: of several routes to one path the framework names the methods of the first alone."""
    routes = [
        one
        for one in request.app.routes
        if isinstance(one, Route) and one.matches(request.scope)[0] is not Match.NONE
    ]
    methods = {method for one in routes for method in one.methods or ()}
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


def install(app: FastAPI) -> None:
    """Let an application answer every error with a problem."""

    @app.exception_handler(SearchError)
    async def search_error(_: Request, error: SearchError) -> JSONResponse:
        wait = _RETRY_AFTER.get(type(error))
        return respond(problem_of(error), {"Retry-After": wait} if wait else None)

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        model = BatchBody if request.url.path.endswith("/batch") else SearchBody
        return respond(problem_of_validation(error.errors(), model.model_fields))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        if isinstance(error.__cause__, SearchError):  # FastAPI takes whatever stops a body for a bad one
            return await search_error(request, error.__cause__)
        if error.status_code == HTTPStatus.BAD_REQUEST and error.__cause__:
            return respond(
                problem(
                    422, "The body is not JSON", "the body is not JSON in UTF-8, or too deep", field="body"
                )
            )
        phrase = HTTPStatus(error.status_code).phrase
        where = f"{request.method} {request.url.path[:100]}"
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_methods(request))
        return respond(problem(error.status_code, phrase, f"{where}: {phrase.lower()}"), headers)

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, __: Exception) -> JSONResponse:
        # The server logs the traceback; a client learns nothing about the inside.
        return respond(
            problem(500, "Internal Server Error", "something failed here; the server's log says what")
        )
