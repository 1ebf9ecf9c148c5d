import { expect, test } from 'vitest';
import { bytes } from './format';
import type { Schemas } from '$api/contract';
import {
  Causes,
  dotsOf,
  dueBounds,
  type Line,
  lineOf,
  linkParts,
  mainFate,
  shortNames,
  sortLines,
  verdictOf,
} from './client_view';

const THIN = bytes(1).slice(1, -1); // between figure and unit

const line = (channel: string, more: Partial<Line> = {}): Line => ({
  ...lineOf(channel, {
    sources: [],
    sources_total: 0,
    policy: '',
    received: 100,
    dropped: 0,
    shaped: 0,
    late: 0,
    rate_hz: 1,
  }),
  inTime: 1,
  importance: 3,
  deadlineMs: 5_000,
  ...more,
});
const HERE = { isConnected: true, subscriptions: 2, sentKbps: 290, capacityKbps: 300 };

test('the sentence', () => {
  const report = line('patrol/report', { importance: 6 });
  const imagery = line('uav/imagery', { importance: 2, inTime: 0.938 });
  const cas = line('cas/image', { importance: 2, inTime: 0.952 });
  expect(verdictOf('p', undefined, [])).toBe('p is not known here.');
  expect(verdictOf('p', { isConnected: false, queuedMessages: 1 }, [])).toBe('p is away; 1 event waits for it.');
  expect(verdictOf('p', { isConnected: true, subscriptions: 0 }, [])).toBe('p subscribes to nothing.');
  expect(verdictOf('p', HERE, [report])).toBe('p gets everything in time.');
  expect(verdictOf('p', HERE, [report, imagery, cas])).toBe(
    'p gets what matters in time; its link is too thin for uav/imagery and cas/image.',
  );
  expect(verdictOf('p', { ...HERE, sentKbps: 20 }, [report, imagery])).toBe(
    `p gets what matters in time; 6.2${THIN}% of uav/imagery came late or not at all.`,
  );
  expect(
    verdictOf('p', { ...HERE, sentKbps: 20 }, [line('bft', { importance: 2 }), { ...imagery, importance: 7 }]),
  ).toBe(`p misses events: 6.2${THIN}% of uav/imagery came late or not at all.`);
});

test('without a deadline nothing is late, so that is said', () => {
  const free = line('a', { deadlineMs: 0, p95Ms: 200 });
  expect(verdictOf('p', HERE, [free])).toBe('p gets everything; no deadline is set.');
  expect(verdictOf('p', HERE, [free, line('b')])).toBe('p gets everything, and in time where a deadline is set.');
  expect(verdictOf('p', HERE, [{ ...free, p95Ms: 7_000 }])).toBe(
    `p gets everything, a within 7${THIN}s; no deadline is set.`,
  );
});

test('what waits is judged, whatever the shares say', () => {
  const imagery = line('imagery', { deadlineMs: 0, waiting: 12, waitingBytes: 3_600_000, waitingMs: 50_000 });
  expect(verdictOf('p', HERE, [line('report'), imagery])).toBe(
    `p is 50${THIN}s behind on imagery: 12 events (3.6${THIN}MB) wait.`,
  );
  expect(verdictOf('p', HERE, [{ ...imagery, received: 0, inTime: undefined, waiting: 1 }])).toBe(
    `p is 50${THIN}s behind on imagery: 1 event (3.6${THIN}MB) waits.`,
  );
});

test('replaced events are no loss', () => {
  expect(verdictOf('p', HERE, [{ ...line('a', { dropped: 50, replaced: 50 }), inTime: undefined }])).toBe(
    'p gets everything in time.',
  );
});

test('order: without a value last, both ways', () => {
  const lines = [line('b', { p50Ms: 5 }), line('a'), line('c', { p50Ms: 9 })];
  expect(sortLines(lines, 'p50', true).map((each) => each.channel)).toEqual(['c', 'b', 'a']);
  expect(sortLines(lines, 'p50', false).map((each) => each.channel)).toEqual(['b', 'c', 'a']);
  expect(sortLines(lines, 'importance', true).map((each) => each.channel)).toEqual(['a', 'b', 'c']);
});

const outcome = (event: string, channel: string, found: string, size = 100): Schemas['DeliveryOutcome'] => ({
  event,
  channel,
  outcome: found,
  size,
  count: 1,
  destination: 'p',
  publisher: 'x',
  received_ms: 0,
  queued_ms: 0,
  done_ms: 0,
  queueing_ms: 0,
  importance: 3,
  deadline_ms: null,
  from_size: null,
  policy: '',
  reason: '',
  replaced_by: null,
  sending_ms: null,
  node: '',
  hop: null,
});

test('causes count each event once', () => {
  const causes = new Causes();
  const rows = {
    '1 p': outcome('1', 'a', 'expired'),
    '2 p': outcome('2', 'a', 'expired'),
    '3 p': outcome('3', 'a', 'shed'),
    '4 p': outcome('4', 'a', 'delivered'),
    '5 q': { ...outcome('5', 'a', 'shed'), destination: 'q' },
  };
  causes.take(rows, 'p');
  causes.take(rows, 'p');
  expect(causes.of('a')).toEqual([
    ['expired', 2],
    ['shed', 1],
  ]);
  expect(mainFate('a', causes, [])).toBe('expired');
  expect(mainFate('b', causes, [[1, 'b', 5, 'refused']])).toBe('refused');
});

test('parts of the link', () => {
  const rows = {
    1: outcome('1', 'a', 'delivered', 300),
    2: outcome('2', 'b', 'shaped', 100),
    3: outcome('3', 'c', 'shed', 900),
  };
  expect(linkParts(rows, 'p')).toEqual([
    ['a', 0.75],
    ['b', 0.25],
  ]);
  expect(linkParts(rows, 'p', 1)).toEqual([
    ['a', 0.75],
    ['', 0.25],
  ]);
});

test('dots: dropped ones stand at their bound, times are distinct', () => {
  const dots = dotsOf(
    [
      [20, 'a', 700, 'expired'],
      [10, 'a', 0, 'delivered'],
      [10, 'a', 90, 'shaped'],
      [12, 'b', 5, 'delivered'],
      [15, 'a', 6_000, 'late'],
    ],
    new Set(['a']),
    new Map([['a', 5_000]]),
  );
  expect([...dots.received.keys()]).toEqual(['a']);
  expect(dots.received.get('a')).toEqual({ times: [10, 10.01], values: [0.5, 90] });
  expect(dots.fates.get('expired')).toEqual({ times: [20], values: [5_000] });
  expect(dots.fates.get('late')).toEqual({ times: [15], values: [6_000] });
});

test('bounds and short names', () => {
  const lines = [
    line('uav/imagery', { deadlineMs: 5_000 }),
    line('cas/image', { deadlineMs: 5_000 }),
    line('a/b', { deadlineMs: 800 }),
  ];
  expect(dueBounds(lines, (each) => each)).toEqual([
    { value: 800, text: `a/b due 800${THIN}ms` },
    { value: 5_000, text: `due 5${THIN}s` },
  ]);
  expect([...shortNames(['a/x', 'b/x', 'c/y', '/']).values()]).toEqual(['a/x', 'b/x', 'y', '/']);
});
