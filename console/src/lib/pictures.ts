/** Pictures among payloads: recognised by their first bytes, kept as object URLs in a bounded store. */

export interface PictureInfo {
  type: 'image/png' | 'image/jpeg' | 'image/webp' | 'image/gif';
  /** In pixels; 0 if the header doesn't say. */
  width: number;
  height: number;
}

/** Type and size of a picture, from its header; undefined if it is none. Nothing is decoded. */
export function pictureOf(bytes: Uint8Array): PictureInfo | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const text = (from: number, length: number) => String.fromCharCode(...bytes.subarray(from, from + length));
  if (bytes.length >= 24 && text(0, 8) === '\x89PNG\r\n\x1a\n')
    return { type: 'image/png', width: view.getUint32(16), height: view.getUint32(20) };
  if (bytes.length >= 10 && /^GIF8[79]a/.test(text(0, 6)))
    return { type: 'image/gif', width: view.getUint16(6, true), height: view.getUint16(8, true) };
  if (bytes.length >= 30 && text(0, 4) === 'RIFF' && text(8, 4) === 'WEBP') return webp(bytes, view, text(12, 4));
  if (bytes.length >= 4 && bytes[0] === 0xff && bytes[1] === 0xd8 && bytes[2] === 0xff) return jpeg(bytes, view);
  return undefined;
}

function webp(bytes: Uint8Array, view: DataView, kind: string): PictureInfo {
  const type = 'image/webp';
  if (kind === 'VP8X') {
    const at = (i: number) => 1 + bytes[i]! + (bytes[i + 1]! << 8) + (bytes[i + 2]! << 16);
    return { type, width: at(24), height: at(27) };
  }
  if (kind === 'VP8L') {
    const bits = view.getUint32(21, true);
    return { type, width: 1 + (bits & 0x3fff), height: 1 + ((bits >> 14) & 0x3fff) };
  }
  return { type, width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff };
}

function jpeg(bytes: Uint8Array, view: DataView): PictureInfo {
  let at = 2;
  while (at + 9 < bytes.length) {
    if (bytes[at] !== 0xff) break;
    const marker = bytes[at + 1]!;
    // Start of frame, without the tables among the same numbers.
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker))
      return { type: 'image/jpeg', height: view.getUint16(at + 5), width: view.getUint16(at + 7) };
    at += marker === 0xff ? 1 : 2 + view.getUint16(at + 2);
  }
  return { type: 'image/jpeg', width: 0, height: 0 };
}

export interface Picture extends PictureInfo {
  /** Which event it came with. */
  event: string;
  channel: string;
  atMs: number;
  bytes: number;
  /** Bytes before it was shaped; 0 if it was not. */
  fromBytes: number;
  url: string;
}

interface UrlMaker {
  make: (bytes: Uint8Array, type: string) => string;
  revoke: (url: string) => void;
}

const OBJECT_URLS: UrlMaker = {
  make: (bytes, type) => URL.createObjectURL(new Blob([bytes as Uint8Array<ArrayBuffer>], { type })),
  revoke: (url) => URL.revokeObjectURL(url),
};

const MOST_LEAVING = 16;

/**
 * The newest pictures of some channels. URLs of those that make room are revoked; `clear` when the page is left.
 */
export class Pictures {
  readonly #byChannel = new Map<string, Picture[]>();
  readonly #urls: UrlMaker;
  /** Of pictures that made room a moment ago: they may still be on their way to the screen. */
  #leaving: string[] = [];
  #bytes = 0;

  constructor(
    readonly mostPerChannel = 6,
    readonly mostChannels = 8,
    readonly mostBytes = 32_000_000,
    urls = OBJECT_URLS,
  ) {
    this.#urls = urls;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get channels(): string[] {
    return [...this.#byChannel.keys()];
  }

  /** Newest first. */
  of(channel: string): readonly Picture[] {
    return this.#byChannel.get(channel) ?? [];
  }

  find(channel: string, event: string): Picture | undefined {
    return this.of(channel).find((each) => each.event === event);
  }

  /** Keep a payload if it is a picture and there is room for its channel. */
  add(
    payload: Uint8Array,
    about: { event: string; channel: string; atMs: number; fromBytes: number },
  ): Picture | undefined {
    const info = pictureOf(payload);
    if (!info || payload.length > this.mostBytes) return undefined;
    let kept = this.#byChannel.get(about.channel);
    if (!kept) {
      if (this.#byChannel.size >= this.mostChannels) return undefined;
      this.#byChannel.set(about.channel, (kept = []));
    }
    const picture = { ...info, ...about, bytes: payload.length, url: this.#urls.make(payload, info.type) };
    kept.unshift(picture);
    this.#bytes += payload.length;
    while (kept.length > this.mostPerChannel) this.#drop(kept);
    while (this.#bytes > this.mostBytes) this.#drop(this.#longest());
    return picture;
  }

  clear(): void {
    for (const kept of this.#byChannel.values()) while (kept.length) this.#drop(kept);
    this.#byChannel.clear();
    for (const url of this.#leaving.splice(0)) this.#urls.revoke(url);
  }

  #longest(): Picture[] {
    return [...this.#byChannel.values()].reduce((a, b) => (b.length > a.length ? b : a));
  }

  #drop(kept: Picture[]): void {
    const picture = kept.pop();
    if (!picture) return;
    this.#bytes -= picture.bytes;
    this.#leaving.push(picture.url);
    if (this.#leaving.length > MOST_LEAVING) this.#urls.revoke(this.#leaving.shift()!);
  }
}
