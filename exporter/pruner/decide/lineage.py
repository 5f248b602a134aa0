"""How sessions belong together: conversations, and the delegates that worked for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from exporter.pruner.decide.inventory import InventorySession, ParentLink

_ONE_CONVERSATION = (ParentLink.COMPRESSION, ParentLink.BRANCH)


class Lineages:
    """The conversations of a home.

    A conversation is a session and all sessions that compression or branching links to it. Single
    sessions, nearly all of them, take no memory here.
    """

    def __init__(self, sessions: Iterable[InventorySession]) -> None:
        self._sessions = {session.id: session for session in sessions}
        self._children: dict[str, list[InventorySession]] = {}
        self._root: dict[str, str] = {}
        for session in self._sessions.values():
            parent = self.parent(session)
            if parent is None:
                continue
            self._children.setdefault(parent.id, []).append(session)
            if session.link in _ONE_CONVERSATION:
                self._tie(session.id, parent.id)
        self._conversations: dict[str, list[InventorySession]] = {}
        for session_id in self._root:
            members = self._conversations.setdefault(self._find(session_id), [])
            members.append(self._sessions[session_id])

    def _tie(self, one: str, other: str) -> None:
        for session_id in (one, other):
            self._root.setdefault(session_id, session_id)
        self._root[self._find(one)] = self._find(other)

    def _find(self, session_id: str) -> str:
        root = session_id
        while self._root[root] != root:
            root = self._root[root]
        while self._root[session_id] != root:
            self._root[session_id], session_id = root, self._root[session_id]
        return root

    def parent(self, session: InventorySession) -> InventorySession | None:
        """Return the parent that a session names, if it is in the database and not itself."""
        if session.parent_id is None or session.parent_id == session.id:
            return None
        return self._sessions.get(session.parent_id)

    def children(self, session: InventorySession) -> Sequence[InventorySession]:
        return self._children.get(session.id, ())

    def conversation(self, session: InventorySession) -> Sequence[InventorySession]:
        """Return the whole conversation of a session; often the session alone."""
        if session.id not in self._root:
            return (session,)
        return self._conversations[self._find(session.id)]

    def conversations(self) -> Iterator[Sequence[InventorySession]]:
        """Yield every conversation once."""
        for session in self._sessions.values():
            if session.id not in self._root:
                yield (session,)
        yield from self._conversations.values()

    def with_delegates(self, conversation: Sequence[InventorySession]) -> list[InventorySession]:
        """Return a conversation and what is deleted with it, children before parents.

        That is its delegates, their conversations, and so on.
        """
        if len(conversation) == 1 and conversation[0].id not in self._children:
            return [conversation[0]]
        found: dict[str, InventorySession] = {}
        todo = list(conversation)
        while todo:
            session = todo.pop()
            if session.id in found:
                continue
            found[session.id] = session
            todo.extend(self.conversation(session))
            todo.extend(each for each in self.children(session) if each.link is ParentLink.DELEGATE)
        return _children_first(found)


def _children_first(sessions: dict[str, InventorySession]) -> list[InventorySession]:
    depths: dict[str, int] = {}
    for session_id in sessions:
        depth, at, seen = 0, sessions[session_id].parent_id, {session_id}
        while at is not None and at in sessions and at not in seen:
            if at in depths:
                depth += depths[at] + 1
                break
            seen.add(at)
            depth, at = depth + 1, sessions[at].parent_id
        depths[session_id] = depth
    return sorted(sessions.values(), key=lambda each: (-depths[each.id], each.id))
