"""Run the application: bind, say where, load, serve until stopped."""

from __future__ import annotations

import errno
import gc
import socket
import sys
import time
from typing import Any
from urllib.parse import urlencode

import typer
import uvicorn
from pydantic import ValidationError

from service.app import create_app
from service.search import Searcher
from service.settings import Settings

HEADER_LIMIT = 1 << 19
"""Bytes of a request's head: a GET may carry a query of the longest allowed length, percent-encoded."""


def serve_index(given: dict[str, Any]) -> int:
    """Serve an index until Ctrl-C.

    Parameters
    ----------
    given : dict
        Settings from the command line; others come from the environment.

    Returns
    -------
    status : int
        Exit status.
    """
    try:
        settings = Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        typer.echo(f"beside: BESIDE_{str(first['loc'][0]).upper()}: {first['msg']}", err=True)
        return 2
    # Between bytecodes of the searches the event loop gets its turn after a millisecond, not after five.
    sys.setswitchinterval(0.001)
    try:
        listener = bind(settings.host, settings.port)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        reason = "is in use: choose another with --port" if in_use else f"cannot be used: {error.strerror}"
        typer.echo(f"beside: port {settings.port} of {settings.host} {reason}", err=True)
        return 1
    began = time.monotonic()
    failures: list[Exception] = []

    def ready(searcher: Searcher) -> None:
        # Libraries leave a great many objects that stay. Looking through all of them for garbage, whenever enough
        # requests have come, would stop all threads meanwhile.
        gc.collect()
        gc.freeze()
        seconds = time.monotonic() - began
        facts = f"{len(searcher.index)} images, {searcher.encoder.spec.name} on {searcher.engine.device}"
        typer.echo(f"Ready after {seconds:.1f} s: {facts}. Stop with Ctrl-C. To try:")
        for query in settings.examples:
            typer.echo(f"  {query:40}  {address(listener)}/?{urlencode({'q': query})}")

    def failed(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    app = create_app(settings, on_ready=ready, on_failure=failed)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            h11_max_incomplete_event_size=HEADER_LIMIT,
            http="h11",
            timeout_graceful_shutdown=5,
        )
    )
    typer.echo(f"Beside listens on {address(listener)} and opens {settings.index} ...")
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # the way to stop it
        pass
    finally:
        listener.close()
    if failures:
        raise failures[0]
    return 0


def bind(host: str, port: int) -> socket.socket:
    """Listen, so that whoever asks while the index is opened is told to wait and not refused.

    Raises
    ------
    OSError
        The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm only where the protocol is named; else every answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(True)
    return listener


def address(listener: socket.socket) -> str:
    """Write where to point a browser."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"
