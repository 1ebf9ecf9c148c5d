/**
 * A live tap: the page subscribes like any client, with a predicate, and keeps the newest events.
 *
 * What is asked for is checked first. As long as it has a mistake, the last good filter goes on.
 */
import type { Schemas } from '$api/contract';
import { ProblemError, asProblem } from '$lib/problem';
import { request } from '$lib/api';
import { live } from '$lib/live.svelte';
import { connectMqtt, type MqttClient } from '$lib/mqtt';
import { MAX_RATE_HZ, TapBuffer, type TapEvent } from './events';
import { mistakeOf, type Mistake } from './predicate';

const SHOW_MS = 200;
/** Where so many come that nobody can read along, rows change less often. */
const FAST_HZ = 15;
const SHOW_FAST_MS = 800;
const RATE_MS = 3_000;
const MIN_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 15_000;

export interface TapFilter {
  where: string;
  xpath: string;
}

interface SubackPacket {
  granted?: (number | { qos?: number })[];
  properties?: { reasonString?: string };
}

export class Tap {
  status = $state<'connecting' | 'live' | 'lost' | 'refused'>('connecting');
  /** Why there is no tap. */
  problem = $state.raw<ProblemError>();
  /** What is wrong with the filter asked for last. */
  mistake = $state.raw<Mistake>();
  /** The filter that counts. */
  applied = $state.raw<TapFilter>({ where: '', xpath: '' });
  /** The attributes that the filter reads. */
  reads = $state.raw<readonly string[]>([]);
  /** When it began to count. */
  sinceMs = $state(0);
  events = $state.raw<readonly TapEvent[]>([]);
  matched = $state(0);
  skipped = $state(0);
  dropped = $state(0);
  waiting = $state(0);
  rateHz = $state(0);
  isPaused = $state(false);
  pausedAtMs = $state(0);
  /** The page's own client. */
  clientId = $state('');

  readonly channel: string;
  readonly #buffer = new TapBuffer();
  #mqtt: MqttClient | undefined;
  #wanted: TapFilter = { where: '', xpath: '' };
  #asked = 0;
  #attempts = 0;
  #isEnded = false;
  #isPointed = false;
  #shownMs = 0;
  #timer: ReturnType<typeof setInterval>;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #counts: [ms: number, matched: number][] = [];
  #abort: AbortController | undefined;

