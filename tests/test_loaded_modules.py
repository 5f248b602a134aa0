"""What a process loads stays in its memory for as long as it runs, so it loads what it uses."""

from __future__ import annotations

import subprocess
import sys


def run(program: str) -> str:
    """The output of a program in an interpreter that has loaded nothing of ours."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_agent_loads_nothing_that_acts_on_a_home() -> None:
    unwanted = "{'exporter.workers.acting', 'exporter.pruner.apply.execute'}"
    assert (
        run(f"import sys, exporter.agent.daemon; print({unwanted} & set(sys.modules) or '')") == ""
    )


def test_a_worker_that_plans_loads_nothing_that_acts_on_a_home() -> None:
    unwanted = (
        "{'exporter.workers.acting', 'exporter.pruner.apply.execute', 'exporter.reaper.reap'}"
    )
    program = (
        "import sys, exporter.workers.worker, exporter.pruner.planning\n"
        f"print({unwanted} & set(sys.modules) or '')"
    )
    assert run(program) == ""


def test_a_worker_that_becomes_another_user_has_loaded_what_acts_on_a_home_before() -> None:
    """That user need not be able to read the agent's installation."""
    program = (
        "import importlib, pkgutil, sys\n"
        "from exporter.workers import worker\n"
        "worker.load_everything()\n"
        "loaded = set(sys.modules)\n"
        "import exporter.hermes, exporter.pruner, exporter.reaper, exporter.runs, exporter.scan\n"
        "import exporter.writing\n"
        "for name in ('hermes', 'pruner', 'reaper', 'runs', 'scan', 'writing'):\n"
        "    package = sys.modules[f'exporter.{name}']\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "print(set(sys.modules) - loaded or '')"
    )
    assert run(program) == ""


def test_gitpython_is_not_loaded_before_a_worker_becomes_another_user() -> None:
    """Its import would run git with the privileges of the agent."""
    program = (
        "import sys\n"
        "from exporter.workers import worker\n"
        "worker.load_everything()\n"
        "print({'git', 'gitdb', 'smmap'} & set(sys.modules) or '')"
    )
    assert run(program) == ""


def test_a_worker_loads_nothing_of_the_web() -> None:
    """Each owner of homes has a worker, so its memory counts once for each."""
    unwanted = "{'http.client', 'http.server', 'h11', 'prometheus_client', 'exporter.web'}"
    program = (
        "import sys\n"
        "from exporter.workers import path_probe, worker\n"
        "worker.load_everything()\n"
        f"print({unwanted} & set(sys.modules) or '')"
    )
    assert run(program) == ""
