"""Users share the agent's places: no user keeps another one out."""

from __future__ import annotations

from exporter.agent.shares import Shares


def full(most: int = 8, users: int = 4) -> Shares:
    shares = Shares(each=2, most=most)
    for uid in range(1000, 1000 + users):
        assert shares.take(uid)
        assert shares.take(uid)
    return shares


def test_a_user_has_a_share() -> None:
    shares = Shares(each=2, most=8)
    assert [shares.take(1000) for _ in range(3)] == [True, True, False]
    shares.give_back(1000)
    assert shares.take(1000)


def test_when_four_users_have_all_places_a_new_user_gets_one_and_root_its_share() -> None:
    shares = full()
    assert [shares.take(2000) for _ in range(2)] == [True, False]
    assert [shares.take(0) for _ in range(3)] == [True, True, False]


def test_thousands_of_uids_of_one_person_do_not_use_up_the_agent_nor_keep_root_out() -> None:
    shares = full()
    assert sum(shares.take(uid) for uid in range(100_000, 165_536)) == 4 * 8 - 8
    assert shares.take(0)


def test_a_place_that_was_given_back_is_free() -> None:
    shares = full()
    shares.give_back(1000)
    shares.give_back(1001)
    assert shares.take(1002) is False
    assert shares.take(1000)
