/**
 * The network of the last hour, as far as it is known here: the history that the node keeps, and then what it sends
 * live. Any moment of it can be asked for.
 */
import { happeningsOf, type Happening } from './happenings';
import { idOf, Snapshot, type Change, type NetArrival, type NetLink } from './rows';

const KEPT_MS = 3_600_000;
const MAX_CHANGES = 40_000;
const MAX_HAPPENINGS = 300;
const MAX_POINTS = 720;
const USUAL_FRESH_MS = 10_000;
const MAX_LATENCIES = 120; // of one link
const USUALS_AT_ONCE = 200; // computed again in one step

export interface Step {
  atMs: number;
  changes: Change[];
}

/** A value over time. */
class Points {
  readonly times: number[] = [];
  readonly values: number[][] = [];

  constructor(readonly most = MAX_POINTS) {}

  add(atMs: number, value: number[]): void {
    this.times.push(atMs);
    this.values.push(value);
    if (this.times.length > this.most) {
      this.times.splice(0, this.most / 4);
      this.values.splice(0, this.most / 4);
    }
  }

  /** The index of the last one until then; -1 if none. */
  indexAt(atMs: number): number {
    let low = 0;
    let high = this.times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle]! <= atMs) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}

export class Timeline {
  /** The network now. */
  current = new Snapshot();
  readonly steps: Step[] = [];
  /** What happened, the oldest first. */
  happenings: Happening[] = [];
  fromMs: number;
  lastMs: number;
  #base = new Snapshot();
  #changes = 0;
  #latencies = new Map<string, Points>();
  #usualsLeft = USUALS_AT_ONCE;
  #usual = new Map<string, { atMs: number; value: number }>();
  #counts = new Map<string, Points>();
  #cursor: { index: number; snapshot: Snapshot } | undefined;

  constructor(fromMs: number, rows: readonly Change[] = []) {
    this.fromMs = fromMs;
    this.lastMs = fromMs;
    for (const change of rows) {
      this.#base.apply(change);
      this.current.apply(change);
      this.#measure(change, fromMs);
    }
  }

  add(atMs: number, changes: Change[]): void {
    if (!changes.length) return;
    const now = Math.max(atMs, this.lastMs);
    this.lastMs = now;
    this.#usualsLeft = USUALS_AT_ONCE;
    for (const each of happeningsOf(this.current, changes, now, (id) => this.usualMs(id, now))) this.#note(each);
    for (const change of changes) {
      this.current.apply(change);
      this.#measure(change, now);
    }
    this.steps.push({ atMs: now, changes });
    this.#changes += changes.length;
    this.#limit(now);
  }

  /** The network as of that moment. Valid until the next call. */
  at(atMs: number): Snapshot {
    const index = this.indexAt(atMs);
    let cursor = this.#cursor;
    if (!cursor || cursor.index > index) cursor = this.#cursor = { index: -1, snapshot: this.#base.copy() };
    while (cursor.index < index)
      for (const change of this.steps[++cursor.index]!.changes) cursor.snapshot.apply(change);
    return cursor.snapshot;
  }

  /** A copy of the network as it was at first. */
  first(): Snapshot {
    return this.#base.copy();
  }

  /** The last step until then; -1 if none. */
  indexAt(atMs: number): number {
    let low = 0;
    let high = this.steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.steps[middle]!.atMs <= atMs) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /** What a link usually takes: a quarter of the time it took less. */
  usualMs(id: string, now: number): number | undefined {
    const cached = this.#usual.get(id);
    if (cached && (now - cached.atMs < USUAL_FRESH_MS || this.#usualsLeft <= 0)) return cached.value;
    this.#usualsLeft -= 1;
    const points = this.#latencies.get(id);
    if (!points) return undefined;
    const spans = points.times.map((at, i) => [points.values[i]![0]!, (points.times[i + 1] ?? now) - at] as const);
    const total = spans.reduce((sum, [, span]) => sum + span, 0);
    let left = total / 4;
    let value = points.values[0]![0]!;
    for (const [ms, span] of spans.toSorted((a, b) => a[0] - b[0])) {
      value = ms;
      left -= span;
      if (left < 0) break;
    }
    this.#usual.set(id, { atMs: now, value });
    return value;
  }

  /** Events that arrived in the time before a moment, and how many of them late; undefined if that is not known. */
  arrived(
    id: string,
    atMs: number,
    windowMs = 60_000,
  ): { delivered: number; late: number; spanMs: number } | undefined {
    const points = this.#counts.get(id);
    const last = points?.indexAt(atMs) ?? -1;
    if (!points || last < 0) return undefined;
    const first = Math.max(0, points.indexAt(atMs - windowMs));
    if (first === last && atMs - points.times[last]! < windowMs) return undefined; // one count says nothing
    const [delivered, late] = points.values[last]!;
    const [before, lateBefore] = points.values[first]!;
    if (delivered! < before!) return undefined; // that node restarted
    return { delivered: delivered! - before!, late: late! - lateBefore!, spanMs: atMs - points.times[first]! };
  }

  #measure({ kind, of, key, row }: Change, atMs: number): void {
    if (!row) return;
    const id = idOf(of, key);
    if (kind === 'link') {
      const link = row as NetLink;
      if (link.is_used !== false) this.#points(this.#latencies, id, MAX_LATENCIES).add(atMs, [link.latency_us / 1000]);
    } else if (kind === 'arrival') {
      const arrival = row as NetArrival;
      this.#points(this.#counts, id).add(atMs, [arrival.delivered, arrival.late]);
    }
  }

  #points(all: Map<string, Points>, id: string, most = MAX_POINTS): Points {
    let found = all.get(id);
    if (!found) all.set(id, (found = new Points(most)));
    return found;
  }

  #note(happening: Happening): void {
    // Both ends report a link: said once.
    const isKnown = this.happenings.some((each) => each.id === happening.id && happening.atMs - each.atMs < 2_000);
    if (isKnown) return;
    this.happenings.push(happening);
    if (this.happenings.length > MAX_HAPPENINGS) this.happenings = this.happenings.slice(-MAX_HAPPENINGS);
  }

  #limit(now: number): void {
    let count = 0;
    while (count < this.steps.length - 1 && (this.steps[count]!.atMs < now - KEPT_MS || this.#changes > MAX_CHANGES)) {
      const step = this.steps[count++]!;
      for (const change of step.changes) this.#base.apply(change);
      this.#changes -= step.changes.length;
      this.fromMs = step.atMs;
    }
    if (!count) return;
    this.steps.splice(0, count);
    this.happenings = this.happenings.filter((each) => each.atMs >= this.fromMs);
    this.#cursor = undefined;
  }
}
