"""Calls to the worker of a home."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from exporter.discovery.homes import Home
from exporter.errors import RefusedError
from exporter.workers.cancellation import Cancellation
from exporter.workers.pool import Pool
from exporter.workers.protocol import Call

Request = TypeVar("Request")
Part = TypeVar("Part")
Reply = TypeVar("Reply")


def call(
    pool: Pool,
    home: Home,
    what: Call[Request, Part, Reply],
    request: Request,
    seconds: float = 0.0,
    *,
    progress: Callable[[int, int], None] | None = None,
    cancellation: Cancellation | None = None,
) -> Reply:
    """Send a request to the worker of this home, and end the worker if the answer is wrong or late.

    Raise RefusedError if the worker refused and did nothing. Raise WorkerError or TimeoutError if
    it is unknown what was done: the home's journal knows, and the next run finds out.
    """
    try:
        worker = pool.worker(home.owner, home.path)
        return worker.call(what, request, seconds, progress=progress, cancellation=cancellation)
    except RefusedError:
        raise  # the worker can take the next call
    except TimeoutError:
        pool.fail(home.owner, home.path, is_cause=True)
        raise
    except BaseException:
        pool.fail(home.owner, home.path, is_cause=False)  # it may be in the middle of an answer
        raise
