/**
 * The page as a publisher and subscriber of its own: it advertises, and asks for subscriptions, as any client does.
 *
 * It connects when it is first used. What it advertises and subscribes to ends with the page.
 */
import { connectMqtt, type MqttClient } from '$lib/mqtt';
import { ProblemError } from '$lib/problem';

const ADVERTISEMENTS = '$accord/advertisements';
const REPLY_MS = 10_000;
const MAX_SUBSCRIPTIONS = 50;

export interface TrialAdvertisement {
  name: string;
  channel: string;
  where: string;
  rateHz: number;
}

export interface TrialSubscription {
  filter: string;
  where: string;
  /** Why it was refused; empty if it was admitted. */
  problem: string;
}

interface Reply {
  ok: boolean;
  status?: number;
  title?: string;
  detail?: string;
  place?: string;
  remedy?: string;
  name?: string;
}

interface Suback {
  granted?: (number | { qos?: number })[];
  properties?: { reasonString?: string };
}

export class Trial {
  clientId = $state('');
  /** Said when the connection was lost, and what was advertised with it. */
  isLost = $state(false);
  advertised = $state.raw<readonly TrialAdvertisement[]>([]);
  subscribed = $state.raw<readonly TrialSubscription[]>([]);

  #client: Promise<MqttClient> | undefined;
  #replies = new Map<string, (reply: Reply) => void>();
  #asked = 0;
  #isEnded = false;

  /** Promise at most this rate. The same filter again counts as one more advertisement. */
  async advertise(channel: string, where: string, rateHz: number): Promise<void> {
    const name = `${this.#asked + 1}: ${where || channel}`.slice(0, 200);
    await this.#ask({ do: 'advertise', channel, rate_hz: rateHz, name, ...(where && { where }) });
    this.advertised = [...this.advertised, { name, channel, where, rateHz }];
  }

  async withdraw(name: string): Promise<void> {
    await this.#ask({ do: 'unadvertise', name });
    this.advertised = this.advertised.filter((each) => each.name !== name);
  }

  async subscribe(filter: string, where: string): Promise<void> {
    const client = await this.#connected();
    const userProperties: Record<string, string> = where ? { where } : {};
    const suback = await new Promise<Suback | undefined>((resolve) =>
      client.subscribe({ [filter]: { qos: 0 } }, { properties: { userProperties } }, (_error, _granted, packet) =>
        resolve(packet as unknown as Suback | undefined),
      ),
    );
    const first = suback?.granted?.[0];
    const code = typeof first === 'number' ? first : (first?.qos ?? 0x80);
    const problem = code < 0x80 ? '' : (suback?.properties?.reasonString ?? 'the node refused it');
    const others = this.subscribed.filter((each) => each.filter !== filter);
    this.subscribed = [{ filter, where, problem }, ...others].slice(0, MAX_SUBSCRIPTIONS);
  }

  async unsubscribe(filter: string): Promise<void> {
    const client = await this.#connected();
    await client.unsubscribeAsync(filter).catch(() => undefined);
    this.subscribed = this.subscribed.filter((each) => each.filter !== filter);
  }

  end(): void {
    this.#isEnded = true;
    void this.#client?.then((client) => client.end(true)).catch(() => undefined);
  }

  #connected(): Promise<MqttClient> {
    this.#client ??= this.#connect().catch((error: unknown) => {
      this.#client = undefined;
      throw error;
    });
    return this.#client;
  }

  async #connect(): Promise<MqttClient> {
    const client = await connectMqtt();
    await new Promise<void>((resolve, reject) => {
      client.once('connect', () => resolve());
      client.once('error', () => reject(refused('The node refused the connection of this page.')));
      client.once('close', () => reject(refused('The connection to the node was lost.')));
    });
    if (this.#isEnded) client.end(true);
    this.clientId = String(client.options.clientId ?? '');
    this.isLost = false;
    client.on('error', () => client.end(true));
    client.on('close', () => this.#lose());
    client.on('message', (topic, payload) => {
      const take = this.#replies.get(topic);
      if (take) take(replyOf(payload));
    });
    await client.subscribeAsync(this.#replyTopic('+'), { qos: 1 });
    return client;
  }

  #replyTopic(request: number | '+'): string {
    return `accord-response/${this.clientId}/admission/${request}`;
  }

  #lose(): void {
    if (this.#isEnded) return;
    this.#client = undefined;
    this.isLost = this.advertised.length > 0 || this.subscribed.length > 0;
    this.advertised = [];
    this.subscribed = [];
    for (const take of this.#replies.values()) take({ ok: false, detail: 'The connection to the node was lost.' });
    this.#replies.clear();
  }

  async #ask(request: object): Promise<Reply> {
    const client = await this.#connected();
    const responseTopic = this.#replyTopic((this.#asked += 1));
    const reply = await new Promise<Reply>((resolve) => {
      const timer = setTimeout(() => resolve({ ok: false, detail: 'The node did not answer.' }), REPLY_MS);
      this.#replies.set(responseTopic, (found) => {
        clearTimeout(timer);
        resolve(found);
      });
      client.publish(ADVERTISEMENTS, JSON.stringify(request), {
        qos: 1,
        properties: { responseTopic },
      });
    });
    this.#replies.delete(responseTopic);
    if (!reply.ok) throw new ProblemError({ ...reply, status: reply.status ?? 0 });
    return reply;
  }
}

function replyOf(payload: Uint8Array): Reply {
  try {
    return JSON.parse(new TextDecoder().decode(payload)) as Reply;
  } catch {
    return { ok: false, detail: 'The answer of the node is no JSON.' };
  }
}

function refused(detail: string): ProblemError {
  return new ProblemError({ status: 0, title: 'No connection', detail });
}
