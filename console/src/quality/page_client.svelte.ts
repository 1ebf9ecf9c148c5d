/**
 * The page as a client that expects and offers: a connection of its own, kept while this tab is open, over which the
 * requests go that any MQTT client may send. What it expects and offers ends with the connection.
 */
import type { IPublishPacket, MqttClient } from 'mqtt';
import { live } from '$lib/live.svelte';
import { connectMqtt } from '$lib/mqtt';
import { asProblem, ProblemError } from '$lib/problem';
import { refusalOf, type Suback } from '$lib/refusal';
import type { Value } from './scale';

export type Reply = Record<string, unknown>;

/** Advice for a profile of this page; nobody follows it but the viewer. */
export interface OwnAdvice {
  channel: string;
  property: string;
  target: Value;
  atMs: number;
}

const EXPECTATIONS = '$accord/expectations';
const CAPABILITIES = '$accord/capabilities';
const ADVICE = '$accord/advice';
const REPLY_MS = 10_000;
const CONNECT_MS = 15_000;
const RATE_S = 5;
const MOST_ADVICE = 20;
const MOST_NOTICE_BYTES = 200_000;

interface Waiting {
  resolve: (reply: Reply) => void;
  reject: (problem: ProblemError) => void;
  timer: ReturnType<typeof setTimeout>;
}

class PageClient {
  /** Its identifier at the node; empty while it is not connected. */
  client = $state('');
  /** It was connected, and what it expected and offered has ended. */
  isLost = $state(false);
  filters = $state.raw<readonly string[]>([]);
  received = $state(0);
  /** Events per second over the last 5 s. */
  rateHz = $state(0);
  advice = $state.raw<readonly OwnAdvice[]>([]);

  #mqtt: MqttClient | undefined;
  #connecting: Promise<MqttClient> | undefined;
  #waiting = new Map<string, Waiting>();
  #lastNumber = 0;
  #count = 0;
  #counts: number[] = [0];
  #timer: ReturnType<typeof setInterval> | undefined;

  /** Register alternatives, after subscribing if need be; returns the node's reply. */
  async register(filter: string, expect: object[]): Promise<Reply> {
    const isNew = !this.filters.includes(filter);
    if (isNew) await this.#subscribe(filter);
    try {
      return await this.ask('expectations', { do: 'register', channel: filter, expect });
    } catch (error) {
      if (isNew) this.unsubscribe(filter);
      throw error;
    }
  }

