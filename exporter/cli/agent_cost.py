"""What a running agent costs its host, for `check`: the question of everyone who installs an agent.

psutil adds it up here, in the command: the agent itself stays as small as it is.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import psutil


class AgentCost(NamedTuple):
    """The agent with all its processes."""

    processes: int
    memory_bytes: int
    """Of memory that processes share, each counts its part (PSS)."""
    core_share: float
    """Processor time since the agent started, as a share of one core."""
    age_seconds: float


def cost_of(pid: int | None) -> AgentCost | None:
    """Return what the agent with this PID costs; None if this user may not see it."""
    if pid is None:
        return None
    try:
        agent = psutil.Process(pid)
        family = [agent, *agent.children(recursive=True)]
        memory = sum(each.memory_full_info().pss for each in family)
        times = [each.cpu_times() for each in family]
        age = max(1.0, time.time() - agent.create_time())
    except (psutil.Error, AttributeError):  # it ended, is another user's, or the system has no PSS
        return None
    # Workers that have ended count with the agent, which waited for them.
    agent_times = times[0]
    spent = sum(each.user + each.system for each in times)
    spent += agent_times.children_user + agent_times.children_system
    return AgentCost(len(family), memory, spent / age, age)
