"""Write the dashboards: `python -m dashboards.generate`, which `make docs` runs."""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from dashboards import agent, fleet, host

FOLDER = Path(__file__).parent / "grafana"


def dashboards() -> dict[str, model.Dashboard]:
    """Return each dashboard by the name of its file."""
    return {
        "hermes-fleet.json": fleet.dashboard(),
        "hermes-host.json": host.dashboard(),
        "hermes-agent.json": agent.dashboard(),
    }


def rendered(dashboard: model.Dashboard) -> str:
    """Return the JSON to commit, in a stable order, so that a diff shows only real changes."""
    return json.dumps(dashboard, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, dashboard in dashboards().items():
        (FOLDER / name).write_text(rendered(dashboard))


if __name__ == "__main__":
    main()
