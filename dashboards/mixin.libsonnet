// For those who vendor mixins: the generated files, with links that begin as you say.
//
//   (import 'hermes-exporter/dashboards/mixin.libsonnet') + {
//     _config+:: { runbookBase: 'https://wiki.example.org/runbooks' },
//   }
{
  local dashboards = {
    'hermes-fleet.json': import 'grafana/hermes-fleet.json',
    'hermes-host.json': import 'grafana/hermes-host.json',
    'hermes-agent.json': import 'grafana/hermes-agent.json',
  },
  local withoutSlash(base) = std.rstripChars(base, '/'),
  local withLinks(rule, config) = rule {
    annotations+: {
      [if config.runbookBase != '' then 'runbook_url']:
        '%s/%s.md' % [withoutSlash(config.runbookBase), rule.alert],
      [if config.dashboardBase != '' then 'dashboard_url']:
        withoutSlash(config.dashboardBase) + rule.annotations.dashboard_url,
    },
  },

  // Without a base a runbook is a page of the agent that the alert is about.
  _config:: { runbookBase: '', dashboardBase: '' },

  grafanaDashboardFolder:: 'Hermes',
  grafanaDashboards+:: dashboards,
  prometheusRules+:: std.parseYaml(importstr 'rules/recording.yaml'),
  prometheusAlerts+:: {
    groups: [
      group { rules: [withLinks(rule, $._config) for rule in group.rules] }
      for group in std.parseYaml(importstr 'rules/alerts.yaml').groups
    ],
  },
}
