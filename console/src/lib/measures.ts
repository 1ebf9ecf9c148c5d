/** What a page that subscribes measures itself: counts, rates and latencies by channel. */

const RATE_S = 10;
const MOST_LATENCIES = 400;
const MOST_CHANNELS = 500;
const MOST_SOURCES = 1_000;
const MOST_ARRIVALS = 3_000;
const MOST_DOTS = 600;

export interface Measure {
  channel: string;
  received: number;
  bytes: number;
  shaped: number;
  /** From history or retained: not live, so without a latency. */
  old: number;
  lastMs: number;
  sources: Set<string>;
  late: number;
  latencies: number[];
  seconds: Map<number, number>;
}

export interface Arrival {
  channel: string;
  /** Over the whole backbone; '' if the node doesn't say. */
  event: string;
  atMs: number;
  bytes: number;
  fromBytes: number;
  isOld: boolean;
  /** When the node received it, if it says so. */
  receivedMs?: number | undefined;
}

export class Measures {
  readonly #byChannel = new Map<string, Measure>();
  /** When events arrived whose outcome the node has not told yet. */
  readonly #arrivals = new Map<string, Arrival>();
  readonly #dots: [atMs: number, channel: string, latencyMs: number, outcome: string][] = [];
  received = 0;
  bytes = 0;
  /** Of channels beyond the 500th. */
  uncounted = 0;

  get channels(): Measure[] {
    return [...this.#byChannel.values()];
  }

  get dots(): readonly [number, string, number, string][] {
    return this.#dots;
  }

  of(channel: string): Measure | undefined {
    return this.#byChannel.get(channel);
  }

  add(arrival: Arrival): void {
    this.received += 1;
    this.bytes += arrival.bytes;
    let found = this.#byChannel.get(arrival.channel);
    if (!found) {
      if (this.#byChannel.size >= MOST_CHANNELS) {
        this.uncounted += 1;
        return;
      }
      found = {
        channel: arrival.channel,
        received: 0,
        bytes: 0,
        shaped: 0,
        old: 0,
        lastMs: 0,
        sources: new Set(),
        late: 0,
        latencies: [],
        seconds: new Map(),
      };
      this.#byChannel.set(arrival.channel, found);
    }
    found.received += 1;
    found.bytes += arrival.bytes;
    found.lastMs = arrival.atMs;
    if (arrival.fromBytes) found.shaped += 1;
    const second = Math.floor(arrival.atMs / 1_000);
    found.seconds.set(second, (found.seconds.get(second) ?? 0) + 1);
    if (found.seconds.size > RATE_S + 5) {
      for (const each of found.seconds.keys()) if (each < second - RATE_S) found.seconds.delete(each);
    }
    if (arrival.isOld) {
      found.old += 1;
      return;
    }
    if (arrival.event) {
      this.#arrivals.set(arrival.event, arrival);
      if (this.#arrivals.size > MOST_ARRIVALS) this.#arrivals.delete(this.#arrivals.keys().next().value!);
    }
  }

  /** An outcome of the node: when it received the event, from whom. Returns the latency, measured in the page. */
  join(outcome: {
    event: string;
    channel: string;
    publisher: string;
    received_ms: number;
    outcome: string;
  }): number | undefined {
    const arrival = this.#arrivals.get(outcome.event);
    if (!arrival || arrival.channel !== outcome.channel) return undefined;
    this.#arrivals.delete(outcome.event);
    const latency = Math.max(0, arrival.atMs - outcome.received_ms);
    this.#addLatency(arrival, latency, outcome.outcome);
    const found = this.#byChannel.get(arrival.channel);
    if (found) {
      if (outcome.publisher && found.sources.size < MOST_SOURCES) found.sources.add(outcome.publisher);
      if (outcome.outcome === 'late') found.late += 1;
    }
    return latency;
  }

  /** An event that did not arrive, for the graph. */
  miss(atMs: number, channel: string, waitedMs: number, outcome: string): void {
    this.#dots.push([atMs, channel, waitedMs, outcome]);
    this.#cutDots();
  }

  #addLatency(arrival: Arrival, latency: number, outcome: string): void {
    const found = this.#byChannel.get(arrival.channel);
    if (!found) return;
    found.latencies.push(latency);
    if (found.latencies.length > MOST_LATENCIES) found.latencies.shift();
    this.#dots.push([arrival.atMs, arrival.channel, latency, outcome]);
    this.#cutDots();
  }

  #cutDots(): void {
    if (this.#dots.length > MOST_DOTS) this.#dots.splice(0, this.#dots.length - MOST_DOTS + 50);
  }

  /** Events per second of a channel over the last 10 s; over fewer while the page is that young. */
  rateHz(channel: string, nowMs: number, startedMs: number): number {
    const found = this.#byChannel.get(channel);
    if (!found) return 0;
    const now = Math.floor(nowMs / 1_000);
    let sum = 0;
    // The second that is not over yet does not count.
    for (const [second, n] of found.seconds) if (second < now && second >= now - RATE_S) sum += n;
    const seconds = Math.max(1, Math.min(RATE_S, now - Math.ceil(startedMs / 1_000)));
    return sum / seconds;
  }
}

/** The value that a share of all doesn't exceed; undefined of none. */
export function quantile(values: readonly number[], part: number): number | undefined {
  if (!values.length) return undefined;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(part * sorted.length) - 1))];
}
