/** Policy documents as the node writes them, and what they say in words. Nothing here asks the node. */

export type Operation = 'publish' | 'subscribe' | 'query';
type Names = string | string[];

export interface OwnPreferences {
  shaping?: string;
  max_bytes?: number | string;
  max_pixels?: number;
  /** In ms; 0 is a decision for none. */
  deadline?: number | string;
  replacement?: boolean;
}

export interface Policy {
  name: string;
  description?: string;
  operation?: Names;
  channel?: Names;
  client?: Names;
  user?: Names;
  group?: Names;
  node?: Names;
  who?: string;
  where?: string;
  when?: string;
  precedence?: number;
  importance?: number;
  preferences?: string | OwnPreferences;
  guarantee?: string | number;
}

export interface Limit {
  client: string;
  bandwidth: number | string;
}

export interface PolicySet {
  strategy: string;
  shaping: boolean;
  bandwidth: number | string | null;
  client_bandwidth: number | string | null;
  weights: number[];
  limits: Limit[];
  policies: Policy[];
}

export const DEFAULT_IMPORTANCE = 3;
export const DEFAULT_WEIGHTS = [1, 2, 4, 8, 16, 32, 64, 128];
export const OPERATIONS: readonly Operation[] = ['publish', 'subscribe', 'query'];
export const STRATEGIES = [
  ['strict', 'strict', 'Always the most important first, even if the others starve.'],
  ['weighted fair', 'weighted fair', 'Shares of bytes by weight: nothing starves.'],
  ['laxity', 'laxity', 'The least time left until the deadline first.'],
  ['fifo', 'first come', 'In order of arrival: importance has no effect.'],
] as const;

/** The presets; what one does not mention is left to other policies. A deadline of 0 is none. */
export const PRESETS: Record<string, OwnPreferences> = {
  Default: { shaping: 'none', deadline: 0 },
  NoDrop: { deadline: 0 },
  FullImageDrop: { shaping: 'none', deadline: 5_000 },
  GeneralSurv: { shaping: 'scaling', deadline: 5_000 },
  FullImageNoDrop: { shaping: 'none', deadline: 0 },
  FullImage: { shaping: 'none' },
  BFTrack: { deadline: 15_000 },
};

export const RESOURCES = [
  ['cpu_percent', 'CPU of the node, %'],
  ['memory_mb', 'memory of the node, MB'],
  ['backlog', 'events waiting to be processed'],
  ['queued_bytes', 'bytes queued for all clients'],
  ['sent_kbps', 'rate sent to all clients'],
  ['link_kbps', "capacity of the client's link"],
  ['link_rtt_ms', 'round trip to the client'],
  ['client_queued_bytes', 'bytes queued for the client'],
] as const;

export const list = (names: Names | undefined): string[] =>
  names === undefined ? [] : Array.isArray(names) ? names : [names];

/** The part of an answer that is the set: with or without the version around it. */
export function readSet(found: unknown): { version: number; set: PolicySet } {
  const outer = (found ?? {}) as Record<string, unknown>;
  const given = (outer['policy_set'] ?? outer) as Partial<PolicySet>;
  return {
    version: Number(outer['version'] ?? 0),
    set: {
      strategy: given.strategy === 'weighted-fair' ? 'weighted fair' : (given.strategy ?? 'weighted fair'),
      shaping: given.shaping ?? true,
      bandwidth: given.bandwidth ?? null,
      client_bandwidth: given.client_bandwidth ?? null,
      weights: given.weights ?? DEFAULT_WEIGHTS,
      limits: given.limits ?? [],
      policies: given.policies ?? [],
    },
  };
}

// ------------------------------------------------------------------------------------ quantities

type Units = readonly (readonly [unit: string, factor: number])[];
export const RATES: Units = [
  ['bit/s', 1],
  ['kbit/s', 1e3],
  ['Mbit/s', 1e6],
  ['Gbit/s', 1e9],
];
export const TIMES: Units = [
  ['ms', 1],
  ['s', 1e3],
  ['min', 60e3],
  ['h', 3_600e3],
  ['d', 86_400e3],
];
export const SIZES: Units = [
  ['B', 1],
  ['KB', 1e3],
  ['MB', 1e6],
  ['GB', 1e9],
  ['KiB', 1024],
  ['MiB', 1024 ** 2],
];

