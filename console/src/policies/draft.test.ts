import { describe, expect, it } from 'vitest';
import {
  contextWords,
  freeName,
  inOrder,
  parseQuantity,
  policyCommand,
  policyToml,
  preferenceWords,
  quantity,
  RATES,
  readSet,
  setToml,
  SIZES,
  specificity,
  TIMES,
  type Policy,
  type PolicySet,
} from './documents';
import {
  affectedWords,
  callFor,
  changesBetween,
  characterIn,
  directionOf,
  effectOf,
  onTopOf,
  readPlace,
  remarks,
  sentence,
  undo,
  withField,
  withLimit,
  withoutPolicy,
  withPolicy,
} from './draft';

const IMAGERY: Policy = {
  name: 'Imagery',
  channel: ['uav/imagery', 'cas/image'],
  importance: 2,
  preferences: 'GeneralSurv',
};
const TRACKING: Policy = {
  name: 'Tracking',
  channel: 'bft/#',
  importance: 4,
  preferences: { deadline: 15_000, replacement: true },
};
const THIN: Policy = {
  name: 'Thin-Link',
  channel: 'uav/imagery',
  when: 'link_kbps < 500',
  precedence: 10,
  preferences: { shaping: 'scaling', max_bytes: 20_000, deadline: 5_000 },
};
const SET: PolicySet = {
  ...readSet({}).set,
  client_bandwidth: 2_000_000,
  limits: [{ client: 'patrol-1', bandwidth: 300_000 }],
  policies: [IMAGERY, TRACKING, THIN],
};

describe('quantities', () => {
  it('reads and writes what operators write', () => {
    expect(parseQuantity('300 kbit/s', RATES)).toBe(300_000);
    expect(parseQuantity('1.5 Mbit/s', RATES)).toBe(1_500_000);
    expect(parseQuantity('1,000', RATES, 'kbit/s')).toBe(1_000_000);
    expect(parseQuantity('5s', TIMES)).toBe(5_000);
    expect(parseQuantity('3 kbi/s', RATES)).toBeUndefined();
    expect(parseQuantity('', RATES)).toBeUndefined();
    expect(quantity(2_000_000, RATES)).toBe('2 Mbit/s');
    expect(quantity(1_500_000, RATES)).toBe('1500 kbit/s');
    expect(quantity(0, TIMES)).toBe('0 ms');
    expect(quantity(20_000, SIZES)).toBe('20 KB');
    expect(quantity('3 kbi/s', RATES)).toBe('3 kbi/s');
  });
});

describe('words', () => {
  it('says when a policy applies', () => {
    expect(contextWords(THIN)).toBe('uav/imagery · link_kbps < 500');
    expect(contextWords({ name: 'A', operation: 'subscribe', channel: 'patrol/report', client: 'patrol-1' })).toBe(
      'patrol/report · to patrol-1',
    );
    expect(
      contextWords({ name: 'A', operation: 'publish', channel: 'uav/imagery', where: 'payload_bytes > 50000' }),
    ).toBe('uav/imagery · published · over 50 KB');
    expect(contextWords({ name: 'A' })).toBe('always');
    expect(contextWords({ name: 'A', group: ['a', 'b', 'c', 'd'] })).toBe('group a, b, c and 1 more');
  });
  it('says preferences', () => {
    expect(preferenceWords(THIN.preferences)).toBe('scaling, 20 KB, 5 s');
    expect(preferenceWords({ shaping: 'none', deadline: 0, replacement: false })).toBe(
      'no shaping, no deadline, no replacement',
    );
    expect(preferenceWords(undefined)).toBe('');
  });
  it('finds a free name', () => {
    expect(freeName('Imagery', SET.policies)).toBe('Imagery 2');
    expect(freeName('New', SET.policies)).toBe('New');
  });
});

describe('order', () => {
  it('counts conditions, exact names, lists and levels as the node does', () => {
    expect(specificity({ name: 'A', operation: 'subscribe', channel: 'uav/imagery', group: 'analysts' })).toEqual([
      3, 3, 0, 2,
    ]);
    expect(specificity(IMAGERY)).toEqual([1, 0, 1, 2]);
    expect(specificity({ name: 'A', where: "a BETWEEN 1 AND 2 AND b = ' AND '" })[0]).toBe(2);
    expect(specificity({ name: 'A', where: 'a = 1 OR b = 2 AND c = 3' })[0]).toBe(1);
    expect(specificity({ name: 'A', channel: 'patrol/#' })).toEqual([1, 0, 0, 1]);
  });
  it('puts precedence first, then specificity, then the place', () => {
    expect(inOrder([TRACKING, IMAGERY, THIN]).map((each) => each.name)).toEqual(['Thin-Link', 'Imagery', 'Tracking']);
    const same = [1, 2, 3].map((n) => ({ name: `P${n}`, channel: `c/${n}`, importance: n }));
    expect(inOrder(same)).toEqual(same);
  });
});

