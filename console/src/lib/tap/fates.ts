/** What became of each event at its destinations, joined from outcomes by event ID. Bounded. */
import { fateOf, type Fate } from '$parts/fates';

export interface OutcomeOf {
  event: string;
  destination: string;
  outcome: string;
  publisher: string;
  count: number;
  received_ms: number;
  done_ms: number;
}

export interface Tally {
  publisher: string;
  /** Destinations by fate, of those that are known. */
  counts: Partial<Record<Fate, number>>;
  total: number;
  /** The longest time from receipt to outcome. */
  worstMs: number;
}

/** In the order in which they are drawn: what went well first. */
export const FATE_ORDER: Fate[] = ['in-time', 'shaped', 'replaced', 'late', 'expired', 'shed', 'refused'];
const BAD: Fate[] = ['refused', 'shed', 'expired', 'late'];

export class FateBook {
  /** Rises with each change. */
  version = 0;
  readonly #tallies = new Map<string, Tally & { seen: Map<string, Fate> }>();
  readonly #maxEvents: number;
  readonly #maxDestinations: number;

  constructor(maxEvents = 1_500, maxDestinations = 200) {
    this.#maxEvents = maxEvents;
    this.#maxDestinations = maxDestinations;
  }

  /** Take outcomes; those known already change nothing. `isOwn` says of a destination that it is this page. */
  take(outcomes: Iterable<OutcomeOf>, isOwn: (destination: string) => boolean = () => false): void {
    let isNew = false;
    for (const each of outcomes) {
      let tally = this.#tallies.get(each.event);
      if (!tally) {
        tally = { publisher: '', counts: {}, total: 0, worstMs: 0, seen: new Map() };
        this.#tallies.set(each.event, tally);
        if (this.#tallies.size > this.#maxEvents) this.#tallies.delete(this.#tallies.keys().next().value!);
      }
      if (!tally.publisher && each.publisher) {
        tally.publisher = each.publisher;
        isNew = true;
      }
      if (isOwn(each.destination)) continue;
      const fate = fateOf(each.outcome);
      const before = tally.seen.get(each.destination);
      if (before === fate) continue;
      if (before === undefined && tally.seen.size >= this.#maxDestinations) continue;
      if (before !== undefined) tally.counts[before] = (tally.counts[before] ?? 1) - 1;
      else tally.total += 1;
      tally.seen.set(each.destination, fate);
      tally.counts[fate] = (tally.counts[fate] ?? 0) + 1;
      tally.worstMs = Math.max(tally.worstMs, each.done_ms - each.received_ms);
      isNew = true;
    }
    if (isNew) this.version += 1;
  }

  of(event: string): Tally | undefined {
    return event ? this.#tallies.get(event) : undefined;
  }

  get size(): number {
    return this.#tallies.size;
  }

  clear(): void {
    this.#tallies.clear();
    this.version += 1;
  }
}

/** The worst fate of an event, if something went wrong. */
export function worstOf(tally: Tally | undefined): { fate: Fate; count: number } | undefined {
  for (const fate of BAD) {
    const count = tally?.counts[fate] ?? 0;
    if (count) return { fate, count };
  }
  return undefined;
}
