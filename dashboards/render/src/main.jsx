// Draws one dashboard: /?dashboard=hermes-host&theme=dark&instance=…
import { createTheme, LoadingState, ThemeContext } from '@grafana/data';
import { GlobalStyles, PortalContainer } from '@grafana/ui';
import { sceneGraph, VizPanel } from '@grafana/scenes';
import { createRoot } from 'react-dom/client';
import { HashRouter } from 'react-router-dom';

import { sceneOf } from './scene.js';
import { startServices } from './services.js';

window.queryErrors = [];
window.pageErrors = [];
window.addEventListener('error', (event) => {
  // Chromium tells of layouts that needed a second pass; nothing is wrong with them.
  if (!String(event.message).startsWith('ResizeObserver')) {
    window.pageErrors.push(String(event.message));
  }
});
window.addEventListener('unhandledrejection', (event) => window.pageErrors.push(String(event.reason?.stack ?? event.reason)));

const asked = Object.fromEntries(new URLSearchParams(location.search));
const theme = createTheme({ colors: { mode: asked.theme ?? 'light' } });
const dashboard = await (await fetch(`/dashboards/${asked.dashboard}.json`)).json();

let scene;
startServices(theme, () => scene);
scene = sceneOf(dashboard, asked);

/** What each panel shows, for whoever drives this page: its title, state and number of series. */
window.panelReport = () =>
  sceneGraph.findAllObjects(scene, (object) => object instanceof VizPanel).map((panel) => {
    const data = sceneGraph.getData(panel).state.data;
    return {
      title: panel.state.title,
      type: panel.state.pluginId,
      state: data?.state ?? LoadingState.NotStarted,
      error: data?.errors?.[0]?.message ?? data?.error?.message ?? panel.state._pluginLoadError ?? '',
      series: data?.series?.filter((frame) => frame.length > 0).length ?? 0,
    };
  });

function Page() {
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div
        id="board"
        style={{ background: theme.colors.background.canvas, color: theme.colors.text.primary, padding: 16, minHeight: '100vh' }}
      >
        <h1 style={{ fontSize: 18, fontWeight: 500, margin: '0 0 12px' }}>{dashboard.title}</h1>
        <scene.Component model={scene} />
      </div>
      <PortalContainer />
    </ThemeContext.Provider>
  );
}

createRoot(document.getElementById('page')).render(
  <HashRouter>
    <Page />
  </HashRouter>
);
