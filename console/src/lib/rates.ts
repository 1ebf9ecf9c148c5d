/** Rates per channel over the last 15 minutes, as a page collects them while it is open. */
export const RATES_MS = 900_000;
const MOST_CHANNELS = 60;
const MOST_POINTS = 1_000;

export interface Points {
  times: number[];
  values: number[];
}

const NO_POINTS: Points = { times: [], values: [] };

export class Rates {
  readonly #byChannel = new Map<string, Points>();
  /** Rises with each change, because points are changed in place. */
  version = 0;

  of(channel: string): Points {
    return this.#byChannel.get(channel) ?? NO_POINTS;
  }

  get startMs(): number {
    let found = Infinity;
    for (const { times } of this.#byChannel.values()) found = Math.min(found, times[0] ?? Infinity);
    return Number.isFinite(found) ? found : 0;
  }

  /** Rates of a moment. Those of more than 60 channels are not kept: the first count. */
  add(ms: number, rates: Iterable<readonly [channel: string, hz: number]>): void {
    for (const [channel, hz] of rates) {
      let points = this.#byChannel.get(channel);
      if (!points) {
        if (this.#byChannel.size >= MOST_CHANNELS) continue;
        this.#byChannel.set(channel, (points = { times: [], values: [] }));
      }
      const { times, values } = points;
      const last = times.at(-1) ?? -Infinity;
      if (ms < last) continue;
      if (ms - last < 500) {
        values[values.length - 1] = hz;
        continue;
      }
      times.push(ms);
      values.push(hz);
      // In steps, so that not every point moves the others.
      if (times.length > MOST_POINTS || times[0]! < ms - RATES_MS - 60_000) {
        let old = times.findIndex((each) => each >= ms - RATES_MS);
        old = Math.max(old, times.length - MOST_POINTS + 100, 0);
        times.splice(0, old);
        values.splice(0, old);
      }
    }
    this.version += 1;
  }

  clear(): void {
    this.#byChannel.clear();
    this.version += 1;
  }
}
