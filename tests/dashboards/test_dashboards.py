"""The dashboards keep the rules of Grafana's dashboard-linter, and some of our own.

The linter itself is a Go program; its rules are written down here by the names it gives them.
"""

from __future__ import annotations

import json
import re
import shlex
from itertools import combinations
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from dashboards import generate
from dashboards.words import DAYS, MINUTES
from exporter.cli import commands
from exporter.cli.parser import Parser
from exporter.collectors import collectors
from exporter.collectors.series_budget import values_of
from tests.dashboards.expressions import FILES, FOLDER, NAMES, load, panels, selectors, targets
from tests.dashboards.stage import recorded_names

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"short", "none", "percentunit", "currencyUSD", "bytes", "s", DAYS, MINUTES}
"""Those in use. Seconds only where they are few: Grafana shows large ones as weeks."""
RATES = {"rate", "irate", "increase"}

each_dashboard = pytest.mark.parametrize("name", NAMES)


def variables(name: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in load(name)["templating"]["list"]}


def test_what_is_committed_is_what_is_generated() -> None:
    expected = {name: generate.rendered(each) for name, each in generate.dashboards().items()}
    assert {file.name: file.read_text() for file in FILES} == expected, "run `make docs`"


@each_dashboard
def test_it_imports_and_provisions(name: str) -> None:
    """An import asks nothing, and a file in a folder needs nothing else."""
    dashboard = load(name)
    assert dashboard["uid"] == name
    assert "__inputs" not in dashboard
    assert "id" not in dashboard, "the server gives it"
    assert dashboard["schemaVersion"] <= 38, "what Grafana 10.0 knows; newer ones migrate it"
    assert dashboard["tags"] == ["hermes"]


@each_dashboard
def test_every_key_is_in_the_schema(name: str) -> None:
    """What Grafana's own types do not know vanishes on the way through them."""
    dashboard = load(name)
    again = json.loads(json.dumps(model.Dashboard.from_json(dashboard), cls=JSONEncoder))
    assert again == dashboard


@each_dashboard
def test_uneditable_dashboard(name: str) -> None:
    assert load(name)["editable"] is False


@each_dashboard
def test_template_datasource_rule(name: str) -> None:
    source = variables(name)["datasource"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    assert source["label"] == "Data source"


@each_dashboard
@pytest.mark.parametrize("variable", ["job", "instance", "home"])
def test_template_job_and_instance_rules(name: str, variable: str) -> None:
    found = variables(name)[variable]
    assert found["type"] == "query"
    assert found["datasource"] == SOURCE
    assert found["label"] == variable.title()
    assert found["multi"] is True
    assert found["allValue"] == ".+"


@each_dashboard
def test_template_on_time_change_reload_rule(name: str) -> None:
    queries = [each for each in variables(name).values() if each["type"] == "query"]
    assert {each["refresh"] for each in queries} == {2}


@each_dashboard
def test_template_label_promql_rule(name: str) -> None:
    """And each variable offers only what the ones before it leave."""
    asked = {
        key: each["definition"] for key, each in variables(name).items() if "definition" in each
    }
    found = {
        key: re.fullmatch(r"label_values\(([\w:]+)(?:\{(.*)\})?, (\w+)\)", query)
        for key, query in asked.items()
    }
    narrowed = {key: match and (match[2], match[3]) for key, match in found.items()}
    assert narrowed == {
        "job": (None, "job"),
        "instance": ('job=~"$job"', "instance"),
        "home": ('job=~"$job", instance=~"$instance"', "home"),
    }


@each_dashboard
def test_panel_datasource_rule(name: str) -> None:
    dashboard = load(name)
    places = [*panels(dashboard), *(target for _, target in targets(dashboard))]
    places += dashboard["annotations"].get("list", [])
    assert all(place["datasource"] == SOURCE for place in places)


@each_dashboard
def test_panel_title_description_rule(name: str) -> None:
    for panel in panels(load(name)):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert len(panel["description"]) > 60, f"{panel['title']}: says too little to act on"


@each_dashboard
def test_panel_units_rule(name: str) -> None:
    for panel in panels(load(name)):
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]


@each_dashboard
def test_panel_no_targets_rule(name: str) -> None:
    for panel in panels(load(name)):
        assert panel["targets"], panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(letters) == len(set(letters)), panel["title"]


@each_dashboard
def test_target_rate_interval_rule(name: str) -> None:
    for title, target in targets(load(name)):
        for selector in selectors(target["expr"]):
            if selector.function in ("rate", "irate"):
                assert selector.range == "$__rate_interval", title


@each_dashboard
def test_target_counter_agg_rule(name: str) -> None:
    for title, target in targets(load(name)):
        for selector in selectors(target["expr"]):
            if selector.name.endswith("_total"):
                assert selector.function in RATES, f"{title}: {selector.name}"


@each_dashboard
def test_gauge_histograms_are_never_rated(name: str) -> None:
    """Their buckets may fall; only `_bucket` has one name in both formats."""
    for title, target in targets(load(name)):
        for selector in selectors(target["expr"]):
            assert not selector.name.endswith(("_sum", "_count", "_gsum", "_gcount")), title
            if selector.name.endswith("_bucket"):
                assert not selector.range, title


