/** Sentences about a channel, from its live data. */
import type { ChannelRow, ChannelState, ChannelSubscriber, Page } from '$api/contract';
import { age, count, duration, latency, plain, share, figure } from './format';

export type State = 'ok' | 'warn' | 'bad' | 'stale';

/** How well events come: fine from 99.5 %, wrong below 90 %. */
export function stateOf(inTime: number | undefined | null): State {
  if (inTime === undefined || inTime === null) return 'stale';
  if (inTime >= 0.995) return 'ok';
  return inTime >= 0.9 ? 'warn' : 'bad';
}

const SLOW_MS = 1_000;
const worth = (each: ChannelSubscriber): number => each.in_time ?? 2;

/** Subscribers, worst first: the least in time, then the slowest, then by name. Those who left come last. */
export function worstFirst(subscribers: Record<string, ChannelSubscriber>): [string, ChannelSubscriber][] {
  return Object.entries(subscribers).sort(
    ([nameA, a], [nameB, b]) =>
      Number(!a.filter) - Number(!b.filter) ||
      worth(a) - worth(b) ||
      (b.p95_ms ?? -1) - (a.p95_ms ?? -1) ||
      (nameA < nameB ? -1 : nameA > nameB ? 1 : 0),
  );
}

const LOSSES = [
  ['late_hz', 'late'],
  ['expired_hz', 'expired'],
  ['shed_hz', 'shed'],
  ['refused_hz', 'refused'],
] as const;

/** What most of what was not in time became. */
export function mainLoss(activity: Partial<ChannelRow> | undefined): string {
  let most = 0;
  let word = '';
  for (const [field, name] of LOSSES) {
    const value = activity?.[field] ?? 0;
    if (value > most) [most, word] = [value, name];
  }
  return word;
}

/** When the last event came, and from whom. */
export function lastPublished(state: ChannelState): { ms: number; publisher: string } | undefined {
  let found: { ms: number; publisher: string } | undefined;
  for (const [publisher, each] of Object.entries(state.publishers))
    if (each.last_ms && each.last_ms > (found?.ms ?? 0)) found = { ms: each.last_ms, publisher };
  return found;
}

/** The page's answer. `now` is the node's time. */
export function channelVerdict(name: string, state: ChannelState, subscribers: number, now: number): string {
  const activity: Partial<ChannelRow> | undefined = state.activity;
  const called = plain(name, 80);
  const published = activity?.published_hz ?? 0;
  const last = lastPublished(state);
  if (!published && !(activity?.delivered_hz ?? 0)) {
    if (!last && !activity?.published)
      return subscribers
        ? `Nothing was published on ${called} yet; ${count(subscribers, 'subscriber')} wait${subscribers === 1 ? 's' : ''}.`
        : `Nothing was published on ${called} yet.`;
    if (!last) return `Nothing on ${called} now.`;
    return now - last.ms < 60_000
      ? `Nothing on ${called} for ${age(now - last.ms)}.`
      : `Nothing on ${called} for ${duration(now - last.ms)}. The last came from ${plain(last.publisher, 60)}.`;
  }
  if (!subscribers) return `${called} gets ${figure(published)} events/s, and nobody here is subscribed.`;
  const inTime = activity?.in_time;
  if (inTime === undefined) return `${called} gets ${figure(published)} events/s.`;
  const [worst] = worstFirst(state.subscribers).filter(
    ([, each]) => each.filter && each.in_time !== undefined && each.in_time < 0.995,
  );
  const isFine = inTime >= 0.995;
  const bound = activity?.max_delay_ms ? ` within ${latency(activity.max_delay_ms)}` : '';
  const where = worst
    ? ` ${plain(worst[0], 60)} is worst: ${share(worst[1].in_time)}${worst[1].p95_ms === undefined ? '' : `, p95 ${latency(worst[1].p95_ms)}`}.`
    : '';
  if (isFine) {
    if (worst) return `${called} is in time, but not for all.${where}`;
    if (bound) return `${called} is in time: ${share(inTime)}${bound}.`;
    const slow = activity?.latency_p95_ms ?? 0;
    return `Nothing of ${called} is late or lost${slow >= SLOW_MS ? `; p95 is ${latency(slow)}` : ''}.`;
  }
  const loss = mainLoss(activity);
  return `${share(1 - inTime)} of ${called} is not in time${loss ? `, most of it ${loss}` : ''}.${where}`;
}

/** Second line: what it is. */
export function definitionWords(state: ChannelState): string[] {
  const definition = state.definition;
  const row: Partial<ChannelRow> | undefined = state.activity;
  const found: string[] = [];
  const template = definition?.template ?? row?.template;
  const delay = definition?.max_delay_ms ?? row?.max_delay_ms;
  const first = [template?.replaceAll('_', ' ') ?? '', delay ? `within ${latency(delay)}` : ''];
  if (definition && definition.paths > 1) first.push(`${definition.paths} paths`);
  if (first.some(Boolean)) found.push(first.filter(Boolean).join(', '));
  else found.push('no definition, delivered as published');
  if (row?.is_kept) found.push('kept');
  return found;
}

/** The policy that decides for most subscribers, and the importances they have. */
export function policyOf(state: ChannelState): { policy: string; least: number; most: number } | undefined {
  const uses = new Map<string, number>();
  let least = 8;
  let most = -1;
  for (const each of Object.values(state.subscribers)) {
    if (each.policy) uses.set(each.policy, (uses.get(each.policy) ?? 0) + 1);
    least = Math.min(least, each.importance);
    most = Math.max(most, each.importance);
  }
  if (most < 0) return undefined;
  const [policy = ''] = [...uses].sort((a, b) => b[1] - a[1])[0] ?? [];
  return { policy, least, most };
}

/** Whether an address names a filter instead of a channel. */
export const isFilter = (name: string): boolean => name.split('/').some((each) => each === '#' || each === '+');

/** Events per second that reached nobody they were for. Replaced ones are not lost: a newer one went. */
export const lostOf = (row: Partial<ChannelRow>): number =>
  (row.expired_hz ?? 0) + (row.shed_hz ?? 0) + (row.refused_hz ?? 0);

/** The answer of the list of channels. Only an order with the worst first tells about all. */
export function channelsVerdict(state: Page<ChannelRow>, sort: string, descending: boolean): string {
  if (!state.total) return 'There are no channels yet.';
  if (sort !== 'in_time' || descending) return state.matching === 1 ? 'One channel' : 'Channels';
  const known = state.order.map((name) => state.rows[name]).filter((row) => row?.in_time !== undefined);
  const late = known.filter((row) => row!.in_time! < 0.995);
  const [worst] = late;
  if (!known.length) return 'Nothing is delivered now.';
  if (!worst) {
    const [slowest] = known.toSorted((a, b) => (b!.latency_p95_ms ?? 0) - (a!.latency_p95_ms ?? 0));
    const slow = slowest?.latency_p95_ms ?? 0;
    return slow >= SLOW_MS
      ? `Nothing is late or lost; slowest is ${plain(slowest!.channel, 60)}, p95 ${latency(slow)}.`
      : 'Nothing is late or lost on any channel.';
  }
  const all =
    late.length === state.order.length && state.matching > late.length ? `${late.length} or more` : late.length;
  return `${late.length === 1 ? 'One channel is' : `${all} channels are`} not in time; worst is ${plain(worst.channel, 60)} with ${share(worst.in_time)}.`;
}
