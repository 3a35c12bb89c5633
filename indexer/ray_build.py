"""Decoding and encoding on a Ray cluster; everything else of a build stays where the index is.

Actors hold an encoder each and decode with the same processes and watchdog as a local build. What they return is what
the local encoder returns, in the order asked for, so the index that comes out is the local one. Ray starts an actor
that died again and gives it its batch once more; a batch is only taken once it has arrived. The machines must see the
pictures under the same paths.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from indexer.decode import Decoded, DecodeJob, DecodeSetup
from indexer.encoder import Encoder
from indexer.errors import IndexerError
from indexer.pipeline import DecodePool
from indexer.scan import ScannedFile
from indexer.stream import Encoded, Jobs

LOCAL = "local"


class RayUnavailable(IndexerError):
    """Ray is not installed, or there is no cluster at the address."""


class RayEncoding:
    """Encodes on a Ray cluster, in place of the local encoder.

    Parameters
    ----------
    load : callable
        Makes the encoder in an actor; pickled, so a function or class that the machines can import.
    address : str
        Of a cluster; ``auto`` for the one this machine belongs to; ``local`` for one of this process alone.
    actors : int
        Encoders at work at a time.
    workers : int
        Decoding processes of each.
    gpus : float
        Of each actor.
    """

    def __init__(
        self,
        load: Callable[[], Encoder],
        *,
        address: str = "auto",
        actors: int = 1,
        workers: int = 1,
        gpus: float = 0,
    ) -> None:
        self._load = load
        self._address = address
        self._actors, self._workers, self._gpus = actors, workers, gpus

    def __call__(self, jobs: Jobs, setup: DecodeSetup, batch: int) -> Generator[Encoded, None, None]:
        """Yield every file with what became of it, in order.

        Raises
        ------
        RayUnavailable
        """
        with connected(self._address) as ray:
            yield from self._run(ray, jobs, setup, batch)

    def _run(self, ray: Any, jobs: Jobs, setup: DecodeSetup, batch: int) -> Generator[Encoded, None, None]:
        waiting: list[tuple[ScannedFile, DecodeJob]] = []
        for file, job in jobs:
            if job is None:
                yield Encoded(file)
            else:
                waiting.append((file, job))
        if not waiting:
            return
        files = [file for file, _ in waiting]
        items = [{"row": row, "job": pickle.dumps(job)} for row, (_, job) in enumerate(waiting)]
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        # Ray Data starts actors that died again, without end, and hands their batches out once more.
        encoded = ray.data.from_items(items, override_num_blocks=-(-len(items) // batch)).map_batches(
            _Actor,
            batch_size=batch,
            compute=ray.data.ActorPoolStrategy(size=self._actors),
            fn_constructor_args=(self._load, setup, self._workers),
            num_cpus=1,
            num_gpus=self._gpus or None,
        )
        for row in encoded.iter_rows():
            decoded, pooled, tokens = pickle.loads(row["result"])
            yield Encoded(files[int(row["row"])], decoded, pooled, tokens)


class _Actor:
    """An encoder with its decoding processes, on some machine of the cluster."""

    def __init__(self, load: Callable[[], Encoder], setup: DecodeSetup, workers: int) -> None:
        self._encoder = load()
        self._pool = DecodePool(setup, workers)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        jobs: list[DecodeJob] = [pickle.loads(job) for job in batch["job"]]
        decoded = [future.result() for future in [self._pool.submit(job) for job in jobs]]
        vectors = _encode(self._encoder, decoded)
        results = [
            pickle.dumps((replace(one, pixels=None), *vectors.get(row, (None, None))))
            for row, one in enumerate(decoded)
        ]
        return {"row": batch["row"], "result": np.array(results, dtype=object)}


def _encode(encoder: Encoder, decoded: Sequence[Decoded]) -> dict[int, tuple[Any, Any]]:
    rows = [row for row, one in enumerate(decoded) if one.pixels is not None]
    if not rows:
        return {}
    features = encoder.encode_images([one.pixels for one in decoded if one.pixels is not None])
    return {
        row: (pooled, tokens)
        for row, pooled, tokens in zip(rows, features.pooled, features.tokens, strict=True)
    }


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster; let go of afterwards unless this process was connected before.

    Raises
    ------
    RayUnavailable
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray  # noqa: PLC0415  an extra
        import ray.data  # noqa: PLC0415
    except ImportError as error:
        raise RayUnavailable("Ray is not installed", fix="Run: pip install 'beside[ray]'") from error
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == LOCAL:
        # Loopback alone, and this process's own import path: nothing that the machine offers to others.
        path = {"PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}  # noqa: PTH109
        options |= {
            "_node_ip_address": "127.0.0.1",
            "include_dashboard": False,
            "runtime_env": {"env_vars": path},
        }
    try:
        ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RayUnavailable(
            f"no Ray cluster at {address!r}",
            came=str(error).splitlines()[0],
            fix="Start one: ray start --head",
        ) from error
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    try:
        yield ray
    finally:
        ray.shutdown()
