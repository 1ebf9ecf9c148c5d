/** A draft: a policy set that is edited and does not count yet. Pure; `draft_state.svelte.ts` keeps the one of the page. */
import { list, preferenceWords, quantity, RATES, rateText, type Limit, type Policy, type PolicySet } from './documents';

/** A line of the difference: what, which field, old and new in words. */
export interface Change {
  /** The policy's name; '' for settings of the node. */
  policy: string;
  subject: string;
  field: string;
  before: string;
  after: string;
  /** The client of a limit. */
  client?: string;
}

const POLICY_FIELDS = [
  'description',
  'operation',
  'channel',
  'client',
  'user',
  'group',
  'node',
  'who',
  'where',
  'when',
  'precedence',
  'importance',
  'preferences',
  'guarantee',
] as const;
type PolicyField = (typeof POLICY_FIELDS)[number];
const SETTINGS = ['strategy', 'shaping', 'bandwidth', 'client_bandwidth', 'weights'] as const;

export const isSame = (a: unknown, b: unknown): boolean => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);

function fieldWords(policy: Policy, field: PolicyField): string {
  if (field === 'importance') return policy.importance === undefined ? 'not set' : String(policy.importance);
  if (field === 'preferences') return preferenceWords(policy.preferences) || 'not set';
  if (field === 'precedence') return String(policy.precedence ?? 0);
  if (field === 'guarantee') {
    if (policy.guarantee === undefined) return 'not set';
    return typeof policy.guarantee === 'number' ? `${100 * policy.guarantee} %` : policy.guarantee;
  }
  const value = policy[field];
  return (Array.isArray(value) ? value.join(', ') : (value ?? '')) || 'any';
}

/** All that differs, settings first. */
export function changesBetween(before: PolicySet, after: PolicySet): Change[] {
  const found: Change[] = [];
  const node = (field: string, was: string, will: string) =>
    found.push({ policy: '', subject: 'Node', field, before: was, after: will });
  if (before.strategy !== after.strategy) node('strategy', before.strategy, after.strategy);
  if (before.shaping !== after.shaping) node('shaping', before.shaping ? 'on' : 'off', after.shaping ? 'on' : 'off');
  if (!isSame(before.bandwidth, after.bandwidth))
    node('bandwidth', rateText(before.bandwidth), rateText(after.bandwidth));
  if (!isSame(before.client_bandwidth, after.client_bandwidth))
    node('each client', rateText(before.client_bandwidth), rateText(after.client_bandwidth));
  if (!isSame(before.weights, after.weights)) node('weights', before.weights.join(' '), after.weights.join(' '));
  const was = new Map(before.limits.map((each) => [each.client, each.bandwidth]));
  const will = new Map(after.limits.map((each) => [each.client, each.bandwidth]));
  for (const client of new Set([...was.keys(), ...will.keys()])) {
    if (isSame(was.get(client), will.get(client))) continue;
    found.push({
      policy: '',
      subject: client,
      client,
      field: 'own limit',
      before: quantity(was.get(client), RATES) || 'none',
      after: quantity(will.get(client), RATES) || 'none',
    });
  }
  const old = new Map(before.policies.map((each) => [each.name, each]));
  const now = new Map(after.policies.map((each) => [each.name, each]));
  for (const policy of after.policies) {
    const had = old.get(policy.name);
    const line = { policy: policy.name, subject: policy.name };
    if (!had) {
      found.push({ ...line, field: 'policy', before: '', after: 'new' });
      continue;
    }
    for (const field of POLICY_FIELDS) {
      if (isSame(had[field], policy[field])) continue;
      found.push({ ...line, field, before: fieldWords(had, field), after: fieldWords(policy, field) });
    }
  }
  for (const policy of before.policies)
    if (!now.has(policy.name))
      found.push({ policy: policy.name, subject: policy.name, field: 'policy', before: 'there', after: 'removed' });
  const staying = before.policies.filter((each) => now.has(each.name)).map((each) => each.name);
  const places = after.policies.filter((each) => old.has(each.name)).map((each) => each.name);
  if (!isSame(staying, places)) node('order', 'as it is', 'other places');
  return found;
}