  constructor(channel: string, filter: TapFilter) {
    this.channel = channel;
    this.#timer = setInterval(() => this.#show(), SHOW_MS);
    void this.apply(filter).then(() => this.#connect());
  }

  end(): void {
    this.#isEnded = true;
    clearInterval(this.#timer);
    clearTimeout(this.#retry);
    this.#abort?.abort();
    this.#mqtt?.end(true);
    this.#mqtt = undefined;
    this.#buffer.clear();
    this.events = [];
  }

  pause(isPaused = !this.isPaused): void {
    this.isPaused = isPaused;
    this.pausedAtMs = isPaused ? live.nowMs() : 0;
    this.#hold();
  }

  /** Rows stay where they are while somebody points at them. */
  point(isPointed: boolean): void {
    this.#isPointed = isPointed;
    this.#hold();
  }

  /** Use another filter, if the node finds nothing wrong with it. */
  async apply(filter: TapFilter): Promise<void> {
    const asked = (this.#asked += 1);
    this.#abort?.abort();
    const abort = (this.#abort = new AbortController());
    const text = filter.where || filter.xpath;
    if (text.trim()) {
      try {
        const body = filter.xpath ? { xpath: filter.xpath } : { where: filter.where };
        const checked = await request('post', '/api/v1/predicates/check', { body, signal: abort.signal });
        if (asked === this.#asked) this.reads = (checked as Schemas['CheckedPredicate']).attributes;
      } catch (error) {
        if (asked !== this.#asked || this.#isEnded) return;
        const problem = asProblem(error);
        if (problem.status === 400 || problem.status === 422) {
          this.mistake = mistakeOf(text, problem);
          return;
        }
        // No answer: the subscription itself says whether it is right.
      }
    }
    if (asked !== this.#asked || this.#isEnded) return;
    this.mistake = undefined;
    this.#wanted = filter;
    if (this.#mqtt?.connected) await this.#subscribe(filter);
  }

  #hold(): void {
    this.#shownMs = 0;
    // Where nothing is shown yet, nothing can move.
    this.#buffer.isHeld = this.isPaused || (this.#isPointed && this.#buffer.events.length > 0);
    this.#show();
  }

  #show(): void {
    const buffer = this.#buffer;
    const now = live.nowMs();
    const counts = this.#counts;
    counts.push([now, buffer.matched]);
    while (counts.length > 2 && counts[1]![0] <= now - RATE_MS) counts.shift();
    const [firstMs, first] = counts[0]!;
    this.rateHz = now > firstMs ? Math.max(0, ((buffer.matched - first) * 1000) / (now - firstMs)) : 0;
    this.matched = buffer.matched;
    this.skipped = buffer.skipped;
    this.dropped = buffer.dropped;
    this.waiting = buffer.isHeld ? buffer.waiting : 0;
    if (document.hidden && buffer.events.length) return;
    if (this.rateHz > FAST_HZ && now - this.#shownMs < SHOW_FAST_MS) return;
    this.#shownMs = now;
    if (buffer.flush()) {
      this.events = buffer.events;
      buffer.isHeld = this.isPaused || this.#isPointed;
      this.waiting = 0;
    }
  }

  async #connect(): Promise<void> {
    if (this.#isEnded) return;
    this.status = this.#attempts ? 'lost' : 'connecting';
    try {
      const client = await connectMqtt({ properties: { userProperties: { 'event-names': 'yes' } } });
      if (this.#isEnded) {
        client.end(true);
        return;
      }
      this.#mqtt = client;
      this.clientId = String(client.options.clientId ?? '');
      client.on('connect', () => {
        this.#attempts = 0;
        void this.#subscribe(this.#wanted);
      });
      client.on('message', (topic, payload, packet) => {
        this.#buffer.add(
          {
            topic,
            payload,
            qos: packet.qos,
            retain: packet.retain,
            ...(packet.properties && { properties: packet.properties as never }),
          },
          live.nowMs(),
        );
      });
      client.on('error', () => client.end(true));
      client.on('close', () => {
        if (this.#mqtt !== client) return;
        this.#mqtt = undefined;
        this.#again();
      });
    } catch (error) {
      const problem = asProblem(error);
      if (problem.status === 401 || problem.status === 403) {
        this.problem = problem;
        this.status = 'refused';
      } else this.#again();
    }
  }

  #again(): void {
    if (this.#isEnded || this.status === 'refused') return;
    this.status = 'lost';
    const limit = Math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** this.#attempts++);
    this.#retry = setTimeout(() => void this.#connect(), limit / 2 + (Math.random() * limit) / 2);
  }

  async #subscribe(filter: TapFilter): Promise<void> {
    const client = this.#mqtt;
    if (!client) return;
    const isFirst = this.sinceMs === 0;
    const code = await this.#send(client, filter, isFirst);
    if (this.#isEnded || client !== this.#mqtt) return;
    if (code.code < 0x80) {
      const isOther = filter.where !== this.applied.where || filter.xpath !== this.applied.xpath;
      this.applied = filter;
      this.status = 'live';
      this.problem = undefined;
      if (isOther || isFirst) this.#begin();
      return;
    }
    const text = filter.where || filter.xpath;
    if (code.code === 0x83 && text) {
      this.mistake = mistakeOf(text, { detail: code.reason });
      this.#wanted = this.applied;
      if (text !== (this.applied.where || this.applied.xpath)) await this.#subscribe(this.applied);
      return;
    }
    this.status = 'refused';
    this.problem = new ProblemError({
      status: code.code === 0x87 ? 403 : 400,
      title: 'The node refused the subscription.',
      detail: code.reason || `The node refused the subscription (reason code 0x${code.code.toString(16)}).`,
    });
    client.end(true);
  }

  #send(client: MqttClient, filter: TapFilter, isFirst: boolean): Promise<{ code: number; reason: string }> {
    const userProperties = {
      'max-rate-hz': String(MAX_RATE_HZ),
      ...(filter.where ? { where: filter.where } : {}),
      ...(filter.xpath ? { xpath: filter.xpath } : {}),
    };
    return new Promise((resolve) => {
      client.subscribe(
        { [this.channel]: { qos: 0, rap: true, rh: isFirst || filter !== this.applied ? 0 : 2 } },
        { properties: { userProperties } },
        (_error, _granted, packet) => {
          const suback = packet as unknown as SubackPacket | undefined;
          const first = suback?.granted?.[0];
          const code = typeof first === 'number' ? first : (first?.qos ?? (_error ? 0x80 : 0));
          resolve({ code, reason: suback?.properties?.reasonString ?? '' });
        },
      );
    });
  }

  #begin(): void {
    this.sinceMs = live.nowMs();
    this.#buffer.clear();
    this.#counts = [];
    this.events = [];
    this.#hold();
  }
}
