import { expect, test } from 'vitest';
import { bandOf, niceAbove, said, scaleOf, shareOf, stepped, ticksOf, valueAt, type Domain } from './scale';

const RATE: Domain = { better: 'higher', levels: [], range: [0, null], unit: 'Hz' };
const LATENCY: Domain = { better: 'lower', levels: [], range: [0, null], unit: 'ms' };
const PERCENT: Domain = { better: 'higher', levels: [], range: [0, 100], unit: '%' };
const TRUST: Domain = { better: 'higher', levels: ['none', 'low', 'medium', 'high'], unit: '' };
const BLUR: Domain = { better: 'lower', levels: ['sharp', 'soft', 'vague'], unit: '' };

test('a range without an end is shown as far as the values need it', () => {
  expect(scaleOf(RATE, [2, 10])).toMatchObject({ lo: 0, hi: 20, isFlipped: false });
  expect(scaleOf(RATE, [])).toMatchObject({ lo: 0, hi: 10 });
  expect(scaleOf({ ...RATE, range: [null, 0] }, [-30])).toMatchObject({ lo: -50, hi: 0 });
  expect(scaleOf({ ...RATE, range: [null, null] }, [-3, 8])).toMatchObject({ lo: -10, hi: 10 });
  expect(scaleOf(RATE, [Number.NaN, Infinity, 'x', null, undefined])).toMatchObject({ lo: 0, hi: 10 });
});

test('values that are close together are shown close, within the range', () => {
  const { lo, hi } = scaleOf(PERCENT, [99, 94.6, 96.8, 97.2], true);
  expect(lo).toBeGreaterThanOrEqual(90);
  expect(lo).toBeLessThan(94.6);
  expect(hi).toBe(100);
  expect(scaleOf(PERCENT, [99, 94.6])).toMatchObject({ lo: 0, hi: 100 });
  expect(scaleOf(PERCENT, [10, 90], true)).toMatchObject({ lo: 0, hi: 100 });
  const one = scaleOf(PERCENT, [100, 100], true);
  expect(one.hi).toBe(100);
  expect(one.lo).toBeLessThan(100);
});

test('better is always to the right', () => {
  const rate = scaleOf(RATE, [10]);
  expect(shareOf(rate, 0)).toBe(0);
  expect(shareOf(rate, 20)).toBe(1);
  const latency = scaleOf(LATENCY, [300]);
  expect(shareOf(latency, 0)).toBe(1);
  expect(shareOf(latency, 500)).toBe(0);
  expect(shareOf(latency, 100)!).toBeGreaterThan(shareOf(latency, 200)!);
  const trust = scaleOf(TRUST, []);
  expect(['none', 'low', 'medium', 'high'].map((each) => shareOf(trust, each))).toEqual([0.125, 0.375, 0.625, 0.875]);
  const blur = scaleOf(BLUR, []);
  expect(shareOf(blur, 'sharp')!).toBeGreaterThan(shareOf(blur, 'vague')!);
});

test('what is not of the scale has no place on it, and what is beyond it is at its end', () => {
  const rate = scaleOf(RATE, [10]);
  expect(shareOf(rate, 'high')).toBeUndefined();
  expect(shareOf(rate, undefined)).toBeUndefined();
  expect(shareOf(rate, 1e9)).toBe(1);
  expect(shareOf(rate, -5)).toBe(0);
  expect(shareOf(scaleOf(TRUST, []), 'total')).toBeUndefined();
});

test('a place of the scale has a value of its step', () => {
  const rate = scaleOf(RATE, [10]);
  expect(rate.step).toBe(0.1);
  expect(valueAt(rate, 0.5)).toBe(10);
  expect(valueAt(rate, 0.33333)).toBe(6.7);
  expect(valueAt(rate, -1)).toBe(0);
  expect(valueAt(rate, 2)).toBe(20);
  const latency = scaleOf(LATENCY, [300]);
  expect(valueAt(latency, 1)).toBe(0);
  expect(valueAt(latency, 0)).toBe(500);
  const trust = scaleOf(TRUST, []);
  expect([0, 0.3, 0.6, 1].map((each) => valueAt(trust, each))).toEqual(['none', 'low', 'medium', 'high']);
  for (const each of TRUST.levels) expect(valueAt(trust, shareOf(trust, each)!)).toBe(each);
});

test('steps go to better values, and stay on the scale', () => {
  const rate = scaleOf(RATE, [10]);
  expect(stepped(rate, 10, 1)).toBe(10.1);
  expect(stepped(rate, 10, -10)).toBe(9);
  expect(stepped(rate, 20, 1)).toBe(20);
  const latency = scaleOf(LATENCY, [300]);
  expect(latency.step).toBe(5);
  expect(stepped(latency, 300, 1)).toBe(295);
  expect(stepped(latency, 0, 1)).toBe(0);
  expect(stepped(scaleOf(TRUST, []), 'medium', 1)).toBe('high');
  expect(stepped(scaleOf(TRUST, []), 'high', 1)).toBe('high');
  expect(stepped(scaleOf(BLUR, []), 'soft', 1)).toBe('sharp');
});

test('bands go from one value to another, whichever is better; levels fill their part', () => {
  expect(bandOf(scaleOf(RATE, [10]), 5, 10)).toEqual({ left: 0.25, width: 0.25 });
  expect(bandOf(scaleOf(LATENCY, [300]), 0, 250)).toEqual({ left: 0.5, width: 0.5 });
  const trust = bandOf(scaleOf(TRUST, []), 'medium', 'high')!;
  expect(trust.left).toBeCloseTo(0.55);
  expect(trust.width).toBeCloseTo(0.4);
  expect(bandOf(scaleOf(TRUST, []), 'low', 'low')!.width).toBeCloseTo(0.15);
  expect(bandOf(scaleOf(RATE, []), null, 3)).toBeUndefined();
});

test('marks are few, ascend to the right, and the last has the unit', () => {
  const texts = (domain: Domain, ...values: number[]) => ticksOf(scaleOf(domain, values)).map((each) => each.text);
  expect(texts(RATE, 10)).toEqual(['0', '5', '10', '15', '20\u00a0Hz']);
  expect(texts(LATENCY, 300)).toEqual(['500', '400', '300', '200', '100', '0\u00a0ms']);
  expect(ticksOf(scaleOf(TRUST, [])).map((each) => each.text)).toEqual(['none', 'low', 'medium', 'high']);
  const many: Domain = { better: 'higher', levels: Array.from({ length: 1_000 }, (_, at) => `l${at}`), unit: '' };
  expect(ticksOf(scaleOf(many, [])).length).toBeLessThanOrEqual(6);
});

test('numbers are rounded up to nice ones', () => {
  expect([0, -3, 0.03, 1, 1.1, 2, 4.9, 10, 11, Infinity].map(niceAbove)).toEqual([1, 1, 0.05, 1, 2, 2, 5, 10, 20, 1]);
  expect(said(4, 'Hz')).toBe('4\u00a0Hz');
  expect(said(96.83219, '%')).toBe('96.83\u00a0%');
  expect(said('high', '')).toBe('high');
  expect(said(undefined, 'ms')).toBe('–');
});
