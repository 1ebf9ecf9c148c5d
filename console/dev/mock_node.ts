/** A made-up node for development: operations, sessions, the live stream and a small MQTT broker. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Plugin } from 'vite';
import { WebSocketServer, type WebSocket } from 'ws';
import { serveMqtt } from './mqtt_broker.ts';
import { answer } from './operations.ts';
import { patchOf } from './patch.ts';
import { stateOf } from './sets.ts';

/** Its Content-Security-Policy is that of the node, so that nothing works here that fails there. */
const POLICY =
  "default-src 'self'; img-src 'self' blob: data:; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

export function mockNode(): Plugin {
  return {
    name: 'mock-node',
    apply: (_, { command }) => command === 'serve',
    configureServer(server) {
      attach(server.httpServer as Server | null, (handle) => server.middlewares.use(handle), false);
    },
    configurePreviewServer(server) {
      attach(server.httpServer as Server, (handle) => server.middlewares.use(handle), true);
    },
  };
}

type Handle = (request: IncomingMessage, response: ServerResponse, next: () => void) => void;

function attach(http: Server | null, use: (handle: Handle) => void, isBuilt: boolean): void {
  use((request, response, next) => {
    // Vite's own client needs inline styles while developing.
    if (isBuilt) response.setHeader('Content-Security-Policy', POLICY);
    const url = new URL(request.url ?? '/', 'http://mock');
    if (url.pathname.startsWith('/api/')) void answer(request, response, url);
    else next();
  });
  const sockets = new WebSocketServer({ noServer: true });
  http?.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    const path = new URL(request.url ?? '/', 'http://mock').pathname;
    if (path === '/api/v1/live') sockets.handleUpgrade(request, socket, head, serveLive);
    else if (path === '/mqtt') sockets.handleUpgrade(request, socket, head, serveMqtt);
  });
}

interface WatchOf {
  request: Record<string, unknown>;
  state: unknown;
}

function serveLive(socket: WebSocket): void {
  const watches = new Map<number, WatchOf>();
  const send = (message: object) => socket.send(JSON.stringify({ ...message, at_ms: Date.now() }));
  socket.on('message', (data) => {
    const message = JSON.parse(String(data)) as Record<string, unknown>;
    if (typeof message['stop'] === 'number') watches.delete(message['stop']);
    if (typeof message['watch'] !== 'number') return;
    const id = message['watch'];
    const state = stateOf(String(message['set']), message, Date.now());
    if (!state) {
      send({ id, problem: { status: 404, title: 'Not Found', detail: `no set ${String(message['set'])}` } });
      return;
    }
    watches.set(id, { request: message, state });
    send({ id, state });
  });
  const timer = setInterval(() => {
    if (watches.size === 0) send({});
    for (const [id, watch] of watches) {
      const state = stateOf(String(watch.request['set']), watch.request, Date.now());
      const patch = patchOf(watch.state, state);
      watch.state = state;
      if (patch !== undefined) send({ id, patch });
    }
  }, 1_000);
  socket.on('close', () => clearInterval(timer));
}
