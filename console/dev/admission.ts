/** Admission of the made-up network: books, advertised filters, refusals, and checks. */
import { NODE } from './world.ts';

type Json = Record<string, unknown>;
const OTHERS = ['orlando', 'chicago', 'boise'];

export function admissionAnswer(name: string, query: URLSearchParams, now: number): Json {
  if (name === 'need') return need(query);
  if (name === 'book') return book(query.get('node') ?? NODE, now);
  if (name === 'books') return { books: [NODE, ...OTHERS].map((node) => book(node, now)), left_out: 0 };
  return { ...summary(), filters: filters(), pools: pools(NODE), publishers: publishers(), lately: [refusal(now)] };
}

/** The live set: what lists have is by key. */
export function admissionState(now: number): Json {
  const keyed = (rows: Json[], key: (row: Json) => string) => Object.fromEntries(rows.map((row) => [key(row), row]));
  return {
    ...summary(),
    pools: keyed(pools(NODE), (row) => `${String(row['resource'])} ${String(row['of'])}`),
    publishers: keyed(publishers(), (row) => `${String(row['client'])} ${String(row['name'])}`),
    lately: keyed([refusal(now)], (row) => String(row['client'])),
  };
}

function summary(): Json {
  return {
    node: NODE,
    mode: 'enforce',
    guarantee: 'full',
    basis: 'highest',
    is_secondary: false,
    advertisements: 6,
    filters_total: 6,
    filters_version: 6,
    limited: 18,
    subscriptions: 231,
    decided: { admitted: 231, refused: 2 },
    refused: { bandwidth: 2 },
    pools_total: 4,
  };
}

function filters(): Json[] {
  const filter = (where: string, rate_hz: number, count: number, own_rate_hz: number, ...below: number[]) => ({
    channel: 'stock',
    where,
    rate_hz,
    count,
    own_rate_hz,
    own_count: 1,
    below,
  });
  return [
    filter('price > 0', 31, 6, 4, 1, 2),
    filter('price > 5', 23, 4, 5, 3, 5),
    filter("name = 'DEU' AND price > 3", 18, 3, 4, 3),
    filter("name = 'DEU' AND price > 7", 14, 2, 3, 4),
    filter("name = 'DEU' AND price > 8", 11, 1, 11),
    filter('price > 9', 4, 1, 4),
  ];
}

function pools(node: string): Json[] {
  const pool = (resource: string, of: string, capacity: number, promised: number, used: number) => ({
    node,
    resource,
    of,
    capacity,
    promised,
    used,
    free: capacity - Math.max(promised, used),
    promises: 31,
  });
  return [
    pool('bandwidth', 'link chicago', 10_000_000, node === 'orlando' ? 9_400_000 : 4_100_000, 3_900_000),
    pool('bandwidth', 'client patrol-1', 2_000_000, 1_300_000, 1_100_000),
    pool('cpu', '', 12_000, 3_700, 2_600),
    pool('memory', '', 2_000_000_000, 310_000_000, 280_000_000),
  ];
}

function publishers(): Json[] {
  return [
    { client: 'raven-7', name: 'stock', channel: 'stock', where: '', rate_hz: 5, passed: 40_120, limited: 0 },
    { client: 'raven-9', name: 'stock', channel: 'stock', where: '', rate_hz: 2, passed: 18_020, limited: 18 },
  ];
}

function shortage(): Json {
  return {
    node: 'orlando',
    resource: 'bandwidth',
    of: 'link chicago',
    asked: 1_200_000,
    free: 600_000,
    remedy:
      'it takes 600 kbit/s more bandwidth from orlando to chicago, or a condition that selects at most 50 % of these events',
  };
}

function refusal(now: number): Json {
  return {
    at_ms: now - 340_000,
    client: 'patrol-4',
    filter: 'stock',
    where: 'price > 2',
    problem: 'node orlando lacks bandwidth of link chicago: 1.2 Mbit/s asked, 600 kbit/s free',
    is_binding: true,
    shortages: [shortage()],
  };
}

function book(node: string, now: number): Json {
  const isSilent = node === 'boise';
  return {
    node,
    mode: isSilent ? '' : 'enforce',
    guarantee: isSilent ? '' : 'full',
    subscriptions: isSilent ? 0 : 231,
    refused: node === NODE ? { bandwidth: 2 } : {},
    pools_total: isSilent ? 0 : 4,
    pools: isSilent ? [] : pools(node),
    lately: node === NODE ? [refusal(now)] : [],
    problem: isSilent ? 'node boise does not answer' : '',
  };
}

function need(query: URLSearchParams): Json {
  const interval = { low: 18, high: 31 };
  const isRefused = query.get('where') === '';
  return {
    node: query.get('node') ?? NODE,
    mode: 'enforce',
    guarantee: 'full',
    channel: query.get('channel') ?? '#',
    where: query.get('where') ?? '',
    client: query.get('client') ?? '',
    rate_hz: interval,
    count: { low: 3, high: 6 },
    paper_rate_hz: interval,
    paper_count: { low: 3, high: 6 },
    is_advertised: false,
    estimate_hz: 4.4,
    asked_hz: 31,
    event_bytes: 1_000,
    state: isRefused ? 'refused' : 'admitted',
    share: 1,
    problems: isRefused ? ['node orlando lacks bandwidth of link chicago: 1.2 Mbit/s asked, 600 kbit/s free'] : [],
    shortages: isRefused ? [shortage()] : [],
    needs: [
      { resource: 'memory', of: '', asked: 35_096, free: 1_690_000_000 },
      { resource: 'cpu', of: '', asked: 31, free: 8_300 },
    ],
    is_secondary: false,
  };
}
