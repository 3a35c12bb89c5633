"""Errors over HTTP: one body (RFC 9457) and one table of what means which status."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from service.errors import ImageGone, SearchError, UnknownImage

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
    slug = re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()
    status = _STATUS.get(type(error), HTTPStatus.UNPROCESSABLE_ENTITY)
    return problem(
        status, error.title, error.detail, kind=f"/docs#{slug}", field=error.field, allowed=error.allowed
    )


def problem_of_validation(errors: list[dict[str, Any]]) -> dict[str, Any]:
    """Body of what pydantic refused: the first error, with its field and what is allowed."""
    first = errors[0]
    location = [str(part) for part in first["loc"] if part not in {"query", "body", "path"}]
    # A field may be named as its place is ("query" in the query): the last part is the field then.
    field = ".".join(location) or str((*first["loc"], "body")[0])
    if first["type"] == "json_invalid":
        return problem(
            422, "The body is not JSON", f"the body is not JSON: {first['ctx']['error']}", field="body"
        )
    context = first.get("ctx", {})
    allowed: Any = {
        name: context[key] for key, name in (("ge", "minimum"), ("le", "maximum")) if key in context
    }
    if first["type"] == "enum" or first["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
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


def install(app: FastAPI) -> None:
    """Let an application answer every error with a problem."""

    @app.exception_handler(SearchError)
    async def search_error(_: Request, error: SearchError) -> JSONResponse:
        wait = _RETRY_AFTER.get(type(error))
        return respond(problem_of(error), {"Retry-After": wait} if wait else None)

    @app.exception_handler(RequestValidationError)
    async def validation_error(_: Request, error: RequestValidationError) -> JSONResponse:
        return respond(problem_of_validation(list(error.errors())))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        phrase = HTTPStatus(error.status_code).phrase
        where = f"{request.method} {request.url.path[:100]}"
        return respond(problem(error.status_code, phrase, f"{where}: {phrase.lower()}"), error.headers)

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, __: Exception) -> JSONResponse:
        # The server logs the traceback; a client learns nothing about the inside.
        return respond(
            problem(500, "Internal Server Error", "something failed here; the server's log says what")
        )
