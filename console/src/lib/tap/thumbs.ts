/**
 * Small pictures for rows: decoded by the browser beside the page's thread, two at a time, the latest wanted first. A
 * bounded number is kept; what nobody waits for any more is not decoded.
 */
import { canDecode, isImage } from './payloads';
import type { TapEvent } from './events';

const MAX_KEPT = 160;
const MAX_WAITING = 60;
const AT_ONCE = 2;
/** A large picture takes some milliseconds: a list that runs by is not worth more than this. */
const MAX_HZ = 10;
const BURST = 40;
export const THUMB_WIDTH = 34;
export const THUMB_HEIGHT = 22;

type Show = (bitmap: ImageBitmap) => void;

class Thumbs {
  readonly #kept = new Map<TapEvent, ImageBitmap>();
  #waiting: { event: TapEvent; show: Show }[] = [];
  #running = 0;
  #allowed = BURST;
  #refilledMs = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Show the thumbnail now or when it is decoded. Returns what to call when it is not wanted any more. */
  want(event: TapEvent, show: Show): () => void {
    const found = this.#kept.get(event);
    if (found) {
      show(found);
      return () => undefined;
    }
    const wish = { event, show };
    this.#waiting.push(wish);
    if (this.#waiting.length > MAX_WAITING) this.#waiting.shift();
    this.#next();
    return () => {
      const at = this.#waiting.indexOf(wish);
      if (at >= 0) this.#waiting.splice(at, 1);
      wish.show = () => undefined;
    };
  }

  clear(): void {
    for (const bitmap of this.#kept.values()) bitmap.close();
    this.#kept.clear();
    this.#waiting = [];
    clearTimeout(this.#timer);
  }

  #next(): void {
    const now = performance.now();
    this.#allowed = Math.min(BURST, this.#allowed + ((now - this.#refilledMs) * MAX_HZ) / 1000);
    this.#refilledMs = now;
    while (this.#running < AT_ONCE) {
      if (this.#allowed < 1) {
        if (this.#waiting.length) this.#later();
        return;
      }
      const wish = this.#waiting.pop();
      if (!wish) return;
      const { event } = wish;
      if (!event.payload || !isImage(event.kind) || !canDecode(event.payload, event.kind)) continue;
      this.#running += 1;
      this.#allowed -= 1;
      void this.#decode(event)
        .then((bitmap) => {
          this.#kept.set(event, bitmap);
          if (this.#kept.size > MAX_KEPT) {
            const [oldest, gone] = this.#kept.entries().next().value!;
            this.#kept.delete(oldest);
            gone.close();
          }
          wish.show(bitmap);
        })
        .catch(() => undefined) // damaged: the row stays without
        .finally(() => {
          this.#running -= 1;
          this.#next();
        });
    }
  }

  #later(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#next(), 1000 / MAX_HZ);
  }

  async #decode(event: TapEvent): Promise<ImageBitmap> {
    const blob = new Blob([event.payload as Uint8Array<ArrayBuffer>], { type: `image/${event.kind}` });
    return createImageBitmap(blob, {
      resizeWidth: THUMB_WIDTH * 2,
      resizeHeight: THUMB_HEIGHT * 2,
      resizeQuality: 'low',
    });
  }
}

export const thumbs = new Thumbs();
