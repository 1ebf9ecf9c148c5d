/**
 * A question that goes on: what comes after its newest row, first from the history, then live, without gap or duplicate.
 *
 * The page subscribes over its own connection with `since`, the time of the newest row. What was received in that very
 * millisecond comes again and is left out. After a lost connection it asks again from a little before the newest event.
 */
import { live } from '$lib/live.svelte';
import { connectMqtt, type IPublishPacket, type MqttClient } from '$lib/mqtt';
import { asProblem, type ProblemError } from '$lib/problem';
import { refusalOf, type Refusal, type Suback } from '$lib/refusal';
import { eventOf } from '$lib/tap/events';
import type { HistoryEvent } from './events';
import { MOST_EVENTS, newest, Seen } from './seen';
import { iso, type HistoryView } from './view';

const SHOW_MS = 250;
const MARGIN_MS = 5_000;
const MIN_BACKOFF_MS = 1_000;
const MAX_BACKOFF_MS = 20_000;

export class GoOn {
  status = $state<'connecting' | 'live' | 'lost' | 'refused'>('connecting');
  problem = $state.raw<ProblemError>();
  refusal = $state.raw<Refusal>();
  /** Said by the node when it closed the connection. */
  ended = $state('');
  /** What came since, newest first. */
  events = $state.raw<readonly HistoryEvent[]>([]);
  count = $state(0);
  /** Older ones had to give way. */
  dropped = $state(0);
  waiting = $state(0);
  /** Rows stay where they are while somebody looks at them. */
  isHeld = $state(false);
  startedMs = $state(0);

  readonly view: HistoryView;
  #seen: Seen;
  #sinceMs: number;
  #waiting: HistoryEvent[] = [];
  #mqtt: MqttClient | undefined;
  #isEnded = false;
  #attempts = 0;
  #next = -1;
  #timer: ReturnType<typeof setInterval>;
  #retry: ReturnType<typeof setTimeout> | undefined;

  /** `sinceMs`: the newest row's time, or when nothing was found the time of the question. */
  constructor(view: HistoryView, sinceMs: number, rows: readonly HistoryEvent[]) {
    this.view = view;
    this.startedMs = live.nowMs();
    this.#sinceMs = sinceMs;
    this.#seen = new Seen(sinceMs, rows);
    this.#timer = setInterval(() => this.show(), SHOW_MS);
    void this.#connect();
  }

  end(): void {
    this.#isEnded = true;
    clearInterval(this.#timer);
    clearTimeout(this.#retry);
    this.#close();
  }

  /** Show what waits. */
  show(isAnyway = false): void {
    this.waiting = this.#waiting.length;
    if (!this.#waiting.length || (this.isHeld && !isAnyway)) return;
    const all = [...this.#waiting.toReversed(), ...this.events];
    this.#waiting = [];
    this.waiting = 0;
    this.events = newest(all);
    this.dropped += all.length - this.events.length;
  }

  #close(): void {
    const old = this.#mqtt;
    this.#mqtt = undefined;
    if (!old) return;
    old.removeAllListeners();
    old.on('error', () => undefined);
    old.end(true);
  }

  async #connect(): Promise<void> {
    this.problem = undefined;
    let mqtt: MqttClient;
    try {
      mqtt = await connectMqtt({ properties: { userProperties: { 'event-names': 'yes' } } });
    } catch (error) {
      this.problem = asProblem(error);
      this.#again();
      return;
    }
    this.#mqtt = mqtt;
    if (this.#isEnded) return this.#close();
    mqtt.on('message', (channel, payload, packet) => this.#take(channel, payload, packet));
    mqtt.on('disconnect', (packet) => {
      this.ended = packet.properties?.reasonString ?? '';
    });
    mqtt.on('error', (error) => {
      this.problem = asProblem(error);
    });
    mqtt.on('close', () => {
      if (mqtt !== this.#mqtt) return;
      this.#close();
      this.#again();
    });
    mqtt.on('connect', () => this.#subscribe(mqtt));
  }

  #subscribe(mqtt: MqttClient): void {
    const { channel, where, xpath } = this.view;
    const userProperties = { since: iso(this.#sinceMs), ...(where && { where }), ...(xpath && { xpath }) };
    mqtt.subscribe(channel, { qos: 1, properties: { userProperties } }, (error, _granted, packet) => {
      if (this.#isEnded || mqtt !== this.#mqtt) return;
      const suback = (packet ?? (error as { packet?: unknown } | null)?.packet) as Suback | undefined;
      this.refusal = error || suback ? refusalOf(channel, suback) : undefined;
      this.status = this.refusal ? 'refused' : 'live';
      if (this.refusal) this.#close();
      else this.#attempts = 0;
    });
  }

  #again(): void {
    if (this.#isEnded || this.status === 'refused') return;
    if (this.count) this.#sinceMs = Math.max(this.#sinceMs, (this.#newestMs() ?? 0) - MARGIN_MS);
    const limit = Math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** this.#attempts++);
    this.status = 'lost';
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => void this.#connect(), limit / 2 + (Math.random() * limit) / 2);
  }

  #newestMs(): number | undefined {
    return (this.#waiting.at(-1) ?? this.events[0])?.atMs;
  }

  #take(topic: string, payload: Uint8Array, packet: IPublishPacket): void {
    if (packet.retain) return; // it was kept before, and is in the rows
    const said = packet.properties?.userProperties?.['accord-received-ms'];
    const receivedMs = Number(Array.isArray(said) ? said[0] : said) || undefined;
    const arrival = {
      topic,
      payload,
      qos: packet.qos,
      retain: false,
      ...(packet.properties && { properties: packet.properties as never }),
    };
    const event: HistoryEvent = { ...eventOf(arrival, this.#next--, receivedMs ?? live.nowMs()), problem: '' };
    if (!this.#seen.isNew(event, receivedMs)) return;
    this.count += 1;
    this.#waiting.push(event);
    if (this.#waiting.length > MOST_EVENTS) {
      this.#waiting.shift();
      this.dropped += 1;
    }
  }
}
