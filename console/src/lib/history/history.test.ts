import { describe, expect, it } from 'vitest';
import { readShare, timeOf, withPart } from './counts';
import { historyEvent } from './events';
import { newest, Seen } from './seen';
import { lanes, nearest, rangeOf } from './lanes';
import { PageWindow } from './page_window';
import { reportSentence } from './report';
import { longer, queryCommand, readView, spanOf, widest } from './view';

const part = (counts: number[], read: number, cursor: string | null) => ({
  first: '1970-01-01T00:00:00.000Z',
  width_ms: 1_000,
  counts,
  read: new Date(read).toISOString(),
  cursor,
  files: 1,
  files_known: 2,
  bytes: 0,
  tail: 0,
  took_ms: 1,
});

describe('the view', () => {
  it('is what the address says', () => {
    const view = readView(new URLSearchParams('channel=uav/%23&where=a > 1&last=24h'));
    expect(view).toMatchObject({ channel: 'uav/#', where: 'a > 1', xpath: '', last: '24h' });
    expect(spanOf(view, 86_400_000)).toEqual({ sinceMs: 0, untilMs: undefined });
    expect(longer(view)).toBe('7d');
  });

  it('has everything of the last hour by default, whatever else is there', () => {
    const view = readView(new URLSearchParams('last=forever&from=yesterday&to=2026-01-01T00:00:00Z'));
    expect(view).toEqual({ channel: '#', where: '', xpath: '', last: '1h', fromMs: undefined, toMs: undefined });
  });

  it('is of what the user may see', () => {
    expect(widest(['a/b', '#'], 'ann')).toBe('#');
    expect(widest(['home/%u/#', 'a/b'], 'ann')).toBe('home/ann/#');
    expect(widest([], '')).toBe('#');
    expect(readView(new URLSearchParams(), 'home/ann/#').channel).toBe('home/ann/#');
  });

  it('is a command', () => {
    const of = (query: string) => queryCommand(readView(new URLSearchParams(query)));
    expect(of('channel=a/b')).toBe('accord query --since=-1h a/b');
    expect(of("where=site = 'n'")).toBe(`accord query --where "site = 'n'" --since=-1h '#'`);
    expect(of('channel=-x&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00.5Z&xpath=/a')).toBe(
      'accord query --xpath /a --since 2026-01-01T00:00:00.000Z --until 2026-01-02T00:00:00.500Z -- ' + "'-x'",
    );
  });
});

describe('counts', () => {
  it('add up', () => {
    const first = withPart(undefined, part([0, 0, 3, 4], 2_000, 'more'));
    expect(first).toMatchObject({ total: 7, isComplete: false });
    expect(readShare(first)).toBe(0.5);
    const all = withPart(first, part([1, 2, 0, 0], 0, null));
    expect(all).toMatchObject({ values: [1, 2, 3, 4], total: 10, isComplete: true, files: 2, known: 4 });
    expect(readShare(all)).toBe(1);
  });

  it('lead to a time, whichever way is dragged and however far', () => {
    const counts = withPart(undefined, part([1, 1, 1, 1], 0, null));
    expect(timeOf(counts, 1.2, 2.8)).toEqual([1_000, 3_000]);
    expect(timeOf(counts, 2.8, 1.2)).toEqual([1_000, 3_000]);
    expect(timeOf(counts, -5, 99)).toEqual([0, 4_000]);
  });
});

describe('events', () => {
  it('have their payload as bytes, whatever it was', () => {
    const base = { id: '7', channel: 'a', received: '2026-01-01T00:00:00.123Z', publisher: 'ann' };
    const made = (more: object) => historyEvent({ ...base, ...more } as never);
    expect(new TextDecoder().decode(made({ payload: 'día' }).payload)).toBe('día');
    expect([...made({ payload_base64: '/wA=' }).payload!]).toEqual([255, 0]);
    expect(made({})).toMatchObject({ size: 0, kind: 'empty', atMs: Date.parse(base.received) });
    expect(made({ attributes: { __proto__: 'x', n: 1, up: true } }).attributes).toMatchObject({ n: '1', up: 'true' });
  });
});

describe('going on live', () => {
  const row = (id: string, atMs: number, text: string, channel = 'a') => ({
    ...historyEvent({ id, channel, received: new Date(atMs).toISOString(), publisher: '', payload: text } as never),
  });

  it('leaves out what came in the millisecond of the newest row, and nothing else', () => {
    const seen = new Seen(5, [row('3', 5, 'three'), row('2', 5, 'two'), row('1', 4, 'one')]);
    expect(seen.isNew(row('2', 5, 'two'), 5)).toBe(false);
    expect(seen.isNew(row('other name', 5, 'three'), 5)).toBe(false); // of another node
    expect(seen.isNew(row('4', 5, 'two'), 5)).toBe(true); // the same once more
    expect(seen.isNew(row('5', 6, 'two'), 6)).toBe(true);
    expect(seen.isNew(row('5', 6, 'two'), 6)).toBe(false); // after a lost connection
    expect(seen.isNew(row('6', 7, 'live'), undefined)).toBe(true);
  });

  it('keeps the newest, in number and bytes', () => {
    const rows = Array.from({ length: 10 }, (_, i) => row(String(9 - i), 9 - i, 'x'.repeat(1_000)));
    expect(newest(rows, 3).map((each) => each.id)).toEqual(['9', '8', '7']);
    expect(newest(rows, 10, 3_500).length).toBe(2);
    expect(newest(rows, 10, 1).length).toBe(1);
  });
});

