"""The planted mistakes stay plantable when the code around them changes."""

from __future__ import annotations

import pytest

from tests.real.hermes import REPOSITORY
from tests.trust.mutations import MUTATIONS


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mistake_can_still_be_planted(name: str) -> None:
    for edit in MUTATIONS[name]:
        assert edit.old in (REPOSITORY / "exporter" / edit.file).read_text()
