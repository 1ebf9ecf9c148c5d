/** The network as the page shows it: live, as of a moment of the last hour, or of an older one from the archive. */
import { untrack } from 'svelte';
import { api } from '$lib/api';
import { patiently } from '$lib/history/asking.svelte';
import { live, watch } from '$lib/live.svelte';
import { asProblem, type ProblemError } from '$lib/problem';
import type { NetState } from '$api/contract';
import { changesOf, difference, towards, type NetRows, type Snapshot } from './rows';
import { Timeline } from './timeline';

const LISTS_MS = 400; // lists change at most that often
const MAX_PAGES = 60;
const ARCHIVED_MS = 1_800_000; // before and after a moment

interface Archived {
  fromMs: number;
  untilMs: number;
  timeline: Timeline;
}

const isIn = (known: Archived | undefined, atMs: number): boolean =>
  known !== undefined && atMs >= known.fromMs && atMs < known.untilMs;

export class Network {
  timeline = $state.raw<Timeline>();
  problem = $state.raw<ProblemError>();
  /** Grows when the network changed. */
  version = $state(0);
  /** The same, less often. */
  listVersion = $state(0);
  /** Whether the hour before is still being read. */
  isLoading = $state(true);
  /** A time before that hour, from the archive. */
  archived = $state.raw<Archived>();
  isReading = $state(false);
  archiveProblem = $state.raw<ProblemError>();
  readonly #watch = watch('net');
  #before: NetState | undefined;
  #isAsked = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #abort = new AbortController();

  constructor() {
    $effect(() => {
      const state = this.#watch.state;
      const atMs = this.#watch.atMs;
      if (state) untrack(() => void this.#take(state, atMs));
    });
    $effect(() => () => {
      clearTimeout(this.#timer);
      this.#abort.abort();
    });
  }

  get state(): NetState | undefined {
    return this.#watch.state;
  }

  get liveProblem() {
    return this.#watch.problem;
  }

  /** What knows of a moment. */
  of(atMs: number): Timeline | undefined {
    return this.#isOlder(atMs) && isIn(this.archived, atMs) ? this.archived?.timeline : this.timeline;
  }

  /** The snapshot of a moment; of now without one. */
  at(atMs: number): Snapshot | undefined {
    return atMs ? this.of(atMs)?.at(atMs) : this.timeline?.current;
  }

  /** Read what the archive has of a moment, if the node does not have it any more. */
  async read(atMs: number): Promise<void> {
    const knownMs = this.timeline?.fromMs ?? 0;
    if (!this.#isOlder(atMs) || isIn(this.archived, atMs) || this.isReading) return;
    this.isReading = true;
    const query = {
      since_ms: Math.floor(atMs - ARCHIVED_MS),
      until_ms: Math.ceil(Math.min(atMs + ARCHIVED_MS, knownMs)),
    };
    try {
      const { signal } = this.#abort;
      const page = await patiently(() => api.get('/api/v1/net/archive', { query, signal }), signal);
      const timeline = new Timeline(page.from_ms, changesOf(page.rows as NetRows));
      for (const step of page.steps) timeline.add(step.at_ms, changesOf(step.rows as NetRows));
      this.archived = { fromMs: page.from_ms, untilMs: Math.max(page.until_ms, atMs + 1), timeline };
      this.archiveProblem = undefined;
    } catch (error) {
      this.archiveProblem = asProblem(error);
    } finally {
      this.isReading = false;
    }
  }

  #isOlder(atMs: number): boolean {
    return atMs > 0 && this.timeline !== undefined && atMs < this.timeline.fromMs;
  }

  async #take(state: NetState, atMs: number): Promise<void> {
    if (!this.#isAsked) {
      this.#isAsked = true;
      this.timeline = await this.#read(state);
      this.isLoading = false;
      // Meanwhile there may have been newer states.
      const latest = this.#watch.state ?? state;
      this.timeline.add(this.#watch.atMs || atMs, towards(this.timeline.current, latest));
      this.#before = latest;
    } else if (this.#before && this.timeline) {
      const changes = isWhole(this.#before, state)
        ? towards(this.timeline.current, state)
        : difference(this.#before, state);
      this.timeline.add(atMs, changes);
      this.#before = state;
    } else return; // the hour before is being read
    this.version += 1;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.listVersion += 1;
    }, LISTS_MS);
  }

  /** The hour before, as the node keeps it; nothing but the state if it can't be had. */
  async #read(state: NetState): Promise<Timeline> {
    try {
      let page = await api.get('/api/v1/net/history');
      const made = new Timeline(page.at_ms, changesOf((page.rows ?? empty()) as NetRows));
      for (let pages = 0; pages < MAX_PAGES; pages++) {
        for (const step of page.steps) made.add(step.at_ms, changesOf(step.rows as NetRows));
        if (!page.has_more) break;
        page = await api.get('/api/v1/net/history', { query: { after: page.after } });
      }
      return made;
    } catch (error) {
      this.problem = asProblem(error);
      return new Timeline(live.nowMs(), changesOf(state));
    }
  }
}

/** Whether it is a state of its own, not the one before with differences: then nothing is the same object. */
function isWhole(before: NetState, state: NetState): boolean {
  const name = Object.keys(state.nodes)[0];
  return name === undefined || state.nodes[name] !== before.nodes[name];
}

const empty = (): NetRows => ({ nodes: {}, links: {}, flows: {}, arrivals: {} });
