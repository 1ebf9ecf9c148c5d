/** Sentences of the History page. */
import { age, count, duration, number, plain, share, time } from '$lib/format';
import { readShare, type Counts } from './counts';
import { spanWords, type HistoryView } from './view';

export interface Progress {
  view: HistoryView;
  known: number;
  hasMore: boolean;
  isReading: boolean;
  isStopped: boolean;
  counts: Counts | undefined;
  sinceMs: number | undefined;
  startedMs: number;
  reachedMs: number | undefined;
  nowMs: number;
}

const channelWords = (channel: string): string => (channel === '#' ? '' : ` of ${plain(channel, 60)}`);

/** What was found. */
export function sentence(found: Progress): string {
  const { view, known, hasMore, counts } = found;
  const what = channelWords(view.channel);
  const span = spanWords(view, (ms) => time(ms, { now: found.nowMs }));
  const matching = view.where || view.xpath ? ' that match' : '';
  if (found.isReading && !known) return `Looking for events${what} ${span}…`;
  if (found.isStopped && !known) return `Stopped before an event${what} was found.`;
  if (counts?.isComplete) return `${count(Math.max(counts.total, known), 'event')}${what}${matching} ${span}.`;
  if (hasMore) return `The newest ${count(known, 'event')}${what}${matching} ${span}.`;
  return `${count(known, 'event')}${what}${matching} ${span}.`;
}

/** How far a question is that takes long; empty once it is answered. */
export function progress(found: Progress): string {
  const took = found.nowMs - found.startedMs;
  if (found.isReading && took > 800) {
    const parts = [`${duration(took)} so far`];
    if (found.reachedMs !== undefined) {
      parts.unshift(`looked back to ${time(found.reachedMs, { now: found.nowMs })}`);
      if (found.sinceMs !== undefined && found.startedMs > found.sinceMs)
        parts.push(share(Math.min(1, (found.startedMs - found.reachedMs) / (found.startedMs - found.sinceMs)), 0));
    }
    return parts.join(', ');
  }
  if (found.counts && !found.counts.isComplete)
    return `${share(readShare(found.counts), 0)} of the time counted: ${number(found.counts.total)} so far`;
  return '';
}

/** Why nothing may have been found. */
export function nothingWords(view: HistoryView, hint = ''): string {
  if (hint) return `${hint.charAt(0).toUpperCase()}${plain(hint.slice(1), 500)}.`;
  if (view.where || view.xpath) return 'Try without the condition, or look further back.';
  return 'Look further back, or see whether the channel is kept: [[keep]] in accord.toml.';
}

/** How old the newest row is. */
export const ageWords = (ms: number, nowMs: number): string => `${age(nowMs - ms)} ago`;
