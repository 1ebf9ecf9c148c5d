/** The states of all live sets, from the made-up world. */
import { admissionState } from './admission.ts';
import {
  channels,
  clients,
  EVENT_MS,
  eventId,
  hash,
  measured,
  NODE,
  seriesNames,
  seriesValue,
  trouble,
  type MockChannel,
  type MockClient,
} from './world.ts';

type Json = Record<string, unknown>;
const START = Date.now() - 3 * 86_400_000;

export function stateOf(set: string, parameters: Json, nowMs: number): Json | undefined {
  const ms = Math.floor(nowMs / 1000) * 1000;
  switch (set) {
    case 'node':
      return node(ms);
    case 'changes':
      return { rows: changes(ms) };
    case 'series':
      return series(parameters, ms);
    case 'channels':
      return page(channels, (each) => each.name, channelRow, parameters, ms);
    case 'clients':
      return page(clients, (each) => each.name, clientRow, parameters, ms);
    case 'channel':
      return channel(String(parameters['channel']), ms);
    case 'client':
      return client(String(parameters['client']), ms);
    case 'quality':
      return quality(parameters, ms);
    case 'outcomes':
      return { rows: outcomes(parameters, ms) };
    case 'admission':
      return admissionState(ms);
    default:
      return undefined;
  }
}

function node(ms: number): Json {
  const e = trouble(ms);
  const value = (name: string) => measured(name, ms);
  const isBad = e > 0;
  return {
    name: NODE,
    version: '0.1.0',
    build: 'dev',
    is_ready: true,
    uptime_ms: ms - START,
    load: {
      ...Object.fromEntries(
        [
          'cpu_percent',
          'memory_mb',
          'backlog',
          'connections',
          'sessions',
          'received_hz',
          'received_kbps',
          'sent_hz',
          'sent_kbps',
          'shed_hz',
          'queued_messages',
          'queued_bytes',
        ].map((name) => [name, value(name)]),
      ),
      shed: { full: value('shed_hz/full') },
    },
    management: {
      strategy: 'weighted fair',
      is_shaping: true,
      bandwidth_bps: 10_000_000,
      limited_clients: 1,
      policies: 9,
      version: 41,
    },
    bins: Object.fromEntries(
      [2, 3, 4, 5, 6, 7].map((i) => [
        i,
        {
          importance: i,
          messages: value(`importance/messages/${i}`),
          bytes: value(`importance/bytes/${i}`),
          tasks: 0,
          wait_p50_ms: value(`importance/wait_p50_ms/${i}`),
          wait_p95_ms: value(`importance/wait_p95_ms/${i}`),
        },
      ]),
    ),
    delivery: Object.fromEntries(
      [
        'in_time',
        'delivered_hz',
        'late_hz',
        'shaped_hz',
        'replaced_hz',
        'expired_hz',
        'shed_hz',
        'refused_hz',
        'p50_ms',
        'p95_ms',
      ].map((name) => [name, measured(`delivery/${name}`, ms, 4)]),
    ),
    channels_total: channels.length,
    clients_total: clients.length,
    ledger: { is_on: true, entries: 1_204_113, missed: 0, reaches_back_ms: ms - 86_400_000 },
    pipeline: {
      state: 'running',
      problem: '',
      spark: 'http://127.0.0.1:4040',
      spark_version: '4.2.0',
      build: 'dev',
      archive: '/var/lib/accord/archive',
      archived_offset: 91_204_113,
      lag_ms: Math.round(value('pipeline/lag_ms')),
      lag_records: 74,
      events: 4_120_331,
      ledger_rows: 16_400_112,
      rows_per_s: 208,
      files: 512,
      bytes: 88_412_003_112,
      compactions: 31,
      queries: 12,
      queries_running: 0,
      queries_waiting: 0,
      waiting: 0,
      restarts: 0,
      last_end: '',
      last_output: ['batch 4120: 208 rows'],
    },
    journal: {
      segments: 41,
      bytes: 21_474_836_480,
      first_offset: 71_000_000,
      next_offset: 91_204_187,
      synced_offset: 91_204_187,
      disk_free_bytes: 295_000_000_000,
      disk_total_bytes: 500_000_000_000,
    },
    verdict: `${(100 * (seriesValue('delivery/in_time', ms) ?? 1)).toFixed(1)} % arrived in time. ${isBad ? 'Three things need a look, none is urgent.' : 'Nothing needs a look.'}`,
    problems: isBad
      ? {
          'client/patrol-1': {
            severity: 'warn',
            subject: 'patrol-1 misses pictures',
            sentence: '6.2 % of uav/imagery expired before its radio (limit 300 kbit/s) was free.',
            since_ms: EVENT_MS + 120_000,
            page: '/clients/patrol-1',
          },
          'link/seattle-denver': {
            severity: 'bad',
            subject: 'seattle – denver is slow',
            sentence: '71 ms instead of 24. uav/tasking moved over los-angeles, nothing was lost.',
            since_ms: EVENT_MS,
            page: '/network',
          },
          'refusal/desk-2': {
            severity: 'warn',
            subject: 'desk-2 was refused uav/#',
            sentence: 'asked for 2.1 Mbit/s at orlando, 0.8 were free.',
            since_ms: EVENT_MS + 240_000,
            page: '/admission',
          },
        }
      : {},
  };
}

