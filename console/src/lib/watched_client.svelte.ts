/**
 * The page as a client: a subscription over the page's own connection, measured as events arrive.
 *
 * Events are only counted when they come; `version` rises at most four times a second, for what shows them.
 */
import type { IPublishPacket, MqttClient } from 'mqtt';
import type { Schemas } from '$api/contract';
import { Causes, isReceived } from './client_view';
import { live } from './live.svelte';
import { Measures } from './measures';
import { connectMqtt } from './mqtt';
import { Pictures } from './pictures';
import { asProblem, type ProblemError } from './problem';
import { Rates } from './rates';
import { refusalOf, type Refusal, type Suback } from './refusal';

export interface Wanted {
  filters: readonly string[];
  where?: string;
  xpath?: string;
  since?: string;
  expect?: string;
}

export interface ExpectationState {
  expectation: string;
  channel: string;
  state: string;
  decision?: string;
  reasons?: { property: string; now: unknown }[];
}

export type WatchStatus = 'idle' | 'connecting' | 'receiving' | 'refused' | 'lost';

const SHOW_MS = 250;
const MIN_BACKOFF_MS = 1_000;
const MAX_BACKOFF_MS = 20_000;
const MOST_EXPECTATIONS = 16;
const MOST_GAPS = 20;

export class WatchedClient {
  status = $state<WatchStatus>('idle');
  /** Its identifier at the node. */
  client = $state('');
  refusal = $state.raw<Refusal>();
  problem = $state.raw<ProblemError>();
  /** Said by the node when it closed the connection. */
  ended = $state('');
  startedMs = $state(0);
  version = $state(0);
  expectations = $state.raw<ExpectationState[]>([]);
  gaps = $state.raw<string[]>([]);

  measures = new Measures();
  rates = new Rates();
  causes = new Causes();
  readonly pictures: Pictures;

  #mqtt: MqttClient | undefined;
  #turn = 0; // of the latest start or stop
  #timer: ReturnType<typeof setInterval> | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #attempts = 0;
  #isChanged = false;
  #joined = new Set<string>();
  #sampledMs = 0;

  constructor(mostPictures = 6) {
    this.pictures = new Pictures(mostPictures, 8, 24_000_000);
  }

  /**
   * Subscribe. `beforeSubscribing` is called once connected, with the client's identifier: what it does, such as setting
   * a limit, counts from the first event on.
   */
  async start(wanted: Wanted, beforeSubscribing?: (client: string) => Promise<void>): Promise<void> {
    this.stop();
    const turn = ++this.#turn;
    this.#forget();
    await this.#connect(wanted, turn, beforeSubscribing);
  }

  stop(): void {
    this.#turn += 1;
    clearTimeout(this.#retry);
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#close();
    this.status = 'idle';
    this.#attempts = 0;
  }

  /** Stop, and free what is kept. Call it when the page is left. */
  end(): void {
    this.stop();
    this.#forget();
    this.client = '';
  }

  /** Outcomes of this client, from the `outcomes` set. */
  takeOutcomes(rows: Record<string, Schemas['DeliveryOutcome']>): void {
    if (!this.client) return;
    this.causes.take(rows, this.client);
    for (const [key, row] of Object.entries(rows)) {
      if (row.destination !== this.client) continue;
      if (isReceived(row.outcome)) this.measures.join(row);
      else if (!this.#joined.has(key) && row.done_ms >= this.startedMs - 1_000) {
        this.#joined.add(key);
        this.measures.miss(row.done_ms, row.channel, Math.max(0, row.done_ms - row.received_ms), row.outcome);
      }
    }
    if (this.#joined.size > 2_000) this.#joined = new Set([...this.#joined].slice(-1_000));
    this.#isChanged = true;
  }

  #forget(): void {
    this.measures = new Measures();
    this.rates = new Rates();
    this.causes = new Causes();
    this.#joined = new Set();
    this.pictures.clear();
    this.refusal = undefined;
    this.problem = undefined;
    this.ended = '';
    this.expectations = [];
    this.gaps = [];
    this.startedMs = 0;
    this.version += 1;
  }

  #close(): void {
    const old = this.#mqtt;
    this.#mqtt = undefined;
    if (!old) return;
    old.removeAllListeners();
    old.on('error', () => undefined);
    old.end(true);
  }

