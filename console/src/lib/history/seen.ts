/** What the page has already, where history and live events meet, and how much of them it keeps. */
import { sizeOf, type HistoryEvent } from './events';

export const MOST_EVENTS = 2_000;
const MOST_BYTES = 32e6;

/** Leaves out what the page has already. */
export class Seen {
  #atEdge: HistoryEvent[];
  #ids = new Set<string>();
  readonly edgeMs: number;

  constructor(edgeMs: number, rows: readonly HistoryEvent[]) {
    this.edgeMs = edgeMs;
    this.#atEdge = rows.filter((row) => row.atMs === edgeMs);
  }

  /** Whether it is new; it is known from then on. */
  isNew(event: HistoryEvent, receivedMs: number | undefined): boolean {
    if (receivedMs === this.edgeMs) {
      // Events of other nodes have the name that they have there, so their content counts.
      const at = this.#atEdge.findIndex((row) => row.id === event.id || isSame(row, event));
      if (at >= 0) {
        this.#atEdge.splice(at, 1);
        return false;
      }
    }
    if (!event.id) return true;
    if (this.#ids.has(event.id)) return false;
    this.#ids.add(event.id);
    if (this.#ids.size > 2 * MOST_EVENTS) this.#ids = new Set([...this.#ids].slice(-MOST_EVENTS));
    return true;
  }
}

function isSame(one: HistoryEvent, other: HistoryEvent): boolean {
  if (one.channel !== other.channel || one.size !== other.size) return false;
  const [a, b] = [one.payload, other.payload];
  return !!a && !!b && a.every((byte, i) => byte === b[i]);
}

/** The newest so many of these events, newest first, with so many bytes. */
export function newest(events: readonly HistoryEvent[], most = MOST_EVENTS, bytes = MOST_BYTES): HistoryEvent[] {
  let left = bytes;
  let count = 0;
  for (const event of events) {
    left -= sizeOf(event);
    if (count >= most || (left < 0 && count)) break;
    count += 1;
  }
  return events.slice(0, count);
}
