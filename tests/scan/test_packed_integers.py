"""Packed integers are what a dictionary would hold."""

from __future__ import annotations

import random

import pytest

from exporter.scan import packed_integers
from exporter.scan.packed_integers import PackedIntegers


@pytest.mark.parametrize("seed", range(5))
def test_they_are_what_a_dictionary_would_hold(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_integers, "_NEWER_MAX", 8)
    chance = random.Random(seed)
    packed, expected = PackedIntegers(), dict[int, int]()
    names = [chance.randrange(-(1 << 63), 1 << 63) for _ in range(200)] + [-1, 0, 1]
    for _ in range(500):
        some = {key: chance.choice((0, chance.getrandbits(74))) for key in chance.sample(names, 5)}
        packed.set(some, added=len(some.keys() - expected.keys()))
        expected.update(some)
        for key in chance.sample(names, 4):
            assert packed.pop(key) == expected.pop(key, None)
        assert len(packed) == len(expected)
    assert sorted(packed) == sorted(expected)
    assert all(packed.get(key) == expected.get(key) for key in names)
