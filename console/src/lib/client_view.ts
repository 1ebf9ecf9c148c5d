/** What a client gets, in lines and in a sentence: from the `client` set, and from outcomes of the ledger. */
import type { ClientChannel, ClientState, GrantedPreferences, Schemas } from '$api/contract';
import { FATES, type Fate } from '$parts/fates';
import { bytes, count, duration, latency, number, share } from './format';

type Outcome = Schemas['DeliveryOutcome'];

/** What a client gets on one channel. */
export interface Line {
  channel: string;
  sources: readonly string[];
  sourcesTotal: number;
  importance: number | undefined;
  /** Who decided the importance. */
  policy: string;
  preferences: string;
  shaping: string;
  deadlineMs: number;
  received: number;
  dropped: number;
  replaced: number;
  shaped: number;
  late: number;
  lastMs: number | undefined;
  rateHz: number;
  p50Ms: number | undefined;
  p95Ms: number | undefined;
  inTime: number | undefined;
  /** What is queued, and how long ago the oldest of it came. */
  waiting: number;
  waitingBytes: number;
  waitingMs: number;
}

/** A client is behind if something waits for longer, as the node judges it. */
export const BEHIND_MS = 5_000;
const SLOW_MS = 1_000;

export function lineOf(channel: string, row: ClientChannel): Line {
  return {
    channel,
    sources: row.sources ?? [],
    sourcesTotal: row.sources_total ?? row.sources?.length ?? 0,
    importance: row.importance,
    policy: row.policy ?? '',
    preferences: row.preset || preferencesText(row.preferences),
    shaping: row.preferences?.shaping ?? '',
    deadlineMs: row.preferences?.deadline_ms ?? 0,
    received: row.received ?? 0,
    dropped: row.dropped ?? 0,
    replaced: row.replaced ?? 0,
    shaped: row.shaped ?? 0,
    late: row.late ?? 0,
    lastMs: row.last_ms,
    rateHz: row.rate_hz ?? 0,
    p50Ms: row.p50_ms,
    p95Ms: row.p95_ms,
    inTime: row.in_time,
    waiting: row.waiting ?? 0,
    waitingBytes: row.waiting_bytes ?? 0,
    waitingMs: row.waiting_ms ?? 0,
  };
}

/** Preferences in words: `5 s, scaling to 20 KB`. */
export function preferencesText(found: GrantedPreferences | undefined): string {
  if (!found) return '';
  const words = [];
  if (found.deadline_ms) words.push(latency(found.deadline_ms));
  if (found.shaping) {
    const to = found.max_bytes
      ? ` to ${bytes(found.max_bytes)}`
      : found.max_pixels
        ? ` to ${number(found.max_pixels)} pixels`
        : '';
    words.push(`${found.shaping}${to}`);
  }
  return words.join(', ');
}

/** The most important first; among equals by name, so that rows stay where they are. */
export function byImportance(a: Line, b: Line): number {
  return (b.importance ?? -1) - (a.importance ?? -1) || (a.channel < b.channel ? -1 : a.channel > b.channel ? 1 : 0);
}

export type LineSort = 'channel' | 'importance' | 'dropped' | 'received' | 'last' | 'rate' | 'p50' | 'p95' | 'in_time';

const VALUES: Record<Exclude<LineSort, 'channel'>, (line: Line) => number | undefined> = {
  importance: (line) => line.importance,
  dropped: (line) => line.dropped,
  received: (line) => line.received,
  last: (line) => line.lastMs,
  rate: (line) => line.rateHz,
  p50: (line) => line.p50Ms,
  p95: (line) => line.p95Ms,
  in_time: (line) => line.inTime,
};

/** Lines in order; those without a value last. */
export function sortLines(lines: readonly Line[], sort: string, isDescending: boolean): Line[] {
  const found = [...lines].sort(byImportance);
  if (sort === 'channel') {
    found.sort((a, b) => (a.channel < b.channel ? -1 : 1) * (isDescending ? -1 : 1));
  } else if (sort in VALUES && !(sort === 'importance' && isDescending)) {
    const value = VALUES[sort as keyof typeof VALUES];
    found.sort((a, b) => {
      const x = value(a);
      const y = value(b);
      if (x === undefined || y === undefined) return (x === undefined ? 1 : 0) - (y === undefined ? 1 : 0);
      return (x - y) * (isDescending ? -1 : 1);
    });
  }
  return found;
}

