/** Events on a time line: a lane per channel, the busiest first, the others together. */
import type { HistoryEvent } from './events';

export interface Lane {
  /** Undefined: all other channels. */
  channel: string | undefined;
  events: HistoryEvent[];
}

export function lanes(events: readonly HistoryEvent[], most = 12): Lane[] {
  const found = new Map<string, HistoryEvent[]>();
  for (const event of events) {
    const lane = found.get(event.channel);
    if (lane) lane.push(event);
    else found.set(event.channel, [event]);
  }
  const sorted = [...found].sort((a, b) => b[1].length - a[1].length || (a[0] < b[0] ? -1 : 1));
  const shown: Lane[] = sorted
    .slice(0, sorted.length > most ? most - 1 : most)
    .map(([channel, each]) => ({ channel, events: each }));
  const rest = sorted.slice(shown.length);
  if (rest.length) shown.push({ channel: undefined, events: rest.flatMap(([, each]) => each) });
  return shown;
}

/** First and last time, never the same. */
export function rangeOf(events: readonly HistoryEvent[]): [fromMs: number, toMs: number] {
  let from = Infinity;
  let to = -Infinity;
  for (const event of events) {
    from = Math.min(from, event.atMs);
    to = Math.max(to, event.atMs);
  }
  if (from > to) return [0, 1];
  const margin = Math.max(1, (to - from) * 0.02);
  return [from - margin, to + margin];
}

/** The event of a lane that is nearest to a time. */
export function nearest(events: readonly HistoryEvent[], ms: number): HistoryEvent | undefined {
  let best: HistoryEvent | undefined;
  for (const event of events) if (!best || Math.abs(event.atMs - ms) < Math.abs(best.atMs - ms)) best = event;
  return best;
}
