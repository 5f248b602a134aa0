"""The policies, one file each; CONTRIBUTING.md says how to add one."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from exporter.config.prune import POLICY_NAMES, ThresholdName
from exporter.pruner.decide.policy import Policy


def _load(name: str) -> Policy:
    policy: Policy = import_module(f"{__name__}.{name}").POLICY
    if policy.name != name:
        raise ValueError(f"the policy in {name}.py is called {policy.name}")
    return policy


POLICIES: Final = {name: _load(name) for name in POLICY_NAMES}
"""By name, in order of what is safest to lose."""


def lowering(threshold: ThresholdName) -> list[str]:
    """Return the policies that can lower a threshold."""
    return [name for name, policy in POLICIES.items() if threshold in policy.lowers]
