import { expect, test } from 'vitest';
import { isIn, problemWithFilter } from './filters';

test.each([
  ['uav/#', 'uav/imagery', true],
  ['uav/#', 'uav', true],
  ['uav/+', 'uav/imagery/1', false],
  ['+/imagery', 'uav/imagery', true],
  ['#', '$SYS/load', false],
  ['$SYS/#', '$SYS/load', true],
  ['$share/g/uav/#', 'uav/imagery', true],
  ['uav/imagery', 'uav', false],
])('%s has %s: %s', (filter, channel, expected) => {
  expect(isIn(filter, channel)).toBe(expected);
});

test.each([
  ['uav/#', undefined],
  ['', 1],
  ['uav/#/x', 5],
  ['uav#', 4],
  ['a/b+/c', 4],
])('problem with %s at %s', (filter, at) => {
  expect(problemWithFilter(filter)?.at).toBe(at);
});