  async #connect(wanted: Wanted, turn: number, beforeSubscribing?: (client: string) => Promise<void>): Promise<void> {
    const isWanted = () => turn === this.#turn;
    this.status = 'connecting';
    this.problem = undefined;
    this.refusal = undefined;
    let mqtt: MqttClient;
    try {
      mqtt = await connectMqtt({ properties: { userProperties: { 'event-names': 'yes' } } });
    } catch (error) {
      if (isWanted()) {
        this.problem = asProblem(error);
        this.#again(wanted, turn, beforeSubscribing);
      }
      return;
    }
    if (!isWanted()) {
      mqtt.on('error', () => undefined);
      mqtt.end(true);
      return;
    }
    this.#mqtt = mqtt;
    this.client = mqtt.options.clientId ?? '';
    mqtt.on('message', (channel, payload, packet) => this.#take(channel, payload, packet));
    mqtt.on('disconnect', (packet) => {
      this.ended = packet.properties?.reasonString ?? '';
    });
    mqtt.on('error', (error) => {
      if (isWanted()) this.problem = asProblem(error);
    });
    mqtt.on('close', () => {
      if (!isWanted() || mqtt !== this.#mqtt) return;
      this.#close();
      this.status = 'lost';
      this.#again(wanted, turn, beforeSubscribing);
    });
    mqtt.on('connect', () => void this.#subscribe(mqtt, wanted, turn, beforeSubscribing));
  }

  async #subscribe(
    mqtt: MqttClient,
    wanted: Wanted,
    turn: number,
    beforeSubscribing?: (client: string) => Promise<void>,
  ): Promise<void> {
    try {
      await beforeSubscribing?.(this.client);
    } catch (error) {
      if (turn !== this.#turn) return;
      this.#close();
      this.problem = asProblem(error);
      this.status = 'refused';
      return;
    }
    if (turn !== this.#turn || mqtt !== this.#mqtt) return;
    this.#attempts = 0;
    const notices = ['$accord/history', ...(wanted.expect ? ['$accord/expectations'] : [])];
    mqtt.subscribe(notices, { qos: 1 }, () => undefined);
    const userProperties: Record<string, string> = {};
    for (const name of ['where', 'xpath', 'since', 'expect'] as const)
      if (wanted[name]) userProperties[name] = wanted[name];
    let left = wanted.filters.length;
    for (const filter of wanted.filters) {
      const properties = Object.keys(userProperties).length ? { properties: { userProperties } } : {};
      mqtt.subscribe(filter, { qos: 1, ...properties }, (error, _granted, packet) => {
        if (turn !== this.#turn) return;
        const suback = (packet ?? (error as { packet?: unknown } | null)?.packet) as Suback | undefined;
        const refusal = error || suback ? refusalOf(filter, suback) : undefined;
        if (refusal) this.refusal = refusal;
        left -= 1;
        if (this.refusal && left === 0 && wanted.filters.length === 1) {
          this.#close();
          this.status = 'refused';
        } else if (!refusal) {
          this.status = 'receiving';
          if (!this.startedMs) this.startedMs = live.nowMs();
        } else if (left === 0 && this.status !== 'receiving') this.status = 'refused';
      });
    }
    this.#timer ??= setInterval(() => this.#show(), SHOW_MS);
  }

  #again(wanted: Wanted, turn: number, beforeSubscribing?: (client: string) => Promise<void>): void {
    const limit = Math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** this.#attempts++);
    this.status = 'lost';
    clearTimeout(this.#retry);
    this.#retry = setTimeout(
      () => {
        // What history was asked for came already.
        const rest: Wanted = this.startedMs ? { ...wanted, since: '' } : wanted;
        void this.#connect(rest, turn, beforeSubscribing);
      },
      limit / 2 + (Math.random() * limit) / 2,
    );
  }

  #take(channel: string, payload: Uint8Array, packet: IPublishPacket): void {
    if (channel.startsWith('$accord/')) {
      this.#notice(channel, payload);
      return;
    }
    const said = packet.properties?.userProperties ?? {};
    const one = (name: string) => {
      const value = said[name];
      return (Array.isArray(value) ? value[0] : value) ?? '';
    };
    const event = one('accord-event');
    const fromBytes = Number(one('shaped-from')) || 0;
    const atMs = live.nowMs();
    const isOld = packet.retain || one('accord-received-ms') !== '';
    this.measures.add({ channel, event, atMs, bytes: payload.length, fromBytes, isOld });
    this.pictures.add(payload, { event, channel, atMs, fromBytes });
    this.#isChanged = true;
  }

  #notice(channel: string, payload: Uint8Array): void {
    if (payload.length > 100_000) return;
    let found: unknown;
    try {
      found = JSON.parse(new TextDecoder().decode(payload));
    } catch {
      return;
    }
    if (typeof found !== 'object' || found === null) return;
    if (channel === '$accord/expectations' && 'expectation' in found && 'state' in found) {
      const state = found as ExpectationState;
      const others = this.expectations.filter((each) => each.expectation !== state.expectation);
      this.expectations = [...others, state].slice(-MOST_EXPECTATIONS);
    } else if (channel === '$accord/history' && 'state' in found && found.state === 'missing') {
      const { node, why } = found as { node?: string; why?: string };
      this.gaps = [...this.gaps, `History of ${node ?? 'a node'} is missing: ${why ?? 'it does not reply'}`].slice(
        -MOST_GAPS,
      );
    }
  }

  #show(): void {
    const now = live.nowMs();
    if (this.startedMs && now - this.#sampledMs >= 1_000) {
      this.#sampledMs = now;
      const { measures, startedMs } = this;
      this.rates.add(
        now,
        measures.channels.map((each) => [each.channel, measures.rateHz(each.channel, now, startedMs)] as const),
      );
      this.#isChanged = true;
    }
    if (!this.#isChanged || live.isPaused || document.hidden) return;
    this.#isChanged = false;
    this.version += 1;
  }
}