/** Take one line of the difference back. */
export function undo(before: PolicySet, draft: PolicySet, change: Change): PolicySet {
  if (change.client !== undefined) {
    const had = before.limits.find((each) => each.client === change.client);
    return { ...draft, limits: withLimit(draft.limits, change.client, had?.bandwidth) };
  }
  if (!change.policy) {
    if (change.field === 'order') return { ...draft, policies: reordered(draft.policies, before.policies) };
    const name = change.field === 'each client' ? 'client_bandwidth' : change.field;
    return { ...draft, [name]: before[name as keyof PolicySet] };
  }
  const had = before.policies.find((each) => each.name === change.policy);
  if (change.field === 'policy') {
    if (!had) return withoutPolicy(draft, change.policy);
    const policies = [...draft.policies, had];
    return { ...draft, policies: reordered(policies, before.policies) };
  }
  const now = draft.policies.find((each) => each.name === change.policy);
  if (!had || !now) return draft;
  return withPolicy(draft, withField(now, change.field as PolicyField, had[change.field as PolicyField]));
}

function reordered(policies: Policy[], like: Policy[]): Policy[] {
  const places = new Map(like.map((each, i) => [each.name, i]));
  const known = policies.filter((each) => places.has(each.name));
  known.sort((a, b) => places.get(a.name)! - places.get(b.name)!);
  return [...known, ...policies.filter((each) => !places.has(each.name))];
}

/** A policy with another value of a field; undefined, '' and empty lists remove it. */
export function withField<F extends keyof Policy>(policy: Policy, field: F, value: Policy[F] | undefined): Policy {
  const found = { ...policy };
  const isEmpty =
    value === undefined ||
    value === '' ||
    (Array.isArray(value) && value.length === 0) ||
    (typeof value === 'object' && !Array.isArray(value) && Object.keys(value).length === 0) ||
    (field === 'precedence' && value === 0);
  if (isEmpty) delete found[field];
  else found[field] = (Array.isArray(value) && value.length === 1 ? value[0] : value) as Policy[F];
  return found;
}

/** The set with this policy in the place of the one of its name (or of `former`), or at the end. */
export function withPolicy(set: PolicySet, policy: Policy, former = policy.name): PolicySet {
  const at = set.policies.findIndex((each) => each.name === former);
  return {
    ...set,
    policies: at < 0 ? [...set.policies, policy] : set.policies.map((each, i) => (i === at ? policy : each)),
  };
}

export const withoutPolicy = (set: PolicySet, name: string): PolicySet => ({
  ...set,
  policies: set.policies.filter((each) => each.name !== name),
});

export function withLimit(limits: Limit[], client: string, bandwidth: Limit['bandwidth'] | undefined): Limit[] {
  if (bandwidth === undefined) return limits.filter((each) => each.client !== client);
  const has = limits.some((each) => each.client === client);
  if (!has) return [...limits, { client, bandwidth }];
  return limits.map((each) => (each.client === client ? { client, bandwidth } : each));
}

/**
 * “Put mine on top”: what the draft changed since `base`, made again on `theirs`. A field that both changed is mine.
 * A policy that they removed and I changed comes back.
 */
export function onTopOf(base: PolicySet, mine: PolicySet, theirs: PolicySet): PolicySet {
  let found = theirs;
  for (const name of SETTINGS) if (!isSame(base[name], mine[name])) found = { ...found, [name]: mine[name] };
  const limits = new Map(base.limits.map((each) => [each.client, each.bandwidth]));
  const wanted = new Map(mine.limits.map((each) => [each.client, each.bandwidth]));
  for (const client of new Set([...limits.keys(), ...wanted.keys()]))
    if (!isSame(limits.get(client), wanted.get(client)))
      found = { ...found, limits: withLimit(found.limits, client, wanted.get(client)) };
  const had = new Map(base.policies.map((each) => [each.name, each]));
  const has = new Map(mine.policies.map((each) => [each.name, each]));
  const have = new Map(theirs.policies.map((each) => [each.name, each]));
  for (const policy of mine.policies) {
    const before = had.get(policy.name);
    if (isSame(before, policy)) continue;
    let now = have.get(policy.name) ?? before ?? policy;
    if (!before) now = policy;
    else
      for (const field of POLICY_FIELDS)
        if (!isSame(before[field], policy[field])) now = withField(now, field, policy[field]);
    found = withPolicy(found, now);
  }
  for (const name of had.keys()) if (!has.has(name)) found = withoutPolicy(found, name);
  return found;
}