describe('a time line', () => {
  it('has the busiest channels first, and the others together', () => {
    const events = ['a', 'b', 'b', 'c', 'd', 'd', 'd'].map((channel, i) =>
      historyEvent({
        id: String(i),
        channel,
        received: new Date(i * 1_000).toISOString(),
        publisher: '',
        payload: '',
      } as never),
    );
    expect(lanes(events, 3).map((lane) => [lane.channel, lane.events.length])).toEqual([
      ['d', 3],
      ['b', 2],
      [undefined, 2],
    ]);
    expect(lanes(events).map((lane) => lane.channel)).toEqual(['d', 'b', 'a', 'c']);
    expect(nearest(events, 2_400)?.id).toBe('2');
    const [from, to] = rangeOf(events);
    expect(from).toBeLessThan(0);
    expect(to).toBeGreaterThan(6_000);
    expect(rangeOf([])).toEqual([0, 1]);
  });
});

describe('the report', () => {
  const none = { events: 0, delivered: 0, late: 0, shaped: 0, replaced: 0, expired: 0, shed: 0, refused: 0 };
  const made = (totals: object, losses: object[] = []) =>
    ({ totals: { ...none, in_time: null, ...totals }, losses, series: [], bucket_ms: 1 }) as never;

  it('is a sentence', () => {
    expect(reportSentence(made({}))).toBe('Nothing was delivered in this time.');
    expect(reportSentence(made({ events: 10, delivered: 10, in_time: 1 }))).toBe(
      '100\u00a0% arrived in time: 10 deliveries, none late or lost.',
    );
    const losses = [
      { outcome: 'shaped', channel: 'x', cause: 'y' },
      { outcome: 'late', channel: 'a/b', cause: 'after its deadline' },
    ];
    expect(reportSentence(made({ events: 10, delivered: 8, late: 1, shed: 1, in_time: 0.8 }, losses))).toBe(
      '80.0\u00a0% arrived in time: 1 late and 1 lost of 10, most late on a/b: after its deadline.',
    );
  });
});

describe('a million rows', () => {
  const SIZE = 100;
  const page = (at: number) => Array.from({ length: SIZE }, (_, i) => at * SIZE + i);

  it('take no more memory than some thousand', () => {
    const window = new PageWindow<number>(() => 10, { rows: 1_000, bytes: 1e9, cursors: 20_000 });
    for (let at = 0; at < 10_000; at += 1) {
      window.append(page(at), at === 9_999 ? null : `cursor of page ${at + 1}`);
      expect(window.rows.length).toBeLessThanOrEqual(1_000);
    }
    expect(window.known).toBe(1_000_000);
    expect(window.next).toBeUndefined();
    expect(window.offset + window.rows.length).toBe(1_000_000);
    expect(window.pages.reduce((sum, each) => sum + each.cursor.length, 0)).toBeLessThanOrEqual(20_000);
    expect(window.rows[0]).toBe(window.offset);
    // Whatever was dropped can be read again, in full.
    const at = window.missing(5)!;
    const known = window.pages[at]!;
    expect([known.start, known.cursor]).toEqual([0, '']);
    window.restore(
      at,
      Array.from({ length: known.count }, (_, i) => known.start + i),
    );
    expect(window.offset).toBe(0);
    expect(window.rows[5]).toBe(5);
    expect(window.missing(5)).toBeUndefined();
  });

  it('are read again in both directions', () => {
    const window = new PageWindow<number>(() => 10, { rows: 300, bytes: 1e9, cursors: 1e6 });
    for (let at = 0; at < 8; at += 1) window.append(page(at), String(at + 1));
    expect([window.offset, window.rows.length]).toEqual([500, 300]);
    window.restore(4, page(4));
    expect([window.offset, window.rows.length, window.rows[0]]).toEqual([400, 300, 400]);
    window.restore(0, page(0));
    expect([window.offset, window.rows.length]).toEqual([0, 100]);
    window.restore(1, page(1));
    expect([window.offset, window.rows.length, window.rows[199]]).toEqual([0, 200, 199]);
    // What comes at the end is known, and read again when it is looked at.
    window.append(page(8), null);
    expect(window.rows.length).toBe(200);
    expect(window.missing(850)).toBe(8);
  });

  it('are bounded by their bytes, but two pages stay', () => {
    const window = new PageWindow<number>(() => 1e6, { rows: 1e6, bytes: 1e6, cursors: 1e6 });
    for (let at = 0; at < 5; at += 1) window.append(page(at), String(at + 1));
    expect([window.offset, window.rows.length]).toEqual([300, 200]);
  });
});
