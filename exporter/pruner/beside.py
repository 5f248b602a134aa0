"""The processes that may have a session in memory when it is pruned: its trash waits for them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, structs

from exporter.evidence.liveness import read_boot_time
from exporter.evidence.models import Holder, ProcessKey
from exporter.hermes.home_facts import has_plugin_folders, read_config, read_host_config
from exporter.reaper.possible_hosts import HostClass, class_of


class ProcessesAtPrune(Struct, frozen=True):
    """The processes that may have had a session in memory when it was deleted."""

    boot_id: str
    monotonic: float
    """When that was; it stands still while the host sleeps."""
    chats: tuple[ProcessKey, ...] = ()
    """Also programs of unknown kind."""
    servers: tuple[ProcessKey, ...] = ()
    server_seconds: float | None = None
    """How long to wait for a server; None: until it ends."""

    @classmethod
    def of(cls, holders: Iterable[Holder], server_seconds: float | None) -> ProcessesAtPrune | None:
        """Return the processes that a survey found; None if there are none."""
        lines = [(each.key, class_of(each)) for each in holders]
        servers = tuple(key for key, line in lines if line is HostClass.SERVER)
        chats = tuple(
            key for key, line in lines if line not in (HostClass.SERVER, HostClass.CLEARED)
        )
        if not servers and not chats:
            return None
        moment = read_boot_time()
        return cls(moment.boot_id, moment.monotonic, chats, servers, server_seconds)


def with_plugins(beside: ProcessesAtPrune | None, home: str) -> ProcessesAtPrune | None:
    """Plugins run agents in any process: with them a server may have what a chat may have."""
    if beside is None:
        return None
    enabled = read_config(home).enables_plugins or read_host_config().enables_plugins
    if not enabled and not has_plugin_folders(home):
        return beside
    return structs.replace(beside, chats=(*beside.chats, *beside.servers), servers=())
