"""The homes that are adopted, their owners and their labels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.discovery.homes import (
    HOMES_PER_OWNER_MAX,
    LABELS_PER_OWNER_MAX,
    REFUSALS_PER_USER_MAX,
    Account,
    Census,
    Home,
    HomeCandidate,
    Origin,
    found_candidates,
    take_census,
)
from exporter.discovery.inspection import inspect
from exporter.snapshot import FileIdentity

ADA, BOB = 4001, 4002
NAMES = {0: "root", ADA: "ada", BOB: "bob"}


@pytest.fixture
def host() -> Iterator[Path]:
    """A directory whose ancestors all belong to root, like /home. pytest's own is in /tmp."""
    root = Path("/var/lib") / f"hermes-exporter-test-{os.getpid()}"
    root.mkdir(mode=0o755)
    try:
        yield root
    finally:
        _remove(root)


def _remove(path: Path) -> None:
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            _remove(entry)
        else:
            entry.unlink()
    path.rmdir()


def make_home(path: Path, owner: int) -> Path:
    path.mkdir(parents=True)
    (path / "sessions").mkdir()
    (path / "state.db").write_bytes(b"")
    for part in (path, path / "sessions", path / "state.db"):
        os.chown(part, owner, owner)
    return path


def user_home(host: Path, name: str, owner: int) -> Path:
    directory = host / name
    directory.mkdir()
    os.chown(directory, owner, owner)
    return make_home(directory / ".hermes", owner)


def census(
    *candidates: HomeCandidate,
    own_uid: int = 0,
    labels: dict[str, str] | None = None,
    watched: dict[str, Home] | None = None,
    labels_by_owner: dict[int, int] | None = None,
) -> Census:
    return take_census(
        candidates,
        lambda candidate: inspect(candidate.path),
        labels=labels or {},
        watched=watched or {},
        own_uid=own_uid,
        user_names=NAMES,
        labels_by_owner=labels_by_owner,
    )


def found(path: Path, uid: int | None = None) -> HomeCandidate:
    return HomeCandidate(str(path), Origin.USER, uid=uid)


def named(path: Path, label: str = "") -> HomeCandidate:
    return HomeCandidate(str(path), Origin.NAMED, label)


def test_candidates_are_the_homes_of_this_user_and_of_every_other_user() -> None:
    users = [Account("root", 0, "/root"), Account("ada", ADA, "/home/ada"), Account("x", 9, "/")]
    paths = [
        candidate.path
        for candidate in found_candidates(users, 0, {"HOME": "/root", "HERMES_HOME": "/srv/h"})
    ]
    assert paths == ["/srv/h", "/root/.hermes", "/root/.hermes", "/home/ada/.hermes"]


def test_labels_name_the_owner_of_a_home(host: Path) -> None:
    own = user_home(host, "own", ADA)
    other = user_home(host, "other", BOB)
    make_home(other / "profiles" / "work", BOB)
    os.chown(other / "profiles", BOB, BOB)
    outcome = census(found(own), found(other), own_uid=ADA)
    assert {home.path: home.label for home in outcome.homes} == {
        str(own): "default",
        str(other): "bob",
        str(other / "profiles" / "work"): "bob/work",
    }


def test_two_homes_never_share_a_label_and_keep_their_labels(host: Path) -> None:
    first, second = user_home(host, "one", ADA), user_home(host, "two", ADA)
    outcome = census(found(first), found(second), own_uid=ADA)
    labels = {home.path: home.label for home in outcome.homes}
    assert labels[str(first)] == "default"
    assert labels[str(second)].startswith("default-")
    assert len(labels[str(second)]) == len("default-") + 4
    swapped = census(found(second), found(first), own_uid=ADA, labels=labels)
    assert {home.path: home.label for home in swapped.homes} == labels


def test_a_configured_name_wins(host: Path) -> None:
    home = user_home(host, "ada", ADA)
    outcome = census(named(home, "research"), labels={str(home): "ada"})
    assert [each.label for each in outcome.homes] == ["research"]


def test_a_configured_name_is_taken_from_another_home_that_had_it(host: Path) -> None:
    home = user_home(host, "ada", ADA)
    outcome = census(named(home, "prod"), labels={"/elsewhere": "prod"})
    assert [each.label for each in outcome.homes] == ["prod"]