/** Whether something of a line came late or not at all. What was replaced is no loss: a newer one came. */
export function isPoor(line: Line): boolean {
  if (line.inTime !== undefined) return line.inTime < 0.99;
  return line.dropped - line.replaced > 0.01 * Math.max(1, line.received + line.dropped);
}

/** The share that came late or not at all. */
export function missedShare(line: Line): number {
  if (line.inTime !== undefined) return 1 - line.inTime;
  const lost = line.dropped - line.replaced;
  return (lost + line.late) / Math.max(1, line.received + lost);
}

const NAMED = 2;

function channelsOf(lines: readonly Line[], clip: (text: string) => string): string {
  const names = lines.slice(0, NAMED).map((each) => clip(each.channel));
  const more = lines.length - names.length;
  if (more > 0) return `${names.join(', ')} and ${count(more, 'other channel')}`;
  return names.join(' and ');
}

/** What is said where nothing is late or lost. Without a deadline nothing can be late. */
function goodWords(seen: readonly Line[], clip: (text: string) => string): string {
  const free = seen.filter((each) => !each.deadlineMs);
  if (!free.length) return 'everything in time';
  const slowest = free.reduce((a, b) => ((b.p95Ms ?? 0) > (a.p95Ms ?? 0) ? b : a));
  const slow = (slowest.p95Ms ?? 0) >= SLOW_MS ? `, ${clip(slowest.channel)} within ${latency(slowest.p95Ms)}` : '';
  return free.length === seen.length
    ? `everything${slow}; no deadline is set`
    : `everything${slow}, and in time where a deadline is set`;
}

/** How far it is behind, with what. */
function behindWords(behind: readonly Line[], clip: (text: string) => string): string {
  const oldest = Math.max(...behind.map((each) => each.waitingMs));
  const sum = (of: (each: Line) => number) => behind.reduce((total, each) => total + of(each), 0);
  const events = sum((each) => each.waiting);
  const size = bytes(sum((each) => each.waitingBytes));
  return `${duration(oldest)} behind on ${channelsOf(behind, clip)}: ${count(events, 'event')} (${size}) ${events === 1 ? 'waits' : 'wait'}`;
}

export interface Who {
  isConnected: boolean;
  subscriptions?: number | undefined;
  queuedMessages?: number | undefined;
  queuedBytes?: number | undefined;
  sentKbps?: number | undefined;
  capacityKbps?: number | undefined;
}

/**
 * One sentence: does the client get what matters now, and if not, what it misses and why. What waits comes first: it
 * has no outcome yet, so that shares do not show it. Names must be harmless already.
 */