// ------------------------------------------------------------------------------------ making it count

export interface Call {
  method: 'PUT' | 'PATCH' | 'DELETE';
  address: string;
  body?: unknown;
}

const PLAIN_NAME = /^[A-Za-z0-9][\w -]*$/;
const RESERVED = new Set(['history', 'explain', 'dry-run', 'rollback']);

/**
 * The smallest operation that makes the draft count, so that the history says what changed; the whole set if no single
 * operation does.
 */
export function callFor(before: PolicySet, draft: PolicySet): Call {
  const changes = changesBetween(before, draft);
  const whole: Call = { method: 'PUT', address: '/api/v1/policies', body: draft };
  const policies = new Set(changes.map((each) => each.policy));
  if (changes.some((each) => each.field === 'order')) return whole;
  if (policies.size === 1 && policies.has('')) {
    const settings: Record<string, unknown> = {};
    for (const name of [...SETTINGS, 'limits'] as const)
      if (!isSame(before[name], draft[name])) settings[name] = draft[name];
    const limited = changes.filter((each) => each.client !== undefined);
    if (limited.length === changes.length && limited.length === 1) {
      const client = limited[0]!.client!;
      const bandwidth = draft.limits.find((each) => each.client === client)?.bandwidth ?? null;
      return { method: 'PUT', address: '/api/v1/limits', body: { clients: [client], bandwidth } };
    }
    return { method: 'PATCH', address: '/api/v1/policies', body: settings };
  }
  const [name] = policies;
  if (policies.size !== 1 || !name || !PLAIN_NAME.test(name) || RESERVED.has(name)) return whole;
  const policy = draft.policies.find((each) => each.name === name);
  const address = `/api/v1/policies/${encodeURIComponent(name)}`;
  if (!policy) return { method: 'DELETE', address };
  const isAddedLast = before.policies.some((each) => each.name === name) || draft.policies.at(-1) === policy;
  return isAddedLast ? { method: 'PUT', address, body: policy } : whole;
}

// ------------------------------------------------------------------------------------ what the node says

/** Where the node found a mistake: `policies[0].importance`, `policy "A", who`, `limits[1].bandwidth`, `strategy`. */
export interface Place {
  policy?: string;
  limit?: string;
  field: string;
}

export function readPlace(place: string, set: PolicySet): Place {
  const numbered = /^(policies|limits)\[(\d+)\](?:\.(.*))?$/.exec(place);
  if (numbered) {
    const at = Number(numbered[2]);
    const field = numbered[3] ?? '';
    if (numbered[1] === 'policies') return { policy: set.policies[at]?.name ?? '', field };
    return { limit: set.limits[at]?.client ?? '', field };
  }
  const named = /^policy "(.*)"(?:, (.*))?$/s.exec(place);
  if (named) return { policy: named[1]!, field: named[2] ?? '' };
  return { field: place };
}

/** `… at character 6, expected …` → 6. */
export function characterIn(detail: string): number | undefined {
  const found = / at character (\d+)/.exec(detail);
  return found ? Number(found[1]) : undefined;
}

interface SettingChange {
  setting: string;
  before: string;
  after: string;
}

export interface Affected {
  operation: string;
  channel: string;
  client: string;
  user: string;
  policy_before: string;
  policy_after: string;
  has_other_conditions: boolean;
  changes: readonly SettingChange[];
}

export type Direction = 'gain' | 'lose' | 'other';

/**
 * Whether somebody is better off: by importance first, then by what arrives: whole rather than shaped, and rather late
 * than never.
 */
