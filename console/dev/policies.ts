/** Policies of the made-up node: as the real one decides, but for conditions on who, what and when, which are guessed. */
import {
  DEFAULT_WEIGHTS,
  deadlineWord,
  decidesSomething,
  inOrder,
  list,
  parseQuantity,
  PRESETS,
  RATES,
  readSet,
  settingsOf,
  SIZES,
  specificity,
  STRATEGIES,
  TIMES,
  type OwnPreferences,
  type Policy,
  type PolicySet,
} from '../src/policies/documents.ts';
import { clients, EVENT_MS, NODE } from './world.ts';

type Json = Record<string, unknown>;

export class PolicyProblem extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly extra: Json = {},
  ) {
    super(detail);
  }
}

let current: PolicySet = {
  strategy: 'weighted fair',
  shaping: true,
  bandwidth: 800_000,
  client_bandwidth: 2_000_000,
  weights: DEFAULT_WEIGHTS,
  limits: [
    { client: 'patrol-1', bandwidth: 300_000 },
    { client: 'patrol-2', bandwidth: 300_000 },
    { client: 'hq-2', bandwidth: 5_000_000 },
  ],
  policies: [
    { name: 'Overload', group: 'guests', when: 'cpu_percent > 90', precedence: 20, importance: 0 },
    {
      name: 'Thin-Link',
      channel: 'uav/imagery',
      when: 'link_kbps < 500',
      precedence: 10,
      preferences: { shaping: 'scaling', max_bytes: 20_000, deadline: 5_000 },
    },
    { name: 'Alarms', channel: 'alarm/#', importance: 7, preferences: 'NoDrop' },
    {
      name: 'Patrol-1-Report',
      description: 'The patrol under way: its reports, whole, before everything else.',
      operation: 'subscribe',
      channel: 'patrol/report',
      client: 'patrol-1',
      importance: 6,
      preferences: 'FullImageNoDrop',
    },
    { name: 'Reports', channel: 'patrol/#', importance: 5, preferences: 'NoDrop' },
    { name: 'Tracking', channel: 'bft/#', importance: 4, preferences: 'BFTrack' },
    { name: 'Imagery', channel: ['uav/imagery', 'cas/image'], importance: 2, preferences: 'GeneralSurv' },
    {
      name: 'Analysts-Imagery',
      operation: 'subscribe',
      channel: 'uav/imagery',
      group: 'analysts',
      preferences: 'FullImageDrop',
    },
    {
      name: 'Large-Imagery',
      operation: 'publish',
      channel: 'uav/imagery',
      where: 'payload_bytes > 50000',
      importance: 1,
    },
    { name: '<script>alert(1)</script>\u202e', client: '<script>*', importance: 3 },
  ],
};
let version = 41;
const former = (changes: Partial<PolicySet>): PolicySet => ({ ...structuredClone(current), ...changes });
const versions: { version: number; changed_ms: number; who: string; what: string; set: PolicySet }[] = [
  {
    version: 39,
    changed_ms: EVENT_MS - 86_400_000,
    who: 'admin',
    what: 'all replaced, 9 policies',
    set: former({ limits: [], strategy: 'strict', policies: current.policies.slice(0, 9) }),
  },
  {
    version: 40,
    changed_ms: EVENT_MS - 480_000,
    who: 'admin',
    what: 'put policy Imagery',
    set: former({ limits: current.limits.slice(1) }),
  },
  {
    version: 41,
    changed_ms: EVENT_MS + 120_000,
    who: 'operator-1',
    what: 'limit of patrol-1 = 300 kbit/s',
    set: former({}),
  },
];

interface Open {
  operation: string;
  channel: string;
  client: string;
  user: string;
  groups: string[];
  kbps: number;
}

const groupsOf = (user: string): string[] =>
  user === 'operator-1' ? ['operators', 'analysts'] : user.startsWith('user-1') ? ['analysts'] : user ? ['field'] : [];