@pytest.mark.parametrize(
    "trick",
    [
        "symlinked home",
        "symlinked database",
        "foreign database",
        "foreign sessions",
        "foreign ancestor",
        "writable ancestor",
        "not a home",
    ],
)
def test_a_found_home_that_could_mislead_the_agent_is_refused(host: Path, trick: str) -> None:
    home = user_home(host, "ada", ADA)
    path = home
    match trick:
        case "symlinked home":
            path = host / "ada" / "alias"
            path.symlink_to(home)
        case "symlinked database":
            (home / "state.db").unlink()
            (home / "state.db").symlink_to("/etc/passwd")
        case "foreign database":
            os.chown(home / "state.db", BOB, BOB)
        case "foreign sessions":
            os.chown(home / "sessions", 0, 0)
        case "foreign ancestor":
            os.chown(host / "ada", BOB, BOB)
        case "writable ancestor":
            os.chmod(host / "ada", 0o777)
        case "not a home":
            path = host / "ada" / "music"
            path.mkdir()
            os.chown(path, ADA, ADA)
    outcome = census(found(path))
    assert outcome.homes == ()
    assert [refusal.path for refusal in outcome.refused] == [str(path)] or trick == "symlinked home"
    assert outcome.refused[0].why
    if trick == "symlinked database":
        assert outcome.refused[0].why == "state.db is a symlink, and symlinks are not followed"
        assert outcome.refused[0].fix.startswith("put the real file")
    else:
        assert "--home" in outcome.refused[0].fix


def test_a_named_home_needs_no_trusted_ancestors_but_parts_of_its_owner(host: Path) -> None:
    home = user_home(host, "ada", ADA)
    os.chmod(host / "ada", 0o777)
    assert census(named(home)).homes[0].problem == ""
    os.chown(home / "state.db", BOB, BOB)
    assert "state.db belongs to uid" in census(named(home)).homes[0].problem


def test_a_home_learnt_from_a_process_must_be_that_users_and_have_that_database(
    host: Path,
) -> None:
    home = user_home(host, "ada", ADA)
    database = os.stat(home / "state.db")
    identity = FileIdentity(database.st_dev, database.st_ino)
    right = HomeCandidate(str(home), Origin.PROCESS, uid=ADA, database=identity)
    assert len(census(right).homes) == 1
    foreign = HomeCandidate(str(home), Origin.PROCESS, uid=BOB, database=identity)
    assert census(foreign).homes == ()
    other = FileIdentity(identity.device, identity.inode + 1)
    assert census(HomeCandidate(str(home), Origin.PROCESS, uid=ADA, database=other)).homes == ()


def test_a_name_that_a_user_chose_is_escaped_in_labels(host: Path) -> None:
    """A process may use any folder as its home, also one whose name Hermes would not allow."""
    profiles = user_home(host, "ada", ADA) / "profiles"
    profiles.mkdir()
    os.chown(profiles, ADA, ADA)
    for name in ("red\x1b[31m", 'a"b\nc', "\udcff", "x" * 200, "\u202eevil"):
        home = make_home(profiles / name, ADA)
        found = os.stat(home / "state.db")
        identity = FileIdentity(found.st_dev, found.st_ino)
        (seen,) = census(HomeCandidate(str(home), Origin.PROCESS, uid=ADA, database=identity)).homes
        assert seen.label.isprintable(), name
        assert seen.label.startswith("ada/")
        assert len(seen.label) <= 68


def test_a_root_owned_home_is_read_only_unless_it_is_named(host: Path) -> None:
    home = user_home(host, "root", 0)
    assert not census(found(home)).homes[0].may_write
    assert census(named(home)).homes[0].may_write


def test_two_paths_to_one_home_give_one_home(host: Path) -> None:
    home = user_home(host, "ada", ADA)
    (host / "link").symlink_to(host / "ada")
    outcome = census(found(home), found(host / "link" / ".hermes"))
    assert [each.path for each in outcome.homes] == [str(home)]


def test_one_users_many_homes_do_not_displace_other_users_homes(host: Path) -> None:
    greedy = user_home(host, "ada", ADA)
    profiles = greedy / "profiles"
    profiles.mkdir()
    os.chown(profiles, ADA, ADA)
    for number in range(100):
        make_home(profiles / f"p{number}", ADA)
    other = user_home(host, "bob", BOB)
    outcome = census(found(greedy), found(other))
    owners = [home.owner for home in outcome.homes]
    assert owners.count(ADA) <= 64
    assert owners.count(BOB) == 1


