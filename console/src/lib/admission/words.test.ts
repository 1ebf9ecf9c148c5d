import { describe, expect, it } from 'vitest';
import { amount, interval, poolOf, refusals, sentence, taken, tightestFirst, type Book, type Pool } from './words';

const pool = (resource: string, promised: number, capacity: number | null, of = '', node = 'denver'): Pool => ({
  node,
  resource,
  of,
  capacity,
  promised,
  used: 0,
  free: capacity === null ? null : capacity - promised,
  promises: 1,
});
const book = (node: string, more: Partial<Book> = {}): Book => ({
  node,
  mode: 'enforce',
  guarantee: 'full',
  subscriptions: 1,
  refused: {},
  pools_total: 0,
  pools: [],
  lately: [],
  problem: '',
  ...more,
});
const refusal = (at_ms: number, client: string) => ({
  at_ms,
  client,
  filter: 'stock',
  where: '',
  problem: '',
  is_binding: true,
  shortages: [],
});

describe('the books', () => {
  it('show the tightest first, and use counts where it is more than what is promised', () => {
    const wide = { ...pool('memory', 1, 10), used: 5 };
    const pools = [pool('cpu', 9, null), wide, pool('bandwidth', 8, 10, 'link b')];
    expect(pools.map(taken)).toEqual([0, 0.5, 0.8]);
    expect(tightestFirst(pools).map((each) => each.resource)).toEqual(['bandwidth', 'memory', 'cpu']);
    const both = book('denver', { pools: [pool('bandwidth', 1, 10, 'link a'), ...pools] });
    expect(poolOf(both, 'bandwidth')?.of).toBe('link b');
    expect(poolOf(both, 'path')).toBeUndefined();
  });

  it('have units', () => {
    expect(amount(8_192, 'memory')).toBe('8.2\u00a0KB');
    expect(amount(73_730, 'bandwidth')).toBe('73.7\u00a0kbit/s');
    expect(amount(9, 'cpu')).toBe('9\u00a0/s');
    expect(amount(null, 'cpu')).toBe('–');
  });

  it('give the refusals of all nodes by time', () => {
    const found = refusals([book('a', { lately: [refusal(2, 'x')] }), book('b', { lately: [refusal(3, 'y')] })]);
    expect(found.map((each) => [each.node, each.client])).toEqual([
      ['b', 'y'],
      ['a', 'x'],
    ]);
  });
});

describe('the sentence', () => {
  it('is quiet where nothing is wrong', () => {
    expect(sentence('enforce', [book('a')])).toBe('1 subscription has a promise; nothing was refused.');
    expect(sentence('enforce', [book('a'), book('b')])).toBe(
      '2 subscriptions have promises at 2 nodes; nothing was refused.',
    );
    expect(sentence('enforce', [book('a', { subscriptions: 0 })])).toBe(
      'No subscription has a promise; nothing was refused.',
    );
    expect(sentence('off', [])).toBe('Admission is off at this node: every subscription is accepted.');
  });

  it('says what was refused, who is silent, and what is nearly used up', () => {
    const books = [
      book('a', { refused: { memory: 2, cpu: 1 }, pools: [pool('cpu', 96, 100, '', 'a')] }),
      book('b', { problem: 'node b does not answer', subscriptions: 0 }),
    ];
    expect(sentence('enforce', books)).toBe(
      '1 subscription has a promise at 2 nodes; 3 were refused; b does not answer; a has 4\u00a0% of its CPU left.',
    );
    expect(sentence('report', [book('a', { refused: { cpu: 1 } })])).toContain('1 would have been refused');
  });
});

describe('a check', () => {
  it('has intervals without needless ends', () => {
    expect(interval({ low: 18, high: 31 }, String)).toBe('18 to 31');
    expect(interval({ low: 18, high: 18 }, String)).toBe('18');
    expect(interval({ low: 18, high: null }, String)).toBe('18 or more');
  });
});
