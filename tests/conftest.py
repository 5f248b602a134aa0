"""Rules for all tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator, Iterator

import hypothesis
import pytest

from tests.real.stub_model import StubModel, stub_model

NO_SKIPS = "HERMES_EXPORTER_NO_SKIPS"
"""Set to 1 (as CI does): a test that is skipped or expected to fail is a failure."""

# No command of a test asks an agent of another test, or of this host.
os.environ["HERMES_EXPORTER_AGENT_SOCKET"] = ""

# The same examples in every run, however slow the machine is.
hypothesis.settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("steady")


@pytest.fixture
def model() -> Iterator[StubModel]:
    """A model's provider that answers as the test wants."""
    with stub_model() as running:
        yield running


@pytest.fixture
def mounts() -> Iterator[Callable[..., None]]:
    """`mount` with these arguments, taken off again after the test."""
    made: list[str] = []

    def mount(*arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True)
        made.append(arguments[-1])

    yield mount
    for place in reversed(made):
        subprocess.run(["umount", place], check=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _forbidden() and (report.skipped or hasattr(report, "wasxfail")):
        # A report that carries `wasxfail` would be shown as expected whatever its outcome is.
        report.__dict__.pop("wasxfail", None)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} must run and pass, but: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _forbidden() and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} must be run, but: {report.longrepr}"
    return report


def _forbidden() -> bool:
    return os.environ.get(NO_SKIPS) == "1"