/** In the smallest unit; undefined if the text is not a whole number of them. A figure alone is in `unit`. */
export function parseQuantity(text: string, units: Units, unit = units[0]![0]): number | undefined {
  const found = /^\s*(\d{1,3}(?:,\d{3})+|\d{1,15})(\.\d{1,6})?\s*([A-Za-z/]*)\s*$/.exec(text);
  if (!found) return undefined;
  const wanted = (found[3] || unit).toLowerCase();
  const factor = units.find(([each]) => each.toLowerCase() === wanted || each.toLowerCase() === `${wanted}it/s`)?.[1];
  if (factor === undefined) return undefined;
  const value = Number(found[1]!.replaceAll(',', '') + (found[2] ?? '')) * factor;
  return Math.abs(value - Math.round(value)) < 1e-6 ? Math.round(value) : undefined;
}

/** The shortest exact text for a quantity; texts, which the node has yet to read, stay. */
export function quantity(value: number | string | null | undefined, units: Units): string {
  if (value === null || value === undefined) return '';
  if (typeof value === 'string') return value;
  let best = `${value} ${units[0]![0]}`;
  let least = String(value).length;
  for (const [unit, factor] of units) {
    const figure = String(value / factor);
    if (value !== 0 && value % factor === 0 && figure.length < least) {
      best = `${figure} ${unit}`;
      least = figure.length;
    }
  }
  return best;
}

export const rateText = (value: number | string | null | undefined): string => quantity(value, RATES) || 'no limit';

// ------------------------------------------------------------------------------------ words

/** What can be read in `preferences`: a preset's settings, or its own. */
export function settingsOf(preferences: Policy['preferences']): OwnPreferences {
  if (preferences === undefined) return {};
  return typeof preferences === 'string' ? (PRESETS[preferences] ?? {}) : preferences;
}

export const shapingWord = (given: OwnPreferences): string => given.shaping ?? '–';
export const deadlineWord = (given: OwnPreferences): string =>
  given.deadline === undefined ? '–' : given.deadline === 0 ? 'none' : quantity(given.deadline, TIMES);

/** In a row: `FullImageDrop`, or `scaling, 20 KB, 5 s`. Empty if not set. */
export function preferenceWords(preferences: Policy['preferences']): string {
  if (preferences === undefined) return '';
  if (typeof preferences === 'string') return preferences;
  const parts: string[] = [];
  if (preferences.shaping !== undefined)
    parts.push(preferences.shaping === 'none' ? 'no shaping' : preferences.shaping);
  if (preferences.max_bytes !== undefined) parts.push(quantity(preferences.max_bytes, SIZES));
  if (preferences.max_pixels !== undefined) parts.push(`${preferences.max_pixels} pixels`);
  if (preferences.deadline !== undefined)
    parts.push(preferences.deadline === 0 ? 'no deadline' : quantity(preferences.deadline, TIMES));
  if (preferences.replacement !== undefined)
    parts.push(preferences.replacement ? 'newer replaces older' : 'no replacement');
  return parts.join(', ');
}

const some = (names: string[], most = 3): string =>
  names.length > most ? `${names.slice(0, most).join(', ')} and ${names.length - most} more` : names.join(', ');

