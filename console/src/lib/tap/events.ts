/** The events that a tap keeps: the newest few hundred, with at most so many bytes of payloads. */
import { kindOf, type PayloadKind } from './payloads';

export interface TapEvent {
  /** Unique in this tap. */
  key: number;
  /** The event ID, if the node told it. */
  id: string;
  channel: string;
  publisher: string;
  /** When it came to the page, in the node's time. */
  atMs: number;
  qos: number;
  isRetained: boolean;
  size: number;
  kind: PayloadKind;
  contentType: string;
  /** Undefined once there is no room for it. */
  payload: Uint8Array | undefined;
  attributes: Record<string, string>;
  metadata: string;
  shapedFrom: number;
}

export interface Arrival {
  topic: string;
  payload: Uint8Array;
  qos: number;
  retain: boolean;
  properties?: {
    contentType?: string;
    userProperties?: Record<string, string | string[] | undefined>;
  };
}

export const MAX_EVENTS = 500;
export const MAX_PAYLOAD_BYTES = 64e6;
export const MAX_RATE_HZ = 200;
const MAX_ATTRIBUTES = 200;
const RESERVED = new Set([
  'metadata',
  'accord-event',
  'accord-node',
  'accord-publisher',
  'accord-received-ms',
  'shaped-from',
]);

/** Make an event of what MQTT delivered. */
export function eventOf(arrival: Arrival, key: number, atMs: number): TapEvent {
  const found = arrival.properties?.userProperties ?? {};
  const one = (name: string): string => {
    const value = Object.hasOwn(found, name) ? found[name] : undefined;
    return (Array.isArray(value) ? value[0] : value) ?? '';
  };
  const attributes: Record<string, string> = Object.create(null) as Record<string, string>;
  let count = 0;
  for (const name of Object.keys(found)) {
    if (RESERVED.has(name) || count >= MAX_ATTRIBUTES) continue;
    attributes[name] = one(name);
    count += 1;
  }
  const contentType = arrival.properties?.contentType ?? '';
  return {
    key,
    id: one('accord-event'),
    channel: arrival.topic,
    publisher: one('accord-publisher'),
    atMs,
    qos: arrival.qos,
    isRetained: arrival.retain,
    size: arrival.payload.length,
    kind: kindOf(arrival.payload, contentType),
    contentType,
    payload: arrival.payload,
    attributes,
    metadata: one('metadata'),
    shapedFrom: Number(one('shaped-from')) || 0,
  };
}

/**
 * Newest first, bounded in number and bytes. While it is held (paused, or somebody points at a row) the events shown stay
 * as they are; newer ones wait, as many as would be shown. What is given up is counted.
 */
export class TapBuffer {
  /** Newest first. Replaced with each change. */
  events: readonly TapEvent[] = [];
  /** All that came since the tap, or its filter, began. */
  matched = 0;
  /** Not kept, because more came in a second than is shown. */
  skipped = 0;
  /** Kept before, given up for newer ones. */
  dropped = 0;
  isHeld = false;
  #waiting: TapEvent[] = [];
  #bytes = 0;
  #second = 0;
  #inSecond = 0;
  #next = 1;
  readonly #maxEvents: number;
  readonly #maxBytes: number;
  readonly #maxHz: number;

  constructor(maxEvents = MAX_EVENTS, maxBytes = MAX_PAYLOAD_BYTES, maxHz = MAX_RATE_HZ) {
    this.#maxEvents = maxEvents;
    this.#maxBytes = maxBytes;
    this.#maxHz = maxHz;
  }

  /** Of all payloads that are kept. */
  get bytes(): number {
    return this.#bytes;
  }

  /** How many newer events wait while it is held. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Take what came. It is in `events` after the next `flush`. Returns whether it is kept. */
  add(arrival: Arrival, atMs: number): boolean {
    this.matched += 1;
    const second = Math.floor(atMs / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#inSecond = 0;
    }
    this.#inSecond += 1;
    if (this.#inSecond > this.#maxHz) {
      this.skipped += 1;
      return false;
    }
    const event = eventOf(arrival, this.#next++, atMs);
    this.#waiting.push(event);
    this.#bytes += event.size;
    while (this.#waiting.length > this.#maxEvents || (this.#waiting.length > 1 && this.#bytes > 2 * this.#maxBytes)) {
      this.#forget(this.#waiting.shift()!);
      this.dropped += 1;
    }
    return true;
  }

  /** Bring `events` up to date, unless it is held. Returns whether they changed. */
  flush(): boolean {
    if (this.isHeld || !this.#waiting.length) return false;
    const all = [...this.#waiting.toReversed(), ...this.events];
    this.#waiting = [];
    for (const gone of all.splice(this.#maxEvents)) {
      this.#forget(gone);
      this.dropped += 1;
    }
    for (let i = all.length - 1; i > 0 && this.#bytes > this.#maxBytes; i -= 1) this.#forget(all[i]!);
    this.events = all;
    return true;
  }

  /** Begin anew: another filter. */
  clear(): void {
    for (const each of [...this.events, ...this.#waiting]) this.#forget(each);
    this.events = [];
    this.#waiting = [];
    this.matched = this.skipped = this.dropped = 0;
  }

  #forget(event: TapEvent): void {
    this.#bytes -= event.payload?.length ?? 0;
    event.payload = undefined;
  }
}