export function verdictOf(
  name: string,
  who: Who | undefined,
  lines: readonly Line[],
  clip: (text: string) => string = (text) => text,
): string {
  const seen = lines.filter((each) => each.received + each.dropped + each.waiting > 0).sort(byImportance);
  if (!who) return seen.length ? `${name} has left; this is what it got.` : `${name} is not known here.`;
  if (!who.isConnected) {
    const waiting = who.queuedMessages ?? 0;
    return `${name} is away; ${waiting ? `${count(waiting, 'event')} ${waiting === 1 ? 'waits' : 'wait'} for it` : 'nothing waits for it'}.`;
  }
  if (!seen.length) {
    if (who.subscriptions === 0) return `${name} subscribes to nothing.`;
    return `${name} has received nothing in the last 15 minutes.`;
  }
  const behind = seen.filter((each) => each.waitingMs >= BEHIND_MS).sort((a, b) => b.waitingMs - a.waitingMs);
  if (behind.length) return `${name} is ${behindWords(behind, clip)}.`;
  const poor = seen.filter(isPoor).sort((a, b) => missedShare(b) - missedShare(a));
  if (!poor.length) return `${name} gets ${goodWords(seen, clip)}.`;
  const most = (some: readonly Line[]) => Math.max(-1, ...some.map((each) => each.importance ?? -1));
  const good = seen.filter((each) => !isPoor(each));
  // Its link is in use, or a second of it waits.
  const capacity = who.capacityKbps ?? Infinity;
  const waitingKbits = ((who.queuedBytes ?? 0) * 8) / 1_000;
  const isThin = (who.sentKbps ?? 0) > 0 && ((who.sentKbps ?? 0) >= 0.75 * capacity || waitingKbits >= capacity);
  const worst = poor[0]!;
  const part = missedShare(worst) >= 1 ? 'all' : share(missedShare(worst));
  const missed = `${part} of ${clip(worst.channel)} came late or not at all`;
  const others = poor.length > 1 ? `, and ${count(poor.length - 1, 'other channel')} suffered too` : '';
  if (good.length && most(good) > most(poor)) {
    return isThin
      ? `${name} gets what matters in time; its link is too thin for ${channelsOf(poor, clip)}.`
      : `${name} gets what matters in time; ${missed}${others}.`;
  }
  if (isThin) return `${name} misses events: its link is too thin for ${channelsOf(poor, clip)}.`;
  return `${name} misses events: ${missed}${others}.`;
}

export function whoOf(state: ClientState | undefined): Who | undefined {
  if (!state?.status && !state?.activity) return undefined;
  const { status, activity } = state;
  return {
    isConnected: status?.is_connected ?? activity?.is_connected ?? false,
    subscriptions: status?.subscriptions,
    queuedMessages: status?.queued_messages ?? activity?.queued_messages,
    queuedBytes: status?.queued_bytes ?? activity?.queued_bytes,
    sentKbps: activity?.sent_kbps,
    capacityKbps: activity?.limit_kbps ?? activity?.link_kbps,
  };
}

// Causes of what was dropped.

const RECEIVED = new Set(['delivered', 'in time', 'late', 'shaped']);
const MOST_EVENTS = 2_000;
const MOST_CHANNELS = 200;

export function isReceived(outcome: string): boolean {
  return RECEIVED.has(outcome);
}

/** Outcomes of one client, added up as far as the page has seen them. */
export class Causes {
  readonly #byChannel = new Map<string, Map<Fate, number>>();
  readonly #bytes = new Map<string, number>();
  #seen = new Set<string>();

