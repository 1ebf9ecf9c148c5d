import { fileURLToPath } from 'node:url';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';
import { licences } from './dev/licences.ts';
import { mockNode } from './dev/mock_node.ts';
import { precompress } from './dev/precompress.ts';

const source = (path: string) => fileURLToPath(new URL(path, import.meta.url));

// A real node instead of the mock: ACCORD_NODE=http://127.0.0.1:8080 npm run dev
const node = process.env['ACCORD_NODE'];
const proxied = node
  ? Object.fromEntries(
      ['/api', '/mqtt', '/docs', '/openapi.json', '/health', '/ready', '/metrics'].map((path) => [
        path,
        // The node takes WebSockets and changes from its own origin only.
        { target: node, ws: true, changeOrigin: true, headers: { origin: node } },
      ]),
    )
  : {};

export default defineConfig({
  plugins: [svelte(), ...(node ? [] : [mockNode()]), licences(), precompress()],
  resolve: {
    alias: {
      $lib: source('./src/lib'),
      $parts: source('./src/parts'),
      $api: source('./src/api'),
      $network: source('./src/network'),
    },
  },
  server: { host: '127.0.0.1', proxy: proxied },
  preview: { host: '127.0.0.1', proxy: proxied },
  build: {
    outDir: source('../src/accord/console/static'),
    emptyOutDir: true,
    target: 'es2023',
    assetsInlineLimit: 0, // the page's policy: everything comes from the node, nothing is inline
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  test: { include: ['src/**/*.test.ts', 'dev/**/*.test.ts'] },
});
