/**
 * A made-up backbone for development: seattle – denver slowed down five minutes ago, patrol-1 was limited three minutes
 * ago. Everything follows from the time, so that history and live agree.
 */
const START = Date.now();
export const EVENT_MS = START - 5 * 60_000;
export const NODE = 'seattle';

export function hash(text: string): number {
  let h = 2166136261;
  for (let i = 0; i < text.length; i += 1) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
  h ^= h >>> 15;
  h = Math.imul(h, 0x85ebca6b);
  return ((h ^ (h >>> 13)) >>> 0) / 2 ** 32;
}

/** −1 … 1, smooth over some seconds. */
function noise(name: string, ms: number): number {
  const s = ms / 1000 / 7;
  const i = Math.floor(s);
  const f = s - i;
  const a = hash(`${name} ${i}`);
  const b = hash(`${name} ${i + 1}`);
  const fine = hash(`${name} fine ${Math.floor(ms / 1000)}`) - 0.5;
  return (a + (b - a) * f * f * (3 - 2 * f) - 0.5) * 1.6 + fine * 0.5;
}

/** How bad it is: 0 before, 1 soon after, 0.3 since; again every 25 minutes. */
export function trouble(ms: number): number {
  const t = (((ms - EVENT_MS) % 1_500_000) + 1_500_000) % 1_500_000;
  if (ms < EVENT_MS) return 0;
  if (t < 15_000) return t / 15_000;
  if (t < 100_000) return 1;
  if (t < 180_000) return 1 - (0.7 * (t - 100_000)) / 80_000;
  return 0.3;
}

const HOSTILE = [
  '<script>alert(1)</script>',
  'evil/\u202egpj.elbatucexe',
  '\u001b[31mred\u001b[0m/\u0007bell',
  `long/${'x'.repeat(60_000)}`,
  '../../etc/passwd',
  'q?a=b&c#d%2e',
];

export interface MockChannel {
  name: string;
  hz: number;
  kb: number;
  importance: number;
  deadlineMs: number;
  baseMs: number;
  subscribers: number;
  publishers: number;
  template: string;
  isKept: boolean;
}

const BASE: [string, number, number, number, number, number, number, number, string][] = [
  ['uav/imagery', 6.2, 60, 2, 5000, 640, 18, 3, 'direct'],
  ['uav/tasking', 1.4, 0.6, 5, 800, 96, 9, 2, 'multipath'],
  ['bft/position', 22, 0.2, 4, 15000, 118, 61, 18, 'direct'],
  ['patrol/report', 0.5, 1.1, 6, 2000, 94, 38, 4, 'reliable'],
  ['cas/image', 0.3, 54, 2, 5000, 1400, 9, 1, 'direct'],
  ['alarm/perimeter', 0.05, 0.3, 7, 500, 31, 46, 12, 'total_order'],
  ['lab/temperature', 0, 0.05, 3, 0, 20, 2, 1, 'direct'],
  ['weather/denver', 0.2, 2, 3, 60000, 60, 14, 1, 'direct'],
];

export const channels: MockChannel[] = [
  ...BASE.map(([name, hz, kb, importance, deadlineMs, baseMs, subscribers, publishers, template], i) => ({
    name,
    hz,
    kb,
    importance,
    deadlineMs,
    baseMs,
    subscribers,
    publishers,
    template,
    isKept: i < 5,
  })),
  ...HOSTILE.map((name, i) => ({
    name,
    hz: 0.1 * i,
    kb: 1,
    importance: 1,
    deadlineMs: 1000,
    baseMs: 40,
    subscribers: 1,
    publishers: 1,
    template: 'direct',
    isKept: false,
  })),
  ...Array.from({ length: 10_000 }, (_, i) => {
    const name = `sensor/${['north', 'south', 'east', 'west'][i % 4]}/${String(i).padStart(5, '0')}`;
    return {
      name,
      hz: i % 9 ? 0 : hash(name) * 0.4,
      kb: 0.08,
      importance: 3,
      deadlineMs: 10_000,
      baseMs: 30 + hash(name) * 60,
      subscribers: i % 3,
      publishers: 1,
      template: 'direct',
      isKept: false,
    };
  }),
];

export interface MockClient {
  name: string;
  user: string;
  isConnected: boolean;
  kbps: number;
  limitKbps?: number;
  rttMs: number;
  subscriptions: number;
  channels: string[];
}