  /** Take outcomes by event and destination; those taken before are passed over. */
  take(rows: Record<string, Outcome>, client: string): void {
    for (const [key, row] of Object.entries(rows)) {
      if (row.destination !== client || this.#seen.has(key)) continue;
      this.#seen.add(key);
      if (isReceived(row.outcome)) {
        if (this.#bytes.size < MOST_CHANNELS || this.#bytes.has(row.channel))
          this.#bytes.set(row.channel, (this.#bytes.get(row.channel) ?? 0) + row.size * row.count);
        continue;
      }
      if (!(row.outcome in FATES)) continue;
      let fates = this.#byChannel.get(row.channel);
      if (!fates) {
        if (this.#byChannel.size >= MOST_CHANNELS) continue;
        this.#byChannel.set(row.channel, (fates = new Map()));
      }
      const fate = row.outcome as Fate;
      fates.set(fate, (fates.get(fate) ?? 0) + row.count);
    }
    // The oldest are forgotten, and will not come again: the set has the newest only.
    if (this.#seen.size > MOST_EVENTS) this.#seen = new Set([...this.#seen].slice(-MOST_EVENTS / 2));
  }

  /** The fates of dropped events of a channel, the most frequent first. */
  of(channel: string): [Fate, number][] {
    return [...(this.#byChannel.get(channel) ?? [])].sort((a, b) => b[1] - a[1]);
  }
}

/** The fate that most of a channel's dropped events met: by outcomes, else by the latest latencies. */
export function mainFate(channel: string, causes: Causes, latencies: ClientState['latencies']): Fate {
  const known = causes.of(channel)[0];
  if (known) return known[0];
  for (let i = latencies.length - 1; i >= 0; i -= 1) {
    const [, each, , outcome] = latencies[i]!;
    if (each === channel && !isReceived(outcome) && outcome in FATES) return outcome as Fate;
  }
  return 'expired';
}

/** Which part of the bytes sent lately each channel had, the largest first; at most `most`, the rest together as ''. */
export function linkParts(rows: Record<string, Outcome>, client: string, most = 6): [channel: string, part: number][] {
  const found = new Map<string, number>();
  let total = 0;
  for (const row of Object.values(rows)) {
    if (row.destination !== client || !isReceived(row.outcome)) continue;
    const size = row.size * row.count;
    total += size;
    found.set(row.channel, (found.get(row.channel) ?? 0) + size);
  }
  if (!total) return [];
  const parts = [...found].map(([channel, size]) => [channel, size / total] as [string, number]);
  parts.sort((a, b) => b[1] - a[1]);
  if (parts.length <= most) return parts;
  const rest = parts.slice(most).reduce((sum, each) => sum + each[1], 0);
  return [...parts.slice(0, most), ['', rest]];
}

// Dots of the latency graph.

export interface Dots {
  /** Received events by channel. */
  received: Map<string, { times: number[]; values: number[] }>;
  /** Those that came late or were dropped, by fate. */
  fates: Map<Fate, { times: number[]; values: number[] }>;
}

/**
 * Events as dots: time and latency. What was dropped stands at its channel's bound, because it had no latency;
 * without a bound, at the time it waited.
 */
export function dotsOf(
  latencies: ClientState['latencies'],
  channels: ReadonlySet<string>,
  deadlines: ReadonlyMap<string, number>,
): Dots {
  const received: Dots['received'] = new Map();
  const fates: Dots['fates'] = new Map();
  const sorted = [...latencies].sort((a, b) => a[0] - b[0]);
  for (const [atMs, channel, latencyMs, outcome] of sorted) {
    if (!channels.has(channel)) continue;
    const value = Math.max(latencyMs, 0.5); // a log scale has no 0
    const isIn = isReceived(outcome);
    if (!isIn && !(outcome in FATES)) continue;
    if (isIn && outcome !== 'late') push(received, channel, atMs, value);
    else push(fates, outcome as Fate, atMs, isIn ? value : Math.max(value, deadlines.get(channel) ?? 0));
  }
  return { received, fates };
}

function push<K>(into: Map<K, { times: number[]; values: number[] }>, key: K, ms: number, value: number): void {
  let points = into.get(key);
  if (!points) into.set(key, (points = { times: [], values: [] }));
  const last = points.times.at(-1);
  // Points of one series have a time each.
  points.times.push(last !== undefined && ms <= last ? last + 0.01 : ms);
  points.values.push(value);
}

/** Distinct deadlines as bounds, named: `due 5 s`; with the channel if it is the only one of several. */
export function dueBounds(lines: readonly Line[], name: (channel: string) => string, most = 3) {
  const byMs = new Map<number, string[]>();
  for (const line of lines) {
    if (line.deadlineMs > 0) byMs.set(line.deadlineMs, [...(byMs.get(line.deadlineMs) ?? []), line.channel]);
  }
  return [...byMs]
    .sort((a, b) => a[0] - b[0])
    .slice(0, most)
    .map(([ms, channels]) => ({
      value: ms,
      text: byMs.size > 1 && channels.length === 1 ? `${name(channels[0]!)} due ${latency(ms)}` : `due ${latency(ms)}`,
    }));
}

/** The last level of a channel, short enough for a label; the whole if others end alike. */
export function shortNames(channels: readonly string[]): Map<string, string> {
  const ends = new Map<string, number>();
  const endOf = (channel: string) => channel.split('/').findLast((each) => each !== '') ?? channel;
  for (const each of channels) ends.set(endOf(each), (ends.get(endOf(each)) ?? 0) + 1);
  return new Map(channels.map((each) => [each, ends.get(endOf(each)) === 1 ? endOf(each) : each]));
}