const CHANGES: [offset: number, kind: string, who: string, what: string, detail: string, page: string][] = [
  [
    -480_000,
    'policy',
    'admin',
    'Imagery: importance 3 → 2',
    'admin, version 40 · 14 subscriptions',
    '/policies/Imagery',
  ],
  [-300_000, 'link', 'denver', 'denver joined again', 'away for 38 s · 1,902 events came after all', '/network'],
  [-200_000, 'client', 'sensor-1', 'sensor-1 went offline', 'its session is kept for 1 h', '/clients/sensor-1'],
  [
    0,
    'link',
    'seattle',
    'uav/tasking moved to seattle → los-angeles → denver → washington',
    'seattle – denver took 71 ms of its 120; nothing was lost',
    '/network',
  ],
  [
    60_000,
    'client',
    'raven-7',
    'raven-7 sends uav/imagery at 2 Hz, was 5',
    'advised: nobody expects more · saves 2.4 Mbit/s',
    '/clients/raven-7',
  ],
  [
    120_000,
    'limit',
    'operator-1',
    'Limit of patrol-1 is 300 kbit/s',
    'operator-1, version 41 · was 2 Mbit/s',
    '/clients/patrol-1',
  ],
  [
    240_000,
    'refusal',
    'desk-2',
    'Refused uav/# for desk-2',
    'orlando, bandwidth: asked 2.1 Mbit/s, free 0.8',
    '/admission',
  ],
];

function changes(ms: number): Json {
  const rows: Json = {};
  CHANGES.forEach(([offset, kind, who, what, detail, page], i) => {
    if (EVENT_MS + offset <= ms) rows[i + 1] = { at_ms: EVENT_MS + offset, kind, who, what, detail, page };
  });
  const more = Math.floor((ms - EVENT_MS - 300_000) / 45_000);
  for (let i = 0; i < more && i < 40; i += 1) {
    const at = EVENT_MS + 300_000 + i * 45_000;
    const name = clients[8 + Math.floor(hash(`change ${i}`) * 900)]!.name;
    rows[100 + i] = {
      at_ms: at,
      kind: 'client',
      who: name,
      what: `${name} ${i % 2 ? 'connected again' : 'went offline'}`,
      detail: i % 2 ? 'away for 12 s' : 'keep alive ran out',
      page: `/clients/${name}`,
    };
  }
  return rows;
}

function series(parameters: Json, ms: number): Json {
  const {
    prefix = '',
    names,
    search = '',
    limit = 200,
  } = parameters as { prefix?: string; names?: string[]; search?: string; limit?: number };
  const wanted = names?.length ? new Set(names) : undefined;
  const found = seriesNames.filter(
    (name) =>
      (!wanted || wanted.has(name)) && name.startsWith(prefix) && name.toLowerCase().includes(search.toLowerCase()),
  );
  const rows: Json = {};
  for (const name of found.slice(0, limit)) {
    const values = Array.from({ length: 10 }, (_, i) => seriesValue(name, ms - (9 - i) * 1000) ?? 0);
    const mean = values.reduce((a, b) => a + b, 0) / 10;
    const deviation = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / 10);
    const trend = values.reduce((sum, value, i) => sum + (i - 4.5) * (value - mean), 0) / 82.5;
    rows[name] = { last: values[9], last_ms: ms, count: 10, mean, deviation, trend };
  }
  return { total: seriesNames.length, matching: found.length, rows };
}

