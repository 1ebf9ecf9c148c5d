/** What a tap says of itself. */
import { figure, number, plain, time } from '../format';
import { MAX_EVENTS, MAX_RATE_HZ } from './events';

export interface TapFigures {
  /** Events per second that come to the page. */
  rateHz: number;
  /** Events per second on the channel, if there is no filter and it is known. */
  publishedHz: number | undefined;
  hasFilter: boolean;
  kept: number;
  skipped: number;
  dropped: number;
  waiting: number;
  pausedAtMs: number;
}

/** That a filter reads an attribute which no event had; empty if events are not known. */
export function unknownWords(reads: readonly string[], seen: readonly string[]): string {
  const unknown = reads.find((name) => !seen.includes(name));
  if (unknown === undefined || !seen.length) return '';
  const known = seen
    .slice(0, 12)
    .map((name) => plain(name, 40))
    .join(', ');
  return `No event so far had an attribute “${plain(unknown, 60)}”; known: ${known}.`;
}

/** Beside the title: how much of what comes is shown. */
export function tapNote(figures: TapFigures): string {
  const { rateHz, publishedHz, hasFilter, kept, dropped, waiting, pausedAtMs } = figures;
  if (pausedAtMs)
    return `paused at ${time(pausedAtMs)}${waiting ? `, ${number(waiting)}${waiting >= MAX_EVENTS ? ' or more' : ''} newer wait` : ''}`;
  const limited = Math.min(rateHz, MAX_RATE_HZ);
  const all = Math.max(rateHz, hasFilter ? 0 : (publishedHz ?? 0));
  const isAll = rateHz <= MAX_RATE_HZ * 1.02 && all <= Math.max(rateHz * 1.25, MAX_RATE_HZ * 0.9);
  const rates = isAll
    ? `${hasFilter ? 'matching' : 'all'} ${figure(rateHz)} events/s`
    : `${figure(limited)} of ${figure(all)} events/s`;
  const stays = dropped || kept >= MAX_EVENTS ? `the last ${number(kept)} stay` : '';
  return [rates, stays].filter(Boolean).join(', ');
}
