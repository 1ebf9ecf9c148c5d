/**
 * The events of one question: rows page by page, then how many there are over time.
 *
 * Rows come first, the histogram follows. Both can be stopped, and stop at the node when the page is left. A part of the
 * answer takes about a second, so that the page can say how far it is.
 */
import type { Schemas } from '$api/contract';
import { api } from '$lib/api';
import { live } from '$lib/live.svelte';
import { asProblem, type ProblemError } from '$lib/problem';
import { withPart, type Counts } from './counts';
import { historyEvent, sizeOf, type HistoryEvent } from './events';
import { PageWindow } from './page_window';
import { iso, spanOf, type HistoryView, type Span } from './view';

export const PAGE = 100;
/** For who scrolls on as soon as rows have come. */
const LARGE_PAGE = 1_000;
const SOON_MS = 500;
const WITHIN_MS = 1_000;
const BUCKETS = 120;
const AGAIN_MS = 2_000;

export class HistoryQuestion {
  /** Rows in memory, the index of the first, and how many were read so far. */
  rows = $state.raw<readonly HistoryEvent[]>([]);
  offset = $state(0);
  known = $state(0);
  hasMore = $state(false);
  /** Rows are being looked for. */
  isReading = $state(false);
  isCounting = $state(false);
  isStopped = $state(false);
  problem = $state.raw<ProblemError>();
  counts = $state.raw<Counts>();
  countProblem = $state.raw<ProblemError>();
  /** All events up to there, from the newest on, have been looked at. */
  reachedMs = $state<number>();
  startedMs = $state(0);
  /** When the first rows came. */
  answeredMs = $state(0);
  cost = $state.raw({ files: 0, skipped: 0, bytes: 0, tail: 0, tookMs: 0 });

  /** Why nothing may be found: an attribute of the condition that no event has. */
  hint = $state('');

  readonly view: HistoryView;
  readonly span: Span;
  #window = new PageWindow<HistoryEvent>(sizeOf);
  #abort = new AbortController();
  #restoring: AbortController | undefined;
  #isMoreAsked = false;
  /** When more came last. */
  #moreMs = -SOON_MS;

  constructor(view: HistoryView) {
    this.view = view;
    this.startedMs = live.nowMs();
    this.span = spanOf(view, this.startedMs);
  }

  async start(): Promise<void> {
    await this.#read(PAGE);
    if (this.answeredMs && !this.problem && !this.#abort.signal.aborted) {
      if (!this.known && !this.hasMore && this.view.where) void this.#compare();
      await this.#count();
    }
  }

  /** Stop what is under way; what came stays. */
  stop(): void {
    this.isStopped = this.isReading || this.isCounting;
    this.#end();
  }

  /** Go on after it was stopped. */
  async resume(): Promise<void> {
    this.#abort = new AbortController();
    this.isStopped = false;
    this.startedMs = live.nowMs();
    if (!this.answeredMs || (this.hasMore && this.known < PAGE)) await this.#read(PAGE);
    if (this.answeredMs && !this.#abort.signal.aborted && !this.counts?.isComplete) await this.#count();
  }

  end(): void {
    this.#end();
    this.rows = [];
    this.#window = new PageWindow<HistoryEvent>(sizeOf);
  }

  /** These rows are in sight: read what is missing of them. */
  see(first: number, last: number): void {
    const window = this.#window;
    const middle = Math.max(0, Math.min(window.known - 1, (first + last) >> 1));
    const missing = window.missing(middle) ?? window.missing(first) ?? window.missing(Math.min(last, window.known - 1));
    if (missing !== undefined) void this.#restore(missing);
    else if (last >= window.known && window.next && !this.isStopped) void this.more();
  }

  /** Another page at the end. */
  async more(): Promise<void> {
    if (this.isReading || this.#isMoreAsked || !this.#window.next) return;
    this.#isMoreAsked = true;
    if (this.#abort.signal.aborted) this.#abort = new AbortController();
    const isSoon = performance.now() - this.#moreMs < SOON_MS;
    try {
      await this.#read(isSoon ? LARGE_PAGE : PAGE);
    } finally {
      this.#isMoreAsked = false;
      this.#moreMs = performance.now();
    }
  }

  #end(): void {
    this.#abort.abort();
    this.#restoring?.abort();
    this.isReading = this.isCounting = false;
  }

  #question(): Record<string, string> {
    const { sinceMs, untilMs } = this.span;
    const { channel, where, xpath } = this.view;
    return {
      channel,
      where,
      xpath,
      since: sinceMs === undefined ? '' : iso(sinceMs),
      until: untilMs === undefined ? '' : iso(untilMs),
    };
  }

  /** Read until there are so many more rows, or all. */
  async #read(want: number): Promise<void> {
    const { signal } = this.#abort;
    const window = this.#window;
    const goal = window.known + want;
    this.isReading = true;
    this.problem = undefined;
    try {
      while (window.known < goal && window.next !== undefined && !signal.aborted) {
        const found = await this.#page(window.next, goal - window.known, signal);
        if (signal.aborted) return;
        window.append(found.events.map(historyEvent), found.cursor);
        this.#take(found);
      }
    } catch (error) {
      if (!signal.aborted) this.problem = asProblem(error);
    } finally {
      if (!signal.aborted) this.isReading = false;
    }
  }