export const clients: MockClient[] = [
  {
    name: 'patrol-1',
    user: 'patrol-user',
    isConnected: true,
    kbps: 287,
    limitKbps: 300,
    rttMs: 84,
    subscriptions: 5,
    channels: ['patrol/report', 'uav/tasking', 'bft/position', 'uav/imagery', 'cas/image'],
  },
  {
    name: 'desk-3',
    user: 'operator-1',
    isConnected: true,
    kbps: 1400,
    rttMs: 12,
    subscriptions: 4,
    channels: ['bft/position', 'uav/imagery', 'alarm/perimeter', 'weather/denver'],
  },
  { name: 'raven-7', user: 'uav', isConnected: true, kbps: 8, rttMs: 60, subscriptions: 1, channels: ['uav/tasking'] },
  { name: 'raven-9', user: 'uav', isConnected: true, kbps: 6, rttMs: 71, subscriptions: 1, channels: ['uav/tasking'] },
  { name: 'sensor-1', user: '', isConnected: false, kbps: 0, rttMs: 0, subscriptions: 0, channels: [] },
  {
    name: HOSTILE[0]!,
    user: HOSTILE[2]!,
    isConnected: true,
    kbps: 1,
    rttMs: 9,
    subscriptions: 1,
    channels: [HOSTILE[0]!, HOSTILE[1]!],
  },
  ...Array.from({ length: 1_200 }, (_, i) => {
    const name = `unit-${String(i).padStart(4, '0')}`;
    return {
      name,
      user: i % 2 ? 'units' : '',
      isConnected: i % 40 !== 7,
      kbps: i % 40 === 7 ? 0 : hash(name) * 40,
      rttMs: 20 + hash(name) * 80,
      subscriptions: 2,
      channels: ['bft/position', 'alarm/perimeter'],
    };
  }),
];

/** Value of a series at a time. Undefined if there is no such series. */
export function seriesValue(name: string, ms: number): number | undefined {
  const e = trouble(ms);
  const wave = (base: number, jitter: number) => Math.max(0, base + noise(name, ms) * jitter);
  const [first, quantity = '', ...rest] = name.split('/');
  const subject = rest.join('/');
  if (first === 'channel') {
    const channel = channels.find((each) => each.name === subject);
    if (!channel) return undefined;
    const load = channel.name.startsWith('uav') || channel.name.startsWith('cas') ? e : e * 0.1;
    if (quantity === 'published_hz') return channel.hz ? wave(channel.hz, channel.hz * 0.2) : 0;
    if (quantity === 'delivered_hz')
      return channel.hz ? wave(channel.hz * channel.subscribers * (1 - load * 0.3), channel.hz) : 0;
    if (quantity === 'delivered_kbps')
      return channel.hz
        ? wave(channel.hz * channel.subscribers * channel.kb * 8 * (1 - load * 0.3), channel.hz * channel.kb)
        : 0;
    if (quantity === 'shed_hz') return wave(load * channel.hz * 0.2, 0.02);
    if (quantity === 'latency_ms') return wave(channel.baseMs * (1 + load), channel.baseMs * 0.14);
    if (quantity === 'latency_p95_ms') return wave(channel.baseMs * 1.8 * (1 + 1.6 * load), channel.baseMs * 0.3);
    return undefined;
  }
  if (first === 'client') {
    const client = clients.find((each) => each.name === subject);
    if (!client) return undefined;
    if (quantity === 'sent_kbps') return client.kbps && wave(client.kbps, client.kbps * 0.12);
    if (quantity === 'queued_bytes') return wave(client.name === 'patrol-1' ? e * 60_000 : 200, 180);
    if (quantity === 'shed_hz') return client.name === 'patrol-1' ? wave(e * 0.6, 0.1) : 0;
    if (quantity === 'link_kbps') return client.isConnected ? wave(client.limitKbps ?? client.kbps * 4, 20) : 0;
    if (quantity === 'rtt_ms') return client.rttMs && wave(client.rttMs * (1 + e * 0.4), client.rttMs * 0.2);
    return undefined;
  }
  if (first === 'importance') {
    const importance = Number(subject);
    if (!(importance >= 0 && importance <= 7)) return undefined;
    if (quantity === 'messages') return Math.round(wave((7 - importance) * e * 30, 3));
    if (quantity === 'bytes') return Math.round(wave((7 - importance) * e * 20_000, 900));
    if (quantity === 'wait_p50_ms') return wave(2 + (7 - importance) * (1 + e * 30), 2);
    if (quantity === 'wait_p95_ms') return wave(6 + (7 - importance) * (2 + e * 90), 5);
    return undefined;
  }
  switch (name) {
    case 'received_hz':
      return wave(42, 2.4);
    case 'received_kbps':
      return wave(3300, 200);
    case 'sent_hz':
      return wave(166 - e * 12, 8);
    case 'sent_kbps':
      return wave(9800 - e * 900, 400);
    case 'shed_hz':
      return wave(0.2 + e * 1.6, 0.2);
    case 'shed_hz/full':
      return wave(e * 1.2, 0.1);
    case 'shed_hz/expired':
      return wave(0.1 + e * 0.4, 0.1);
    case 'cpu_percent':
      return wave(21 + e * 12, 4);
    case 'memory_mb':
      return wave(184, 0.6);
    case 'backlog':
      return Math.round(wave(1 + e * 6, 2));
    case 'connections':
    case 'sessions':
      return Math.round(214 + (ms > EVENT_MS - 240_000 ? 2 : 0) + noise(name, ms));
    case 'queued_messages':
      return Math.round(wave(30 + e * 320, 20));
    case 'queued_bytes':
      return Math.round(wave(40_000 + e * 900_000, 9_000));
    case 'ledger_missed':
      return 0;
    case 'delivery/in_time':
      return Math.min(1, 0.996 - e * 0.041 + noise(name, ms) * 0.0012);
    case 'delivery/delivered_hz':
      return wave(166 - e * 12, 8);
    case 'delivery/late_hz':
      return wave(0.4 + e * 5.6, 0.4);
    case 'delivery/expired_hz':
      return wave(0.1 + e * 1.1, 0.15);
    case 'delivery/shed_hz':
      return wave(0.15 + e * 1.3, 0.2);
    case 'delivery/refused_hz':
      return noise(name, ms) > 0.75 ? 0.4 : 0;
    case 'delivery/shaped_hz':
      return wave(1.2 + e * 1.5, 0.3);
    case 'delivery/replaced_hz':
      return wave(0.6, 0.2);
    case 'delivery/p50_ms':
      return wave(29 + e * 14, 3);
    case 'delivery/p95_ms':
      return wave(96 + e * 110, 11);
    case 'pipeline/lag_ms':
      return wave(1500, 600) + (ms % 12_000) / 9;
    case 'journal/disk_used':
      return 0.404 + ((ms - START) / 3_600_000) * 0.002;
    default:
      return undefined;
  }
}

