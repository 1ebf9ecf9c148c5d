import { describe, expect, it } from 'vitest';
import { draw, related, SIZES, type OrderedFilter } from './order';

const filter = (where: string, count: number, ...below: number[]): OrderedFilter => ({
  channel: 'stock',
  where,
  rate_hz: count,
  count,
  below,
});

/** Figure 4 (c) of the paper: two filters cover the same one. */
const PAPER = [
  filter('price > 0', 6, 1, 2),
  filter('price > 5', 4, 3, 5),
  filter('price > 3 AND DEU', 3, 3),
  filter('price > 7 AND DEU', 2, 4),
  filter('price > 8 AND DEU', 1),
  filter('price > 9', 1),
];

describe('the order of filters', () => {
  it('has each filter below all that cover it', () => {
    const { boxes, edges, leftOut } = draw(PAPER);
    const layers = Object.fromEntries(boxes.map((box) => [box.filter.where, box.layer]));
    expect(layers).toEqual({
      'price > 0': 0,
      'price > 5': 1,
      'price > 3 AND DEU': 1,
      'price > 7 AND DEU': 2,
      'price > 9': 2,
      'price > 8 AND DEU': 3,
    });
    expect(edges.map(({ from, to }) => [from, to]).sort()).toEqual([
      [0, 1],
      [0, 2],
      [1, 3],
      [1, 5],
      [2, 3],
      [3, 4],
    ]);
    expect(leftOut).toBe(0);
  });

  it('puts no two boxes on each other, and all within the drawing', () => {
    const wide = [filter('#', 40, ...Array.from({ length: 30 }, (_, i) => i + 1))].concat(
      Array.from({ length: 30 }, (_, i) => filter(`x = ${i}`, 1)),
    );
    for (const filters of [PAPER, wide]) {
      const { boxes, width, height } = draw(filters);
      expect(new Set(boxes.map(({ x, y }) => `${x} ${y}`)).size).toBe(boxes.length);
      for (const { x, y } of boxes) {
        expect(x).toBeGreaterThanOrEqual(0);
        expect(x + SIZES.width).toBeLessThanOrEqual(width);
        expect(y + SIZES.height).toBeLessThanOrEqual(height);
      }
      const rows = new Map<number, number[]>();
      for (const { x, y } of boxes) rows.set(y, [...(rows.get(y) ?? []), x]);
      for (const row of rows.values()) {
        row.sort((a, b) => a - b);
        row.slice(1).forEach((x, i) => expect(x - row[i]!).toBeGreaterThanOrEqual(SIZES.width));
      }
    }
  });

  it('leaves out what is too much, with all below it', () => {
    const filters = [
      filter('#', 100, 1, 2, 3),
      filter('a', 50),
      filter('b', 40),
      filter('c', 10, 4),
      filter('below c', 1),
    ];
    const { boxes, edges, leftOut } = draw(filters, { ...SIZES, across: 2 });
    expect(boxes.map((box) => box.filter.where)).toEqual(['#', 'a', 'b']);
    expect(edges).toHaveLength(2);
    expect(leftOut).toBe(2);
    expect(draw(filters, { ...SIZES, most: 2 }).leftOut).toBe(3);
  });

  it('orders boxes so that edges cross no more than they must', () => {
    // Drawn as listed, both edges would cross.
    const filters = [filter('a', 4, 3), filter('b', 4, 2), filter('below b', 1), filter('below a', 1)];
    const { boxes } = draw(filters);
    const x = (where: string) => boxes.find((box) => box.filter.where === where)!.x;
    expect(x('a') < x('b')).toBe(x('below a') < x('below b'));
  });

  it('knows what belongs to a filter', () => {
    const { boxes } = draw(PAPER);
    expect([...related(boxes, 3)].sort()).toEqual([0, 1, 2, 3, 4]);
    expect([...related(boxes, 5)].sort()).toEqual([0, 1, 5]);
    expect([...related(boxes, 99)]).toEqual([99]);
  });

  it('is empty without filters', () => {
    expect(draw([])).toEqual({ boxes: [], edges: [], width: 0, height: 0, leftOut: 0 });
  });
});