describe('difference', () => {
  it('is empty for the same', () => expect(changesBetween(SET, structuredClone(SET))).toEqual([]));
  it('names old and new, and each line can be taken back', () => {
    let draft = withPolicy(SET, { ...IMAGERY, importance: 4, preferences: 'FullImageDrop' });
    draft = { ...draft, bandwidth: 1_000_000, strategy: 'strict', limits: withLimit(draft.limits, 'x', 5_000) };
    draft = withoutPolicy(draft, 'Tracking');
    draft = withPolicy(draft, { name: 'New', importance: 1 });
    const changes = changesBetween(SET, draft);
    expect(changes.map((each) => [each.subject, each.field, each.before, each.after])).toEqual([
      ['Node', 'strategy', 'weighted fair', 'strict'],
      ['Node', 'bandwidth', 'no limit', '1 Mbit/s'],
      ['x', 'own limit', 'none', '5 kbit/s'],
      ['Imagery', 'importance', '2', '4'],
      ['Imagery', 'preferences', 'GeneralSurv', 'FullImageDrop'],
      ['New', 'policy', '', 'new'],
      ['Tracking', 'policy', 'there', 'removed'],
    ]);
    for (const change of changes) draft = undo(SET, draft, change);
    expect(draft).toEqual(SET);
  });
});

describe('on top of what others made', () => {
  it('keeps their changes and mine; mine count where both changed', () => {
    const theirs = withPolicy({ ...SET, strategy: 'laxity' }, { ...IMAGERY, importance: 5, preferences: 'FullImage' });
    const mine = withPolicy({ ...SET, shaping: false }, { ...IMAGERY, importance: 4 });
    const found = onTopOf(SET, mine, theirs);
    expect(found.strategy).toBe('laxity');
    expect(found.shaping).toBe(false);
    expect(found.policies[0]).toEqual({ ...IMAGERY, importance: 4, preferences: 'FullImage' });
  });
  it('adds, removes, and brings back what I changed', () => {
    const theirs = withoutPolicy(SET, 'Imagery');
    const mine = withPolicy(withoutPolicy(withPolicy(SET, { ...IMAGERY, importance: 7 }), 'Tracking'), {
      name: 'New',
      importance: 1,
    });
    expect(onTopOf(SET, mine, theirs).policies.map((each) => each.name)).toEqual(['Thin-Link', 'Imagery', 'New']);
  });
});

describe('making it count', () => {
  it('takes the smallest operation', () => {
    expect(callFor(SET, { ...SET, strategy: 'strict' })).toEqual({
      method: 'PATCH',
      address: '/api/v1/policies',
      body: { strategy: 'strict' },
    });
    expect(callFor(SET, { ...SET, limits: [] })).toMatchObject({
      address: '/api/v1/limits',
      body: { clients: ['patrol-1'], bandwidth: null },
    });
    expect(callFor(SET, withPolicy(SET, { ...THIN, precedence: 3 }))).toMatchObject({
      method: 'PUT',
      address: '/api/v1/policies/Thin-Link',
    });
    expect(callFor(SET, withoutPolicy(SET, 'Imagery'))).toEqual({
      method: 'DELETE',
      address: '/api/v1/policies/Imagery',
    });
    expect(callFor(SET, withPolicy({ ...SET, shaping: false }, { ...THIN, precedence: 3 })).address).toBe(
      '/api/v1/policies',
    );
    for (const name of ['history', '../x', 'a/b', '<b>', '.', 'x?y'])
      expect(callFor(SET, withPolicy(SET, { name, importance: 1 })).address).toBe('/api/v1/policies');
  });
});

