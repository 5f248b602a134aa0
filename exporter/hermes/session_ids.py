"""The shapes of the session ids that Hermes makes itself; a client may bring any other."""

from __future__ import annotations

import re
from typing import Final

_OWN_SHAPES: Final = re.compile(
    r"\d{8}_\d{6}_[0-9a-f]{6,8}"
    r"|cron_[0-9a-zA-Z-]{1,64}_\d{8}_\d{6}"
    r"|api_\d{1,12}_[0-9a-f]{8}"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)


def is_own_id(session_id: str) -> bool:
    """Whether Hermes made this id: then there is nothing of anybody's in it."""
    return _OWN_SHAPES.fullmatch(session_id) is not None
