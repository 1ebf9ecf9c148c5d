import { expect, test } from 'vitest';
import type { CapabilityRow, ExpectationRow, PropertyRow, QualityAction, QualityState } from '$api/contract';
import { adviceText, changesFor, effectOf, matchRows, nearestTo, previewOf, verdictOf } from './match';
import { expectationOf } from './documents';

const property = (name: string, more: Partial<PropertyRow> = {}): PropertyRow => ({
  name,
  better: 'higher',
  levels: [],
  range: [0, null],
  unit: '',
  over_hops: 'keep',
  measured: false,
  ...more,
});
const PROPERTIES: Record<string, PropertyRow> = {
  rate: property('rate', { unit: 'Hz' }),
  latency: property('latency', { unit: 'ms', better: 'lower', measured: true }),
  trust: {
    name: 'trust',
    better: 'higher',
    levels: ['none', 'low', 'high'],
    unit: '',
    over_hops: 'keep',
    measured: false,
  },
};
const offer = (
  name: string,
  lower: number | string,
  upper: number | string,
  current: number | string,
  more: Partial<CapabilityRow> = {},
): CapabilityRow => ({
  property: name,
  lower,
  upper,
  current,
  cost: 0,
  is_measured: false,
  ...more,
});
const OFFERS = [
  offer('rate', 1, 10, 2, { cost: { base: 0, slope: 0.5 } }),
  offer('latency', 50, 80, 80, { is_measured: true }),
  offer('trust', 'low', 'low', 'low'),
];
const row = (expect_: Record<string, unknown>, more: Partial<ExpectationRow> = {}): ExpectationRow => ({
  rank: 0,
  client: 'desk',
  id: 'often',
  channel: 'lab/#',
  subscription: 'lab/#',
  expect: { utility: 3, ...expect_ },
  state: 'unsatisfied',
  decision: '',
  reasons: [],
  relies_on: [],
  nearest: { publisher: 'raven', channel: 'lab/t', capabilities: OFFERS, is_remote: false },
  ...more,
});
const state = (rows: ExpectationRow[], more: Partial<QualityState> = {}): QualityState => ({
  node: 'here',
  strategy: 'pareto',
  totals: {
    profiles: 1,
    states: {
      satisfied: rows.filter((each) => each.state === 'satisfied').length,
      unsatisfied: rows.filter((each) => each.state !== 'satisfied').length,
    },
    reactions: 0,
    advice: 0,
    told: 0,
    usages: 0,
    acts: 0,
    filtered: 0,
  },
  expectations_total: rows.length,
  expectations_matching: rows.length,
  expectations: Object.fromEntries(rows.map((each, rank) => [`${each.client}\n${each.id}`, { ...each, rank }])),
  profiles_total: 1,
  profiles_matching: 1,
  profiles: {
    'lab/t\nraven': {
      rank: 0,
      publisher: 'raven',
      channel: 'lab/t',
      source: '',
      capabilities: OFFERS,
      expectations: 0,
      utility: 0,
    },
  },
  actions: {},
  properties: PROPERTIES,
  ...more,
});

test('each property is compared on its own, whichever end is better', () => {
  const found = matchRows(
    row({ rate: [4, 8], latency: [null, 60], trust: ['high', null], colour: [1, null] }),
    PROPERTIES,
  );
  expect(found.map((each) => [each.property, each.state])).toEqual([
    ['rate', 'satisfiable'],
    ['latency', 'satisfiable'],
    ['trust', 'unsatisfied'],
    ['colour', 'missing'],
  ]);
  expect(found[1]).toMatchObject({ worst: 60, best: undefined, note: '80\u00a0ms now, raven can do 50\u00a0ms' });
  expect(matchRows(row({ rate: [1, 2] }), PROPERTIES).map((each) => each.state)).toEqual([
    'satisfied',
    'unasked',
    'unasked',
  ]);
});

test('an unbounded requirement is met by any offer', () => {
  expect(matchRows(row({ rate: [null, 8] }), PROPERTIES)[0]).toMatchObject({
    state: 'satisfied',
    worst: undefined,
    best: 8,
  });
});

test('what would have to change has its cost, or the bound that can be met', () => {
  const asked = row({ rate: [4, 8], latency: [null, 60], trust: ['high', null] });
  const changes = changesFor(asked, matchRows(asked, PROPERTIES));
  expect(changes.map((each) => each.text)).toEqual([
    'raven would have to change to 4\u00a0Hz, at a cost of 2 instead of 1.',
    'the node can reach 50\u00a0ms by acting; 60\u00a0ms is asked for.',
    'raven can do low at best, and high is asked for.',
  ]);
  expect(changes.map((each) => each.ask)).toEqual([undefined, undefined, 'low']);
});

