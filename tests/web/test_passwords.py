"""Passwords: checked off the loop, one after another, and in equal time for unknown users."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import bcrypt
import pytest

from exporter.web.passwords import WAITING_MAX, PasswordChecker, TooBusyError

SECRET = b"correct horse"


def hashed(cost: int, password: bytes = SECRET) -> str:
    return bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()


USERS = {"ada": hashed(4)}


class Recorder:
    """A check that can be held up, and that remembers which hashes it has seen."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.seen: list[bytes] = []
        self.passwords: list[bytes] = []

    def __call__(self, password: bytes, stored: bytes) -> bool:
        self.passwords.append(password)
        self.go_on.wait(60)
        self.seen.append(stored)
        return password == SECRET


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(story(), 60)

    asyncio.run(main())


def test_right_and_wrong_passwords_with_the_real_bcrypt() -> None:
    checker = PasswordChecker()

    async def story() -> None:
        assert await checker.check(USERS, "ada", SECRET, "a") is True
        assert await checker.check(USERS, "ada", b"guess", "a") is False
        assert await checker.check(USERS, "bob", SECRET, "a") is False
        assert await checker.check(USERS, "ada", b"\0" * 500, "a") is False

    run(story)


def test_a_long_password_counts_as_far_as_bcrypt_sees_it() -> None:
    users = {"ada": hashed(4, b"x" * 72)}

    async def story() -> None:
        assert await PasswordChecker().check(users, "ada", b"x" * 100, "a") is True

    run(story)


def test_answers_are_remembered_until_the_hash_changes() -> None:
    checker = PasswordChecker()

    async def story() -> None:
        assert checker.remembered(USERS, "ada", SECRET) is None
        await checker.check(USERS, "ada", SECRET, "a")
        await checker.check(USERS, "ada", b"guess", "a")
        assert checker.remembered(USERS, "ada", SECRET) is True
        assert checker.remembered(USERS, "ada", b"guess") is False
        assert checker.remembered({"ada": hashed(4, b"new")}, "ada", SECRET) is None
        assert checker.remembered({}, "ada", SECRET) is None

    run(story)


def test_a_thousand_guesses_do_not_drive_a_right_password_out() -> None:
    recorder = Recorder()
    recorder.go_on.set()
    checker = PasswordChecker(recorder)

    async def story() -> None:
        await checker.check(USERS, "ada", SECRET, "a")
        for number in range(1000):
            await checker.check(USERS, "ada", b"%d" % number, "a")
        assert checker.remembered(USERS, "ada", SECRET) is True
        assert len(checker._wrong) == 100

    run(story)


def test_an_unknown_user_costs_what_a_known_one_costs() -> None:
    """The same work: the hash it is compared with has a cost that a user has, always the same."""
    users = {"ada": hashed(4), "bob": hashed(5), "eve": hashed(6)}
    recorder = Recorder()
    recorder.go_on.set()
    checker = PasswordChecker(recorder)

    async def story() -> None:
        for name in "abcdefghijklmnop":
            for password in (b"1", b"2", SECRET):
                assert await checker.check(users, name, password, "a") is False
        assert len(recorder.seen) == 48
        costs = {stored.split(b"$")[2] for stored in recorder.seen}
        assert costs == {b"04", b"05", b"06"}
        assert len({tuple(recorder.seen[at : at + 3]) for at in range(0, 48, 3)}) == 3

    run(story)
    for stored in set(recorder.seen):
        assert bcrypt.checkpw(b"guess", stored) is False  # a hash that bcrypt takes for one


def test_each_address_has_its_turn() -> None:
    recorder = Recorder()
    checker = PasswordChecker(recorder)

    async def story() -> None:
        guesses = [checker.check(USERS, "ada", b"%d" % number, "guesser") for number in range(30)]
        wanted = checker.check(USERS, "ada", SECRET, "scraper")
        recorder.go_on.set()
        assert await wanted is True
        assert recorder.passwords.index(SECRET) <= 2
        await asyncio.gather(*guesses)

    run(story)


def test_too_many_checks_are_given_up_by_the_address_that_has_most() -> None:
    recorder = Recorder()
    checker = PasswordChecker(recorder)

    async def story() -> None:
        wanted = checker.check(USERS, "ada", SECRET, "scraper")
        guesses = [
            checker.check(USERS, "ada", b"%d" % number, "guesser")
            for number in range(WAITING_MAX * 3)
        ]
        assert sum(len(each) for each in checker._waiting.values()) <= WAITING_MAX
        recorder.go_on.set()
        assert await wanted is True
        answers = await asyncio.gather(*guesses, return_exceptions=True)
        given_up = [answer for answer in answers if isinstance(answer, TooBusyError)]
        assert WAITING_MAX * 2 - 2 <= len(given_up) <= WAITING_MAX * 2 + 2
        assert answers[-1] is False  # the newest are checked

    run(story)


def test_no_password_is_kept() -> None:
    checker = PasswordChecker()

    async def story() -> None:
        await checker.check(USERS, "ada", SECRET, "a")
        assert SECRET not in b"".join((*checker._right, *checker._wrong))
        assert not checker._waiting

    run(story)


@pytest.mark.parametrize("name", ["", "ä", "\ud800", "a" * 10_000])
def test_any_name_can_be_asked_for(name: str) -> None:
    async def story() -> None:
        assert await PasswordChecker().check(USERS, name, b"x", "a") is False

    run(story)
