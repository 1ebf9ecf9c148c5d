/** What happened to the network, in words, from one step to the next. */
import { latency, plain } from '$lib/format';
import { idOf, type Change, type NetFlow, type NetLink, type NetNode, type Snapshot } from './rows';

export interface Happening {
  atMs: number;
  kind: 'ok' | 'warn' | 'bad';
  /** Of what it says, and of whom: the same for both ends of a link. */
  id: string;
  text: string;
  link?: string;
  node?: string;
  channel?: string;
  /** Paths that were given up. */
  left?: string[][];
}

const MOST = 12; // of one step

/** A link is slow if it takes more than twice as long as usual, and 10 ms longer at least. */
export const isSlow = (ms: number, usual: number | undefined): boolean =>
  usual !== undefined && ms > 2 * usual && ms > usual + 10;

/** The name of a link, the same for both directions. */
export const pairOf = (one: string, other: string): string => [one, other].toSorted().join('\u0000');

export const linkName = (one: string, other: string): string =>
  [one, other]
    .toSorted()
    .map((each) => plain(each, 40))
    .join(' – ');

/** The paths that carry events now. */
export function paths(flow: NetFlow): string[][] {
  return flow.routes.filter((each) => each.state !== 'setting up').map((each) => each.path);
}

export const pathName = (path: readonly string[]): string => {
  const between = path.slice(1, -1).map((each) => plain(each, 40));
  return between.length ? `over ${between.join(', ')}` : 'directly';
};

const nameOf = (flow: NetFlow): string =>
  flow.channels.length ? plain(flow.channels[0]!, 60) : `${plain(flow.source, 40)} → ${plain(flow.destination, 40)}`;

export function happeningsOf(
  before: Snapshot,
  changes: readonly Change[],
  atMs: number,
  usualMs: (id: string) => number | undefined,
): Happening[] {
  const found: Happening[] = [];
  const isFirst = before.nodes.size === 0;
  for (const change of changes) {
    if (found.length >= MOST) break;
    const was = before.row(change);
    if (isFirst || !was) continue;
    if (change.kind === 'node') found.push(...nodeChanges(was as NetNode, change, atMs));
    else if (change.kind === 'link') found.push(...linkChanges(was as NetLink, change, atMs, usualMs));
    else if (change.kind === 'flow') found.push(...flowChanges(was as NetFlow, change, atMs));
  }
  return found;
}

function* nodeChanges(was: NetNode, change: Change, atMs: number): Generator<Happening> {
  const is = change.row as NetNode | null;
  const [before, now] = [was.is_reachable !== false, is?.is_reachable !== false && is !== null];
  if (before === now) return;
  const name = plain(change.of, 40);
  const common = { atMs, id: `node ${change.of} ${now}`, node: change.of };
  yield now
    ? { ...common, kind: 'ok', text: `${name} is reachable again` }
    : { ...common, kind: 'bad', text: `${name} is not reachable` };
}

function* linkChanges(
  was: NetLink,
  change: Change,
  atMs: number,
  usualMs: (id: string) => number | undefined,
): Generator<Happening> {
  const is = change.row as NetLink | null;
  const [before, now] = [was.is_used !== false, is !== null && is.is_used !== false];
  const pair = pairOf(change.of, change.key);
  const name = linkName(change.of, change.key);
  if (before !== now) {
    const common = { atMs, id: `link ${pair} ${now}`, link: pair };
    yield now
      ? { ...common, kind: 'ok', text: `${name} is up again` }
      : { ...common, kind: 'bad', text: `${name} failed` };
  } else if (is && now) {
    const usual = usualMs(idOf(change.of, change.key));
    const [wasSlow, slow] = [isSlow(was.latency_us / 1000, usual), isSlow(is.latency_us / 1000, usual)];
    if (wasSlow === slow) return;
    const common = { atMs, id: `slow ${pair} ${slow}`, link: pair };
    yield slow
      ? {
          ...common,
          kind: 'warn',
          text: `${name} slows down: ${latency(is.latency_us / 1000)}, usually ${latency(usual)}`,
        }
      : { ...common, kind: 'ok', text: `${name} is as fast as usual: ${latency(is.latency_us / 1000)}` };
  }
}

function* flowChanges(was: NetFlow, change: Change, atMs: number): Generator<Happening> {
  const is = change.row as NetFlow | null;
  if (!is || was.destination !== is.destination || was.channels[0] !== is.channels[0]) return;
  const name = nameOf(is);
  const channel = is.channels[0] ?? '';
  const key = (path: string[]) => path.join('\u0000');
  const [old, now] = [new Set(paths(was).map(key)), new Set(paths(is).map(key))];
  const gone = [...old].filter((each) => !now.has(each));
  const come = [...now].filter((each) => !old.has(each));
  const words = (each: string) => pathName(each.split('\u0000'));
  const common = { atMs, channel, left: gone.map((each) => each.split('\u0000')) };
  if (come.length)
    yield {
      ...common,
      kind: 'ok',
      id: `flow ${idOf(change.of, change.key)} ${come.join()}`,
      text: gone.length
        ? `${name} goes ${words(come[0]!)}, no longer ${words(gone[0]!)}`
        : `${name} goes ${words(come[0]!)} as well`,
    };
  else if (gone.length)
    yield {
      ...common,
      kind: now.size ? 'warn' : 'bad',
      id: `flow ${idOf(change.of, change.key)} -${gone.join()}`,
      text: now.size ? `${name} no longer goes ${words(gone[0]!)}` : `${name} has no path`,
    };
  if (was.is_met !== is.is_met)
    yield {
      ...common,
      kind: is.is_met ? 'ok' : 'warn',
      id: `met ${idOf(change.of, change.key)} ${is.is_met}`,
      text: is.is_met ? `${name} gets what it requires again` : `${name} misses what it requires`,
    };
}