  async #page(cursor: string, page: number, signal: AbortSignal): Promise<Schemas['QueryPage']> {
    const query = cursor ? { cursor } : { ...this.#question(), order: 'newest' as const };
    return patiently(
      () => api.get('/api/v1/query', { query: { ...query, page, within_ms: WITHIN_MS }, signal }),
      signal,
    );
  }

  #take(found: Schemas['QueryPage']): void {
    this.#show();
    this.answeredMs ||= live.nowMs();
    this.reachedMs = found.reached ? Date.parse(found.reached) : this.reachedMs;
    const before = this.cost;
    this.cost = {
      files: Math.max(before.files, found.files),
      skipped: Math.max(before.skipped, found.files_skipped),
      bytes: Math.max(before.bytes, found.bytes),
      tail: Math.max(before.tail, found.tail),
      tookMs: before.tookMs + found.took_ms,
    };
  }

  #show(): void {
    const window = this.#window;
    this.rows = window.rows;
    this.offset = window.offset;
    this.known = window.known;
    this.hasMore = window.next !== undefined && window.next !== '';
  }

  /** Read a page again that had to give way. It may come in parts. */
  async #restore(at: number): Promise<void> {
    const window = this.#window;
    const page = window.pages[at]!;
    this.#restoring?.abort();
    const mine = (this.#restoring = new AbortController());
    try {
      const rows: HistoryEvent[] = [];
      let cursor: string | null = page.cursor;
      while (rows.length < page.count && cursor !== null) {
        const found: Schemas['QueryPage'] = await this.#page(cursor, page.count - rows.length, mine.signal);
        rows.push(...found.events.map(historyEvent));
        cursor = found.cursor;
      }
      if (mine.signal.aborted) return;
      const place = window.pages.findIndex((each) => each.start === page.start && each.count === page.count);
      if (place < 0) return;
      window.restore(place, rows);
      this.#show();
    } catch (error) {
      if (!mine.signal.aborted) this.problem = asProblem(error);
    }
  }

  /** Whether events have the attributes of the condition; a remark, so it may fail. */
  async #compare(): Promise<void> {
    const { signal } = this.#abort;
    const { channel, where, since, until } = this.#question();
    const query = { channel: channel!, where: where!, ...(since && { since }), ...(until && { until }) };
    try {
      const found = await api.get('/api/v1/query/attributes', { query, signal });
      if (!signal.aborted) this.hint = found.hint;
    } catch {
      // nothing is said
    }
  }

  async #count(): Promise<void> {
    const { signal } = this.#abort;
    this.isCounting = true;
    this.countProblem = undefined;
    this.counts = undefined;
    let cursor: string | null = '';
    try {
      while (cursor !== null && !signal.aborted) {
        // Without an end, what came up to now; a round time at the end would hide the newest.
        const first = { ...this.#question(), until: iso(this.span.untilMs ?? live.nowMs() + 1), buckets: BUCKETS };
        const query: Record<string, string | number> = cursor ? { cursor } : first;
        const part: Schemas['EventCounts'] = await patiently(
          () => api.get('/api/v1/query/histogram', { query: { ...query, within_ms: WITHIN_MS }, signal }),
          signal,
        );
        if (signal.aborted) return;
        this.counts = withPart(this.counts, part);
        cursor = part.cursor;
      }
    } catch (error) {
      if (!signal.aborted) this.countProblem = asProblem(error);
    } finally {
      if (!signal.aborted) this.isCounting = false;
    }
  }
}

/** Ask again while the pipeline starts: that takes seconds, and an answer longer than a node waits for it. */
export async function patiently<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      const problem = asProblem(error);
      if (problem.status !== 503 || !/not ready \(starting/.test(problem.detail) || signal.aborted) throw error;
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }
}
