"""A wall clock that a test can set, for one process and its children: libfaketime."""

from __future__ import annotations

from pathlib import Path


class FakedTime:
    """What `environment` is given to sees the wall clock moved; the clocks since boot are real."""

    def __init__(self, folder: Path, seconds: float = 0.0) -> None:
        self._file = folder / "faked-time"
        self.step(seconds)

    @property
    def environment(self) -> dict[str, str]:
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def step(self, seconds: float) -> None:
        """Move the clock to so many seconds from the right time."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.0f}s\n")
        new.rename(self._file)  # it is read at every look at the clock
