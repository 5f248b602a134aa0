"""Messages between a command and the agent while the agent acts for the command.

After the question of `socket_messages` the agent sends messages; the last one is a `Reply`. The
command sends single bytes. The agent does nothing before `GO`, so a command that is interrupted
before it has sent `GO` may say that nothing was done.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from exporter.agent.run_history import RunInHome
from exporter.agent.socket_messages import Reply

GO: Final = b"g"
"""The command has seen `RunBegins`, and takes signals as a wish to stop from now on."""
CANCEL: Final = b"c"
"""Stop at the next safe point."""
SILENCE_SECONDS: Final = 60.0
"""An agent that has said nothing for so long is given up; it says something every few seconds."""


class RunWaits(Struct, frozen=True, tag="waits"):
    """The agent is still working."""


class RunProgress(Struct, frozen=True, tag="progress"):
    """How many of the actions in a home are finished."""

    home: str
    done: int
    total: int


class RunAnnounced(Struct, frozen=True, tag="announced"):
    """Which run is about to be undone; see `run_history.Announce`."""

    chosen: list[RunInHome]
    newest: list[RunInHome]


class RunBegins(Struct, frozen=True, tag="begins"):
    """All is ready; the agent waits for `GO`."""

    run: str


RunMessage = RunWaits | RunProgress | RunAnnounced | RunBegins | Reply
