"""Calling the worker of a home."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from exporter.discovery.homes import Home
from exporter.errors import RefusedError
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
) -> Reply:
    """Ask the worker of this home, and end it if it does not answer as it should.

    Raise RefusedError if nothing was done for a reason, WorkerError or TimeoutError if what was
    done is not known: the home's journal knows, and the next run finds out.
    """
    try:
        worker = pool.worker(home.owner, home.path)
        return worker.call(what, request, seconds, progress=progress)
    except RefusedError:
        raise  # it is fit for the next call
    except TimeoutError:
        pool.fail(home.owner, home.path, apart=True)
        raise
    except BaseException:
        pool.fail(home.owner, home.path, apart=False)  # it may be in the middle of an answer
        raise
