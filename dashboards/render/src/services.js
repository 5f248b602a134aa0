// What Grafana's application gives to its libraries at start, as little of it as panels need.
import {
  EventBusSrv, LoadingState, standardFieldConfigEditorRegistry,
  standardTransformers, standardTransformersRegistry,
} from '@grafana/data';
import { PrometheusDatasource } from '@grafana/prometheus';
import {
  config, setAppEvents, setBackendSrv, setDataSourceSrv, setEchoSrv, setPluginImportUtils,
  setRunRequest, setTemplateSrv,
} from '@grafana/runtime';
import { sceneGraph } from '@grafana/scenes';
import { catchError, from, map, of } from 'rxjs';

import { plugins } from './panels.jsx';
import { answerQueries, answerResource } from './prometheus.js';

const SETTINGS = {
  id: 1, uid: 'prometheus', name: 'Prometheus', type: 'prometheus', access: 'proxy', readOnly: true,
  url: '/api/datasources/proxy/uid/prometheus', isDefault: true,
  jsonData: { timeInterval: '60s', httpMethod: 'POST', prometheusType: 'Prometheus', prometheusVersion: '2.42.0' },
  meta: {
    id: 'prometheus', name: 'Prometheus', type: 'datasource', metrics: true, annotations: true,
    info: { logos: { small: '', large: '' } }, module: '', baseUrl: '',
  },
};

export function startServices(theme, scene) {
  config.theme2 = theme;
  setAppEvents(new EventBusSrv());
  setEchoSrv({ flush() {}, addBackend() {}, addEvent() {} });
  setTemplateSrv({
    replace: (text, scopedVars, format) => sceneGraph.interpolate(scene(), text, scopedVars, format),
    getVariables: () => [], containsTemplate: (text) => String(text ?? '').includes('$'), updateTimeRange() {},
  });
  setBackendSrv(backend());
  let source;
  setDataSourceSrv({
    get: async () => (source ??= new PrometheusDatasource(SETTINGS)),
    getList: () => [SETTINGS], getInstanceSettings: () => SETTINGS, reload: async () => {},
    registerRuntimeDataSource() {},
  });
  setRunRequest(runRequest);
  setPluginImportUtils({
    importPanelPlugin: async (id) => pluginOf(id), getPanelPluginFromCache: (id) => pluginOf(id),
  });
  standardFieldConfigEditorRegistry.setInit(standardOptions);
  standardTransformersRegistry.setInit(() =>
    // Some have two names here.
    [...new Map(Object.values(standardTransformers).map((info) => [info.id, info])).values()].map((info) => ({
      id: info.id, name: info.name, editor: () => null, transformation: async () => info,
      imageDark: '', imageLight: '',
    }))
  );
}

function pluginOf(id) {
  if (!plugins[id]) {
    throw new Error(`there is no panel plugin ${id} here`);
  }
  return plugins[id];
}

function backend() {
  async function answer({ url, data, params }) {
    if (url.startsWith('/api/ds/query')) {
      return answerQueries(data);
    }
    const resource = url.match(/\/resources\/(.*)$/) ?? url.match(/\/api\/datasources\/proxy\/[^/]+\/[^/]+\/(.*)$/);
    if (resource) {
      return answerResource(resource[1], { ...params, ...(data ?? {}) });
    }
    throw new Error(`no answer here for ${url}`);
  }
  return {
    fetch: (request) =>
      from(answer(request)).pipe(map((data) => ({ data, status: 200, ok: true, config: request }))),
    datasourceRequest: async (request) => ({ data: await answer(request), status: 200 }),
    get: async (url, params) => answer({ url, params }),
    post: async (url, data) => answer({ url, data }),
  };
}

function runRequest(source, request, queryFunction) {
  const answer = queryFunction ? queryFunction(request) : source.query(request);
  return from(answer).pipe(
    map((response) => ({
      state: response.error || response.errors?.length ? LoadingState.Error : LoadingState.Done,
      error: response.error ?? response.errors?.[0],
      series: response.data.filter((frame) => frame.meta?.dataTopic !== 'annotations'),
      annotations: response.data.filter((frame) => frame.meta?.dataTopic === 'annotations'),
      timeRange: request.range,
      request,
    })),
    catchError((error) => {
      window.queryErrors.push(String(error?.message ?? error));
      return of({ state: LoadingState.Error, error, series: [], timeRange: request.range, request });
    })
  );
}

/** The field options that every panel has; their editors are not needed to draw. */
function standardOptions() {
  const names = [
    'unit', 'min', 'max', 'decimals', 'displayName', 'noValue', 'color', 'mappings', 'thresholds', 'links',
    'filterable', 'fieldMinMax', 'actions',
  ];
  return names.map((id) => option(id, id));
}

function option(id, path) {
  return {
    id, path, name: id, editor: () => null, override: () => null, process: (value) => value,
    shouldApply: () => true, getItemsCount: () => 0,
  };
}
