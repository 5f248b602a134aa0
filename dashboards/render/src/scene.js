// A scene of Grafana's from a dashboard's classic JSON.
import { VariableRefresh } from '@grafana/data';
import {
  dataLayers, DataSourceVariable, EmbeddedScene, QueryVariable, SceneControlsSpacer, SceneDataLayerSet,
  SceneDataTransformer, SceneGridItem, SceneGridLayout, SceneGridRow, SceneQueryRunner,
  SceneTimePicker, SceneTimeRange, SceneVariableSet, VariableValueSelectors, VizPanel, behaviors,
} from '@grafana/scenes';

export function sceneOf(dashboard, chosen) {
  return new EmbeddedScene({
    $timeRange: new SceneTimeRange({ from: chosen.from, to: chosen.to, timeZone: 'utc' }),
    $variables: new SceneVariableSet({
      variables: dashboard.templating.list.map((variable) => variableOf(variable, chosen[variable.name])),
    }),
    $data: new SceneDataLayerSet({
      layers: (dashboard.annotations.list ?? []).map(
        (query) => new dataLayers.AnnotationsDataLayer({ key: query.name, name: query.name, query, isEnabled: true })
      ),
    }),
    $behaviors: [new behaviors.CursorSync({ key: 'sync', sync: dashboard.graphTooltip })],
    controls: [
      new VariableValueSelectors({}), new SceneControlsSpacer(), new SceneTimePicker({}),
    ],
    body: new SceneGridLayout({
      isDraggable: false, isResizable: false, isLazy: false, children: dashboard.panels.map(itemOf),
    }),
  });
}

function variableOf(variable, chosen) {
  const common = { name: variable.name, label: variable.label };
  if (variable.type === 'datasource') {
    return new DataSourceVariable({ ...common, pluginId: variable.query, value: 'prometheus', text: 'Prometheus' });
  }
  return new QueryVariable({
    ...common,
    query: variable.query,
    datasource: variable.datasource,
    refresh: VariableRefresh.onTimeRangeChanged,
    sort: variable.sort,
    isMulti: variable.multi,
    includeAll: variable.includeAll,
    allValue: variable.allValue,
    ...(chosen
      ? { value: [chosen], text: [chosen] }
      : variable.includeAll ? { value: ['$__all'], text: ['All'] } : {}),
  });
}

function itemOf(panel) {
  const { x, y, w, h } = panel.gridPos;
  if (panel.type === 'row') {
    return new SceneGridRow({ title: panel.title, x, y, width: w, height: h, isCollapsed: false, children: [] });
  }
  return new SceneGridItem({ x, y, width: w, height: h, body: panelOf(panel) });
}

function panelOf(panel) {
  const runner = new SceneQueryRunner({
    datasource: panel.datasource,
    queries: panel.targets,
    maxDataPoints: panel.maxDataPoints,
    minInterval: panel.interval,
    dataLayerFilter: { panelId: panel.id },
  });
  return new VizPanel({
    key: `panel-${panel.id}`,
    title: panel.title,
    description: panel.description,
    pluginId: panel.type,
    options: panel.options,
    fieldConfig: panel.fieldConfig,
    $data: new SceneDataTransformer({ $data: runner, transformations: panel.transformations ?? [] }),
  });
}
