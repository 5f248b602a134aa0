"""What the three dashboards share: variables, links and the grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from dashboards.annotations import Annotation, query
from dashboards.matchers import AGENT, JOB
from dashboards.panels import DATASOURCE, Panel

TAG = "hermes"
# The schema of Grafana 10.0: the oldest supported version reads it natively, newer ones migrate it.
SCHEMA_VERSION = 38
WIDTH = 24


@dataclass(frozen=True, slots=True)
class PanelRow:
    """Panels side by side: the same height, and widths that add up to that of the grid."""

    height: int
    panels: Sequence[tuple[int, Panel]]


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of panels below a heading; without a title they are at the top."""

    title: str | None
    lines: Sequence[PanelRow]


@dataclass(frozen=True, slots=True)
class VariableSources:
    """The series whose labels the variables offer."""

    jobs: str
    instances: str
    homes: str


def equal_row(height: int, *panels: Panel) -> PanelRow:
    """Return panels of equal width."""
    width, rest = divmod(WIDTH, len(panels))
    if rest:
        raise ValueError(f"{len(panels)} panels do not divide the grid of {WIDTH} equally")
    return PanelRow(height, [(width, panel) for panel in panels])


def row_of_widths(height: int, *panels: tuple[int, Panel]) -> PanelRow:
    """Return panels of these widths."""
    if sum(width for width, _ in panels) != WIDTH:
        raise ValueError(f"widths do not add up to {WIDTH}: {[width for width, _ in panels]}")
    return PanelRow(height, panels)


def build_dashboard(
    uid: str,
    title: str,
    description: str,
    sections: Sequence[Section],
    *,
    choices: VariableSources,
    since: str,
    all_instances: bool,
    annotations: Sequence[Annotation] = (),
) -> model.Dashboard:
    """Return a dashboard; with `all_instances` it opens with every host, otherwise with one."""
    placed = list(_placed(sections))
    asked: list[Builder[model.AnnotationQuery]] = [
        query(each, [panel.id_val or 0 for above, panel in placed if above in each.sections])
        for each in annotations
    ]
    built = (
        Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time(since, "now")
        .refresh("1m")
        .timezone("browser")
        .link(_links())
        .variables(_variables(choices, all_instances))
        .annotations(asked)
        .build()
    )
    built.schema_version = SCHEMA_VERSION
    built.panels = [panel for _, panel in placed]
    return built


def _links() -> DashboardLink:
    return (
        DashboardLink("Hermes dashboards")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .icon("external link")
        .as_dropdown(False)
        .include_vars(True)
        .keep_time(True)
        .target_blank(False)
    )


def _variables(choices: VariableSources, all_instances: bool) -> list[Builder[model.VariableModel]]:
    source = (
        DatasourceVariable("datasource")
        .label("Data source")
        .type("prometheus")
        .multi(False)
        .include_all(False)
    )
    return [
        source,
        _choice("job", "Job", f"label_values({choices.jobs}, job)", True),
        _choice(
            "instance",
            "Instance",
            f"label_values({choices.instances}{{{JOB}}}, instance)",
            all_instances,
        ),
        _choice("home", "Home", f"label_values({choices.homes}{{{AGENT}}}, home)", True),
    ]


def _choice(name: str, label: str, query: str, with_all: bool) -> QueryVariable:
    return (
        QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query({"query": query, "refId": f"Choices-{name}"})
        .definition(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
        .multi(True)
        .include_all(with_all)
        .all_value(".+")
    )


def _placed(
    sections: Sequence[Section],
) -> Iterator[tuple[str | None, model.Panel | model.RowPanel]]:
    """Yield each panel, with the title of its section."""
    number = 1
    y = 0
    for section in sections:
        if section.title is not None:
            row = Row(section.title).collapsed(False).id(number).build()
            row.grid_pos = model.GridPos(x=0, y=y, w=WIDTH, h=1)
            yield None, row
            number += 1
            y += 1
        for each in section.lines:
            x = 0
            for width, panel in each.panels:
                built = panel.id(number).build()
                built.grid_pos = model.GridPos(x=x, y=y, w=width, h=each.height)
                yield section.title, built
                number += 1
                x += width
            y += each.height
