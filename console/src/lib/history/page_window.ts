/**
 * A part of a long result: pages that were read, of which only those around what is looked at are kept. Of the others it
 * knows where they begin and the cursor that reads them again, so a million rows take no more memory than some thousand.
 */
export interface KnownPage {
  /** Index of its first row. */
  start: number;
  count: number;
  /** Reads it; '' reads the first one. */
  cursor: string;
}

export interface Bounds {
  rows: number;
  bytes: number;
  /** Characters of all cursors. */
  cursors: number;
}

export const BOUNDS: Bounds = { rows: 4_000, bytes: 48e6, cursors: 4e6 };

export class PageWindow<T> {
  /** All pages read so far, in order. */
  pages: KnownPage[] = [];
  /** Reads what comes after them; undefined: nothing does. */
  next: string | undefined = '';
  /** Rows in memory, and the index of the first of them. Replaced with each change. */
  rows: readonly T[] = [];
  offset = 0;
  readonly #size: (row: T) => number;
  readonly #bounds: Bounds;
  /** Pages in memory, by their place in `pages`. */
  #kept: { at: number; rows: T[]; bytes: number }[] = [];
  #cursors = 0;

  constructor(size: (row: T) => number, bounds: Bounds = BOUNDS) {
    this.#size = size;
    this.#bounds = bounds;
  }

  /** Rows read so far, in memory or not. */
  get known(): number {
    const last = this.pages.at(-1);
    return last ? last.start + last.count : 0;
  }

  /** Take the page after the last one. It is kept if the one before is. */
  append(rows: T[], next: string | null): void {
    const cursor = this.next ?? '';
    const isSeen = !this.pages.length || this.#kept.at(-1)?.at === this.pages.length - 1;
    this.next = next ?? undefined;
    const last = this.pages.at(-1);
    if (!rows.length) return;
    this.pages.push({ start: last ? last.start + last.count : 0, count: rows.length, cursor });
    this.#cursors += cursor.length;
    if (isSeen) this.#keep(this.pages.length - 1, rows);
    this.#thin();
    this.#show();
  }

  /** Which page has to be read so that this row can be shown; undefined if its page is in memory, or not known. */
  missing(row: number): number | undefined {
    const at = this.#pageOf(row);
    return at === undefined || this.#kept.some((each) => each.at === at) ? undefined : at;
  }

  /** Take a page that was read again. */
  restore(at: number, rows: T[]): void {
    const first = this.#kept[0];
    const last = this.#kept.at(-1);
    if (!first || !last || (at !== first.at - 1 && at !== last.at + 1)) this.#kept = [];
    this.#keep(at, rows);
    this.#show();
  }

  #keep(at: number, rows: T[]): void {
    const page = { at, rows, bytes: rows.reduce((sum, row) => sum + this.#size(row), 0) };
    const isBefore = this.#kept.length > 0 && at < this.#kept[0]!.at;
    if (isBefore) this.#kept.unshift(page);
    else this.#kept.push(page);
    const sum = (of: (page: { rows: T[]; bytes: number }) => number) => this.#kept.reduce((a, b) => a + of(b), 0);
    while (
      this.#kept.length > 2 &&
      (sum((each) => each.rows.length) > this.#bounds.rows || sum((each) => each.bytes) > this.#bounds.bytes)
    ) {
      if (isBefore) this.#kept.pop();
      else this.#kept.shift();
    }
  }

  #pageOf(row: number): number | undefined {
    let low = 0;
    let high = this.pages.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const page = this.pages[middle]!;
      if (row < page.start) high = middle - 1;
      else if (row >= page.start + page.count) low = middle + 1;
      else return middle;
    }
    return undefined;
  }

  /** Where cursors take too much, two pages out of memory become one. */
  #thin(): void {
    if (this.#cursors <= this.#bounds.cursors) return;
    const kept = new Map(this.#kept.map((each) => [each.at, each]));
    const found: KnownPage[] = [];
    let open = false;
    this.pages.forEach((page, at) => {
      const mine = kept.get(at);
      if (mine) mine.at = found.length;
      const last = found.at(-1);
      if (open && last && !mine) {
        last.count += page.count;
        open = false;
        return;
      }
      found.push({ ...page });
      open = !mine;
    });
    this.pages = found;
    this.#cursors = found.reduce((sum, page) => sum + page.cursor.length, 0);
  }

  #show(): void {
    this.rows = this.#kept.flatMap((each) => each.rows);
    this.offset = this.#kept.length ? this.pages[this.#kept[0]!.at]!.start : 0;
  }
}
