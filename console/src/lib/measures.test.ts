import { expect, test } from 'vitest';
import { Measures, quantile } from './measures';

const arrival = (channel: string, event: string, atMs: number, more = {}) => ({
  channel,
  event,
  atMs,
  bytes: 10,
  fromBytes: 0,
  isOld: false,
  ...more,
});

test('latency from arrival and outcome', () => {
  const measures = new Measures();
  measures.add(arrival('a', 'n:1', 1_250));
  const outcome = { event: 'n:1', channel: 'a', publisher: 'raven', received_ms: 1_000, outcome: 'delivered' };
  expect(measures.join(outcome)).toBe(250);
  expect(measures.join(outcome)).toBeUndefined();
  expect(measures.of('a')!.latencies).toEqual([250]);
  expect([...measures.of('a')!.sources]).toEqual(['raven']);
  measures.add(arrival('a', 'n:2', 1_300, { isOld: true }));
  expect(measures.join({ ...outcome, event: 'n:2' })).toBeUndefined();
});

test('rate over whole seconds', () => {
  const measures = new Measures();
  for (let i = 0; i < 40; i += 1) measures.add(arrival('a', '', 10_000 + i * 250));
  expect(measures.rateHz('a', 20_100, 0)).toBe(4);
  expect(measures.rateHz('a', 30_500, 0)).toBe(0);
  expect(measures.rateHz('b', 30_500, 0)).toBe(0);
});

test('bounded', () => {
  const measures = new Measures();
  for (let i = 0; i < 10_000; i += 1) {
    measures.add(arrival(`c${i % 700}`, `n:${i}`, i));
    measures.miss(i, 'c1', 5, 'expired');
  }
  expect(measures.channels).toHaveLength(500);
  expect(measures.uncounted).toBeGreaterThan(0);
  expect(measures.dots.length).toBeLessThanOrEqual(600);
  expect(measures.received).toBe(10_000);
});

test('quantiles', () => {
  expect(quantile([], 0.5)).toBeUndefined();
  expect(quantile([3, 1, 2], 0.5)).toBe(2);
  expect(quantile([1, 2, 3, 4], 0.95)).toBe(4);
});
