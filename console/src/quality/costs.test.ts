import { expect, test } from 'vitest';
import { corners, costForm, costOf, readCost } from './costs';
import { scaleOf } from './scale';

const LEVELS = ['grey', 'few', 'full'];

test.each([
  0.5,
  { base: 1, slope: 0.1 },
  [
    [1, 0],
    [10, 3],
  ],
  [
    ['grey', 0],
    ['full', 2],
  ],
])('%j is read and written again', (form) => {
  expect(costForm(readCost(form))).toEqual(form);
});

test('anything else costs nothing', () => {
  for (const each of [undefined, null, 'x', {}, { base: 2 }]) expect(costOf(readCost(each), 3)).toBe(0);
});

test('a line follows the value, or the number of the level', () => {
  const line = readCost({ base: 1, slope: 0.5 });
  expect(costOf(line, 4)).toBe(3);
  expect(costOf(line, 'full', LEVELS)).toBe(2);
  expect(costOf(line, 'pink', LEVELS)).toBeUndefined();
});

test('a table is interpolated between its points, and constant beyond them', () => {
  const table = readCost([
    [2, 1],
    [4, 2],
    [8, 10],
  ]);
  expect([0, 2, 3, 4, 6, 8, 9].map((each) => costOf(table, each))).toEqual([1, 1, 1.5, 2, 6, 10, 10]);
  expect(
    costOf(
      readCost([
        ['grey', 0],
        ['full', 4],
      ]),
      'few',
      LEVELS,
    ),
  ).toBe(2);
  expect(costOf(readCost([]), 3)).toBe(0);
});

test('the corners of the curve are those within the range', () => {
  const scale = scaleOf({ better: 'higher', levels: [], range: [0, null], unit: 'Hz' }, [10]);
  const table = readCost([
    [0, 0],
    [4, 2],
    [8, 10],
  ]);
  expect(corners(table, scale, 2, 6)).toEqual([
    { at: 2, cost: 1 },
    { at: 4, cost: 2 },
    { at: 6, cost: 6 },
  ]);
  expect(corners(readCost(3), scale, 2, 6)).toEqual([
    { at: 2, cost: 3 },
    { at: 6, cost: 3 },
  ]);
});
