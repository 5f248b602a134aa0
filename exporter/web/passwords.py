"""Basic authentication: bcrypt in a thread of its own, one check at a time.

bcrypt makes one check as slow as hundreds of scrapes. So:

- results are remembered, and a scraper with the right password never waits;
- the thread checks for each address in turn, so a client that guesses delays only itself;
- few checks may wait. If there are too many, the address with the most loses its oldest one, which
  is answered with 503.

A user that does not exist costs as much time as one that does. Passwords are not kept, only keyed
hashes of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

WAITING_MAX: Final = 64
"""Checks that wait; far fewer than connections, so that they never take all connections."""
_REMEMBERED_MAX: Final = 100
_PASSWORD_BYTES: Final = 72
"""bcrypt ignores the rest of a password."""
_SALT_AND_HASH = "abcdefghijklmnopqrstuuUA9EBlyZ0mEVBNKNOkkKM3nxDbeiq/G"
"""The last part of a valid hash that belongs to no user."""

Checker = Callable[[bytes, bytes], bool]
"""Compares a password with a hash."""


class TooBusyError(Exception):
    """Too many checks wait; the client should try again."""


@dataclass(slots=True)
class _Check:
    key: bytes
    password: bytes
    hashed: bytes
    exists: bool
    answer: asyncio.Future[bool]


class PasswordChecker:
    """Says whether user and password are right."""

    def __init__(self, checker: Checker | None = None) -> None:
        self._checker = checker or _bcrypt_check
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        """In a dict of their own: guesses must not displace right passwords."""
        self._waiting: OrderedDict[str, deque[_Check]] = OrderedDict()
        """By address; the first is next in turn."""
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None

    def remembered(self, users: Mapping[str, str], user: str, password: bytes) -> bool | None:
        """Return the answer of an earlier check; None if there is none."""
        key = self._key(user, users.get(user, ""), password)
        for answer, memory in ((True, self._right), (False, self._wrong)):
            if key in memory:
                memory.move_to_end(key)
                return answer
        return None

    def check(
        self, users: Mapping[str, str], user: str, password: bytes, address: str
    ) -> asyncio.Future[bool]:
        """Return a future with the answer; TooBusyError if the check was dropped."""
        hashed = users.get(user, "")
        check = _Check(
            self._key(user, hashed, password),
            password[:_PASSWORD_BYTES],
            (hashed or self._hash_for_unknown(users, user)).encode(),
            bool(hashed),
            asyncio.get_running_loop().create_future(),
        )
        with self._lock:
            self._waiting.setdefault(address, deque()).append(check)
            if sum(map(len, self._waiting.values())) > WAITING_MAX:
                self._drop_one()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="passwords", daemon=True)
                self._thread.start()
            self._lock.notify()
        return check.answer

    def _drop_one(self) -> None:
        """Drop the oldest check of the address that has most; the caller holds the lock."""
        address = max(self._waiting, key=lambda each: len(self._waiting[each]))
        oldest = self._waiting[address].popleft()
        if not self._waiting[address]:
            del self._waiting[address]
        if not oldest.answer.done():
            oldest.answer.set_exception(TooBusyError())

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._waiting:
                    self._lock.wait()
                address, checks = self._waiting.popitem(last=False)
                check = checks.popleft()
                if checks:
                    self._waiting[address] = checks  # to the end: the next address has its turn
            right = self._checker(check.password, check.hashed) and check.exists
            try:
                check.answer.get_loop().call_soon_threadsafe(self._answer, check, right)
            except RuntimeError:
                return  # the loop has ended, and the process ends with it

    def _answer(self, check: _Check, right: bool) -> None:
        memory = self._right if right else self._wrong
        memory[check.key] = None
        if len(memory) > _REMEMBERED_MAX:
            memory.popitem(last=False)
        if not check.answer.done():
            check.answer.set_result(right)

    def _key(self, user: str, hashed: str, password: bytes) -> bytes:
        """Include the user's hash, so that a changed password is checked again."""
        digest = hmac.new(self._secret, digestmod=hashlib.sha256)
        for part in (user.encode("utf-8", "surrogatepass"), hashed.encode(), password):
            digest.update(len(part).to_bytes(4, "big") + part)
        return digest.digest()

    def _hash_for_unknown(self, users: Mapping[str, str], user: str) -> str:
        """Return a hash that no password has, with the bcrypt cost of one of the users.

        The name chooses that user, so the time is always the same and reveals nothing about it.
        """
        costs = sorted(hashed.split("$")[2] for hashed in users.values()) or ["10"]
        chosen = int.from_bytes(self._key(user, "", b"")[:8], "big") % len(costs)
        return f"$2b${costs[chosen]}${_SALT_AND_HASH}"


def _bcrypt_check(password: bytes, hashed: bytes) -> bool:
    import bcrypt  # only where a password is asked for

    try:
        return bcrypt.checkpw(password, hashed)
    except ValueError:
        return False
