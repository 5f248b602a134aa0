"""Certificates of a throw-away authority, made by the real openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; each name makes one pair of files in its folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self.own = Pair(folder / f"{name}.crt", folder / f"{name}.key")
        _openssl(
            *("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", str(self.own.key), "-out", str(self.own.certificate)),
        )

    def issue(self, name: str, sans: str = "", days: int = 2) -> Pair:
        """Return a pair that this authority has signed; with negative days it has expired."""
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={sans}\n" if sans else "basicConstraints=CA:FALSE\n")
        request = _openssl(
            "req", "-new", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", str(pair.key)
        )
        _openssl(
            *("x509", "-req", "-days", str(days), "-extfile", str(extensions)),
            *("-CA", str(self.own.certificate), "-CAkey", str(self.own.key)),
            *("-set_serial", str(abs(hash((name, days)))), "-out", str(pair.certificate)),
            sent=request,
        )
        return pair


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*words: str, sent: bytes = b"") -> bytes:
    done = subprocess.run(["openssl", *words], input=sent, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
