/** Answers of the made-up node's operations. With MOCK_LOGIN=1 it has one user: operator-1, password secret. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { admissionAnswer } from './admission.ts';
import { PolicyProblem, policyOperation } from './policies.ts';
import { outcome, stateOf } from './sets.ts';
import { channels, clients, eventId, eventNumber, hash, NODE, seriesNames, seriesValue, trouble } from './world.ts';

type Json = Record<string, unknown>;

class MockProblem extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly extra: Json = {},
  ) {
    super(detail);
  }
}

const needsLogin = !!process.env['MOCK_LOGIN'];
/** With MOCK_NO_POLICIES=1 nobody may see or change policies. */
const mayNotPolicies = !!process.env['MOCK_NO_POLICIES'];
let attempts = 0;

export async function answer(request: IncomingMessage, response: ServerResponse, url: URL): Promise<void> {
  const send = (status: number, body: unknown, headers: Record<string, string> = {}) => {
    response.writeHead(status, {
      'Content-Type': status >= 400 ? 'application/problem+json' : 'application/json',
      'Cache-Control': 'no-store',
      ...headers,
    });
    response.end(JSON.stringify(body));
  };
  try {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const body = (text ? JSON.parse(text) : {}) as Json;
    const path = url.pathname.replace('/api/v1', '');
    const isIn = !needsLogin || (request.headers.cookie ?? '').includes('accord_session=mock');
    if (path.startsWith('/session') && path !== '/session-history') {
      session(request.method!, path, body, isIn, send);
      return;
    }
    if (!isIn) throw new MockProblem(401, 'no login');
    send(
      200,
      operation(
        request.method!,
        path.split('/').slice(1).map(decodeURIComponent),
        url.searchParams,
        body,
        request.headers['if-match'],
      ),
    );
  } catch (error) {
    if (error instanceof MockProblem || error instanceof PolicyProblem)
      send(error.status, { status: error.status, title: 'Refused', detail: error.detail, ...error.extra });
    else send(500, { status: 500, title: 'Internal Server Error', detail: String(error) });
  }
}

function session(
  method: string,
  path: string,
  body: Json,
  isIn: boolean,
  send: (status: number, body: unknown, headers?: Record<string, string>) => void,
): void {
  const state = (isUser: boolean) => ({
    user: isUser && needsLogin ? 'operator-1' : '',
    needs_login: !isUser,
    groups: isUser && needsLogin ? ['operators'] : [],
    expires_ms: isUser && needsLogin ? Date.now() + 8 * 3_600_000 : null,
    node: NODE,
    version: '0.1.0',
    rights: isUser
      ? { statistics: true, policies: !mayNotPolicies, publish: ['#'], subscribe: ['#'] }
      : { statistics: false, policies: false, publish: [], subscribe: [] },
  });
  if (path === '/session/token')
    send(200, { username: '', password: '', client_prefix: 'console-', expires_ms: Date.now() + 60_000 });
  else if (method === 'DELETE') send(200, state(!needsLogin), { 'Set-Cookie': 'accord_session=; Path=/; Max-Age=0' });
  else if (method === 'POST') {
    attempts += 1;
    if (body['user'] === 'operator-1' && body['password'] === 'secret') {
      attempts = 0;
      send(200, state(true), { 'Set-Cookie': 'accord_session=mock; Path=/; HttpOnly; SameSite=Strict' });
    } else if (attempts > 5)
      send(429, { status: 429, title: 'Too Many Requests', detail: 'too many attempts' }, { 'Retry-After': '5' });
    else send(401, { status: 401, title: 'Unauthorized', detail: 'user or password is wrong' });
  } else send(200, state(isIn));
}