/** When a policy applies, in words: `uav/imagery · to group analysts · link_kbps < 500`. */
export function contextWords(policy: Policy): string {
  const operations = list(policy.operation);
  const isReceiving = operations.length === 1 && operations[0] === 'subscribe';
  const isSending = operations.length === 1 && operations[0] === 'publish';
  const parts: string[] = [];
  const channels = list(policy.channel);
  if (channels.length) parts.push(some(channels));
  const entities = (['client', 'user', 'group', 'node'] as const).flatMap((kind) => {
    const names = list(policy[kind]);
    return names.length ? [`${kind === 'client' ? '' : `${kind} `}${some(names)}`] : [];
  });
  if (policy.who) entities.push(policy.who);
  if (entities.length) parts.push(`${isReceiving ? 'to ' : isSending ? 'from ' : ''}${entities.join(', ')}`);
  else if (operations.length) parts.push(isReceiving ? 'deliveries' : isSending ? 'published' : operations.join(', '));
  if (policy.where) parts.push(sizeWords(policy.where));
  if (policy.when) parts.push(policy.when);
  return parts.join(' · ') || 'always';
}

function sizeWords(where: string): string {
  const found = /^\s*payload_bytes\s*(>=?|<=?)\s*(\d+)\s*$/.exec(where);
  if (!found) return where;
  return `${found[1]!.startsWith('>') ? 'over' : 'under'} ${quantity(Number(found[2]), SIZES)}`;
}

/** `Alarms`, `Alarms 2`, … : the first that is free. */
export function freeName(wanted: string, policies: readonly Policy[]): string {
  const taken = new Set(policies.map((each) => each.name));
  if (!taken.has(wanted)) return wanted;
  for (let n = 2; ; n += 1) if (!taken.has(`${wanted} ${n}`)) return `${wanted} ${n}`;
}

/** Whether it gives anything at all: the node refuses one that does not. */
export const decidesSomething = (policy: Policy): boolean =>
  policy.importance !== undefined ||
  policy.guarantee !== undefined ||
  Object.keys(settingsOf(policy.preferences)).length > 0;

// ------------------------------------------------------------------------------------ order

/** Parts of a predicate that AND joins at the top. */
function conjuncts(predicate: string | undefined): number {
  if (!predicate?.trim()) return 0;
  const bare = predicate.replace(/'(?:[^']|'')*'/g, "''");
  let depth = 0;
  let parts = 1;
  let isBetween = false;
  for (const [token] of bare.matchAll(/\(|\)|\b(?:AND|OR|BETWEEN)\b/gi)) {
    const word = token.toUpperCase();
    if (word === '(') depth += 1;
    else if (word === ')') depth -= 1;
    else if (depth > 0) continue;
    else if (word === 'OR') return 1;
    else if (word === 'BETWEEN') isBetween = true;
    else if (isBetween) isBetween = false;
    else parts += 1;
  }
  return parts;
}

const isPattern = (names: string[], marks: string) =>
  names.some((each) => [...marks].some((mark) => each.includes(mark)));

/** Conditions, exact names, lists, levels of the channel: the first that differs counts. */
export function specificity(policy: Policy): [number, number, number, number] {
  const named = (['operation', 'client', 'user', 'group', 'node'] as const)
    .map((kind) => [list(policy[kind]), '*'] as const)
    .filter(([names]) => names.length > 0);
  const channels = list(policy.channel);
  const all = channels.length ? [...named, [channels, '+#'] as const] : named;
  const literal = all.filter(([names, marks]) => !isPattern(names, marks));
  const exact = literal.filter(([names]) => new Set(names).size === 1).length;
  const levels = channels.map((each) => each.split('/').filter((level) => level !== '+' && level !== '#').length);
  return [
    all.length + conjuncts(policy.who) + conjuncts(policy.where) + conjuncts(policy.when),
    exact,
    literal.length - exact,
    levels.length ? Math.min(...levels) : 0,
  ];
}

/** In the order in which they decide: precedence, then specificity, then their places in the set. */
export function inOrder(policies: readonly Policy[]): Policy[] {
  const keyed = policies.map((policy, at) => ({
    policy,
    key: [policy.precedence ?? 0, ...specificity(policy), -at],
  }));
  keyed.sort((a, b) => {
    for (let i = 0; i < a.key.length; i += 1) if (a.key[i] !== b.key[i]) return b.key[i]! - a.key[i]!;
    return 0;
  });
  return keyed.map((each) => each.policy);
}

// ------------------------------------------------------------------------------------ TOML

