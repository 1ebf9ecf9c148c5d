/** Points collected while the page is open, for values that no series of the node has. */
import type { Points } from './series.svelte';

const MAX_POINTS = 3_600;
const EMPTY: Points = { times: [], values: [] };

export class Collected {
  version = $state(0);
  #points = new Map<string, Points>();

  add(atMs: number, values: Record<string, number | undefined>): void {
    let isNew = false;
    for (const [name, value] of Object.entries(values)) {
      if (value === undefined) continue;
      let points = this.#points.get(name);
      if (!points) this.#points.set(name, (points = { times: [], values: [] }));
      if (atMs - (points.times.at(-1) ?? 0) < 900) continue;
      points.times.push(atMs);
      points.values.push(value);
      if (points.times.length > MAX_POINTS) {
        points.times.splice(0, 60);
        points.values.splice(0, 60);
      }
      isNew = true;
    }
    if (isNew) this.version += 1;
  }

  of(name: string): Points {
    void this.version;
    return this.#points.get(name) ?? EMPTY;
  }
}
