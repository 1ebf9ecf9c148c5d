/**
 * The live stream of the node as reactive state.
 *
 * `watch(set, () => parameters)` in a component gives the set's state while the component is shown. Components that
 * watch the same share one watch of the node. The stream reconnects by itself; meanwhile the last state stays, and
 * `live.staleSince` says since when it is. While `live.isPaused`, states stay as they are, and catch up afterwards.
 */
import type { LiveSets, SetName } from '$api/contract';
import { mergePatch } from './merge_patch';
import { session } from './session.svelte';

const SILENT_MS = 5_000; // the node sends something at least every 2 s
const MIN_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 15_000;
const LINGER_MS = 3_000; // a watch outlives its page this long: coming back finds it as it was

export interface StreamProblem {
  status: number;
  title?: string;
  detail?: string;
  place?: string;
  remedy?: string;
}

interface Message {
  id?: number;
  at_ms?: number;
  state?: unknown;
  patch?: unknown;
  problem?: StreamProblem;
}

class Entry {
  /** What is shown: never changed in place. */
  state = $state.raw<unknown>();
  atMs = $state.raw(0);
  problem = $state.raw<StreamProblem>();
  latest: unknown;
  latestMs = 0;
  users = 0;
  /** Whether the node has sent the state since the connection was opened. */
  isCurrent = false;
  timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly id: number,
    readonly key: string,
    readonly request: object,
  ) {}

  show(): void {
    this.state = this.latest;
    this.atMs = this.latestMs;
  }
}

class Live {
  status = $state<'connecting' | 'live' | 'lost'>('connecting');
  /** The node's time of the last message before the stream fell silent; 0 while it is live. */
  staleSince = $state(0);
  /** When the next attempt to connect is made; 0 if none is waiting. */
  retryAtMs = $state(0);
  isPaused = $state(false);
  pausedAtMs = $state(0);
  /** The node's time, once a second. */
  now = $state(Date.now());

  #socket: WebSocket | undefined;
  #entries = new Map<string, Entry>();
  #byId = new Map<number, Entry>();
  #nextId = 1;
  #offsetMs = 0; // the node's clock minus the viewer's
  #heardMs = 0;
  #attempts = 0;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #isStarted = false;

