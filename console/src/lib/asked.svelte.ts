/** What an operation answers, asked now and again while the page is shown, since it is in no live set. */
import { live } from './live.svelte';
import { asProblem, type ProblemError } from './problem';

export class Asked<T> {
  value = $state.raw<T>();
  problem = $state.raw<ProblemError>();
  atMs = $state(0);
  #ask: () => Promise<T>;

  constructor(ask: () => Promise<T>, everyMs: number) {
    this.#ask = ask;
    $effect(() => {
      void this.refresh();
      if (!everyMs) return;
      const timer = setInterval(() => {
        if (!document.hidden && !live.isPaused) void this.refresh();
      }, everyMs);
      return () => clearInterval(timer);
    });
  }

  async refresh(): Promise<void> {
    try {
      this.value = await this.#ask();
      this.problem = undefined;
      this.atMs = live.nowMs();
    } catch (error) {
      this.problem = asProblem(error);
    }
  }
}

/** Call it while the component is initialised. */
export function asked<T>(ask: () => Promise<T>, everyMs = 2_000): Asked<T> {
  return new Asked(ask, everyMs);
}
