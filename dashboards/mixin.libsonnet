// For those who vendor mixins: the generated files as they are.
//
//   (import 'hermes-exporter/dashboards/mixin.libsonnet') + { … }
{
  local dashboards = {
    'hermes-fleet.json': import 'grafana/hermes-fleet.json',
    'hermes-host.json': import 'grafana/hermes-host.json',
    'hermes-agent.json': import 'grafana/hermes-agent.json',
  },

  grafanaDashboardFolder:: 'Hermes',
  grafanaDashboards+:: dashboards,
  prometheusRules+:: std.parseYaml(importstr 'rules/recording.yaml'),
  prometheusAlerts+:: std.parseYaml(importstr 'rules/alerts.yaml'),
}