  /** Connect, if it is not done yet, and the user may watch at all. */
  start(): void {
    if (this.#isStarted) {
      if (!this.#socket && !this.retryAtMs) this.#open();
      return;
    }
    this.#isStarted = true;
    setInterval(() => this.#tick(), 1_000);
    addEventListener('online', () => this.reconnect());
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) this.#tick();
    });
    this.#open();
  }

  /** Connect now instead of when the backoff ends. */
  reconnect(): void {
    if (!this.#isStarted) return;
    clearTimeout(this.#retry);
    this.#attempts = 0;
    const old = this.#socket;
    this.#socket = undefined;
    old?.close();
    this.#open();
  }

  pause(isPaused = !this.isPaused): void {
    this.isPaused = isPaused;
    this.pausedAtMs = isPaused ? this.nowMs() : 0;
    if (!isPaused) for (const entry of this.#entries.values()) entry.show();
  }

  /** The node's time now. */
  nowMs(): number {
    return Date.now() + this.#offsetMs;
  }

  acquire(set: string, parameters: object): Entry {
    const request = { set, ...parameters };
    const key = JSON.stringify(request);
    let entry = this.#entries.get(key);
    if (!entry) {
      entry = new Entry(this.#nextId++, key, request);
      this.#entries.set(key, entry);
      this.#byId.set(entry.id, entry);
      this.#ask(entry);
    }
    clearTimeout(entry.timer);
    entry.users += 1;
    return entry;
  }

  release(entry: Entry): void {
    entry.users -= 1;
    if (entry.users > 0) return;
    entry.timer = setTimeout(() => {
      this.#entries.delete(entry.key);
      this.#byId.delete(entry.id);
      this.#send({ stop: entry.id });
    }, LINGER_MS);
  }

  #open(): void {
    if (!session.may('statistics')) {
      this.#refuse();
      return;
    }
    if (this.status !== 'live') this.status = 'connecting';
    this.retryAtMs = 0;
    const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
    const socket = new WebSocket(`${scheme}://${location.host}/api/v1/live`);
    this.#socket = socket;
    this.#heardMs = Date.now();
    socket.onopen = () => {
      this.#heardMs = Date.now();
      for (const entry of this.#entries.values()) {
        entry.isCurrent = false;
        this.#ask(entry);
      }
    };
    socket.onmessage = (event) => {
      if (socket === this.#socket) this.#take(JSON.parse(String(event.data)) as Message);
    };
    socket.onclose = () => {
      if (socket === this.#socket) this.#lose();
    };
  }

  /** The node would refuse the connection: say so where something is watched, instead of trying for ever. */
  #refuse(): void {
    this.status = 'live';
    this.staleSince = 0;
    this.retryAtMs = 0;
    for (const entry of this.#entries.values()) this.#ask(entry);
  }

  #ask(entry: Entry): void {
    if (!session.may('statistics')) {
      const who = session.user || 'an anonymous client';
      entry.problem = { status: 403, detail: `${who} may not read statistics`, remedy: 'takes may.statistics' };
      return;
    }
    this.#send({ watch: entry.id, ...entry.request });
  }

  #send(message: object): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  #take(message: Message): void {
    this.#heardMs = Date.now();
    this.#attempts = 0;
    if (message.at_ms) {
      const offset = message.at_ms - Date.now();
      // The least delayed message tells best how the clocks differ.
      this.#offsetMs =
        this.#offsetMs === 0 || Math.abs(offset - this.#offsetMs) > 2_000
          ? offset
          : Math.max(offset, this.#offsetMs - 1);
    }
    if (this.status !== 'live') this.status = 'live';
    if (this.staleSince) this.staleSince = 0;
    const entry = message.id === undefined ? undefined : this.#byId.get(message.id);
    if (!entry) return;
    if (message.problem) {
      entry.problem = message.problem;
      if (message.problem.status === 401) void session.refresh();
      return;
    }
    if ('state' in message) {
      entry.latest = message.state;
      entry.isCurrent = true;
      entry.problem = undefined;
    } else if ('patch' in message && entry.isCurrent) {
      entry.latest = mergePatch(entry.latest, message.patch);
    } else return;
    entry.latestMs = message.at_ms ?? this.nowMs();
    if (!this.isPaused || entry.state === undefined) entry.show();
  }

  #lose(): void {
    this.#socket = undefined;
    this.status = 'lost';
    if (!this.staleSince) this.staleSince = this.#heardMs + this.#offsetMs;
    const limit = Math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** this.#attempts++);
    const wait = limit / 2 + (Math.random() * limit) / 2;
    this.retryAtMs = Date.now() + wait;
    this.#retry = setTimeout(() => this.#open(), wait);
    void session.refresh(); // it may have ended
  }

  #tick(): void {
    this.now = this.nowMs();
    if (this.#socket && Date.now() - this.#heardMs > SILENT_MS) {
      const socket = this.#socket;
      this.#lose();
      socket.onclose = null;
      socket.close();
    }
  }
}

export const live = new Live();

/** One watched set. All members are reactive. */
export class Watch<S> {
  readonly #entry: () => Entry | undefined;
  #kept: S | undefined;
  readonly #state = $derived.by(() => {
    const state = this.#entry()?.state as S | undefined;
    if (state !== undefined) this.#kept = state;
    return this.#kept;
  });

  constructor(entry: () => Entry | undefined) {
    this.#entry = entry;
  }

  /** The state; while other parameters are awaited, the one before. Undefined until the first came. */
  get state(): S | undefined {
    return this.#state;
  }

  /** When the node computed the state, in its time. */
  get atMs(): number {
    return this.#entry()?.atMs ?? 0;
  }

  /** Why there is no state, such as a missing right. */
  get problem(): StreamProblem | undefined {
    return this.#entry()?.problem;
  }

  /** Whether what was asked for last has not come yet. */
  get isLoading(): boolean {
    return this.#entry()?.state === undefined && !this.problem;
  }
}

/**
 * Watch a set while the component is shown. `parameters` may read reactive state; undefined means not to watch.
 * Call it while the component is initialised.
 */
export function watch<K extends SetName>(
  set: K,
  parameters: () => LiveSets[K]['parameters'] | undefined = () => ({}),
): Watch<LiveSets[K]['state']> {
  let entry = $state.raw<Entry>();
  const key = $derived(JSON.stringify(parameters() ?? null));
  $effect.pre(() => {
    const wanted = JSON.parse(key) as object | null;
    if (wanted === null) {
      entry = undefined;
      return;
    }
    const acquired = live.acquire(set, wanted);
    entry = acquired;
    return () => live.release(acquired);
  });
  return new Watch<LiveSets[K]['state']>(() => entry);
}
