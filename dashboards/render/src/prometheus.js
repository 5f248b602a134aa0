// Answers what Grafana's server would: data frames, from a real Prometheus behind /prometheus.
import { FieldType } from '@grafana/data';

async function ask(path, parameters) {
  const response = await fetch(`/prometheus${path}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams(parameters),
  });
  const answer = await response.json();
  if (answer.status !== 'success') {
    throw new Error(`${parameters.query}: ${answer.error}`);
  }
  return answer.data;
}

/** The answer of /api/ds/query to the queries of one panel. */
export async function answerQueries(request) {
  const results = {};
  for (const query of request.queries) {
    try {
      results[query.refId] = { status: 200, frames: await answerQuery(query, request) };
    } catch (error) {
      window.queryErrors.push(String(error));
      results[query.refId] = { status: 400, error: String(error), frames: [] };
    }
  }
  return { results };
}

async function answerQuery(query, request) {
  const [from, to] = [Number(request.from) / 1000, Number(request.to) / 1000];
  const step = Math.max(1, Math.round((query.intervalMs ?? 15_000) / 1000));
  const scrape = 60;
  const rateInterval = Math.max(step + scrape, 4 * scrape);
  const expression = query.expr
    .replaceAll('$__rate_interval', `${rateInterval}s`)
    .replaceAll('$__interval', `${step}s`)
    .replaceAll('$__range', `${Math.round(to - from)}s`);
  if (query.instant) {
    const data = await ask('/api/v1/query', { query: expression, time: String(to) });
    return data.result.map((series) =>
      frameOf(query, expression, series.metric ?? {}, [series.value ?? series], 0)
    );
  }
  // Aligned to the step, as Grafana's server does it.
  const start = Math.floor(from / step) * step;
  const end = Math.floor(to / step) * step;
  const data = await ask('/api/v1/query_range', {
    query: expression,
    start: String(start),
    end: String(end),
    step: String(step),
  });
  return data.result.map((series) => frameOf(query, expression, series.metric, series.values, step));
}

function frameOf(query, expression, labels, values, step) {
  const name = legendOf(query, labels, expression);
  return {
    schema: {
      refId: query.refId,
      name,
      meta: {
        type: 'timeseries-multi',
        typeVersion: [0, 1],
        executedQueryString: `Expr: ${expression}\nStep: ${step}s`,
        custom: { resultType: query.instant ? 'vector' : 'matrix' },
      },
      fields: [
        {
          name: 'Time',
          type: FieldType.time,
          typeInfo: { frame: 'time.Time' },
          config: step ? { interval: step * 1000 } : {},
        },
        {
          name: 'Value',
          type: FieldType.number,
          typeInfo: { frame: 'float64' },
          labels,
          config: query.format === 'table' ? {} : { displayNameFromDS: name },
        },
      ],
    },
    data: {
      values: [
        values.map(([at]) => Math.round(at * 1000)),
        values.map(([, value]) => Number(value)),
      ],
    },
  };
}

function legendOf(query, labels, expression) {
  const format = query.legendFormat;
  if (!format || format === '__auto') {
    return expression;
  }
  return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? '');
}

/** The answer to a resource call of the data source, such as label values. */
export async function answerResource(path, parameters) {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters ?? {})) {
    for (const each of [value].flat()) {
      search.append(key, String(each));
    }
  }
  const response = await fetch(`/prometheus/${path}?${search}`);
  return response.json();
}