const openOf = (client: (typeof clients)[number]): Open[] =>
  client.channels.map((channel) => ({
    operation: client.name.startsWith('raven') ? 'publish' : 'subscribe',
    channel,
    client: client.name,
    user: client.user,
    groups: groupsOf(client.user),
    kbps: client.kbps,
  }));

const everything = clients
  .filter((each) => each.isConnected)
  .slice(0, 60)
  .flatMap(openOf);

const matches = (names: string[], value: string) =>
  names.some((each) =>
    new RegExp(`^${each.replace(/[.+?^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*')}$`, 's').test(value),
  );

function isIn(filter: string, channel: string): boolean {
  const levels = channel.split('/');
  const parts = filter.split('/');
  for (const [i, part] of parts.entries()) {
    if (part === '#') return true;
    if (levels[i] === undefined || (part !== '+' && part !== levels[i])) return false;
  }
  return parts.length === levels.length;
}

/** The first condition that does not hold, or undefined. */
function unmet(policy: Policy, open: Open): { condition: string; asked: string; found: string } | undefined {
  const not = (condition: string, asked: string[] | string, found: string) => ({
    condition,
    asked: list(asked).join(', '),
    found,
  });
  if (policy.operation && !list(policy.operation).includes(open.operation))
    return not('operation', policy.operation, open.operation);
  if (policy.channel && !list(policy.channel).some((each) => isIn(each, open.channel)))
    return not('channel', policy.channel, open.channel);
  if (policy.client && !matches(list(policy.client), open.client)) return not('client', policy.client, open.client);
  if (policy.user && !matches(list(policy.user), open.user)) return not('user', policy.user, open.user || 'none');
  if (policy.group && !open.groups.some((each) => matches(list(policy.group), each)))
    return not('group', policy.group, open.groups.join(', ') || 'none');
  if (policy.who && !open.groups.some((each) => policy.who!.includes(`'${each}'`)))
    return not('who', policy.who, `client = ${open.client}`);
  if (policy.when) {
    const test = /^link_kbps < (\d+)$/.exec(policy.when);
    if (!test || open.kbps >= Number(test[1]))
      return not('when', policy.when, test ? `link_kbps = ${open.kbps}` : 'cpu_percent = 38');
  }
  return undefined;
}

const SETTINGS = ['importance', 'deadline', 'shaping', 'replacement'] as const;

function said(policy: Policy, setting: (typeof SETTINGS)[number]): string | undefined {
  const own: OwnPreferences = settingsOf(policy.preferences);
  if (setting === 'importance') return policy.importance === undefined ? undefined : String(policy.importance);
  if (setting === 'deadline') return own.deadline === undefined ? undefined : deadlineWord(own);
  if (setting === 'replacement') return own.replacement === undefined ? undefined : own.replacement ? 'on' : 'off';
  if (own.shaping === undefined) return undefined;
  return own.max_bytes ? `${own.shaping}, to at most ${own.max_bytes} bytes` : own.shaping;
}

function decide(set: PolicySet, open: Open) {
  const applying = inOrder(set.policies).filter((each) => !each.where && !unmet(each, open));
  const decisions = SETTINGS.map((setting) => {
    const by = applying.filter((each) => said(each, setting) !== undefined);
    const [first, ...others] = by;
    const over = others[0];
    return {
      setting,
      value: first
        ? said(first, setting)!
        : { importance: '3', deadline: 'none', shaping: 'none', replacement: 'on' }[setting],
      policy: first?.name ?? '',
      reason: !first
        ? 'no policy that applies says it, so the default counts'
        : over
          ? (first.precedence ?? 0) > (over.precedence ?? 0)
            ? `precedence ${first.precedence}, against ${over.precedence ?? 0} of ${over.name}`
            : `more specific: ${specificity(first)[0]} conditions, against ${specificity(over)[0]} of ${over.name}`
          : 'the only policy that applies and says it',
      overridden: others.map((each) => ({
        policy: each.name,
        value: said(each, setting)!,
        rule: 'specificity',
        reason: `less specific: ${specificity(each)[0]} conditions, against ${specificity(first!)[0]} of ${first!.name}`,
      })),
    };
  });
  const decider = decisions[0]!.policy || decisions.find((each) => each.policy)?.policy || '';
  return { decisions, applying, decider };
}

