"""The alerts, one module for each thing that can go wrong."""

from __future__ import annotations

from dashboards.alerts import agents, disk, gateways, homes, past, sessions
from dashboards.alerts.alert import Group

GROUPS: tuple[Group, ...] = (
    Group("hermes-alerts-agents", agents.ALERTS),
    Group("hermes-alerts-homes", homes.ALERTS),
    Group("hermes-alerts-sessions", sessions.ALERTS),
    Group("hermes-alerts-disk", disk.ALERTS),
    Group("hermes-alerts-gateways", gateways.ALERTS),
    Group("hermes-alerts-past", past.ALERTS, interval="5m"),
)