function page<T>(
  all: T[],
  nameOf: (each: T) => string,
  rowOf: (each: T, ms: number) => Json,
  parameters: Json,
  ms: number,
): Json {
  const {
    search = '',
    sort = '',
    descending = false,
    limit = 100,
    offset = 0,
  } = parameters as { search?: string; sort?: string; descending?: boolean; limit?: number; offset?: number };
  const text = search.toLowerCase();
  let found = text ? all.filter((each) => nameOf(each).toLowerCase().includes(text)) : [...all];
  if (sort && sort !== 'channel' && sort !== 'client') {
    // Enough for a made-up node: rows of the busiest part are sorted truly.
    const keyed = found.map((each) => [rowOf(each, ms - (ms % 10_000))[sort], each] as const);
    const size = (value: unknown) => (typeof value === 'number' ? value : Number(value === true));
    // As at a node: rows without a value come last in both directions.
    keyed.sort(
      ([a], [b]) =>
        Number(a === undefined) - Number(b === undefined) ||
        (typeof a === 'string' && typeof b === 'string' ? a.localeCompare(b) : size(a) - size(b)) *
          (descending ? -1 : 1),
    );
    found = keyed.map(([, each]) => each);
  } else found.sort((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1) * (descending ? -1 : 1));
  const shown = found.slice(offset, offset + Math.min(500, limit));
  return {
    total: all.length,
    matching: found.length,
    order: shown.map(nameOf),
    rows: Object.fromEntries(shown.map((each) => [nameOf(each), rowOf(each, ms)])),
  };
}

function inTime(each: MockChannel, ms: number): number {
  const load =
    each.name === 'uav/imagery' ? 0.062 : each.name.startsWith('uav') || each.name.startsWith('cas') ? 0.05 : 0.001;
  return Math.max(0, 1 - load * trouble(ms) - hash(`${each.name}${ms}`) * 0.002);
}

function channelRow(each: MockChannel, ms: number): Json {
  const hz = each.hz ? each.hz * (0.9 + 0.2 * hash(`${each.name} ${ms}`)) : 0;
  const lost = 1 - inTime(each, ms);
  return {
    channel: each.name,
    published_hz: round(hz),
    published_kbps: round(hz * each.kb * 8),
    delivered_hz: round(hz * each.subscribers),
    delivered_kbps: round(hz * each.kb * 8 * each.subscribers),
    late_hz: round(hz * lost * 0.6),
    shaped_hz: each.kb > 20 ? round(hz) : 0,
    replaced_hz: 0,
    expired_hz: round(hz * lost * 0.3),
    shed_hz: round(hz * lost * 0.1),
    refused_hz: 0,
    ...(hz
      ? {
          latency_ms: round(each.baseMs * (0.95 + 0.1 * hash(`l${each.name}${ms}`))),
          latency_p95_ms: round(each.baseMs * 2),
          in_time: round(inTime(each, ms), 4),
        }
      : {}),
    published: Math.floor(hz * 9_000),
    delivered: Math.floor(hz * 9_000 * each.subscribers),
    dropped: Math.floor(hz * lost * 9_000),
    template: each.template,
    ...(each.deadlineMs ? { max_delay_ms: each.deadlineMs } : {}),
    is_kept: each.isKept,
    subscribers: each.subscribers,
    publishers: each.publishers,
  };
}

function clientRow(each: MockClient, ms: number): Json {
  return {
    client: each.name,
    user: each.user,
    address: '10.1.4.17:51002',
    protocol: 'MQTT 5',
    is_connected: each.isConnected,
    connected_ms: ms - (ms - START) / 2,
    subscriptions: each.subscriptions,
    queued_messages: each.name === 'patrol-1' ? Math.round(trouble(ms) * 31) : 0,
    queued_bytes: Math.round(seriesValue(`client/queued_bytes/${each.name}`, ms) ?? 0),
    received: 812,
    sent: Math.floor(((ms - START) / 1e5) * (1 + each.kbps)),
    shed: each.name === 'patrol-1' ? 53 : 0,
    ...(each.isConnected
      ? { link_kbps: round((each.limitKbps ?? each.kbps * 4) || 1), rtt_ms: round(each.rttMs) }
      : {}),
    ...(each.limitKbps ? { limit_kbps: each.limitKbps } : {}),
    sent_hz: round(each.kbps / 9),
    sent_kbps: round(seriesValue(`client/sent_kbps/${each.name}`, ms) ?? 0),
    shed_hz: each.name === 'patrol-1' ? round(trouble(ms) * 0.6) : 0,
  };
}

