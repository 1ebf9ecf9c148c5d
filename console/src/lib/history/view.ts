/** What the History page shows, as the address says it, and the same as a command. */
import { quoted } from '$lib/tap/commands';

/** Times that are asked for by name; null is any time. */
export const TIMES = [
  ['15min', '15 min', 15 * 60_000],
  ['1h', '1 h', 3_600_000],
  ['24h', '1 day', 24 * 3_600_000],
  ['7d', '7 days', 7 * 24 * 3_600_000],
  ['all', 'all', null],
] as const;
export type TimeName = (typeof TIMES)[number][0];

export const SHAPES = [
  ['table', 'Table'],
  ['timeline', 'Timeline'],
  ['gallery', 'Pictures'],
] as const;
export type Shape = (typeof SHAPES)[number][0];

export interface HistoryView {
  /** A filter of channels. */
  channel: string;
  where: string;
  xpath: string;
  /** The time asked for by name, unless `fromMs` and `toMs` say it. */
  last: TimeName;
  /** A time selected on a graph; the end is not part of it. */
  fromMs: number | undefined;
  toMs: number | undefined;
}

export const DEFAULT_LAST: TimeName = '1h';

/** What is shown where no channel is named: all, or the first filter that a user may subscribe to. */
export function widest(subscribe: readonly string[], user: string): string {
  if (!subscribe.length || subscribe.includes('#')) return '#';
  return subscribe[0]!.replaceAll('%u', user);
}

export function readView(query: URLSearchParams, all = '#'): HistoryView {
  const last = query.get('last');
  const fromMs = moment(query.get('from'));
  const toMs = moment(query.get('to'));
  const isRange = fromMs !== undefined && toMs !== undefined && fromMs < toMs;
  return {
    channel: query.get('channel') || all,
    where: query.get('xpath') ? '' : (query.get('where') ?? ''),
    xpath: query.get('xpath') ?? '',
    last: TIMES.find(([name]) => name === last)?.[0] ?? DEFAULT_LAST,
    fromMs: isRange ? fromMs : undefined,
    toMs: isRange ? toMs : undefined,
  };
}

/** A time as the node writes it; undefined if it is none. */
export function moment(text: string | null): number | undefined {
  if (!text || !/^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(text)) return undefined;
  const ms = Date.parse(text);
  return Number.isFinite(ms) ? ms : undefined;
}

export const iso = (ms: number): string => new Date(Math.round(ms)).toISOString();

export interface Span {
  /** Undefined: since the first event that is kept. */
  sinceMs: number | undefined;
  /** Undefined: up to now, and on. */
  untilMs: number | undefined;
}

/** The time that is meant, when it is asked for. */
export function spanOf(view: HistoryView, nowMs: number): Span {
  if (view.fromMs !== undefined) return { sinceMs: view.fromMs, untilMs: view.toMs };
  const ms = TIMES.find(([name]) => name === view.last)![2];
  return { sinceMs: ms === null ? undefined : nowMs - ms, untilMs: undefined };
}

/** Whether new events belong to it. */
export const isOpenEnded = (view: HistoryView): boolean => view.toMs === undefined;

/** `accord query …` for the same events. */
export function queryCommand(view: HistoryView, limit = 0): string {
  const words = ['accord query'];
  if (view.where) words.push(`--where ${quoted(view.where)}`);
  if (view.xpath) words.push(`--xpath ${quoted(view.xpath)}`);
  if (view.fromMs !== undefined && view.toMs !== undefined)
    words.push(`--since ${iso(view.fromMs)}`, `--until ${iso(view.toMs)}`);
  // A value that begins with a dash would be read as an option.
  else words.push(view.last === 'all' ? '--since 1970-01-01' : `--since=-${view.last}`);
  if (limit) words.push(`--limit ${limit}`);
  words.push(view.channel.startsWith('-') ? `-- ${quoted(view.channel)}` : quoted(view.channel));
  return words.join(' ');
}

/** The time in words, for a sentence. */
export function spanWords(view: HistoryView, text: (ms: number) => string): string {
  if (view.fromMs !== undefined && view.toMs !== undefined) return `from ${text(view.fromMs)} to ${text(view.toMs)}`;
  const said: Record<TimeName, string> = {
    '15min': 'in the last 15 minutes',
    '1h': 'in the last hour',
    '24h': 'in the last day',
    '7d': 'in the last 7 days',
    all: 'since the first one kept',
  };
  return said[view.last];
}

/** What a longer time would be, for looking further back; undefined if there is none. */
export function longer(view: HistoryView): TimeName | undefined {
  if (view.fromMs !== undefined) return view.last;
  const at = TIMES.findIndex(([name]) => name === view.last);
  return TIMES[at + 1]?.[0];
}
