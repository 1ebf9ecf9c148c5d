import { expect, test } from 'vitest';
import { Rates, RATES_MS } from './rates';

test('points of 15 minutes and of 60 channels', () => {
  const rates = new Rates();
  for (let s = 0; s < 3_000; s += 1) rates.add(s * 1_000, [['a', s]]);
  const { times, values } = rates.of('a');
  expect(times.at(-1)).toBe(2_999_000);
  expect(values.at(-1)).toBe(2_999);
  expect(times[0]).toBeGreaterThanOrEqual(2_999_000 - RATES_MS - 60_000);
  expect(times.length).toBeLessThanOrEqual(1_000);
  for (let i = 0; i < 100; i += 1) rates.add(3_000_000, [[`c${i}`, 1]]);
  expect(rates.of('c10').times).toHaveLength(1);
  expect(rates.of('c99').times).toHaveLength(0);
});

test('a moment counts once, and time does not go back', () => {
  const rates = new Rates();
  rates.add(1_000, [['a', 1]]);
  rates.add(1_200, [['a', 2]]);
  rates.add(900, [['a', 3]]);
  expect(rates.of('a')).toEqual({ times: [1_000], values: [2] });
  expect(rates.startMs).toBe(1_000);
});