const ESCAPES: Record<string, string> = {
  '"': '\\"',
  '\\': '\\\\',
  '\n': '\\n',
  '\t': '\\t',
  '\r': '\\r',
  '\b': '\\b',
  '\f': '\\f',
};

function quoted(text: string): string {
  // eslint-disable-next-line no-control-regex -- those are meant
  const inside = text.replace(/["\\\u0000-\u001f\u007f]/g, (c) => {
    return ESCAPES[c] ?? `\\u${c.codePointAt(0)!.toString(16).padStart(4, '0')}`;
  });
  return `"${inside}"`;
}

function tomlValue(key: string, value: unknown): string {
  if (typeof value === 'boolean') return String(value);
  if (typeof value === 'number') {
    if (key === 'bandwidth' || key === 'client_bandwidth') return quoted(quantity(value, RATES));
    if (key === 'deadline') return quoted(value ? quantity(value, TIMES) : 'none');
    return String(value);
  }
  if (typeof value === 'string') return quoted(value);
  if (Array.isArray(value)) return `[${value.map((each) => tomlValue('', each)).join(', ')}]`;
  const parts = Object.entries(value as object).filter(([, each]) => each !== undefined && each !== null);
  return `{ ${parts.map(([name, each]) => `${name} = ${tomlValue(name, each)}`).join(', ')} }`;
}

function tomlBlock(heading: string, table: object): string {
  const lines = Object.entries(table)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([key, value]) => `${key} = ${tomlValue(key, value)}`);
  return [...(heading ? [heading] : []), ...lines].join('\n') + '\n';
}

export const policyToml = (policy: Policy): string => tomlBlock('[[policies]]', policy);

/** A policy file with the same content, as the node renders it. */
export function setToml(set: PolicySet): string {
  const { limits, policies, ...settings } = set;
  return [
    tomlBlock('', settings),
    ...limits.map((each) => tomlBlock('[[limits]]', each)),
    ...policies.map(policyToml),
  ].join('\n');
}

// ------------------------------------------------------------------------------------ commands

/** For a POSIX shell. */
export const shellQuote = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) && !text.startsWith('-') ? text : `'${text.replaceAll("'", `'\\''`)}'`;

/** `accord policy set …` that makes this policy; undefined for what that command has no options for. */
export function setCommand(policy: Policy): string | undefined {
  const own = policy.preferences;
  const isTable = own !== undefined && typeof own !== 'string';
  if (isTable && (own.max_bytes ?? own.max_pixels ?? own.replacement) !== undefined) return undefined;
  if (policy.description) return undefined;
  const parts = ['accord', 'policy', 'set', shellQuote(policy.name)];
  if (policy.name.startsWith('-')) return undefined;
  const give = (option: string, value: string | number | undefined) => {
    if (value !== undefined && value !== '') parts.push(`--${option}`, shellQuote(String(value)));
  };
  for (const each of list(policy.operation)) give('operation', each);
  for (const each of list(policy.channel)) give('channel', each);
  for (const each of list(policy.client)) give('client', each);
  for (const each of list(policy.user)) give('by-user', each);
  for (const each of list(policy.group)) give('group', each);
  if (list(policy.node).length) return undefined;
  give('who', policy.who);
  give('where', policy.where);
  give('when', policy.when);
  if (policy.precedence) give('precedence', policy.precedence);
  give('importance', policy.importance);
  if (typeof own === 'string') give('preferences', own);
  else if (own) {
    give('shaping', own.shaping);
    give('deadline', own.deadline === 0 ? 'none' : quantity(own.deadline, TIMES));
  }
  give('guarantee', policy.guarantee);
  return parts.join(' ');
}

/** A command for a policy, whatever it says. */
export function policyCommand(policy: Policy): string {
  const end = ['POLICY', 'END', 'POLICY_END'].find((each) => !policyToml(policy).split('\n').includes(each))!;
  return setCommand(policy) ?? `accord policy put - <<'${end}'\n${policyToml(policy)}${end}`;
}
