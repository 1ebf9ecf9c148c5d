/** Points of series for graphs: 15 minutes of history asked once, then what comes live. */
import type { SeriesHistory } from '$api/contract';
import { request, queryOf } from './api';
import { live, watch } from './live.svelte';
import { asProblem } from './problem';

export const WINDOW_MS = 15 * 60_000;
const MAX_POINTS = 3_600;
const MAX_NAMES = 64;

export interface Points {
  times: number[];
  values: number[];
}

const MAX_QUERY = 6_000; // characters of names in one address

const EMPTY: Points = { times: [], values: [] };

export class SeriesPoints {
  /** Rises when points were added. */
  version = $state(0);
  isLoaded = $state(false);
  points = new Map<string, Points>();
  readonly #watch;

  constructor(names: () => readonly string[], sinceMs: () => number) {
    const wanted = $derived([...new Set(names())].slice(0, MAX_NAMES));
    const key = $derived(JSON.stringify(wanted));
    this.#watch = watch('series', () => (wanted.length ? { names: wanted, limit: wanted.length } : undefined));
    let connections = 0;
    let filled = new Set<string>();
    $effect(() => {
      void key;
      if (live.status !== 'live' && connections) {
        filled = new Set(); // what is missed meanwhile is asked again
        return;
      }
      connections += 1;
      const missing = wanted.filter((name) => !filled.has(name));
      for (const name of missing) filled.add(name);
      for (const part of inParts(missing)) void this.#fill(part, sinceMs());
    });
    $effect(() => {
      const rows = this.#watch.state?.rows;
      if (!rows) return;
      let isNew = false;
      for (const [name, row] of Object.entries(rows)) if (this.#append(name, row.last_ms, row.last)) isNew = true;
      if (isNew) this.version += 1;
    });
  }

  /** The points of one series, oldest first; reactive. The arrays are changed in place. */
  of(name: string): Points {
    void this.version;
    return this.points.get(name) ?? EMPTY;
  }

  get rows() {
    return this.#watch.state?.rows ?? {};
  }

  async #fill(names: readonly string[], sinceMs: number): Promise<void> {
    if (!names.length) return;
    try {
      const query = queryOf({ name: names, since_ms: Math.floor(sinceMs) });
      const found = (await request('get', `/api/v1/series-history${query}`)) as SeriesHistory;
      for (const [name, { times_ms, values }] of Object.entries(found.series)) {
        const later = this.points.get(name);
        const last = times_ms.at(-1) ?? 0;
        const times = [...times_ms];
        const kept = [...values];
        later?.times.forEach((at, i) => {
          if (at > last) {
            times.push(at);
            kept.push(later.values[i]!);
          }
        });
        this.points.set(name, { times, values: kept });
      }
    } catch (error) {
      asProblem(error); // the graph begins now
    }
    this.isLoaded = true;
    this.version += 1;
  }

  #append(name: string, at: number, value: number): boolean {
    let points = this.points.get(name);
    if (!points) this.points.set(name, (points = { times: [], values: [] }));
    if (at <= (points.times.at(-1) ?? 0)) return false;
    points.times.push(at);
    points.values.push(value);
    if (points.times.length > MAX_POINTS) {
      points.times.splice(0, 60);
      points.values.splice(0, 60);
    }
    return true;
  }
}

/** The points of these series while the component is shown. Call it while the component is initialised. */
export function seriesPoints(names: () => readonly string[], windowMs: () => number = () => WINDOW_MS): SeriesPoints {
  return new SeriesPoints(names, () => live.nowMs() - windowMs());
}

/** Names that fit into one address each; longer ones have no history, only what comes live. */
function inParts(names: readonly string[]): string[][] {
  const parts: string[][] = [];
  let size = Infinity;
  for (const name of names) {
    const length = encodeURIComponent(name).length + 6;
    if (length > MAX_QUERY) continue;
    if (size + length > MAX_QUERY) {
      parts.push([]);
      size = 0;
    }
    parts.at(-1)!.push(name);
    size += length;
  }
  return parts;
}
