// Panel plugins over Grafana's own components. Grafana's plugins themselves are not on npm; values,
// units, thresholds, mappings and overrides come ready from Grafana's field configuration.
import {
  cacheFieldDisplayNames, FieldType, formattedValueToString, getDisplayProcessor, getFieldDisplayName, getFieldDisplayValues, PanelPlugin,
} from '@grafana/data';
import { BigValue, measureText, TimeSeries, useTheme2 } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { useRef } from 'react';

export function NoData({ message, fieldConfig }) {
  const theme = useTheme2();
  return (
    <div
      className="no-data"
      style={{
        display: 'flex', height: '100%', alignItems: 'center', justifyContent: 'center', textAlign: 'center',
        color: theme.colors.text.secondary, padding: 8,
      }}
    >
      {fieldConfig?.defaults?.noValue ?? message ?? 'No data'}
    </div>
  );
}

const isEmpty = (data) => !data.series.some((frame) => frame.length > 0);

function Stat({ data, fieldConfig, options, width, height, replaceVariables, timeRange, timeZone }) {
  const theme = useTheme2();
  const [shown] = getFieldDisplayValues({
    fieldConfig, reduceOptions: options.reduceOptions, replaceVariables, theme, data: data.series,
    sparkline: options.graphMode !== 'none', timeZone,
  });
  if (shown.sparkline) {
    shown.sparkline.timeRange = timeRange;
  }
  return (
    <BigValue
      value={shown.display} sparkline={shown.sparkline} width={width} height={height} theme={theme}
      colorMode={options.colorMode} graphMode={options.graphMode} justifyMode={options.justifyMode}
      textMode={options.textMode}
    />
  );
}

function Lines({ data, fieldConfig, options, width, height, timeRange, timeZone, id }) {
  const theme = useTheme2();
  const hooked = useRef(new WeakSet());
  const marks = useRef([]);
  marks.current = (data.annotations ?? []).flatMap((frame) => {
    const at = frame.fields.find((field) => field.name === 'time');
    const colour = frame.fields.find((field) => field.name === 'color');
    return at ? at.values.map((time, index) => ({ time, colour: colour?.values[index] })) : [];
  });
  if (isEmpty(data)) {
    return <NoData fieldConfig={fieldConfig} />;
  }
  return (
    <TimeSeries
      key={id} frames={data.series} structureRev={data.structureRev} timeRange={timeRange} timeZone={timeZone}
      width={width} height={height} legend={options.legend} options={options}
    >
      {(builder) => {
        if (!hooked.current.has(builder)) {
          hooked.current.add(builder);
          builder.addHook('draw', (plot) => drawMarks(plot, marks.current, theme));
        }
        return null;
      }}
    </TimeSeries>
  );
}

function drawMarks(plot, marks, theme) {
  const { ctx, bbox } = plot;
  ctx.save();
  for (const { time, colour } of marks) {
    const x = Math.round(plot.valToPos(time, 'x', true));
    if (x >= bbox.left && x <= bbox.left + bbox.width) {
      ctx.strokeStyle = theme.visualization.getColorByName(colour ?? 'blue');
      ctx.lineWidth = devicePixelRatio;
      ctx.globalAlpha = 0.7;
      ctx.setLineDash([4, 4]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
  }
  ctx.restore();
}

function Rows({ data, fieldConfig, options, width, height }) {
  if (isEmpty(data)) {
    return <NoData fieldConfig={fieldConfig} />;
  }
  cacheFieldDisplayNames(data.series);
  return (
    <TableNG
      data={data.series[0]} width={width} height={height} sortBy={options.sortBy} showTypeIcons={false}
      noHeader={!options.showHeader} cellHeight={options.cellHeight} enableVirtualization={false}
      structureRev={data.structureRev} fieldConfig={fieldConfig}
    />
  );
}

const LEFT = 72;
const BOTTOM = 22;

function TimeAxis({ from, to, left, width, height }) {
  const theme = useTheme2();
  const half = 1_800_000;
  const step = half * Math.max(1, 2 ** Math.ceil(Math.log2((to - from) / half / (width / 80))));
  const first = Math.ceil(from / step);
  return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, index) => {
    const at = (first + index) * step;
    return (
      <text
        key={at} x={left + ((at - from) / (to - from)) * width} y={height - 6} fontSize={12} textAnchor="middle"
        fill={theme.colors.text.primary}
      >
        {new Date(at).toISOString().slice(11, 16)}
      </text>
    );
  });
}

function Heatmap({ data, fieldConfig, options, width, height, timeRange }) {
  const theme = useTheme2();
  const frame = data.series[0];
  if (isEmpty(data)) {
    return <NoData fieldConfig={fieldConfig} />;
  }
  const times = frame.fields.find((field) => field.type === FieldType.time).values;
  const buckets = frame.fields.filter((field) => field.type === FieldType.number);
  const most = Math.max(...buckets.flatMap((field) => field.values.filter(Number.isFinite)));
  const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const [plotWidth, plotHeight] = [width - LEFT, height - BOTTOM];
  const rowHeight = plotHeight / buckets.length;
  const step = times.length > 1 ? times[1] - times[0] : to - from;
  const cellWidth = (step / (to - from)) * plotWidth;
  const cells = buckets.flatMap((field, row) =>
    Array.from(field.values, (value, index) => {
      if (!(value > options.filterValues.le)) {
        return null;
      }
      const strength = (value / most) ** options.color.exponent;
      return (
        <rect
          key={`${row}-${index}`} x={LEFT + ((times[index] - step - from) / (to - from)) * plotWidth}
          y={plotHeight - (row + 1) * rowHeight} width={Math.max(1, cellWidth - 1)} height={rowHeight - 1}
          fill={blues(strength, theme.isDark)}
        />
      );
    })
  );
  const names = buckets.map((field, row) => (
    <text
      key={row} x={LEFT - 8} y={plotHeight - (row + 0.5) * rowHeight + 4} fontSize={12} textAnchor="end"
      fill={theme.colors.text.primary}
    >
      {getFieldDisplayName(field, frame)}
    </text>
  ));
  return (
    <svg width={width} height={height}>
      <clipPath id="plot"><rect x={LEFT} y={0} width={plotWidth} height={plotHeight} /></clipPath>
      <g clipPath="url(#plot)">{cells}</g>
      {names}
      <TimeAxis from={from} to={to} left={LEFT} width={plotWidth} height={height} />
    </svg>
  );
}