export function directionOf(affected: Pick<Affected, 'changes'>): Direction {
  const of = (setting: string) => affected.changes.find((each) => each.setting === setting);
  const importance = of('importance');
  if (importance) return Number(importance.after) > Number(importance.before) ? 'gain' : 'lose';
  const shaping = of('shaping');
  if (shaping && (shaping.before === 'none') !== (shaping.after === 'none'))
    return shaping.after === 'none' ? 'gain' : 'lose';
  const deadline = of('deadline');
  if (deadline && (deadline.before === 'none') !== (deadline.after === 'none'))
    return deadline.after === 'none' ? 'gain' : 'lose';
  return 'other';
}

export interface Effect {
  gain: number;
  lose: number;
  other: number;
  stay: number;
  /** Affected beyond those that the node listed. */
  unlisted: number;
}

export function effectOf(found: { checked: number; total: number; affected: readonly Affected[] }): Effect {
  const effect: Effect = {
    gain: 0,
    lose: 0,
    other: 0,
    stay: Math.max(0, found.checked - found.total),
    unlisted: Math.max(0, found.total - found.affected.length),
  };
  for (const each of found.affected) effect[directionOf(each)] += 1;
  return effect;
}

/** `importance 2 → 4, whole`. */
export function affectedWords(affected: Affected): string {
  const parts = affected.changes.map(({ setting, before, after }) => {
    if (setting === 'shaping')
      return after === 'none' ? `whole, not ${before}` : `${before === 'none' ? '' : `${before} → `}${after}`;
    if (setting === 'deadline')
      return after === 'none' ? `no deadline, not ${before}` : `deadline ${before} → ${after}`;
    if (setting === 'replacement') return after === 'on' ? 'newer replaces older' : 'no replacement';
    return `${setting} ${before} → ${after}`;
  });
  if (affected.has_other_conditions) parts.push(parts.length ? 'more by event' : 'depends on the event');
  return parts.join(', ');
}

/** What the administrator may not have meant, though the node accepts it. */
export function remarks(before: PolicySet, draft: PolicySet): string[] {
  const found: string[] = [];
  const had = new Map(before.policies.map((each) => [each.name, each]));
  for (const policy of draft.policies) {
    const was = had.get(policy.name);
    const isChanged = !was || !isSame(was.importance, policy.importance);
    if (!isChanged || policy.importance === undefined) continue;
    const below = draft.policies.find(
      (other) =>
        other.name !== policy.name &&
        other.importance === policy.importance &&
        isSame(had.get(other.name)?.importance, other.importance) &&
        (was?.importance === undefined || was.importance !== other.importance) &&
        !isSame(list(other.channel), list(policy.channel)),
    );
    if (below) {
      const less = policy.importance - 1;
      found.push(
        less >= 0
          ? `${policy.name} would have the same importance as ${below.name}. To keep ${below.name} first, choose ${less}${policy.importance < 7 ? `, or give ${below.name} ${policy.importance + 1}` : ''}.`
          : `${policy.name} would have the same importance as ${below.name}.`,
      );
    }
  }
  if (draft.strategy === 'fifo' && before.strategy !== 'fifo')
    found.push('With “first come”, importance has no effect.');
  if (
    !draft.shaping &&
    before.shaping &&
    draft.policies.some(
      (each) => preferenceWords(each.preferences).includes('scaling') || each.preferences === 'GeneralSurv',
    )
  )
    found.push('With shaping off, payloads stay whole, and may miss their deadlines instead.');
  return found;
}

const NODE_WIDE = new Set(['strategy', 'shaping', 'bandwidth', 'each client', 'weights']);

/** Whether something changes that no dry run compares, since it holds for all. */
export const isNodeWide = (changes: readonly Change[]): boolean =>
  changes.some((each) => !each.policy && each.client === undefined && NODE_WIDE.has(each.field));

export function sentence(changes: readonly Change[], effect: { total: number; checked: number } | undefined): string {
  const many = `Your draft has ${changes.length} ${changes.length === 1 ? 'change' : 'changes'}.`;
  if (!effect) return many;
  if (effect.total > 0) return `${many} ${effect.total} of ${effect.checked} that are open would be treated otherwise.`;
  if (isNodeWide(changes)) return `${many} The importances of ${effect.checked} that are open stay.`;
  return `${many} None of ${effect.checked} that are open gets another importance or preferences.`;
}