function operation(
  method: string,
  parts: string[],
  query: URLSearchParams,
  body: Json,
  ifMatch: string | undefined,
): unknown {
  const now = Date.now();
  const name = parts.slice(1).join('/');
  const is = (wanted: string) => `${method} ${parts[0]}` === wanted;
  if (is('GET series-history')) {
    const since = Number(query.get('since_ms') ?? now - 900_000);
    const series: Json = {};
    for (const each of query.getAll('name').filter((one) => seriesNames.includes(one))) {
      const times = [];
      for (let ms = Math.ceil(Math.max(since, now - 900_000) / 1000) * 1000; ms <= now; ms += 1000) times.push(ms);
      series[each] = { times_ms: times, values: times.map((ms) => seriesValue(each, ms)) };
    }
    return { series };
  }
  if (is('GET top') || is('GET status')) return stateOf('node', {}, now);
  if (is('GET series')) {
    const rows = stateOf(
      'series',
      { prefix: query.get('prefix') ?? '', limit: Number(query.get('limit') ?? 100) },
      now,
    )!['rows'] as Json;
    return { series: Object.entries(rows).map(([each, row]) => ({ name: each, ...(row as Json) })) };
  }
  if (is('GET net')) return net(now);
  if (is('GET quality')) return quality();
  if (is('GET admission')) return admissionAnswer(name, query, now);
  if (is('GET query')) return name === 'histogram' ? countEvents(query, now) : find(query, now);
  if (is('GET report')) return report(now);
  if (is('GET events')) {
    const at = Math.floor(eventNumber(name) / 100) * 1000;
    if (Math.abs(now - at) > 86_400_000)
      throw new MockProblem(404, `no event ${name} in the ledger`, { remedy: 'the ledger reaches back 24 h' });
    const outcomes = Array.from({ length: 6 }, (_, i) => ({
      ...outcome(at, i, 'uav/imagery', clients[i]!.name),
      event: name,
    }));
    return {
      event: name,
      channel: 'uav/imagery',
      publisher: 'raven-7',
      received_ms: at,
      outcomes,
      waiting: [],
      is_complete: true,
    };
  }
  if (is('GET ledger')) {
    const wanted = query.get('outcome');
    const rows = Array.from({ length: 900 }, (_, i) =>
      outcome(
        Math.floor(now / 1000) * 1000 - Math.floor(i / 3) * 1000,
        i % 3,
        query.get('channel') ?? '',
        query.get('client') ?? '',
      ),
    );
    return {
      outcomes: rows
        .filter((each) => !wanted || each['outcome'] === wanted)
        .slice(0, Number(query.get('limit') ?? 100)),
      is_complete: false,
      reaches_back_ms: now - 86_400_000,
    };
  }
  if (is('GET clients')) {
    const found = name ? clients.find((each) => each.name === name) : undefined;
    if (name && !found) throw new MockProblem(404, `no session of ${name}`);
    const rows = stateOf('clients', { limit: 500, offset: Number(query.get('offset') ?? 0) }, now)!['rows'] as Record<
      string,
      Json
    >;
    if (!found)
      return {
        total: clients.length,
        offset: 0,
        clients: Object.values(rows).slice(0, Number(query.get('limit') ?? 100)),
      };
    return {
      client: stateOf('client', { client: name }, now)!['status'],
      subscriptions: found.channels.map((filter) => ({ filter, qos: 1, where: '', xpath: '' })),
    };
  }
  if (parts[0] === 'clients' && method !== 'GET')
    return { client: parts[1], was_connected: true, is_forgotten: method === 'DELETE' };
  if (is('GET channels'))
    return {
      channels: channels
        .slice(0, 6)
        .map((each) => (stateOf('channel', { channel: each.name }, now)!['definition'] ?? {}) as Json),
    };
  if (mayNotPolicies && ['policies', 'limits'].includes(parts[0]!))
    throw new MockProblem(403, 'policies: the right is missing', { title: 'Forbidden' });
  const policies = policyOperation(method, parts, query, body, ifMatch);
  if (policies !== undefined) return policies;
  if (is('GET journal')) return { node: NODE, first_offset: 71_000_000, next_offset: 91_204_187 };
  if (is('GET retained')) return { total: 0, messages: [] };
  if (is('GET registry')) return { values: [] };
  if (parts.join('/') === 'quality/properties') return { properties: [] };
  throw new MockProblem(404, `no ${method} ${parts.join('/')} in the mock node`);
}

const NODES = ['seattle', 'denver', 'los-angeles', 'orlando', 'washington'];
const LINKS: [string, string, number][] = [
  ['seattle', 'denver', 24],
  ['seattle', 'los-angeles', 22],
  ['los-angeles', 'denver', 19],
  ['denver', 'washington', 31],
  ['denver', 'orlando', 33],
  ['orlando', 'washington', 16],
  ['los-angeles', 'orlando', 41],
];