describe('what the node says', () => {
  it('finds the field of a mistake', () => {
    expect(readPlace('policies[1].importance', SET)).toEqual({ policy: 'Tracking', field: 'importance' });
    expect(readPlace('policy "Thin-Link", when', SET)).toEqual({ policy: 'Thin-Link', field: 'when' });
    expect(readPlace('policy "A "x", who", preferences.shaping', SET)).toEqual({
      policy: 'A "x", who',
      field: 'preferences.shaping',
    });
    expect(readPlace('limits[0].bandwidth', SET)).toEqual({ limit: 'patrol-1', field: 'bandwidth' });
    expect(readPlace('client_bandwidth', SET)).toEqual({ field: 'client_bandwidth' });
    expect(characterIn("unexpected ',' at character 6, expected AND")).toBe(6);
    expect(characterIn('expected 0 to 7, got 9')).toBeUndefined();
  });
  const affected = (...changes: [string, string, string][]) => ({
    operation: 'subscribe',
    channel: 'c',
    client: 'x',
    user: '',
    policy_before: '',
    policy_after: '',
    has_other_conditions: false,
    changes: changes.map(([setting, before, after]) => ({ setting, before, after })),
  });
  it('tells who gains and who loses', () => {
    expect(directionOf(affected(['importance', '2', '4'], ['shaping', 'none', 'scaling']))).toBe('gain');
    expect(directionOf(affected(['shaping', 'none', 'scaling, to at most 20000 bytes']))).toBe('lose');
    expect(directionOf(affected(['deadline', '5 s', 'none']))).toBe('gain');
    expect(directionOf(affected(['deadline', '5 s', '15 s']))).toBe('other');
    expect(affectedWords(affected(['importance', '2', '4'], ['shaping', 'scaling', 'none']))).toBe(
      'importance 2 → 4, whole, not scaling',
    );
    expect(effectOf({ checked: 10, total: 3, affected: [affected(['importance', '2', '4'])] })).toEqual({
      gain: 1,
      lose: 0,
      other: 0,
      stay: 7,
      unlisted: 2,
    });
  });
  it('remarks that two become equally important', () => {
    expect(remarks(SET, withPolicy(SET, { ...IMAGERY, importance: 4 }))[0]).toBe(
      'Imagery would have the same importance as Tracking. To keep Tracking first, choose 3, or give Tracking 5.',
    );
    expect(remarks(SET, SET)).toEqual([]);
  });
});

describe('sentence', () => {
  it('does not say that nothing changes where something holds for all', () => {
    const strict = changesBetween(SET, { ...SET, strategy: 'strict' });
    expect(sentence(strict, { total: 0, checked: 9 })).toBe(
      'Your draft has 1 change. The importances of 9 that are open stay.',
    );
    expect(sentence(strict, { total: 2, checked: 9 })).toBe(
      'Your draft has 1 change. 2 of 9 that are open would be treated otherwise.',
    );
    expect(sentence(changesBetween(SET, { ...SET, limits: [] }), { total: 0, checked: 9 })).toContain('None of 9');
    expect(sentence(strict, undefined)).toBe('Your draft has 1 change.');
  });
});

describe('text', () => {
  it('writes TOML as the node does', () => {
    expect(policyToml(THIN)).toBe(
      '[[policies]]\nname = "Thin-Link"\nchannel = "uav/imagery"\nwhen = "link_kbps < 500"\nprecedence = 10\n' +
        'preferences = { shaping = "scaling", max_bytes = 20000, deadline = "5 s" }\n',
    );
    expect(setToml(SET)).toContain('client_bandwidth = "2 Mbit/s"\n');
    expect(setToml(SET)).toContain('[[limits]]\nclient = "patrol-1"\nbandwidth = "300 kbit/s"\n');
    expect(policyToml({ name: 'a"\n\u0001', importance: 1 })).toContain('name = "a\\"\\n\\u0001"');
  });
  it('writes commands that a shell takes as meant', () => {
    expect(policyCommand({ name: 'Reports', channel: 'patrol/#', importance: 5, preferences: 'NoDrop' })).toBe(
      "accord policy set Reports --channel 'patrol/#' --importance 5 --preferences NoDrop",
    );
    expect(policyCommand({ name: "a'; rm -rf /", importance: 5 })).toBe(
      "accord policy set 'a'\\''; rm -rf /' --importance 5",
    );
    expect(policyCommand(THIN)).toContain("accord policy put - <<'POLICY'\n[[policies]]");
  });
  it('removes empty fields', () => {
    expect(withField(IMAGERY, 'channel', ['a'])).toMatchObject({ channel: 'a' });
    expect(withField(IMAGERY, 'importance', undefined)).not.toHaveProperty('importance');
    expect(withField({ ...IMAGERY, precedence: 4 }, 'precedence', 0)).not.toHaveProperty('precedence');
    expect(withField(IMAGERY, 'preferences', {})).not.toHaveProperty('preferences');
  });
});
