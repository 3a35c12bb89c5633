"""How a server is set up: the environment (``BESIDE_...``), overridden by the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Settings of a server. Facts about the index are not among them: those come from its manifest."""

    model_config = SettingsConfigDict(env_prefix="BESIDE_", frozen=True)

    index: Path
    """The index folder."""
    images: Path | None = None
    """Where the pictures are now, if not where they were indexed."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    pretrained: str | None = None
    """Where the encoder's weights are now, if not where they were."""
    texts: Literal["torch", "onnx"] = "torch"
    """What embeds texts. ``onnx`` is faster on a CPU, needs the extra of that name, and rounds otherwise."""
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    workers: int = Field(default=1, ge=1, le=64)
    """Threads that search. One is best: it answers together what waits, and a scan takes all cores by itself."""
    examples: tuple[str, ...] = (
        "a cup to the left of a laptop",
        "a kite above a person",
        "a dog on the left",
    )
    """Queries to try, for the page and the terminal; as JSON in ``BESIDE_EXAMPLES``."""
    reload_seconds: float = Field(default=2.0, ge=0)
    """How often to look whether the index was built anew, which is then served without a pause; 0 for never."""
    queue: int = Field(default=128, ge=0)
    """Requests that may wait; more are told to come back (429)."""