const SINGLE = [
  'received_hz',
  'received_kbps',
  'sent_hz',
  'sent_kbps',
  'shed_hz',
  'shed_hz/full',
  'shed_hz/expired',
  'cpu_percent',
  'memory_mb',
  'backlog',
  'connections',
  'sessions',
  'queued_messages',
  'queued_bytes',
  'ledger_missed',
  'pipeline/lag_ms',
  'journal/disk_used',
  ...[
    'in_time',
    'delivered_hz',
    'late_hz',
    'expired_hz',
    'shed_hz',
    'refused_hz',
    'shaped_hz',
    'replaced_hz',
    'p50_ms',
    'p95_ms',
  ].map((each) => `delivery/${each}`),
];

export const seriesNames: string[] = [
  ...SINGLE,
  ...[0, 1, 2, 3, 4, 5, 6, 7].flatMap((i) =>
    ['messages', 'bytes', 'wait_p50_ms', 'wait_p95_ms'].map((each) => `importance/${each}/${i}`),
  ),
  ...channels
    .slice(0, 60)
    .flatMap((each) =>
      ['published_hz', 'delivered_hz', 'delivered_kbps', 'shed_hz', 'latency_ms', 'latency_p95_ms'].map(
        (quantity) => `channel/${quantity}/${each.name}`,
      ),
    ),
  ...clients
    .slice(0, 40)
    .flatMap((each) =>
      ['sent_kbps', 'queued_bytes', 'shed_hz', 'link_kbps', 'rtt_ms'].map(
        (quantity) => `client/${quantity}/${each.name}`,
      ),
    ),
].sort();

const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

/** Event IDs as the node writes them. */
export function eventId(number: number): string {
  let text = '';
  for (let left = number; left > 0; left = Math.floor(left / 32)) text = ALPHABET[left % 32]! + text;
  return text;
}

export function eventNumber(text: string): number {
  return [...text.toUpperCase()].reduce((sum, each) => sum * 32 + Math.max(0, ALPHABET.indexOf(each)), 0);
}

/** A measured value rounded as the node does. */
export function measured(name: string, ms: number, digits = 2): number {
  return Number((seriesValue(name, ms) ?? 0).toFixed(digits));
}
