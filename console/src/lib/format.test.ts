import { describe, expect, it } from 'vitest';
import * as format from './format';

const plainSpaces = (text: string) => text.replaceAll('\u00a0', ' ');

describe('figures', () => {
  it('have about three significant digits', () => {
    expect([0, 1.7, 0.613, 12.34, 166.4, 1204, 0.00123, 1e6].map(format.figure)).toEqual([
      '0',
      '1.7',
      '0.61',
      '12.3',
      '166',
      '1,204',
      '0.0012',
      '1,000,000',
    ]);
  });

  it('are a dash where nothing is known', () => {
    for (const make of [
      format.number,
      format.figure,
      format.share,
      format.bytes,
      format.kbps,
      format.rate,
      format.latency,
      format.duration,
      format.time,
      format.trend,
    ])
      for (const value of [null, undefined, NaN, Infinity]) expect(make(value as number)).toBe('–');
  });

  it('never round a share to all or nothing', () => {
    expect(plainSpaces(format.share(0.99999))).toBe('99.9 %');
    expect(plainSpaces(format.share(1))).toBe('100 %');
    expect(plainSpaces(format.share(0.00001))).toBe('0.1 %');
    expect(plainSpaces(format.share(0))).toBe('0 %');
    expect(plainSpaces(format.share(0.987))).toBe('98.7 %');
  });

  it('have units that fit', () => {
    expect(plainSpaces(format.bytes(60_600))).toBe('60.6 KB');
    expect(plainSpaces(format.bytes(999_900))).toBe('1.0 MB');
    expect(plainSpaces(format.kbps(300))).toBe('300 kbit/s');
    expect(plainSpaces(format.kbps(2100))).toBe('2.1 Mbit/s');
    expect(plainSpaces(format.latency(96))).toBe('96 ms');
    expect(plainSpaces(format.latency(2800))).toBe('2.8 s');
    expect(plainSpaces(format.rate(0.5))).toBe('0.50 /s');
  });
});

describe('times', () => {
  it('say how long in two units', () => {
    const said = [400, 38_000, 312_000, 1_200_000, 8_040_000, 86_400_000, 100_800_000]
      .map(format.duration)
      .map(plainSpaces);
    expect(said).toEqual(['400 ms', '38 s', '5 min 12 s', '20 min', '2 h 14 min', '1 d', '1 d 4 h']);
  });

  it('are in the zone of the viewer, and in UTC on hover', () => {
    const at = Date.UTC(2026, 10, 18, 21, 32, 6, 412);
    expect(format.utc(at)).toBe('2026-11-18 21:32:06.412 UTC');
    const local = new Date(at);
    expect(format.time(at, { now: at, digits: 1 })).toContain(`${String(local.getHours()).padStart(2, '0')}:32:06.4`);
    expect(format.time(at, { now: at + 3 * 86_400_000 })).toContain('2026-11-1');
  });

  it('have ages', () => {
    expect([900, 61_000, 7_300_000, 200_000_000].map(format.age).map(plainSpaces)).toEqual([
      '0 s',
      '1 min',
      '2 h',
      '2 d',
    ]);
  });
});

describe('text of others', () => {
  it('shows marks instead of what hides or turns', () => {
    expect(format.plain('a\u202eb\u001b[31mc\nd\u0000')).toBe('a\ufffdb␛[31mc␊d␀');
    expect(format.plain('<script>alert(1)</script>')).toBe('<script>alert(1)</script>');
  });

  it('is cut', () => {
    expect(format.plain('x'.repeat(60_000))).toHaveLength(201);
    expect(format.cutTitle('x'.repeat(60_000))).toContain('60,000 characters');
  });
});

describe('series', () => {
  it('have the unit of their quantity', () => {
    expect(
      ['sent_kbps', 'channel/latency_ms/a/b_hz', 'client/queued_bytes/x', 'cpu_percent', 'backlog'].map(format.unitOf),
    ).toEqual(['kbit/s', 'ms', 'B', '%', '']);
  });
});
