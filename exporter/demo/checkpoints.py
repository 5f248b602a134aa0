"""Write the git directories of Hermes's checkpoints, object by object, without running git.

Hermes before 0.13 kept one shadow repo per working directory (`legacy`); since then all share one
`store`. Both are real enough for `git fsck`.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from random import Random
from typing import NamedTuple

_AUTHOR = "Hermes Checkpoint <hermes@local>"
_FOLDERS = ("branches", "hooks", "info", "objects/info", "objects/pack", "refs/heads", "refs/tags")
_HOOKS = tuple(f"hooks/example-{number:02d}.sample" for number in range(13))
_CONFIG = """[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = {bare}
[user]
\temail = hermes@local
\tname = Hermes Checkpoint
[commit]
\tgpgsign = false
[gc]
\tauto = 0
"""


def project_hash(workdir: str) -> str:
    """Return the name under which Hermes keeps a working directory's checkpoints."""
    return hashlib.sha256(workdir.encode()).hexdigest()[:16]


class Blob(NamedTuple):
    """A file of a project, ready to be stored: its hash, its compressed data and its size."""

    sha: bytes
    data: bytes
    size: int


def blob(content: bytes) -> Blob:
    sha, data = _encode(b"blob", content)
    return Blob(sha, data, len(content))


class Snapshots:
    """The history of one project inside a git directory."""

    def __init__(self, git_dir: str, blobs: list[Blob], rng: Random) -> None:
        self._objects = git_dir + "/objects/"
        self._blobs = blobs
        self._rng = rng
        self._tree: dict[bytes, Blob] = {}
        self.tip = b""
        self.written = 0
        """New loose objects so far."""

    def take(self, changed: int, when: float) -> None:
        """Change so many files and commit all of them."""
        for _ in range(changed):
            chosen = self._rng.choice(self._blobs)
            self._tree[b"part-%02d.txt" % self._rng.randrange(24)] = chosen
            self._store(chosen.sha, chosen.data)
        entries = b"".join(
            b"100644 %s\0%s" % (name, entry.sha) for name, entry in sorted(self._tree.items())
        )
        source = self._put(b"tree", entries)
        root = self._put(b"tree", b"40000 src\0" + source)
        parent = f"parent {self.tip.hex()}\n" if self.tip else ""
        stamp = f"{_AUTHOR} {int(when)} +0000"
        text = f"tree {root.hex()}\n{parent}author {stamp}\ncommitter {stamp}\n\nauto: example\n"
        self.tip = self._put(b"commit", text.encode())

    def index(self) -> bytes:
        """Return the git index (version 2) that matches the last commit."""
        entries = []
        for name, entry in sorted(self._tree.items()):
            path = b"src/" + name
            stat = (0, 0, 0, 0, 0, 0, 0o100644, 0, 0, entry.size)
            packed = struct.pack(">10L20sH", *stat, entry.sha, len(path)) + path
            entries.append(packed + b"\0" * (8 - len(packed) % 8))
        body = b"DIRC" + struct.pack(">2L", 2, len(entries)) + b"".join(entries)
        return body + hashlib.sha1(body, usedforsecurity=False).digest()

    def _put(self, kind: bytes, body: bytes) -> bytes:
        sha, data = _encode(kind, body)
        self._store(sha, data)
        return sha

    def _store(self, sha: bytes, data: bytes) -> None:
        name = sha.hex()
        folder = self._objects + name[:2]
        try:
            descriptor = os.open(
                f"{folder}/{name[2:]}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444
            )
        except FileNotFoundError:
            os.mkdir(folder)
            descriptor = os.open(f"{folder}/{name[2:]}", os.O_WRONLY | os.O_CREAT, 0o444)
        except FileExistsError:
            return
        os.write(descriptor, data)
        os.close(descriptor)
        self.written += 1


def write_legacy(
    base: str, workdir: str, *, blobs: list[Blob], objects: int, when: float, rng: Random
) -> str:
    """Write `<base>/<hash16>`, a shadow repo with so many loose objects, and return its path."""
    path = f"{base}/{project_hash(workdir)}"
    _init(path, bare="false")
    snapshots = Snapshots(path, blobs, rng)
    snapshots.take(min(12, objects // 4), when)
    while snapshots.written < objects:
        snapshots.take(1, when)
    tip = snapshots.tip.hex() + "\n"
    line = f"{'0' * 40} {tip[:40]} {_AUTHOR} {int(when)} +0000\tcommit: example\n"
    os.makedirs(path + "/logs/refs/heads")
    for name, text in {
        "HERMES_WORKDIR": workdir + "\n",
        "COMMIT_EDITMSG": "auto: example\n",
        "refs/heads/master": tip,
        "logs/HEAD": line,
        "logs/refs/heads/master": line,
    }.items():
        write(f"{path}/{name}", text.encode())
    write(path + "/index", snapshots.index())
    age(path, when)
    return path


def write_store(
    base: str,
    workdirs: dict[str, float],
    *,
    blobs: list[Blob],
    snapshots_each: int,
    rng: Random,
) -> str:
    """Write `<base>/store`: a project for each working directory, with the time of its last use."""
    path = base + "/store"
    _init(path, bare="true")
    for folder in ("refs/hermes", "indexes", "projects"):
        os.mkdir(f"{path}/{folder}")
    for workdir, touched in workdirs.items():
        name = project_hash(workdir)
        snapshots = Snapshots(path, blobs, rng)
        for number in range(snapshots_each):
            snapshots.take(8 if number == 0 else 1, touched)
        about = {"workdir": workdir, "created_at": touched - 86400, "last_touch": touched}
        write(f"{path}/refs/hermes/{name}", snapshots.tip.hex().encode() + b"\n")
        write(f"{path}/indexes/{name}", snapshots.index())
        write(f"{path}/projects/{name}.json", json.dumps(about).encode())
    return path


def write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def age(path: str, when: float) -> None:
    """Set the times of everything below `path`: a folder after its contents."""
    for folder, _, files in os.walk(path, topdown=False):
        for name in files:
            os.utime(f"{folder}/{name}", (when, when))
        os.utime(folder, (when, when))


def _init(path: str, *, bare: str) -> None:
    os.makedirs(path)
    for folder in _FOLDERS:
        os.makedirs(f"{path}/{folder}")
    for name, text in {
        "HEAD": "ref: refs/heads/master\n",
        "config": _CONFIG.format(bare=bare),
        "description": "A shadow repository.\n",
        "info/exclude": "node_modules/\n__pycache__/\n",
    }.items():
        write(f"{path}/{name}", text.encode())
    for name in _HOOKS:
        write(f"{path}/{name}", b"#!/bin/sh\n" + b"# Invented sample; does nothing.\n" * 40)


def _encode(kind: bytes, body: bytes) -> tuple[bytes, bytes]:
    """Return the hash of an object and its data as a loose object."""
    whole = b"%s %d\0%s" % (kind, len(body), body)
    return hashlib.sha1(whole, usedforsecurity=False).digest(), zlib.compress(whole, 1)
