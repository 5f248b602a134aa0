"""A table of processes, a boot and faults that the test makes up, in place of the kernel's.

What the product asks the kernel about processes is answered from the table: the survey, the check
under the write lock, and looks at one process. Everything else is the product's own code, run in
this process; what an agent sends to a worker goes through the real messages.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import apsw

from exporter.agent import one_shot  # noqa: F401 - loads all that commands need
from exporter.errors import ExporterError, HomeError, RefusedError, WorkerError, error_location
from exporter.evidence import liveness, openers, process, procfs
from exporter.evidence.models import Holder, HomeEvidence, HomeFiles, NamedSession, Survey
from exporter.evidence.openers import KnownOpeners, OpenerCheck
from exporter.hermes.process_kinds import NamedBy, ProcessKind
from exporter.runs import journal_file
from exporter.runs.folder import RunBusyError
from exporter.workers.frames import encode
from exporter.workers.home import WorkerHome
from exporter.workers.privilege import release_memory
from exporter.workers.worker import answer, load_everything
from exporter.writing.connection import Writer
from tests.trust.made_up_time import MadeUpTime
from tests.trust.model import Process

KINDS = {
    "chat": ProcessKind.CLI,
    "oneshot": ProcessKind.ONESHOT,
    "gateway": ProcessKind.GATEWAY,
    "cron": ProcessKind.CRON,
    "tui": ProcessKind.TUI,
    "acp": ProcessKind.ACP,
    "program": ProcessKind.OTHER,
    "visitor": ProcessKind.OTHER,
    "maintenance": ProcessKind.MAINTENANCE,
}
TICKS = os.sysconf("SC_CLK_TCK")
_STEPS = frozenset({"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate"})
_ACTING = frozenset({"reap", "prune", "undo", "purge", "settle", "heal"})


class Fault:
    """What goes wrong in the next request that acts, at its n-th step."""

    def __init__(self, kind: str, at_step: int) -> None:
        self.kind = kind
        self.at_step = at_step
        self.steps = 0
        self.happened = False

    def step(self, of_database: bool = False) -> None:
        """Count a step: a commit, or a change of a folder."""
        self.steps += 1
        if self.steps < self.at_step:
            return
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind in ("EMFILE", "EROFS") and self.steps > self.at_step + 3:
            return  # it passes
        self.happened = True
        if of_database:
            raise (apsw.FullError if self.kind == "ENOSPC" else apsw.IOError)(
                f"made up {self.kind}"
            )
        raise OSError(getattr(errno, self.kind), f"made up {self.kind}")


class MadeUpHost:
    """The processes of this host, as the product sees them."""

    def __init__(self, clock: MadeUpTime) -> None:
        self.clock = clock
        self.processes: dict[int, Process] = {}
        self.next_fault: Fault | None = None
        self.fault: Fault | None = None
        self.on_check: Callable[[str], None] | None = None
        """Called when the product looks who has the database open, before it answers."""
        self.acted: list[str] = []
        """The requests that acted since the test last looked."""
        self._install()

    # What the product asks

    def survey(self, targets: Sequence[HomeFiles]) -> Survey:
        homes = {}
        for target in targets:
            home, _, name = target.key.partition("\0")
            mine = self._of(home) if name == "state.db" else []
            homes[target.key] = HomeEvidence(
                holders=tuple(self._holder(each) for each in mine),
                gateway=None,
                blind=(),
                sees_locks=True,
                sees_deleted=True,
            )
        return Survey(homes=homes, candidates=(), blind=())

    def _of(self, home: str) -> list[Process]:
        return [each for each in self.processes.values() if each.home == home and each.has_database]

    def _holder(self, each: Process) -> Holder:
        began = self.clock.wall - self.clock.since_boot + each.start_ticks / TICKS
        named = (NamedSession(each.named, NamedBy.RESUME),) if each.named else ()
        return Holder(
            pid=each.pid,
            start_ticks=each.start_ticks,
            started_at=began,
            namespace_pid=each.pid,
            kind=KINDS[each.kind],
            may_resume=each.may_resume,
            shm_inode=None,
            lockless_database=False,
            lockless_shm=False,
            deleted_wal=False,
            forked_copy=False,
            sessions=named,
            written=each.written,
            stopped=each.stopped,
        )

    def compare_openers(self, known: KnownOpeners, files: HomeFiles, **_: Any) -> OpenerCheck:
        if self.on_check is not None:
            self.on_check(files.directory)
        new = [
            each.pid
            for each in self._of(files.directory)
            if known.started.get(each.pid) != each.start_ticks
        ]
        return OpenerCheck(lost=(), new_openers=tuple(sorted(new)))

    def read_stat(self, proc: str, pid: int) -> procfs.ProcessStat | None:
        if pid < FIRST_PID:
            return _REAL_STAT(proc, pid)
        found = self.processes.get(pid)
        return None if found is None else procfs.ProcessStat("S", 1, 0, found.start_ticks, pid)

    def _pinned(self, proc: str, pid: int) -> Any:
        return _REAL_PINNED(proc, pid) if pid < FIRST_PID else _Pinned(self, proc, pid)

    def _install(self) -> None:
        load_everything()
        _replace(openers.compare_openers, self.compare_openers)
        _replace(liveness.read_boot_id, lambda proc="/proc": self.clock.boot_id)
        _replace(_REAL_STAT, self.read_stat)
        _replace(_REAL_PINNED, self._pinned)
        _replace(journal_file.transaction, self._journal_transaction)
        _replace(release_memory, lambda: None)  # it would be half of the time
        write = Writer.transaction

        @contextmanager
        def transaction(writer: Writer, **how: bool) -> Iterator[Any]:
            self._step(of_database=True)
            with write(writer, **how) as under_way:
                yield under_way
            self._step(of_database=True)

        Writer.transaction = transaction  # type: ignore[assignment,method-assign]
        sys.addaudithook(self._audit)

    # Faults

    @contextmanager
    def _journal_transaction(self, connection: apsw.Connection) -> Iterator[None]:
        self._step(of_database=True)
        with _REAL_TRANSACTION(connection):
            yield
        if self.fault is not None and self.fault.kind == "kill":
            self._step(of_database=True)

    def _audit(self, event: str, _: Any) -> None:
        if self.fault is not None and event in _STEPS:
            self._step()

    def _step(self, of_database: bool = False) -> None:
        if self.fault is not None:
            self.fault.step(of_database)

    def answer(self, worker: MadeUpWorker, call: Any, request: Any, reporter: Any) -> Any:
        """What a worker answers; perhaps it is killed meanwhile, or meets an error."""
        if call.name not in _ACTING:
            return worker.handle(call, request, reporter)
        self.acted.append(call.name)
        fault, self.next_fault = self.next_fault, None
        if fault is None:
            return worker.handle(call, request, reporter)
        if fault.kind == "kill":
            return self._killed(fault, worker, call, request, reporter)
        self.fault = fault
        try:
            return worker.handle(call, request, reporter)
        finally:
            self.fault = None

    def _killed(
        self, fault: Fault, worker: MadeUpWorker, call: Any, request: Any, reporter: Any
    ) -> Any:
        """Answer in a copy of this process that is killed at a step, or at its end."""
        child = os.fork()
        if child == 0:
            try:
                self.fault = fault
                worker.handle(call, request, reporter)
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        fault.happened = True
        worker.dead = True
        raise WorkerError("a worker died")


FIRST_PID = 5_000_000
_REAL_STAT = procfs.read_stat
_REAL_PINNED = process.PinnedProcess
_REAL_TRANSACTION = journal_file.transaction


class _Pinned:
    """A made-up process, held by its folder."""

    def __init__(self, host: MadeUpHost, proc: str, pid: int) -> None:
        self._host, self._proc, self._pid = host, proc, pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stat(self) -> procfs.ProcessStat:
        found = self._host.read_stat(self._proc, self._pid)
        if found is None:
            raise ProcessLookupError(errno.ESRCH, "it is gone")
        return found

    def written(self) -> int:
        self.stat()
        return self._host.processes[self._pid].written


class MadeUpWorker:
    """A worker in this process."""

    def __init__(self, host: MadeUpHost) -> None:
        self._host = host
        self._homes: dict[str, WorkerHome] = {}
        self.pid = os.getpid()
        self.dead = False
        self.first_scan: dict[str, float] = {}
        """True time of its first scan of each home that it keeps."""

    def alive(self) -> bool:
        return not self.dead

    def end(self) -> None:
        self.dead = True

    def is_gone(self, wait_seconds: float = 0.0) -> bool:
        del wait_seconds
        return True

    def call(
        self,
        what: Any,
        request: Any,
        seconds: float = 0.0,
        *,
        part: Callable[[Any], None] | None = None,
        **_: Any,
    ) -> Any:
        """Answer as a worker process does: by its table, through its messages."""
        del seconds
        request = what.decode_request(_through(request))
        reporter = _Reporter(what, part)
        try:
            return what.decode_reply(_through(self._host.answer(self, what, request, reporter)))
        except RunBusyError as error:
            raise RefusedError(str(error), busy=True) from error
        except HomeError as error:
            raise RefusedError(str(error)) from error
        except WorkerError:
            raise
        except ExporterError as error:
            raise WorkerError(f"a worker failed: {error}") from error
        except Exception as error:
            self._homes.pop(request.home, None)
            self.first_scan.pop(request.home, None)
            if self._host.next_fault is None and "made up" not in repr(error):
                raise AssertionError(f"{what.name}: a bug: {error_location(error)}") from error
            raise WorkerError(f"a worker failed: {error_location(error)}") from error

    def handle(self, call: Any, request: Any, reporter: Any) -> Any:
        if call.name == "scan":
            self.first_scan.setdefault(request.home, self._host.clock.true)
        home = self._homes.setdefault(request.home, WorkerHome(request.home))
        return answer(call, home, request, reporter)


class _Reporter:
    def __init__(self, what: Any, part: Callable[[Any], None] | None) -> None:
        self._what, self._part = what, part

    def part(self, part: object) -> None:
        if self._part is not None:
            self._part(self._what.decode_part(_through(part)))

    def progress(self, settled: int, total: int) -> None:
        pass

    def cancelled(self) -> bool:
        return False


def _through(message: object) -> bytes:
    return encode(message)


def _replace(original: Any, replacement: Any) -> None:
    """Put it into every module of ours that has the original."""
    for name, module in list(sys.modules.items()):
        if name.startswith("exporter."):
            for key, value in list(vars(module).items()):
                if value is original:
                    setattr(module, key, replacement)
