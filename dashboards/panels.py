"""The style of all panels, so that a dashboard's module says only what it shows.

Colour has a meaning: orange needs attention in working hours, red needs it now. Series that must
only be distinguished (homes, sources, models) have the colours of the palette. A good state has no
colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import (
    common,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders.dashboard import FieldColor, ThresholdsConfig
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode, HeatmapColorScale
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.matchers import matched

Panel: TypeAlias = heatmap.Panel | stat.Panel | statetimeline.Panel | table.Panel | timeseries.Panel

PLAIN = "text"
LOOK = "orange"
NOW = "red"
WELL = "green"
QUIET = "#808080"

NARROWEST = 60
"""Smallest width of a table's column. Grafana's own 150 makes wide tables scroll sideways."""

CELLS = 72
"""Cells of a heatmap side by side: five minutes each, in six hours."""

NO_CELL = "\u2013"
"""Text of an empty cell; otherwise each would repeat the text of an empty table."""

DATASOURCE = common_model.DataSourceRef(type_val="prometheus", uid="${datasource}")


@dataclass(frozen=True, slots=True)
class Query:
    """One expression and the legend of its series (in a table: the column's title)."""

    expression: str
    legend: str


Steps: TypeAlias = Sequence[tuple[float, str]]
"""Each colour applies from its value on; below the first value there is no colour."""

TROUBLE: Steps = ((1, LOOK),)
ALARM: Steps = ((1, NOW),)


def stat_panel(
    title: str,
    description: str,
    query: str,
    *,
    no_data: str,
    unit: str = "short",
    decimals: int | None = None,
    steps: Steps = (),
    base: str = PLAIN,
    above: tuple[float, str] | None = None,
    trend: bool = True,
) -> stat.Panel:
    """Return one number with its trend; from the value of `above` on, a text replaces it."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .no_value(no_data)
        .thresholds(_thresholds(steps, base))
        .color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .color_mode(common_model.BigValueColorMode.VALUE)
        .graph_mode(
            common_model.BigValueGraphMode.AREA if trend else common_model.BigValueGraphMode.NONE
        )
        .justify_mode(common_model.BigValueJustifyMode.AUTO)
        .text_mode(common_model.BigValueTextMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
        .with_target(_target(Query(query, title), 0, instant=not trend))
    )
    if decimals is not None:
        panel.decimals(decimals)
    if above is not None:
        panel.mappings([_from_on(*above)])
    return panel


def graph_panel(
    title: str,
    description: str,
    queries: Query | Sequence[Query],
    *,
    no_data: str,
    unit: str = "short",
    stacked: bool = False,
    edges: bool = True,
    shades: str | None = None,
    colours: Mapping[str, str] | None = None,
    marks: Mapping[str, str] | None = None,
    right: Mapping[str, str] | None = None,
    legend: str = "list",
    lowest: float | None = 0,
    highest: float | None = None,
    reaches: float | None = None,
) -> timeseries.Panel:
    """Return a graph of values over time.

    - Without `edges`, a part of a stack that is zero has no line on top of the others.
    - `shades`: all series in shades of one colour, where there is only trouble to show.
    - `colours`: by legend.
    - `marks`: by legend; dashed lines that are not part of a stack.
    - `right`: by legend; the unit of their own axis on the right.
    - `reaches`: the axis goes at least up to this, so that a single zero is at the bottom.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .no_value(no_data)
        .color_scheme(_scheme(shades))
        .draw_style(common_model.GraphDrawStyle.LINE)
        .line_width(1 if edges else 0)
        .fill_opacity(35 if stacked else 0)
        .gradient_mode(common_model.GraphGradientMode.NONE)
        .show_points(common_model.VisibilityMode.NEVER)
        .span_nulls(False)
        .stacking(
            common.StackingConfig().mode(
                common_model.StackingMode.NORMAL if stacked else common_model.StackingMode.NONE
            )
        )
        .legend(_legend(legend))
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_model.TooltipDisplayMode.MULTI)
            .sort(common_model.SortOrder.DESCENDING)
        )
    )
    if lowest is not None:
        panel.min(lowest)
    if highest is not None:
        panel.max(highest)
    if reaches is not None:
        panel.axis_soft_max(reaches)
    for index, query in enumerate([queries] if isinstance(queries, Query) else queries):
        panel.with_target(_target(query, index))
    for name, colour in (colours or {}).items():
        panel.override_by_name(name, [_fixed(colour)])
    for name, colour in (marks or {}).items():
        panel.override_by_name(name, _mark(colour))
    for name, own_unit in (right or {}).items():
        panel.override_by_name(
            name,
            [
                DynamicConfigValue("unit", own_unit),
                DynamicConfigValue("custom.axisPlacement", "right"),
            ],
        )
    return panel


