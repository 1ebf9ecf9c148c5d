import { describe, expect, it } from 'vitest';
import type { ChannelState, ChannelSubscriber } from '$api/contract';
import {
  channelsVerdict,
  channelVerdict,
  definitionWords,
  isFilter,
  policyOf,
  stateOf,
  worstFirst,
} from './channel_words';
import { outcomeSlots } from './slots';

const subscriber = (more: Partial<ChannelSubscriber>): ChannelSubscriber => ({
  filter: 'uav/#',
  where: '',
  xpath: '',
  qos: 1,
  importance: 2,
  policy: 'Imagery',
  received: 1,
  dropped: 0,
  ...more,
});
const state = (more: object, subscribers: Record<string, ChannelSubscriber> = {}): ChannelState => ({
  activity: {
    channel: 'uav/imagery',
    publishers: 1,
    subscribers: 2,
    published_hz: 4,
    delivered_hz: 8,
    ...more,
  } as ChannelState['activity'],
  publishers: {},
  subscribers,
});
const words = (text: string) => text.replace(/\s/g, ' ');

describe('sentences about a channel', () => {
  it('says what is not in time, and who is worst', () => {
    const found = state(
      { in_time: 0.968, late_hz: 1, expired_hz: 0.4 },
      {
        'desk-1': subscriber({ in_time: 1, p95_ms: 131 }),
        'patrol-1': subscriber({ in_time: 0.938, p95_ms: 2800 }),
      },
    );
    expect(words(channelVerdict('uav/imagery', found, 2, 0))).toBe(
      '3.2 % of uav/imagery is not in time, most of it late. patrol-1 is worst: 93.8 %, p95 2.8 s.',
    );
  });
  it('is short where all is well', () => {
    expect(words(channelVerdict('a', state({ in_time: 1, max_delay_ms: 200 }), 2, 0))).toBe(
      'a is in time: 100 % within 200 ms.',
    );
  });
  it('tells silence from never', () => {
    const silent = {
      ...state({ published_hz: 0, delivered_hz: 0, published: 3 }),
      publishers: { 'sensor-1': { published: 3, rate_hz: 0, last_ms: 1_000 } },
    };
    expect(words(channelVerdict('a', silent, 2, 7_201_000))).toBe('Nothing on a for 2 h. The last came from sensor-1.');
    expect(channelVerdict('a', state({ published_hz: 0, delivered_hz: 0, published: 0, subscribers: 1 }), 1, 0)).toBe(
      'Nothing was published on a yet; 1 subscriber waits.',
    );
    expect(channelVerdict('a', state({ subscribers: 0 }), 0, 0)).toBe(
      'a gets 4 events/s, and nobody here is subscribed.',
    );
  });
  it('shows names of others harmlessly', () => {
    expect(channelVerdict('\u202e\u001b', state({ subscribers: 0 }), 0, 0)).not.toContain('\u202e');
  });
});

it('sorts subscribers worst first, unknown ones last', () => {
  const found = worstFirst({
    a: subscriber({}),
    b: subscriber({ in_time: 1, p95_ms: 5 }),
    c: subscriber({ in_time: 1, p95_ms: 9 }),
    d: subscriber({ in_time: 0.2 }),
  });
  expect(found.map(([name]) => name)).toEqual(['d', 'c', 'b', 'a']);
});

it('tells states, policies, definitions and filters', () => {
  expect([1, 0.95, 0.2, undefined].map(stateOf)).toEqual(['ok', 'warn', 'bad', 'stale']);
  expect(policyOf(state({}, { a: subscriber({ importance: 1 }), b: subscriber({}) }))).toEqual({
    policy: 'Imagery',
    least: 1,
    most: 2,
  });
  expect(definitionWords(state({ template: 'total_order', max_delay_ms: 200, is_kept: true })).map(words)).toEqual([
    'total order, within 200 ms',
    'kept',
  ]);
  expect(['uav/#', '#', 'a/+/b', 'a/b', 'a#'].map(isFilter)).toEqual([true, true, true, false, false]);
});

it('answers for all channels only if the worst come first', () => {
  const rows = { a: { channel: 'a', in_time: 0.9 }, b: { channel: 'b', in_time: 1 } } as never;
  const page = { total: 2, matching: 2, order: ['a', 'b'], rows };
  expect(words(channelsVerdict(page, 'in_time', false))).toBe('One channel is not in time; worst is a with 90.0 %.');
  expect(channelsVerdict(page, 'channel', false)).toBe('Channels');
  expect(channelsVerdict({ total: 0, matching: 0, order: [], rows: {} }, 'in_time', false)).toBe(
    'There are no channels yet.',
  );
});

it('puts rates into slots', () => {
  const points = (value: number) => ({ times: [0, 500, 1000], values: [value, value, value * 3] });
  const found = outcomeSlots(
    (field) => (field === 'delivered_hz' ? points(10) : field === 'late_hz' ? points(2) : { times: [], values: [] }),
    1000,
    2000,
    1000,
  );
  expect(found.starts).toEqual([0, 1000]);
  expect(found.rows.find((row) => row.name === 'in time')!.values).toEqual([8, 24]);
  expect(found.rows.find((row) => row.name === 'late')!.values).toEqual([2, 6]);
});
