/** Explanations of the node in sentences. */
import type { Schemas } from '$api/contract';
import type { Affected } from './draft';

export type Explanation = Schemas['Explanation'];

const VERBS: Record<string, string> = { publish: 'publishes to', subscribe: 'receives', query: 'queries' };

const settingWords = (setting: string, value: string): string => {
  if (setting === 'importance') return `importance ${value}`;
  if (setting === 'deadline') return value === 'none' ? 'no deadline' : `a deadline of ${value}`;
  if (setting === 'shaping') return value === 'none' ? 'no shaping' : value;
  if (setting === 'replacement') return value === 'on' ? 'replacement' : 'no replacement';
  return `${setting} ${value}`;
};

const joined = (parts: string[]): string =>
  parts.length < 2 ? (parts[0] ?? '') : `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)}`;

/** `desk-1 receives uav/imagery with importance 2`. */
export const headline = (found: Explanation): string =>
  `${found.client || 'Anybody'} ${VERBS[found.operation] ?? found.operation} ${found.channel} with importance ${found.granted.importance}`;

/** Why this importance: who says so. */
export function because(found: Explanation): { by: string; reason: string } {
  const importance = found.decisions.find((each) => each.setting === 'importance');
  return importance?.policy
    ? { by: `Because ${importance.policy} says so`, reason: importance.reason }
    : { by: 'By default', reason: 'no policy that applies says anything about importance' };
}

/** What else is decided, by policy: `A deadline of 5 s and no shaping come from Analysts-Imagery: more specific …`. */
export function rest(found: Explanation): string[] {
  const groups = new Map<string, { words: string[]; reason: string }>();
  for (const each of found.decisions) {
    if (each.setting === 'importance' || !each.policy) continue;
    const group = groups.get(each.policy) ?? { words: [], reason: each.reason };
    group.words.push(settingWords(each.setting, each.value));
    groups.set(each.policy, group);
  }
  const main = found.decisions.find((each) => each.setting === 'importance')?.policy;
  const sentences = [...groups].map(([policy, { words, reason }]) => {
    const text = joined(words);
    if (policy === main) return `It also gives ${text}.`;
    return `${text[0]!.toUpperCase()}${text.slice(1)} ${words.length > 1 ? 'come' : 'comes'} from ${policy}: ${reason}.`;
  });
  const byDefault = found.decisions.filter((each) => !each.policy && each.setting !== 'importance');
  if (byDefault.length && byDefault.length < found.decisions.length - 1) return sentences;
  if (byDefault.length)
    sentences.push(`${joined(byDefault.map((each) => settingWords(each.setting, each.value)))} by default.`);
  return sentences.map((each) => `${each[0]!.toUpperCase()}${each.slice(1)}`);
}

/**
 * What the draft would make of it, as far as the dry run tells: what changes for an open operation, `same` if it is
 * open and nothing changes, undefined if it is not open.
 */
export function inDraft(
  found: Pick<Explanation, 'operation' | 'channel' | 'client'>,
  dry: { total: number; affected: readonly Affected[] } | undefined,
  open: readonly { operation: string; channel: string; client: string }[],
): Affected | 'same' | undefined {
  const is = (each: { operation: string; channel: string; client: string }) =>
    each.operation === found.operation && each.channel === found.channel && each.client === found.client;
  if (!dry) return undefined;
  const affected = dry.affected.find(is);
  if (affected) return affected;
  return open.some(is) && dry.total === dry.affected.length ? 'same' : undefined;
}

/** `accord policy explain …` for the same question. */
export const explainArguments = (question: Record<string, string>): string[] =>
  ['operation', 'client', 'channel', 'publisher']
    .filter((name) => question[name] && !(name === 'operation' && question[name] === 'subscribe'))
    .flatMap((name) => [`--${name}`, question[name]!]);