def test_a_profile_that_is_a_symlink_is_not_followed(host: Path) -> None:
    home = user_home(host, "ada", ADA)
    victim = user_home(host, "bob", BOB)
    (home / "profiles").mkdir()
    os.chown(home / "profiles", ADA, ADA)
    (home / "profiles" / "work").symlink_to(victim)
    assert [each.path for each in census(found(home)).homes] == [str(home)]


def test_a_symlink_cannot_hide_another_users_home(host: Path) -> None:
    victim = user_home(host, "vic", BOB)
    make_home(victim / "profiles" / "work", BOB)
    os.chown(victim / "profiles", BOB, BOB)
    hostile = user_home(host, "eve", ADA)
    (hostile / "profiles").symlink_to(victim / "profiles")
    before = census(found(hostile), found(victim))
    watched = {each.path: each for each in before.homes}
    after = census(found(hostile), found(victim), watched=watched)
    assert [each.problem for each in after.homes] == ["", "", ""]
    assert not [each for each in after.refused if "work" in each.path]


def test_a_process_cannot_hide_another_users_home(host: Path) -> None:
    victim = user_home(host, "vic", BOB)
    database = os.stat(victim / "state.db")
    identity = FileIdentity(database.st_dev, database.st_ino)
    honest = HomeCandidate(str(victim), Origin.PROCESS, uid=BOB, database=identity)
    liar = HomeCandidate(str(victim), Origin.PROCESS, uid=ADA, database=identity)
    watched = {each.path: each for each in census(honest).homes}
    assert census(liar, honest, watched=watched).homes[0].problem == ""
    assert census(liar, watched=watched).homes[0].problem


def test_labels_differ_even_if_their_hashes_begin_alike(host: Path) -> None:
    home = user_home(host, "ada", ADA)
    (outcome,) = census(found(home), labels={"/elsewhere": "ada"}).homes
    taken = {"/elsewhere": "ada", "/third": outcome.label}
    (again,) = census(found(home), labels=taken).homes
    assert again.label not in taken.values()


def test_a_watched_home_that_disappears_is_shown_with_its_problem(host: Path) -> None:
    home = user_home(host, "ada", ADA)
    before = census(found(home))
    watched = {each.path: each for each in before.homes}
    _remove(home)
    after = census(found(home), watched=watched)
    assert [(each.label, bool(each.problem)) for each in after.homes] == [("ada", True)]
    without_candidate = census(watched=watched)
    assert without_candidate.homes[0].problem


def test_the_number_of_labels_of_one_owner_is_limited(host: Path) -> None:
    home = user_home(host, "ada", ADA)
    new = make_home(home / "profiles" / "another-name", ADA)
    os.chown(home / "profiles", ADA, ADA)
    many = {ADA: LABELS_PER_OWNER_MAX}
    root = {str(home): "ada"}
    after = census(found(home), labels=root, labels_by_owner=many)
    assert [each.label for each in after.homes] == ["ada"]
    (refusal,) = after.refused
    assert refusal.path == str(new)
    assert "have had more than 256 names" in refusal.why
    known = root | {str(new): "ada/another-name"}
    labels = [each.label for each in census(found(home), labels=known, labels_by_owner=many).homes]
    assert labels == ["ada", "ada/another-name"], "a name that it has it keeps"
    by_name = census(named(new), labels_by_owner=many)
    assert [each.problem for each in by_name.homes] == [""], "the operator's word counts"


def test_only_the_last_of_very_many_lost_homes_are_shown(host: Path) -> None:
    home = user_home(host, "ada", ADA)
    went = {
        path: Home(path, path, ADA, may_write=True)
        for path in (f"{home}/profiles/{number}" for number in range(200))
    }
    shown = census(found(home), watched=went).homes
    assert len(shown) == HOMES_PER_OWNER_MAX
    assert {each.path for each in shown if each.problem} == set(list(went)[-63:])


def test_the_number_of_reported_refusals_per_user_is_limited(host: Path) -> None:
    strays = []
    for number in range(40):
        stray = host / f"stray{number}"
        stray.mkdir()
        strays.append(HomeCandidate(str(stray), Origin.PROCESS, uid=ADA, named_by_uid=ADA))
    other = host / "other"
    other.mkdir()
    refused = census(
        *strays, HomeCandidate(str(other), Origin.PROCESS, uid=BOB, named_by_uid=BOB)
    ).refused
    assert len(refused) == REFUSALS_PER_USER_MAX + 1
    assert refused[-1].path == str(other)