def heatmap_panel(
    title: str, description: str, query: str, *, no_data: str, unit: str, cells: str = "sessions"
) -> heatmap.Panel:
    """Return the distribution of a gauge histogram over its buckets, over time.

    Its buckets are gauges that may fall: they are shown directly, never through rate().
    """
    return (
        heatmap.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .no_value(no_data)
        .calculate(False)
        .max_data_points(CELLS)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(HeatmapColorMode.SCHEME)
            .scheme("Blues")
            .scale(HeatmapColorScale.EXPONENTIAL)
            .exponent(0.5)
            .steps(32)
            .reverse(False)
        )
        .cell_gap(1)
        .cell_values(heatmap.CellValues().unit("short").decimals(0))
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .rows_frame(
            heatmap.RowsHeatmapOptions().layout(common_model.HeatmapCellLayout.AUTO).value(cells)
        )
        .y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(common_model.AxisPlacement.LEFT))
        .show_legend()
        .tooltip(
            heatmap.HeatmapTooltip()
            .mode(common_model.TooltipDisplayMode.SINGLE)
            .y_histogram(True)
            .show_color_scale(False)
        )
        .unit(unit)
        .with_target(_target(Query(query, "{{le}}"), 0, format_=PromQueryFormat.HEATMAP))
    )


