import { expect, it } from 'vitest';
import { parted, ticksOf, waterfall } from './waterfall';

const step = (kind: string, from_ms: number, until_ms: number, allowed_ms: number | null = null) => ({
  kind,
  from_ms,
  until_ms,
  allowed_ms,
  estimated: kind === 'link',
});
const hop = (node: string, to: string, steps: ReturnType<typeof step>[], more = {}) => ({
  node,
  to,
  steps,
  budget_from_ms: null,
  budget_ms: null,
  over_ms: null,
  ...more,
});
const path = (hops: ReturnType<typeof hop>[], took_ms: number, due_ms: number | null = null) => ({
  destination: 'ops-dc',
  took_ms,
  has_arrived: true,
  due_ms,
  hops,
});

it('shows a hop against its budget', () => {
  const found = waterfall(
    path(
      [
        hop('denver', 'washington', [step('outbox', 86, 190, 66), step('link', 190, 231)], {
          budget_from_ms: 90,
          budget_ms: 104,
          over_ms: 41,
        }),
      ],
      231,
      200,
    ),
  );
  const [denver] = found.hops;
  expect(denver).toMatchObject({ budgetFromMs: 90, budgetUntilMs: 194, verdict: '41\u00a0ms over', isOver: true });
  expect(denver!.bars.map((bar) => [bar.label, bar.overFromMs])).toEqual([
    ['outbox to washington', 152],
    ['its link', null],
  ]);
  expect(denver!.bars[0]!.text).toBe('104\u00a0ms, may 66\u00a0ms');
  expect(found.dueMs).toBe(200);
});

it('leaves out steps that took no time, but no node', () => {
  const found = waterfall(path([hop('a', 'b', [step('handling', 0, 0), step('outbox', 0, 0)])], 0));
  expect(found.hops[0]!.bars).toHaveLength(1);
  expect(found.spanMs).toBeGreaterThan(0);
});

it('does not shrink to a point for a deadline far away', () => {
  const found = waterfall(path([hop('a', 'b', [step('outbox', 0, 3)])], 3, 60_000));
  expect(found.dueMs).toBeNull();
  expect(found.spanMs).toBeLessThan(4);
});

it.each([
  [242, [0, 50, 100, 150, 200]],
  [1, [0, 0.2, 0.4, 0.6, 0.8, 1]],
  [90_000, [0, 20_000, 40_000, 60_000, 80_000]],
])('has round times within %s ms', (span, expected) => {
  expect(ticksOf(span)).toEqual(expected);
});

it.each([
  ['42 ms late at ops-dc: it waited.', '42 ms late', ' at ops-dc: it waited.'],
  ['11.8 s late at x and 1 more of 3: …', '11.8 s late', ' at x and 1 more of 3: …'],
  ['50 ms later than its channel allows at desk: x', '50 ms later than its channel allows', ' at desk: x'],
  ['Expired for desk, due', 'Expired', ' for desk, due'],
  ['something new', '', 'something new'],
])('parts %s', (sentence, first, rest) => {
  expect(parted(sentence)).toEqual([first, rest]);
});
