/** The network as the page shows it: live, or as of a moment of the last hour. */
import { untrack } from 'svelte';
import { api } from '$lib/api';
import { live, watch } from '$lib/live.svelte';
import { asProblem, type ProblemError } from '$lib/problem';
import type { NetState } from '$api/contract';
import { changesOf, difference, towards, type NetRows, type Snapshot } from './rows';
import { Timeline } from './timeline';

const LISTS_MS = 400; // lists change at most that often
const MAX_PAGES = 60;

export class Network {
  timeline = $state.raw<Timeline>();
  problem = $state.raw<ProblemError>();
  /** Grows when the network changed. */
  version = $state(0);
  /** The same, less often. */
  listVersion = $state(0);
  /** Whether the hour before is still being read. */
  isLoading = $state(true);
  readonly #watch = watch('net');
  #before: NetState | undefined;
  #isAsked = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    $effect(() => {
      const state = this.#watch.state;
      const atMs = this.#watch.atMs;
      if (state) untrack(() => void this.#take(state, atMs));
    });
    $effect(() => () => clearTimeout(this.#timer));
  }

  get state(): NetState | undefined {
    return this.#watch.state;
  }

  get liveProblem() {
    return this.#watch.problem;
  }

  /** The snapshot of a moment; of now without one. */
  at(atMs: number): Snapshot | undefined {
    return atMs ? this.timeline?.at(atMs) : this.timeline?.current;
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
