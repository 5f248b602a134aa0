"""What a worker is asked about a home besides reading it, and how it answers.

Loaded only when the first such request comes. To plan is asked of it every few minutes; what acts
on a home is in `exporter.workers.deeds`, and loaded when something is to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import structs

from exporter.errors import HomeError
from exporter.pruner import planning as pruning
from exporter.pruner.models import PruneMemory
from exporter.pruner.orders import PlanOrder
from exporter.runs.folder import RunBusyError
from exporter.workers import protocol
from exporter.workers.home import WorkerHome

_MEMORY_BYTES_MAX: Final = 700_000


def answer(
    request: protocol.Errand, reader: WorkerHome, tell: Callable[[protocol.Reply], None]
) -> Iterator[protocol.Reply]:
    """The replies to a request, the one that ends them last; `tell` sends one at once."""
    try:
        if isinstance(request, protocol.PlanPruneRequest):
            yield from _plan_prune(msgspec.json.decode(request.order, type=PlanOrder), reader)
        else:
            from exporter.workers import deeds

            yield from deeds.answer(request, reader, tell)
    except RunBusyError as error:
        yield protocol.Refusal(str(error)[:300], busy=True)
    except HomeError as error:
        yield protocol.Refusal(str(error)[:300])


def _plan_prune(order: PlanOrder, reader: WorkerHome) -> Iterator[protocol.Reply]:
    planned = pruning.plan(order, reader)
    for page in protocol.pages(planned.plan.actions):
        yield protocol.PruneActionsPage(list(page))
    yield protocol.PlanPruneReply(
        structs.replace(planned.plan, actions=()),
        planned.report,
        _fitting(planned.memory),
        msgspec.Raw(msgspec.json.encode(planned.pressure)),
    )


def _fitting(memory: PruneMemory) -> PruneMemory:
    """As much of it as fits into a frame; what is forgotten is only waited for once more."""
    while len(msgspec.json.encode(memory)) > _MEMORY_BYTES_MAX:
        memory = structs.replace(
            memory,
            missing=dict(list(memory.missing.items())[: len(memory.missing) // 2]),
            strangers=dict(list(memory.strangers.items())[: len(memory.strangers) // 2]),
        )
    return memory
