import { fileURLToPath } from 'node:url';

import { defineConfig } from 'vite';

export default defineConfig({
  base: './',
  build: { outDir: 'dist', chunkSizeWarningLimit: 50_000, sourcemap: false, minify: false },
  logLevel: 'warn',
  define: { 'process.env.NODE_ENV': '"production"', 'process.env': '{}', global: 'globalThis' },
  resolve: {
    alias: {
      '@grafana/assistant': fileURLToPath(new URL('./src/no-assistant.js', import.meta.url)),
      'react-router-dom-v5-compat': 'react-router-dom',
    },
    dedupe: ['react', 'react-dom', 'rxjs', '@grafana/data', '@grafana/ui', '@grafana/runtime'],
  },
});