@each_dashboard
def test_target_job_and_instance_rules(name: str) -> None:
    """Sums over a whole job have no instance to ask for; the linter's `.lint` says so too."""
    dashboard = load(name)
    asked = [
        *targets(dashboard),
        *((a["name"], a) for a in dashboard["annotations"].get("list", [])),
    ]
    excluded = set()
    for title, target in asked:
        for selector in selectors(target["expr"]):
            assert 'job=~"$job"' in selector.matchers, f"{title}: {selector.name}"
            if selector.name.startswith("job:"):
                excluded.add(dashboard["title"])
                assert "instance" not in selector.matchers, f"{title}: {selector.name}"
            else:
                assert 'instance=~"$instance"' in selector.matchers, f"{title}: {selector.name}"
    told = yaml.safe_load((FOLDER / ".lint").read_text())["exclusions"]["target-instance-rule"]
    assert excluded == {
        e["dashboard"] for e in told["entries"] if e["dashboard"] == dashboard["title"]
    }


def test_runs_are_drawn_where_they_show() -> None:
    dashboard = load("hermes-host")
    titles = {panel["id"]: panel["title"] for panel in panels(dashboard)}
    shown = {
        each["name"]: {titles[number] for number in each["filter"]["ids"]}
        for each in dashboard["annotations"]["list"]
    }
    assert "Bytes by kind" in shown["Prune run"]
    assert "Open sessions by verdict" in shown["Sessions reaped"]
    assert not shown["Prune run"] & shown["Sessions reaped"]


def test_fleet_reads_only_what_is_recorded() -> None:
    """A fleet of thousands is looked at through few series."""
    dashboard = load("hermes-fleet")
    read = {each.name for _, target in targets(dashboard) for each in selectors(target["expr"])}
    read |= {
        each["definition"].removeprefix("label_values(").partition(",")[0].partition("{")[0]
        for each in variables("hermes-fleet").values()
        if "definition" in each
    }
    assert read <= recorded_names()


@each_dashboard
def test_every_panel_says_what_an_empty_one_means(name: str) -> None:
    for panel in panels(load(name)):
        assert panel["fieldConfig"]["defaults"]["noValue"], panel["title"]


@each_dashboard
def test_every_query_names_its_series(name: str) -> None:
    for title, target in targets(load(name)):
        assert target["legendFormat"], title


@each_dashboard
def test_a_table_of_which_one_query_has_an_answer_keeps_its_titles(name: str) -> None:
    """Grafana calls a lone answer's column `Value`, without the letter of its query."""
    for panel in panels(load(name)):
        if panel["type"] == "table":
            (organize,) = (t for t in panel["transformations"] if t["id"] == "organize")
            titles = organize["options"]["renameByName"]
            assert titles["Value"] == titles["Value #A"] == panel["targets"][0]["legendFormat"]


@each_dashboard
def test_panels_fill_the_grid_without_overlap(name: str) -> None:
    places = [panel["gridPos"] for panel in load(name)["panels"]]
    for one, other in combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    area = sum(place["w"] * place["h"] for place in places)
    assert area == 24 * max(place["y"] + place["h"] for place in places), "there are holes"
    numbers = [panel["id"] for panel in load(name)["panels"]]
    assert len(numbers) == len(set(numbers))


@each_dashboard
def test_the_others_are_a_click_away(name: str) -> None:
    """With the variables and the time that are chosen."""
    (link,) = load(name)["links"]
    assert (link["type"], link["tags"]) == ("dashboards", ["hermes"])
    assert link["includeVars"]
    assert link["keepTime"]


@each_dashboard
def test_whatever_is_known_to_be_drawn_has_its_colour(name: str) -> None:
    """Grafana's palette soon comes to orange and red, which mean that something is wrong here."""
    for panel in panels(load(name)):
        if panel["type"] != "timeseries":
            continue
        if panel["fieldConfig"]["defaults"]["color"]["mode"] != "palette-classic":
            continue
        coloured = {
            override["matcher"]["options"]
            for override in panel["fieldConfig"]["overrides"]
            if any(setting["id"] == "color" for setting in override["properties"])
        }
        for target in panel["targets"]:
            without = possible_legends(target) - coloured
            assert without == set(), f"no colour in {panel['title']!r}: run `make docs`"


def possible_legends(target: dict[str, Any]) -> set[str]:
    """What the series of a query may be called; nothing where that is an open set."""
    label = re.fullmatch(r"\{\{(\w+)\}\}", target["legendFormat"])
    metric = re.search(r"hermes_\w+", target["expr"])
    if label is None or metric is None or label[1] == "version":
        return set()
    if label[1] == "collector":
        return {collector.name for collector in collectors()}
    try:
        return set(values_of(metric[0], label[1]))
    except KeyError:
        return set()


def test_links_of_tables_lead_to_dashboards_that_there_are() -> None:
    urls = {
        link["url"]
        for name in NAMES
        for panel in panels(load(name))
        for override in panel["fieldConfig"]["overrides"]
        for setting in override["properties"]
        if setting["id"] == "links"
        for link in setting["value"]
    }
    assert urls
    for url in urls:
        path, _, query = url.partition("?")
        assert path.removeprefix("/d/") in NAMES
        known = variables(path.removeprefix("/d/"))
        assert set(re.findall(r"var-(\w+)=", query)) <= known.keys()
        assert set(re.findall(r"\$\{(\w+):queryparam\}", query)) <= known.keys()


@each_dashboard
def test_commands_in_descriptions_can_be_typed(name: str) -> None:
    for panel in panels(load(name)):
        for text in re.findall(r"`(hermes-exporter [^`]+)`", panel["description"]):
            command, *words = shlex.split(text)[1:]
            Parser(command, commands.load(command)).parse(words)
