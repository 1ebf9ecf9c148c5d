import { expect, it } from 'vitest';
import { because, explainArguments, headline, inDraft, rest, type Explanation } from './explanation';

const decision = (setting: string, value: string, policy: string, reason: string) => ({
  setting,
  value,
  policy,
  reason,
  overridden: [],
});
const FOUND = {
  operation: 'subscribe',
  channel: 'uav/imagery',
  client: 'desk-1',
  granted: { importance: 2 },
  decisions: [
    decision('importance', '2', 'Imagery', 'the only policy that applies and says it'),
    decision('deadline', '5 s', 'Analysts-Imagery', 'more specific: 3 conditions, against 1 of Imagery'),
    decision('shaping', 'none', 'Analysts-Imagery', 'more specific: 3 conditions, against 1 of Imagery'),
    decision('replacement', 'on', '', 'the default counts'),
  ],
} as unknown as Explanation;

it('says why in sentences', () => {
  expect(headline(FOUND)).toBe('desk-1 receives uav/imagery with importance 2');
  expect(because(FOUND)).toEqual({ by: 'Because Imagery says so', reason: 'the only policy that applies and says it' });
  expect(rest(FOUND)).toEqual([
    'A deadline of 5 s and no shaping come from Analysts-Imagery: more specific: 3 conditions, against 1 of Imagery.',
  ]);
  const alone = { ...FOUND, decisions: FOUND.decisions.map((each) => each.policy && { ...each, policy: 'Imagery' }) };
  expect(rest({ ...FOUND, decisions: alone.decisions.filter((each) => each !== '') })).toEqual([
    'It also gives a deadline of 5 s and no shaping.',
  ]);
  const plain = { ...FOUND, decisions: FOUND.decisions.map((each) => ({ ...each, policy: '' })) };
  expect(because(plain).by).toBe('By default');
  expect(rest(plain)).toEqual(['A deadline of 5 s, no shaping and replacement by default.']);
});

it('finds what the draft makes of it', () => {
  const affected = {
    operation: 'subscribe',
    channel: 'uav/imagery',
    client: 'desk-1',
    user: '',
    policy_before: '',
    policy_after: '',
    has_other_conditions: false,
    changes: [],
  };
  expect(inDraft(FOUND, { total: 1, affected: [affected] }, [])).toBe(affected);
  expect(inDraft(FOUND, { total: 0, affected: [] }, [affected])).toBe('same');
  expect(inDraft(FOUND, { total: 0, affected: [] }, [])).toBeUndefined();
  expect(inDraft(FOUND, undefined, [affected])).toBeUndefined();
});

it('asks the same by command', () => {
  expect(explainArguments({ operation: 'subscribe', client: 'a', channel: 'b' })).toEqual([
    '--client',
    'a',
    '--channel',
    'b',
  ]);
});