function channel(name: string, ms: number): Json | undefined {
  const found = channels.find((each) => each.name === name);
  if (!found)
    return {
      activity: {
        channel: name,
        published_hz: 0,
        published_kbps: 0,
        delivered_hz: 0,
        delivered_kbps: 0,
        late_hz: 0,
        shaped_hz: 0,
        replaced_hz: 0,
        expired_hz: 0,
        shed_hz: 0,
        refused_hz: 0,
        published: 0,
        delivered: 0,
        dropped: 0,
        is_kept: false,
        subscribers: 0,
        publishers: 0,
      },
      publishers: {},
      subscribers: {},
    };
  const receivers = clients.filter((each) => each.channels.includes(name)).slice(0, 200);
  return {
    activity: channelRow(found, ms),
    ...(found.deadlineMs
      ? {
          definition: {
            name,
            template: found.template,
            max_delay_ms: found.deadlineMs,
            paths: 2,
            resiliency: 1,
            node: NODE,
            options: {},
            flows: 3,
            flows_met: 3,
            delivered: 9_120,
            late: 31,
            missing_at: [],
          },
        }
      : {}),
    publishers: Object.fromEntries(
      Array.from({ length: found.publishers }, (_, i) => [
        `raven-${i * 2 + 5}`,
        {
          published: 4_000 + i,
          rate_hz: round(found.hz / found.publishers),
          ...(found.hz ? { last_ms: ms - 300 * i } : {}),
        },
      ]),
    ),
    subscribers: Object.fromEntries(
      receivers.map((each, i) => [
        each.name,
        {
          filter: i % 2 ? name : name.replace(/[^/]+$/, '#'),
          where: i % 3 ? '' : 'cloud < 0.4',
          xpath: '',
          qos: 1,
          importance: found.importance,
          policy: 'Imagery',
          received: 611 - i,
          dropped: i === 0 ? 41 : 0,
          in_time: i === 0 ? 0.938 : 1,
          p50_ms: round(found.baseMs * (1 + i / 50)),
          p95_ms: round(found.baseMs * 2.1),
          last_ms: ms - 700,
        },
      ]),
    ),
  };
}

function client(name: string, ms: number): Json {
  const found = clients.find((each) => each.name === name);
  if (!found) return { channels: {}, latencies: [] };
  const row = clientRow(found, ms);
  const mine = found.channels.map((each) => channels.find((one) => one.name === each)!).filter(Boolean);
  return {
    status: row,
    activity: row,
    channels: Object.fromEntries(
      mine.map((each) => [
        each.name,
        {
          sources: each.publishers > 5 ? ['unit-0001', 'unit-0002', 'unit-0003', 'unit-0004', 'unit-0005'] : ['hq-2'],
          sources_total: each.publishers,
          importance: each.importance,
          policy: 'Imagery',
          preset: each.kb > 20 ? 'Thin-Link' : 'NoDrop',
          received: Math.floor(((ms - EVENT_MS) / 1000) * each.hz) + 400,
          dropped: each.kb > 20 ? 41 : 0,
          shaped: each.kb > 20 ? 300 : 0,
          late: 3,
          last_ms: ms - 900,
          rate_hz: round(each.hz),
          p50_ms: each.baseMs,
          p95_ms: each.baseMs * 2,
          in_time: round(inTime(each, ms), 4),
        },
      ]),
    ),
    latencies: Array.from({ length: 300 }, (_, i) => {
      const at = Math.floor(ms / 3000) * 3000 - i * 3000;
      const one = mine[Math.floor(hash(`${name} ${at}`) * mine.length)]!;
      const r = hash(`${at}`);
      return [
        at,
        one?.name ?? '',
        one ? round(one.baseMs * (0.7 + r)) : 0,
        one && one.kb > 20 && r > 0.93 ? 'expired' : r > 0.9 ? 'late' : 'delivered',
      ];
    }),
  };
}

export function outcome(at: number, i: number, filter = '', who = ''): Json {
  const r = hash(`${at} ${i}`);
  const one = channels.find((each) => each.name === filter) ?? channels[Math.floor(r * 6)]!;
  const kind =
    r > 0.985
      ? 'refused'
      : r > 0.97
        ? 'shed'
        : r > 0.95
          ? 'expired'
          : r > 0.93
            ? 'late'
            : r > 0.9
              ? 'replaced'
              : one.kb > 20 && r > 0.5
                ? 'shaped'
                : 'delivered';
  const total = Math.round(one.baseMs * (0.6 + r));
  return {
    event: eventId(Math.floor(at / 1000) * 100 + i),
    count: 1,
    channel: one.name,
    publisher: 'raven-7',
    destination: who || clients[Math.floor(r * 900)]!.name,
    outcome: kind,
    reason:
      { expired: 'deadline', shed: 'outbox full', refused: 'rate', late: 'waited for the link' }[kind as string] ?? '',
    received_ms: at,
    queued_ms: at + 2,
    done_ms: at + total,
    queueing_ms: Math.max(0, total - 20),
    ...(['expired', 'shed', 'refused', 'replaced'].includes(kind) ? {} : { sending_ms: 18 }),
    size: Math.round(one.kb * 1000 * (kind === 'shaped' ? 0.3 : 1)),
    ...(kind === 'shaped' ? { from_size: Math.round(one.kb * 1000) } : {}),
    ...(one.deadlineMs ? { deadline_ms: one.deadlineMs } : {}),
    importance: one.importance,
    policy: 'Imagery',
  };
}