def state_panel(
    title: str,
    description: str,
    query: Query,
    *,
    no_data: str,
    words: Mapping[str, tuple[str, str]],
) -> statetimeline.Panel:
    """Return the states of something over time; `words` give the text and colour of each value."""
    return (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit("short")
        .no_value(no_data)
        .color_scheme(FieldColor().mode(FieldColorModeId.FIXED).fixed_color(QUIET))
        .mappings([_words(words)])
        .show_value(common_model.VisibilityMode.AUTO)
        .row_height(0.8)
        .merge_values(True)
        .fill_opacity(30)
        .line_width(0)
        .legend(_legend("none"))
        .tooltip(common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.SINGLE))
        .with_target(_target(query, 0))
    )


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers: its title, its query, and its format."""

    title: str
    expression: str
    unit: str = "short"
    decimals: int | None = None
    steps: Steps = ()
    base: str = PLAIN
    words: Mapping[str, tuple[str, str]] | None = None
    above: tuple[float, str] | None = None
    bar: bool = False
    width: int | None = None


def table_panel(
    title: str,
    description: str,
    columns: Sequence[Column],
    *,
    labels: Mapping[str, str],
    no_data: str,
    links: Mapping[str, tuple[str, str]] | None = None,
    sort: str | None = None,
    ascending: bool = False,
    facts: Mapping[str, tuple[str, str]] | None = None,
    widths: Mapping[str, int] | None = None,
) -> table.Panel:
    """Return a table with a row for each set of `labels` and a column for each query.

    `labels` map a label to its title. `links` map the title of a column to the text and target of a
    link. `facts` come from a label and not from a value, such as versions: label to title and
    query.
    """
    facts = facts or {}
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(columns[0].unit)
        .no_value(no_data)
        .color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .thresholds(_thresholds((), PLAIN))
        .show_header(True)
        .cell_height(common_model.TableCellHeight.SM)
        .filterable(False)
        .min_width(NARROWEST)
    )
    if sort is not None:
        panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(not ascending)])
    for index, column in enumerate(columns):
        query = Query(column.expression, column.title)
        panel.with_target(_target(query, index, instant=True, format_=PromQueryFormat.TABLE))
        panel.override_by_name(column.title, _column(column))
    for name in (*labels.values(), *(name for name, _ in facts.values())):
        panel.override_by_name(name, [DynamicConfigValue("noValue", NO_CELL)])
    for name, width in (widths or {}).items():
        panel.override_by_name(name, [DynamicConfigValue("custom.width", width)])
    for name, (says, url) in (links or {}).items():
        link = [{"title": says, "url": url}]
        panel.override_by_name(name, [DynamicConfigValue("links", link)])
    for index, (title_of_fact, expression) in enumerate(facts.values(), len(columns)):
        query = Query(expression, title_of_fact)
        panel.with_target(_target(query, index, instant=True, format_=PromQueryFormat.TABLE))
    return _arranged(panel, columns, labels, {label: name for label, (name, _) in facts.items()})


def _arranged(
    panel: table.Panel,
    columns: Sequence[Column],
    labels: Mapping[str, str],
    facts: Mapping[str, str],
) -> table.Panel:
    """Arrange one row for each set of labels, with the columns in order and with their titles."""
    count = len(columns) + len(facts)
    values = [f"Value #{_letter(index)}" for index in range(count)]
    shown = dict(zip(values, (column.title for column in columns), strict=False))
    # If only one query has a result, its column has no letter: it is the first query.
    titles = {**labels, **facts, "Value": columns[0].title, **shown}
    left_out = ["Time", *values[len(columns) :]]
    if count > 1:
        panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    return panel.with_transformation(
        DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": dict.fromkeys(left_out, True),
                "indexByName": {name: index for index, name in enumerate(titles)},
                "renameByName": titles,
            },
        )
    )


def _column(column: Column) -> list[DynamicConfigValue]:
    thresholds = _thresholds(column.steps, column.base).build()
    cell: dict[str, Any] = {"type": "auto"}
    if column.bar:
        cell = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
    elif column.steps or column.words:
        cell = {"type": "color-text"}
    values = [
        DynamicConfigValue("noValue", NO_CELL),
        DynamicConfigValue("unit", column.unit),
        DynamicConfigValue("thresholds", thresholds),
        DynamicConfigValue("custom.cellOptions", cell),
    ]
    if column.decimals is not None:
        values.append(DynamicConfigValue("decimals", column.decimals))
    if column.width is not None:
        values.append(DynamicConfigValue("custom.width", column.width))
    if column.bar:
        values.append(DynamicConfigValue("min", 0))
    mappings: list[model.ValueMapping] = []
    if column.words is not None:
        mappings.append(_words(column.words))
    if column.above is not None:
        mappings.append(_from_on(*column.above))
    if mappings:
        values.append(DynamicConfigValue("mappings", mappings))
    return values


def _target(
    query: Query,
    index: int,
    *,
    instant: bool = False,
    format_: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> prometheus.Dataquery:
    target = (
        prometheus.Dataquery()
        .ref_id(_letter(index))
        .expr(matched(query.expression))
        .datasource(DATASOURCE)
        .format(format_)
        .legend_format(query.legend)
    )
    return target.instant() if instant else target.range()


def _letter(index: int) -> str:
    return chr(ord("A") + index)


def _thresholds(steps: Steps, base: str) -> ThresholdsConfig:
    all_steps = [model.Threshold(None, base)]  # null: minus infinity
    all_steps += [model.Threshold(value, colour) for value, colour in steps]
    return ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(all_steps)


def _words(words: Mapping[str, tuple[str, str]]) -> model.ValueMap:
    return model.ValueMap(
        options={
            value: model.ValueMappingResult(text=text, color=colour, index=index)
            for index, (value, (text, colour)) in enumerate(words.items())
        }
    )


def _from_on(value: float, text: str) -> model.RangeMap:
    result = model.ValueMappingResult(text=text, color=PLAIN, index=0)
    return model.RangeMap(
        options=model.DashboardRangeMapOptions(from_val=value, to=None, result=result)
    )


def _scheme(shades: str | None) -> FieldColor:
    if shades is None:
        return FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC)
    return FieldColor().mode(FieldColorModeId.SHADES).fixed_color(shades)


def _fixed(colour: str) -> DynamicConfigValue:
    return DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})


def _mark(colour: str) -> list[DynamicConfigValue]:
    return [
        _fixed(colour),
        DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}),
        DynamicConfigValue("custom.fillOpacity", 0),
        DynamicConfigValue("custom.stacking", {"mode": "none", "group": "A"}),
    ]


def _legend(kind: str) -> common.VizLegendOptions:
    options = common.VizLegendOptions().show_legend(kind != "none")
    if kind == "table":
        return (
            options.display_mode(common_model.LegendDisplayMode.TABLE)
            .placement(common_model.LegendPlacement.RIGHT)
            .calcs(["lastNotNull", "max"])
        )
    return (
        options.display_mode(common_model.LegendDisplayMode.LIST)
        .placement(common_model.LegendPlacement.BOTTOM)
        .calcs([])
    )


def to_host(label: str = "Host", *, home: str | None = None) -> tuple[str, str]:
    """Return a link from a row of a table to the dashboard of its host, and home."""
    url = (
        "/d/hermes-host?${datasource:queryparam}&${job:queryparam}"
        f"&var-instance=${{__data.fields.{label}}}"
    )
    if home is not None:
        url += f"&var-home=${{__data.fields.{home}}}"
    return "Open this host", url + "&${__url_time_range}"
