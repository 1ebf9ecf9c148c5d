import { expect, test } from 'vitest';
import { bytes } from './format';
import { refusalOf } from './refusal';

const THIN = bytes(1).slice(1, -1); // between figure and unit

test('refused by admission', () => {
  const refusal = refusalOf('uav/#', {
    granted: [0x97],
    properties: {
      reasonString: 'node orlando lacks bandwidth of client ann',
      userProperties: { node: 'orlando', resource: 'bandwidth', of: 'client ann', asked: '2100000', free: '800000' },
    },
  });
  expect(refusal?.sentence).toBe(`orlando refused uav/#: bandwidth, asked 2.1${THIN}Mbit/s, free 800${THIN}kbit/s.`);
  expect(refusal?.of).toBe('client ann');
});

test('a mistake in the predicate', () => {
  const reason = "altitude_m > > 300: unexpected '>' at character 14, expected (";
  const refusal = refusalOf('uav/#', { granted: [0x83], properties: { reasonString: reason } });
  expect(refusal?.at).toBe(14);
  expect(refusal?.sentence).toContain(reason);
});

test('granted, and without anything said', () => {
  expect(refusalOf('a', { granted: [1] })).toBeUndefined();
  expect(refusalOf('a', { granted: [0x87] })?.sentence).toBe('The node refused a: you may not subscribe to it');
  expect(refusalOf('a', undefined)?.code).toBe(0x80);
});
