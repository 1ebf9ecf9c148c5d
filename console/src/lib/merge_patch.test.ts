import { expect, it } from 'vitest';
import { mergePatch } from './merge_patch';

it('does the examples of RFC 7396', () => {
  const examples: [unknown, unknown, unknown][] = [
    [{ a: 'b' }, { a: 'c' }, { a: 'c' }],
    [{ a: 'b' }, { b: 'c' }, { a: 'b', b: 'c' }],
    [{ a: 'b' }, { a: null }, {}],
    [{ a: 'b', b: 'c' }, { a: null }, { b: 'c' }],
    [{ a: ['b'] }, { a: 'c' }, { a: 'c' }],
    [{ a: 'c' }, { a: ['b'] }, { a: ['b'] }],
    [{ a: { b: 'c' } }, { a: { b: 'd', c: null } }, { a: { b: 'd' } }],
    [{ a: [{ b: 'c' }] }, { a: [1] }, { a: [1] }],
    [
      ['a', 'b'],
      ['c', 'd'],
      ['c', 'd'],
    ],
    [{ a: 'b' }, ['c'], ['c']],
    [{ a: 'foo' }, null, null],
    [{ e: null }, { a: 1 }, { e: null, a: 1 }],
    [[1, 2], { a: 'b', c: null }, { a: 'b' }],
    [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
  ];
  for (const [target, patch, result] of examples) expect(mergePatch(target, patch)).toEqual(result);
});

it('keeps what did not change as it is', () => {
  const before = { rows: { a: { x: 1 }, b: { x: 2 } }, order: ['a', 'b'] };
  const after = mergePatch(before, { rows: { b: { x: 3 } } });
  expect(after.rows.a).toBe(before.rows.a);
  expect(after.order).toBe(before.order);
  expect(after.rows).not.toBe(before.rows);
  expect(before.rows.b.x).toBe(2);
});

it('takes names of prototypes for plain members', () => {
  const found = mergePatch({ rows: {} }, JSON.parse('{"rows": {"__proto__": {"x": 1}}}'));
  expect(Object.keys(found.rows)).toEqual(['__proto__']);
  expect(({} as Record<string, unknown>)['x']).toBeUndefined();
});