function dryRun(set: PolicySet): Json {
  validate(set);
  const affected: Json[] = [];
  const conditional = (each: PolicySet, open: Open) =>
    JSON.stringify(
      each.policies
        .filter((one) => one.where && !unmet(one, open))
        .map((one) => [one.where, one.importance, one.preferences]),
    );
  for (const open of everything) {
    const before = decide(current, open);
    const after = decide(set, open);
    const changes = before.decisions
      .map(({ setting, value }, i) => ({ setting, before: value, after: after.decisions[i]!.value }))
      .filter((each) => each.before !== each.after);
    const hasOther = conditional(current, open) !== conditional(set, open);
    if (changes.length === 0 && !hasOther) continue;
    affected.push({
      operation: open.operation,
      channel: open.channel,
      client: open.client,
      user: open.user,
      policy_before: before.decider,
      policy_after: after.decider,
      has_other_conditions: hasOther,
      changes,
    });
  }
  return { version, checked: everything.length, total: affected.length, affected: affected.slice(0, 1_000) };
}

function refuse(place: string, detail: string): never {
  throw new PolicyProblem(400, detail, { place, title: 'Bad Request' });
}

/** The first mistake, with its place; quantities become figures, as in the real node. */
function validate(set: PolicySet): void {
  const rate = (value: unknown, place: string) => {
    if (value === null || value === undefined || value === 'none') return null;
    const found = typeof value === 'number' ? value : parseQuantity(String(value), RATES);
    if (found === undefined)
      refuse(
        place,
        `expected a bandwidth such as 300000, "300 kbit/s" or "2 Mbit/s", or "none", got '${String(value)}'`,
      );
    if (found < 1_000) refuse(place, `expected 1 kbit/s to 1000 Gbit/s, got ${found}`);
    return found;
  };
  if (!STRATEGIES.some(([id]) => id === set.strategy)) refuse('strategy', `expected one of …, got '${set.strategy}'`);
  set.bandwidth = rate(set.bandwidth, 'bandwidth');
  set.client_bandwidth = rate(set.client_bandwidth, 'client_bandwidth');
  set.weights.forEach((each, i) => {
    if (!(Number.isInteger(each) && each >= 1 && each <= 1e6))
      refuse(`weights[${i}]`, `expected 1 to 1000000, got ${each}`);
  });
  set.limits.forEach((each, i) => (each.bandwidth = rate(each.bandwidth, `limits[${i}].bandwidth`)!));
  set.policies.forEach((policy, i) => {
    const at = `policies[${i}]`;
    if (!policy.name?.trim()) refuse(`${at}.name`, `expected printable characters, got '${policy.name ?? ''}'`);
    if (set.policies.findIndex((each) => each.name === policy.name) !== i)
      refuse(`${at}.name`, 'is the name of another already');
    if (policy.importance !== undefined && !(policy.importance >= 0 && policy.importance <= 7))
      refuse(`${at}.importance`, `expected 0 to 7, got ${policy.importance}`);
    for (const channel of list(policy.channel))
      if (/#./.test(channel)) refuse(`${at}.channel`, `# has to be the last level: ${channel}`);
    if (typeof policy.preferences === 'string') {
      if (!PRESETS[policy.preferences])
        refuse(`${at}.preferences`, `expected a table or one of ${Object.keys(PRESETS).join(', ')}`);
    } else if (policy.preferences) {
      const own = policy.preferences;
      if (typeof own.deadline === 'string') {
        const found = own.deadline === 'none' ? 0 : parseQuantity(own.deadline, TIMES);
        if (found === undefined)
          refuse(
            `${at}.preferences.deadline`,
            `expected a duration such as 200, "200 ms", "5 s" or "1 min", or "none", got '${own.deadline}'`,
          );
        own.deadline = found;
      }
      if (typeof own.max_bytes === 'string') {
        const found = parseQuantity(own.max_bytes, SIZES);
        if (found === undefined)
          refuse(
            `${at}.preferences.max_bytes`,
            `expected a size such as 40000, "40 KB" or "64 KiB", got '${own.max_bytes}'`,
          );
        own.max_bytes = found;
      }
      if ((own.max_bytes ?? own.max_pixels) !== undefined && (own.shaping ?? 'none') === 'none')
        refuse(`${at}.preferences.shaping`, 'expected beside max_bytes or max_pixels, such as "scaling"');
    }
    if (!decidesSomething(policy)) refuse(at, 'expected importance, preferences or a guarantee: it decides nothing');
    for (const field of ['who', 'where', 'when'] as const) {
      const found = checkPredicate(policy[field] ?? '');
      if (found) refuse(`policy "${policy.name}", ${field}`, found.detail);
    }
  });
}

/** A very small part of the grammar: enough to see how a mistake looks. */
export function checkPredicate(
  text: string,
): { detail: string; at: number; expected: string; repair: string } | undefined {
  if (!text.trim()) return undefined;
  const comma = text.replace(/'[^']*'|\([^)]*\)/g, (found) => '_'.repeat(found.length)).indexOf(',');
  if (comma >= 0)
    return {
      detail: `unexpected ',' at character ${comma + 1}, expected AND, OR or the end`,
      at: comma,
      expected: 'AND, OR or the end',
      repair: text.replace(',', '.'),
    };
  if (/(=|<|>|\bAND|\bOR)\s*$/i.test(text))
    return {
      detail: `the predicate ends too early at character ${text.length + 1}, expected a number, a quoted string or an attribute`,
      at: text.length,
      expected: 'a number, a quoted string or an attribute',
      repair: '',
    };
  return undefined;
}

function change(set: PolicySet, what: string, who: string, ifMatch: string | undefined): Json {
  const wanted = /\d+/.exec(ifMatch ?? '')?.[0];
  if (wanted && Number(wanted) !== version)
    throw new PolicyProblem(
      412,
      `version ${version} is current, and the change is for version ${wanted}: look at what others have changed, and try again`,
      { title: 'Precondition Failed' },
    );
  validate(set);
  current = set;
  version += 1;
  versions.push({ version, changed_ms: Date.now(), who, what, set: structuredClone(set) });
  return { version };
}

function explain(query: URLSearchParams): Json {
  const name = query.get('client') ?? '';
  const known = clients.find((each) => each.name === name);
  const user = query.get('user') ?? known?.user ?? '';
  const open: Open = {
    operation: query.get('operation') ?? 'subscribe',
    channel: query.get('channel') ?? '',
    client: name,
    user,
    groups: query.getAll('groups').length ? query.getAll('groups') : groupsOf(user),
    kbps: known?.kbps ?? 1e6,
  };
  if (/[+#]/.test(open.channel) || !open.channel)
    refuse('channel', `expected a channel, not a filter: ${open.channel}`);
  const { decisions, applying, decider } = decide(current, open);
  const of = (setting: string) => decisions.find((each) => each.setting === setting)!.value;
  const policies = inOrder(current.policies);
  const missing = policies.flatMap((policy) => {
    const found = unmet(policy, open);
    return found ? [{ policy: policy.name, ...found }] : [];
  });
  return {
    version,
    ...open,
    node: NODE,
    publisher: query.get('publisher') ?? '',
    granted: {
      importance: Number(of('importance')),
      deadline_ms: of('deadline') === 'none' ? 0 : (parseQuantity(of('deadline'), TIMES) ?? 0),
      shaping: of('shaping') === 'none' ? '' : of('shaping'),
      max_bytes: 0,
      max_pixels: 0,
      is_replacing: of('replacement') === 'on',
      policy: decider,
    },
    decisions,
    applying: applying.map((each) => ({
      policy: each.name,
      operation: open.operation,
      precedence: each.precedence ?? 0,
      specificity: {},
      decides: decisions.filter((one) => one.policy === each.name).map((one) => one.setting),
    })),
    conditional: policies
      .filter((each) => each.where && !unmet({ ...each, operation: [] }, open))
      .map((each) => ({
        policy: each.name,
        operation: 'publish',
        where: each.where,
        precedence: each.precedence ?? 0,
        specificity: {},
        decides: Object.fromEntries(
          SETTINGS.flatMap((one) => (said(each, one) === undefined ? [] : [[one, said(each, one)]])),
        ),
      })),
    unmet: missing.slice(0, 100),
    unmet_count: missing.length,
  };
}

/** Undefined for what is no operation of policies. */
export function policyOperation(
  method: string,
  parts: string[],
  query: URLSearchParams,
  body: Json,
  ifMatch: string | undefined,
): unknown {
  const name = parts.slice(1).join('/');
  const who = 'operator-1';
  if (method === 'PUT' && parts[0] === 'limits') {
    const who_ = body['clients'] as string[];
    const kept = current.limits.filter((each) => !who_.includes(each.client));
    const bandwidth = body['bandwidth'] as string | number | null;
    if (bandwidth !== null) kept.push(...who_.map((client) => ({ client, bandwidth })));
    return change(
      { ...structuredClone(current), limits: kept },
      `limit of ${who_.join(', ')} = ${String(bandwidth ?? 'none')}`,
      who,
      ifMatch,
    );
  }
  if (parts[0] === 'predicates') {
    const found = checkPredicate(String(body['where'] ?? ''));
    if (found) throw new PolicyProblem(400, found.detail, { place: 'where', ...found });
    return { canonical: body['where'], attributes: [], paths: [], selects: 'some' };
  }
  if (parts[0] !== 'policies') return undefined;
  if (method === 'GET') {
    if (!name) return { version, ...current };
    if (name === 'history')
      return {
        history: versions
          .toReversed()
          .map(({ version: number, changed_ms, who: by, what }) => ({ version: number, changed_ms, who: by, what })),
      };
    const stored = /^history\/(\d+)$/.exec(name)?.[1];
    if (stored) {
      const found = versions.find((each) => each.version === Number(stored));
      if (!found) throw new PolicyProblem(404, `version ${stored} is not stored`);
      return { version: found.version, ...found.set };
    }
    if (name === 'explain') return explain(query);
    const found = current.policies.find((each) => each.name === name);
    if (!found) throw new PolicyProblem(404, `there is no policy '${name}'`);
    return found;
  }
  if (name === 'dry-run') return dryRun(structuredClone(readSet(body).set));
  if (name === 'rollback') {
    const found = versions.find((each) => each.version === body['version']);
    if (!found) throw new PolicyProblem(404, `version ${String(body['version'])} is not stored`);
    return change(structuredClone(found.set), `back to version ${found.version}`, who, ifMatch);
  }
  const set = structuredClone(current);
  if (method === 'PATCH')
    return change(
      Object.assign(set, body),
      Object.entries(body)
        .map(([key, value]) => `${key} = ${typeof value === 'object' ? 'entries' : String(value)}`)
        .join(', '),
      who,
      ifMatch,
    );
  if (method === 'DELETE')
    return change(
      { ...set, policies: set.policies.filter((each) => each.name !== name) },
      `removed policy ${name}`,
      who,
      ifMatch,
    );
  if (!name) {
    const given = readSet(body).set;
    return change(given, `all replaced, ${given.policies.length} policies`, who, ifMatch);
  }
  const policy = { ...body, name } as Policy;
  const at = set.policies.findIndex((each) => each.name === name);
  if (at < 0) set.policies.push(policy);
  else set.policies[at] = policy;
  return change(set, `put policy ${name}`, who, ifMatch);
}