function net(now: number): Json {
  const e = trouble(now);
  const latency = (a: string, b: string, ms: number) =>
    Math.round(
      1000 * (ms + (a === 'seattle' && b === 'denver' ? e * 47 : 0) + hash(`${a}${b}${Math.floor(now / 2000)}`) * 2),
    );
  return {
    node: NODE,
    nodes: NODES.map((name, i) => ({
      name,
      is_reachable: true,
      interests: 40 + i * 7,
      processing_us: 60,
      started_ms: now - (i + 1) * 86_400_000,
    })),
    links: LINKS.flatMap(([a, b, ms]) => [
      {
        source: a,
        target: b,
        is_up: true,
        is_used: true,
        latency_us: latency(a, b, ms),
        loss: a === 'seattle' && b === 'denver' ? e * 0.012 : 0.0002,
        failure: 0.001,
      },
      {
        source: b,
        target: a,
        is_up: true,
        is_used: false,
        latency_us: latency(a, b, ms),
        loss: 0.0002,
        failure: 0.001,
      },
    ]),
    channels: ['uav/tasking', 'uav/imagery', 'patrol/report'].map((name, i) => ({
      name,
      template: ['multipath', 'direct', 'reliable'][i],
      max_delay_us: 120_000,
      paths: 2,
      resiliency: 1,
      node: NODE,
      options: {},
      flows: 2,
      flows_met: i ? 2 : e > 0.9 ? 1 : 2,
      delivered: 9120,
      late: 31,
      missing_at: [],
    })),
    flows: [
      {
        source: 'seattle',
        destination: 'washington',
        max_delay_us: 120_000,
        paths: 2,
        resiliency: 1,
        reached: 0.9997,
        is_met: e < 0.9,
        changes: 2,
        routes: [
          {
            path: e > 0 ? ['seattle', 'los-angeles', 'denver', 'washington'] : ['seattle', 'denver', 'washington'],
            delay_us: e > 0 ? 74_000 : 56_000,
            state: 'established',
          },
          { path: ['seattle', 'los-angeles', 'orlando', 'washington'], delay_us: 81_000, state: 'established' },
        ],
        channels: ['uav/tasking'],
        has_more: false,
      },
    ],
    arrivals: [{ node: 'washington', source: 'seattle', channel: 'uav/tasking', delivered: 9_120, late: 31 }],
    carried: {
      published: 91_000,
      retransmitted: 12,
      delivered: 88_120,
      late: 230,
      sent: 120_300,
      sent_bytes: 4_102_330_112,
      received: 99_120,
      received_bytes: 3_202_330_112,
      lost: {},
    },
    in_time: [{ channel: 'uav/tasking', delivered: 9_120, late: 31 }],
    links_down:
      e > 0.9 ? [{ address: '10.1.0.9:1884', node: 'boise', problem: 'no answer', remedy: 'is it started?' }] : [],
    refused: [],
    transports: [],
    children: [],
    tier: null,
    interests_aggregated: 3,
    problem: '',
  };
}

function quality(): Json {
  return {
    node: NODE,
    strategy: 'adapt',
    totals: {
      profiles: 3,
      states: { satisfied: 12, satisfiable: 2, unsatisfied: 1 },
      reactions: 41,
      advice: 2,
      told: 9,
      usages: 3,
      acts: 12,
      filtered: 2_031,
    },
    left_off: 0,
    channels: [
      {
        channel: 'uav/imagery',
        profiles: [
          {
            publisher: 'raven-7',
            expectations: 9,
            utility: 0.82,
            capabilities: [
              { property: 'rate', lower: 1, upper: 10, current: 5, is_measured: true },
              { property: 'resolution', lower: 200, upper: 1200, current: 800, is_measured: false },
            ],
          },
        ],
        skylines: [{ properties: ['rate', 'resolution'], members: ['raven-7'] }],
        expectations: [
          {
            client: 'desk-3',
            id: '1',
            expect: { rate: { least: 2 } },
            state: 'satisfied',
            decision: 'as published',
            reasons: {},
            relies_on: ['raven-7'],
          },
          {
            client: 'patrol-1',
            id: '2',
            expect: { rate: { least: 2 }, resolution: { least: 600 } },
            state: 'unsatisfied',
            decision: 'no source offers it',
            reasons: { resolution: 400 },
            relies_on: [],
          },
          {
            client: 'analyst-4',
            id: '3',
            expect: { rate: { least: 8 } },
            state: 'satisfiable',
            decision: 'raven-7 was advised',
            reasons: { rate: 5 },
            relies_on: ['raven-7'],
          },
        ],
      },
    ],
  };
}