function outcomes(parameters: Json, ms: number): Json {
  const {
    channel: filter = '',
    client: who = '',
    limit = 200,
  } = parameters as { channel?: string; client?: string; limit?: number };
  const rows: Json = {};
  for (let i = 0; i < Math.min(200, limit); i += 1) {
    const found = outcome(ms - Math.floor(i / 3) * 1000, i % 3, filter, who);
    rows[`${String(found['event'])} ${String(found['destination'])}`] = found;
  }
  return rows;
}

function round(value: number, digits = 2): number {
  return Number(value.toFixed(digits));
}

function quality(parameters: Json, ms: number): Json {
  const offer = (property: string, lower: unknown, upper: unknown, current: unknown, more: Json = {}) => ({
    property,
    lower,
    upper,
    current,
    cost: 0,
    is_measured: false,
    ...more,
  });
  const table = [
    [1, 0.2],
    [6, 0.7],
    [10, 3],
  ];
  const capabilities = [
    offer('rate', 1, 10, 2, { cost: table }),
    offer('freshness', 100, 1600, 400),
    offer('reliability', 94.6, 97.2, 96.8, { is_measured: true }),
  ];
  const row = (rank: number, id: string, state: string, expect: Json, more: Json = {}) => ({
    rank,
    client: 'desk-2',
    id,
    channel: 'uav/imagery',
    subscription: 'uav/imagery',
    expect: { ...expect, id },
    state,
    decision: '',
    reasons: [],
    relies_on: [],
    nearest: { publisher: 'raven-7', channel: 'uav/imagery', capabilities, is_remote: false },
    ...more,
  });
  const asked = { rate: [4, 8], freshness: [null, 500], reliability: [99, null], utility: 3 };
  const reasons = [
    { property: 'rate', now: 2 },
    { property: 'reliability', now: 96.8 },
  ];
  const rows = [
    row(0, 'often', 'unsatisfied', asked, { reasons }),
    row(1, 'calm', 'satisfied', { rate: [1, null], utility: 1 }, { relies_on: ['raven-7'] }),
  ].filter((each) => !parameters['mismatches'] || each.state !== 'satisfied');
  const property = (name: string, unit: string, range: unknown, more: Json = {}) => ({
    name,
    better: 'higher',
    levels: [],
    range,
    unit,
    over_hops: 'keep',
    measured: false,
    ...more,
  });
  const profile = { rank: 0, publisher: 'raven-7', channel: 'uav/imagery', source: '', capabilities };
  const advice = { number: 1, at_ms: ms - 90_000, act: 'advise the publisher', publisher: 'raven-7' };
  const effect = { before: 1, after: 2, after_ms: ms - 80_000, reached_ms: ms - 88_000, outcome: 'reached' };
  return {
    node: NODE,
    strategy: 'pareto',
    totals: {
      profiles: 1,
      states: { satisfied: 1, satisfiable: 0, unsatisfied: 1, suspended: 0 },
      reactions: 1,
      advice: 1,
      told: 2,
      usages: 1,
      acts: 0,
      filtered: 0,
    },
    expectations_total: 2,
    expectations_matching: rows.length,
    expectations: Object.fromEntries(rows.map((each) => [`${each.client}\n${each.id}`, each])),
    profiles_total: 1,
    profiles_matching: 1,
    profiles: { 'uav/imagery\nraven-7': { ...profile, expectations: 1, utility: 1 } },
    actions: { 1: { ...advice, channel: 'uav/imagery', property: 'rate', target: 2, is_release: false, ...effect } },
    properties: {
      rate: property('rate', 'Hz', [0, null]),
      freshness: property('freshness', 'ms', [0, null], { better: 'lower', over_hops: 'add' }),
      reliability: property('reliability', '%', [0, 100], { over_hops: 'multiply', measured: true }),
    },
  };
}
