"""The type of an alert, and the text of the rule file that Prometheus reads.

An alert's runbook is `dashboards/runbooks/NAME.md`, which every agent shows at `/runbooks/NAME`.
Its dashboard link opens the host and home of the alert. Both are made here, so they match.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from textwrap import dedent, indent

RUNBOOKS = "dashboards/runbooks"
"""Where runbooks are in this repository."""

_THIS_AGENT = "http://{{ $labels.instance }}/runbooks/NAME"
_ANOTHER_AGENT = (
    '{{ with printf "up{job=~\\".*hermes-exporter.*\\",instance!=%q} == 1" $labels.instance'
    " | query }}"
    'http://{{ . | sortByLabel "instance" | first | label "instance" }}/runbooks/NAME'
    f"{{{{ else }}}}{RUNBOOKS}/NAME.md{{{{ end }}}}"
)
"""Prometheus looks for an agent that answers; where there is none, the link is a path."""


class Severity(StrEnum):
    CRITICAL = "critical"
    """Data or conversations are being lost, or homes are not watched: page the person on call."""
    WARNING = "warning"
    """Will get worse by itself: for the next working day."""


class Dashboard(StrEnum):
    """The dashboards by their UID."""

    FLEET = "hermes-fleet"
    HOST = "hermes-host"
    AGENT = "hermes-agent"

    @property
    def variables(self) -> tuple[str, ...]:
        """The labels of an alert that the dashboard is opened with."""
        return {
            Dashboard.FLEET: (),
            Dashboard.HOST: ("job", "instance", "home"),
            Dashboard.AGENT: ("job", "instance"),
        }[self]


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert; `hold` is how long it must be true, the `for` of Prometheus."""

    name: str
    expression: str
    hold: str
    severity: Severity
    summary: str
    """The same for every host, so that notifications can be grouped by it."""
    description: str
    """With the labels and the value."""
    dashboard: Dashboard
    agent_answers: bool = True
    """False for an alert that fires because the agent of its `instance` does not answer."""
    of_home: bool = True
    """False if it has no label `home`: the dashboard is then opened with all homes."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Its labels that the dashboard is opened with."""
        return tuple(each for each in self.dashboard.variables if each != "home" or self.of_home)


@dataclass(frozen=True, slots=True)
class Group:
    """Alerts that are evaluated together; without an interval, as often as Prometheus is set to."""

    name: str
    alerts: tuple[Alert, ...]
    interval: str = ""


@dataclass(frozen=True, slots=True)
class Links:
    """How the links of alerts begin; both may be empty.

    Without a base a runbook is shown by the agent that the alert is about, or by another one if
    that agent does not answer or the alert is about none.
    """

    runbook_base: str = ""
    dashboard_base: str = ""

    def runbook(self, alert: Alert) -> str:
        if self.runbook_base:
            return f"{self.runbook_base.rstrip('/')}/{alert.name}.md"
        about_one = "instance" in alert.dashboard.variables and alert.agent_answers
        return (_THIS_AGENT if about_one else _ANOTHER_AGENT).replace("NAME", alert.name)

    def dashboard(self, alert: Alert) -> str:
        query = "&".join(
            f"var-{label}={{{{ $labels.{label} | urlquery }}}}" for label in alert.variables
        )
        page = f"{self.dashboard_base.rstrip('/')}/d/{alert.dashboard}"
        return f"{page}?{query}" if query else page


def rule_file(groups: tuple[Group, ...], links: Links) -> str:
    """The groups as a rule file."""
    return "groups:\n" + "\n".join(
        _head(group) + "\n".join(_rule(alert, links) for alert in group.alerts) for group in groups
    )


def _head(group: Group) -> str:
    interval = f"    interval: {group.interval}\n" if group.interval else ""
    return f"  - name: {group.name}\n{interval}    rules:\n"


def _rule(alert: Alert, links: Links) -> str:
    annotations = {
        "summary": alert.summary,
        "description": " ".join(alert.description.split()),
        "runbook_url": links.runbook(alert),
        "dashboard_url": links.dashboard(alert),
    }
    lines = [
        f"- alert: {alert.name}",
        "  expr: |-",
        indent(dedent(alert.expression).strip(), " " * 4),
        f"  for: {alert.hold}",
        "  labels:",
        f"    severity: {alert.severity}",
        "  annotations:",
        *(f"    {name}: {_quoted(text)}" for name, text in annotations.items()),
    ]
    return indent("\n".join(lines) + "\n", " " * 6)


def _quoted(text: str) -> str:
    """Single-quoted YAML, in which only the quote itself is special."""
    return "'" + text.replace("'", "''") + "'"