/** Grafana's scheme Blues: pale for few on white, the other way round on black. */
function blues(strength, dark) {
  const lightness = dark ? 14 + 64 * strength : 94 - 66 * strength;
  return `hsl(212 ${45 + 35 * strength}% ${lightness}%)`;
}

function States({ data, fieldConfig, width, height, timeRange, timeZone }) {
  const theme = useTheme2();
  if (isEmpty(data)) {
    return <NoData fieldConfig={fieldConfig} />;
  }
  const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const series = data.series.filter((frame) => frame.length > 0);
  const names = series.map((frame) => getFieldDisplayName(frame.fields[1], frame));
  const widest = Math.max(0, ...names.map((name) => measureText(name, 12).width));
  const left = Math.ceil(Math.min(0.4 * width, widest)) + 16; // as Grafana: at most 40% of the panel
  const rowHeight = (height - BOTTOM) / series.length;
  const place = (time) => left + ((Math.min(Math.max(time, from), to) - from) / (to - from)) * (width - left);
  return (
    <svg width={width} height={height}>
      {series.map((frame, row) => {
        const times = frame.fields[0].values;
        const field = frame.fields[1];
        const display = field.display ?? getDisplayProcessor({ field, theme, timeZone });
        return (
          <g key={row}>
            <text x={left - 8} y={(row + 0.5) * rowHeight + 4} fontSize={12} textAnchor="end" fill={theme.colors.text.primary}>
              {names[row]}
            </text>
            {runs(times, field.values, to).map(({ since, until, value }) => {
              const shown = display(value);
              return (
                <g key={since}>
                  <rect
                    x={place(since)} width={Math.max(1, place(until) - place(since))} y={row * rowHeight + rowHeight * 0.1}
                    height={rowHeight * 0.8} fill={shown.color} fillOpacity={(field.config.custom?.fillOpacity ?? 70) / 100}
                  />
                  {place(until) - place(since) > 60 && (
                    <text
                      x={(place(since) + place(until)) / 2} y={(row + 0.5) * rowHeight + 4} fontSize={12} textAnchor="middle"
                      fill={theme.colors.text.primary}
                    >
                      {formattedValueToString(shown)}
                    </text>
                  )}
                </g>
              );
            })}
          </g>
        );
      })}
      <TimeAxis from={from} to={to} left={left} width={width - left} height={height} />
    </svg>
  );
}

/** Stretches of one and the same value; a hole of several steps ends one. */
function runs(times, values, end) {
  const found = [];
  const step = times.length > 1 ? times[1] - times[0] : 60_000;
  for (let index = 0; index < times.length; index++) {
    const last = found.at(-1);
    const until = Math.min(times[index] + step, end);
    if (last && last.value === values[index] && times[index] - last.until <= 2 * step) {
      last.until = until;
    } else {
      found.push({ since: times[index], until, value: values[index] });
    }
  }
  return found;
}

/** Options of single fields that the dashboards set, so that overrides of them take effect. */
const CUSTOM = [
  'drawStyle', 'lineWidth', 'lineStyle', 'lineInterpolation', 'fillOpacity', 'gradientMode', 'showPoints', 'pointSize',
  'spanNulls', 'stacking', 'axisPlacement', 'axisLabel', 'axisColorMode', 'axisBorderShow', 'axisGridShow', 'axisWidth',
  'scaleDistribution', 'thresholdsStyle', 'hideFrom', 'barAlignment', 'cellOptions', 'width', 'minWidth', 'align', 'inspect', 'filterable',
  'barWidthFactor', 'axisSoftMin', 'axisSoftMax', 'insertNulls', 'hidden',
];
const DEFAULTS = {
  hideFrom: { viz: false, legend: false, tooltip: false }, scaleDistribution: { type: 'linear' }, pointSize: 5,
  lineInterpolation: 'linear', axisPlacement: 'auto', thresholdsStyle: { mode: 'off' }, cellOptions: { type: 'auto' },
};

function plugin(id, component) {
  const made = new PanelPlugin(component);
  made.meta = { id, name: id, type: 'panel', module: '', baseUrl: '', info: { logos: {} }, sort: 0 };
  made.setDataSupport({ annotations: true, alertStates: false });
  return made.useFieldConfig({
    useCustomConfig: (builder) => {
      for (const path of CUSTOM) {
        builder.addCustomEditor({
          id: path, path, name: path, editor: () => null, override: () => null, process: (value) => value,
          shouldApply: () => true, defaultValue: DEFAULTS[path],
        });
      }
    },
  });
}

export const plugins = Object.fromEntries(
  Object.entries({ stat: Stat, timeseries: Lines, table: Rows, heatmap: Heatmap, 'state-timeline': States }).map(
    ([id, component]) => [id, plugin(id, component)]
  )
);
