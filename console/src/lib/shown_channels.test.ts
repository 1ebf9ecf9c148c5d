import { expect, test } from 'vitest';
import { lineOf } from './client_view';
import { ShownChannels } from './shown_channels';

const line = (channel: string, importance: number, received = 1) =>
  lineOf(channel, {
    sources: [],
    sources_total: 0,
    policy: '',
    importance,
    received,
    dropped: 0,
    shaped: 0,
    late: 0,
    rate_hz: 0,
  });

test('channels keep their colours', () => {
  const channels = new ShownChannels();
  const first = channels.choose([line('a', 1), line('b', 2), line('idle', 7, 0)]);
  expect(first.shown).toEqual(['b', 'a']);
  expect([...first.colours]).toEqual([
    ['b', 's1'],
    ['a', 's2'],
  ]);
  const next = channels.choose([line('a', 1), ...['c', 'd', 'e', 'f', 'g'].map((each) => line(each, 5))]);
  expect(next.shown).toEqual(['c', 'd', 'e', 'f', 'g']);
  const again = channels.choose([line('g', 1), line('x', 9)]);
  expect(again.colours.get('g')).toBe(next.colours.get('g'));
});