  /** A request to `$accord/expectations` or `$accord/capabilities`. */
  async ask(group: 'expectations' | 'capabilities', request: object): Promise<Reply> {
    const mqtt = await this.#connected();
    const number = String((this.#lastNumber += 1));
    const reply = new Promise<Reply>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(number);
        reject(new ProblemError({ status: 0, detail: 'The node did not reply.' }));
      }, REPLY_MS);
      this.#waiting.set(number, { resolve, reject, timer });
    });
    mqtt.publish(group === 'expectations' ? EXPECTATIONS : CAPABILITIES, JSON.stringify(request), {
      qos: 1,
      properties: { responseTopic: this.#replies(), correlationData: new TextEncoder().encode(number) as never },
    });
    return reply;
  }

  /** End a subscription, and with it what is expected of it. */
  unsubscribe(filter: string): void {
    this.filters = this.filters.filter((each) => each !== filter);
    this.#mqtt?.unsubscribe(filter, () => undefined);
  }

  /** End the connection, and with it everything that the page expects and offers. */
  end(): void {
    this.#close();
    this.isLost = false;
  }

  #replies = () => `accord-response/${this.client}/quality`;

  #connected(): Promise<MqttClient> {
    this.#connecting ??= this.#connect().catch((error: unknown) => {
      this.#close();
      throw error;
    });
    return this.#connecting;
  }

  async #connect(): Promise<MqttClient> {
    const mqtt = await connectMqtt();
    this.#mqtt = mqtt;
    mqtt.on('message', (channel, payload, packet) => this.#take(channel, payload, packet));
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => fail(), CONNECT_MS);
      const fail = (error?: unknown) => {
        clearTimeout(timer);
        reject(asProblem(error));
      };
      mqtt.once('connect', () => {
        clearTimeout(timer);
        resolve();
      });
      mqtt.once('close', fail);
      mqtt.on('error', fail);
    });
    this.client = mqtt.options.clientId ?? '';
    this.isLost = false;
    mqtt.on('close', () => {
      if (mqtt !== this.#mqtt) return;
      this.#close();
      this.isLost = true;
    });
    await mqtt.subscribeAsync([EXPECTATIONS, ADVICE, this.#replies()], { qos: 1 });
    this.#timer = setInterval(() => this.#measure(), 1_000);
    return mqtt;
  }

  async #subscribe(filter: string): Promise<void> {
    const mqtt = await this.#connected();
    await new Promise<void>((resolve, reject) => {
      mqtt.subscribe(filter, { qos: 0 }, (error, _granted, packet) => {
        const suback = (packet ?? (error as { packet?: unknown } | null)?.packet) as Suback | undefined;
        const refusal = error || suback ? refusalOf(filter, suback) : undefined;
        if (refusal) reject(new ProblemError({ status: 403, detail: refusal.sentence, place: 'channel' }));
        else resolve();
      });
    });
    this.filters = [...this.filters, filter];
  }

  #take(channel: string, payload: Uint8Array, packet: IPublishPacket): void {
    if (channel !== this.#replies() && !channel.startsWith('$accord/')) {
      this.#count += 1;
      return;
    }
    const found = readNotice(payload);
    if (!found) return;
    const data = packet.properties?.correlationData;
    const waiting = data && this.#waiting.get(new TextDecoder().decode(data));
    if (waiting) {
      this.#waiting.delete(new TextDecoder().decode(data));
      clearTimeout(waiting.timer);
      if (found['ok'] === true) waiting.resolve(found);
      else waiting.reject(new ProblemError({ status: 400, ...found }));
    } else if (channel === ADVICE && found['kind'] === 'advice') this.#advised(found);
  }

  #advised(found: Reply): void {
    const { channel, property, target } = found as { channel: string; property: string; target: Value };
    const others = this.advice.filter((each) => each.channel !== channel || each.property !== property);
    this.advice = [{ channel, property, target, atMs: live.nowMs() }, ...others].slice(0, MOST_ADVICE);
  }

  /** The viewer follows advice, or does not. */
  settle(advice: OwnAdvice): void {
    this.advice = this.advice.filter((each) => each !== advice);
  }

  #measure(): void {
    this.#counts = [...this.#counts, this.#count].slice(-RATE_S - 1);
    this.received = this.#count;
    this.rateHz = (this.#count - this.#counts[0]!) / Math.max(1, this.#counts.length - 1);
  }

  #close(): void {
    const old = this.#mqtt;
    this.#mqtt = undefined;
    this.#connecting = undefined;
    clearInterval(this.#timer);
    for (const each of this.#waiting.values()) {
      clearTimeout(each.timer);
      each.reject(new ProblemError({ status: 0, detail: 'The connection to the node was lost.' }));
    }
    this.#waiting.clear();
    this.client = '';
    this.filters = [];
    this.advice = [];
    this.rateHz = this.received = this.#count = 0;
    this.#counts = [0];
    if (!old) return;
    old.removeAllListeners();
    old.on('error', () => undefined);
    old.end(true);
  }
}

function readNotice(payload: Uint8Array): Reply | undefined {
  if (payload.length > MOST_NOTICE_BYTES) return undefined;
  try {
    const found: unknown = JSON.parse(new TextDecoder().decode(payload));
    return typeof found === 'object' && found !== null ? (found as Reply) : undefined;
  } catch {
    return undefined;
  }
}

export const pageClient = new PageClient();