test('decisions, several publishers, suspension and nobody at all are said', () => {
  const texts = (each: ExpectationRow) => changesFor(each, matchRows(each, PROPERTIES)).map((one) => one.text);
  const declined = 'declined: satisfying it would cost too much';
  expect(texts(row({ rate: [4, 8], publishers: 3 }, { decision: declined })).slice(1)).toEqual([
    '3 publishers have to meet all of it at once.',
    `The node has ${declined}.`,
  ]);
  expect(texts(row({ rate: [4, 8] }, { decision: 'adapting' }))[0]).toMatch(/It is advised\.$/);
  expect(texts(row({ rate: [4, 8] }, { state: 'suspended' }))[0]).toMatch(/^It is suspended/);
  expect(texts(row({ rate: [1, 8] }, { state: 'satisfied', relies_on: ['raven'] }))).toEqual([
    'Nothing. It depends on raven.',
  ]);
  const alone = row({ rate: [4, 8], trust: ['low', null] });
  delete alone.nearest;
  expect(texts(alone)).toEqual(['No publisher on lab/# offers rate and trust. One would have to register a profile.']);
});

test('the verdict names the worst one', () => {
  expect(verdictOf(state([]))).toBe('Nobody expects anything yet.');
  const met = row({ rate: [1, 2] }, { state: 'satisfied', id: 'calm' });
  expect(verdictOf(state([met]))).toBe('The only expectation is satisfied.');
  expect(verdictOf(state([met, { ...met, id: 'b' }]))).toBe('All 2 expectations are satisfied.');
  expect(verdictOf(state([row({ rate: [4, 8], trust: ['high', null] }), met]))).toBe(
    '1 of 2 expectations is satisfied. desk asks for more trust than anybody can give.',
  );
  const waiting = row(
    { rate: [4, 8] },
    { state: 'satisfiable', decision: 'adapting', reasons: [{ property: 'rate', now: 2 }] },
  );
  expect(verdictOf(state([waiting]))).toBe(
    'The only expectation is not satisfied. desk waits for raven to change its rate.',
  );
});

test('a draft is compared with the profile that lacks the least', () => {
  const better = {
    rank: 1,
    publisher: 'eagle',
    channel: 'lab/u',
    source: '',
    capabilities: [offer('rate', 1, 30, 20)],
    expectations: 0,
    utility: 0,
  };
  const elsewhere = { ...better, publisher: 'far', channel: 'uav/u' };
  const base = state([]);
  const all = { ...base, profiles: { ...base.profiles, a: better, b: elsewhere } };
  const draft = expectationOf(row({ rate: [15, null] }));
  expect(nearestTo(draft, all)?.publisher).toBe('eagle');
  expect(previewOf(draft, all)).toMatchObject({ kind: 'ok', text: 'eagle gives that now.' });
  expect(previewOf(expectationOf(row({ rate: [25, null] })), all).kind).toBe('warn');
  expect(previewOf(expectationOf(row({ rate: [40, null] })), all).kind).toBe('bad');
  expect(previewOf({ ...draft, channel: 'cas/#' }, all).text).toMatch(
    /^No publisher at this node offers rate on cas\/#/,
  );
  expect(previewOf({ ...draft, requirements: [] }, all).kind).toBe('stale');
});

test('names of others are shown harmlessly', () => {
  const found = row({ rate: [40, null] }, { client: 'a\u202eb', channel: 'x\n/#' });
  expect(verdictOf(state([found]))).not.toMatch(/[\u202e\n]/);
});

test('what came of advice is told in values', () => {
  const action: QualityAction = {
    number: 1,
    at_ms: 0,
    act: 'advise the publisher',
    publisher: 'raven',
    channel: 'lab/t',
    property: 'rate',
    target: 10,
    is_release: false,
    before: 2,
    after: 9.6,
    after_ms: 3_000,
    reached_ms: 1_200,
    outcome: 'reached',
  };
  expect(effectOf(action, 'Hz').text).toBe('now 9.6\u00a0Hz within 1 s');
  expect(effectOf({ ...action, outcome: 'missed', after: 3 }, 'Hz')).toEqual({
    kind: 'bad',
    text: 'not followed: 3\u00a0Hz',
  });
  expect(effectOf({ ...action, outcome: 'waiting', after: 2 }, 'Hz').text).toBe('waiting, 2\u00a0Hz now');
  const totals = { ...state([]).totals, advice: 2 };
  expect(adviceText(state([], { totals, actions: { 1: action } }))).toBe('advised 2 times, 1 of the last 1 followed');
});