function find(query: URLSearchParams, now: number): Json {
  const where = query.get('where') ?? '';
  if (where.includes(','))
    throw new MockProblem(400, "character 10: expected the end, found ','", { place: 'where:10' });
  const count = Math.min(Number(query.get('page') ?? 50), Number(query.get('limit') ?? 50));
  const channel = query.get('channel') || 'patrol/report';
  return {
    events: Array.from({ length: channel.startsWith('none') ? 0 : count }, (_, i) => ({
      id: eventId((Math.floor(now / 1000) - i * 3) * 100),
      channel: channel.includes('#') ? channels[i % 6]!.name : channel,
      received: new Date(now - i * 3_000).toISOString(),
      publisher: i % 7 ? 'hq-2' : '<script>alert(1)</script>',
      qos: 1,
      attributes: { cloud: Number(hash(`q${i}`).toFixed(2)), unit: `unit-${i}`, urgent: i % 5 === 0 },
      metadata: null,
      key: null,
      deadline_ms: 5000,
      payload: JSON.stringify({ speed: i, note: 'ok' }),
      payload_base64: null,
      problem: null,
    })),
    cursor: channel.startsWith('none') ? null : 'bW9yZQ',
    files: 3,
    files_skipped: 41,
    bytes: 1_204_113,
    tail: 12,
    took_ms: 84,
    reached: new Date(now - count * 3_000).toISOString(),
  };
}

/** In two parts, as of a long time. */
function countEvents(query: URLSearchParams, now: number): Json {
  const width = 60_000;
  const until = Math.ceil(now / width) * width;
  const isRest = query.get('cursor') === 'cmVzdA';
  return {
    first: new Date(until - 60 * width).toISOString(),
    width_ms: width,
    counts: Array.from({ length: 60 }, (_, i) => (i < 30 === isRest ? Math.round(40 * hash(`h${i}`)) : 0)),
    read: new Date(until - (isRest ? 60 : 30) * width).toISOString(),
    cursor: isRest ? null : 'cmVzdA',
    files: 2,
    files_known: 39,
    bytes: 504_113,
    tail: 12,
    took_ms: 31,
  };
}

function report(now: number): Json {
  const line = (name: string, share: number) => ({
    name,
    events: 41_000,
    delivered: 40_200,
    late: 400,
    shaped: 900,
    replaced: 20,
    expired: 300,
    shed: 80,
    refused: 0,
    bytes: 1e9,
    rate_hz: 11,
    bytes_per_s: 280_000,
    latency_p50_ms: 60,
    latency_p95_ms: 190,
    latency_p99_ms: 410,
    queueing_p50_ms: 4,
    queueing_p95_ms: 80,
    queueing_p99_ms: 200,
    in_time: share,
  });
  return {
    node: NODE,
    since_ms: now - 3_600_000,
    until_ms: now,
    channel: '#',
    took_ms: 212,
    kept: 41_000,
    kept_bytes: 1e9,
    totals: line('', 0.987),
    channels: channels.slice(0, 6).map((each, i) => line(each.name, 1 - i / 100)),
    clients: clients.slice(0, 6).map((each, i) => line(each.name, 1 - i / 90)),
    nodes: NODES.map((each) => line(each, 0.99)),
    losses: [
      {
        outcome: 'expired',
        cause: 'deadline',
        policy: 'Imagery',
        channel: 'uav/imagery',
        events: 402,
        clients: 3,
        share: 0.01,
        last_ms: now - 4_000,
      },
    ],
    slow: [],
  };
}
