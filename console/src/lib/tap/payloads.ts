/** What a payload is, and how to show it. Everything here is bounded: payloads are of others. */
export type ImageKind = 'jpeg' | 'png' | 'webp' | 'gif';
export type PayloadKind = ImageKind | 'json' | 'xml' | 'text' | 'binary' | 'empty';

/** What is shown of text, JSON, XML and hex; the rest is there as a download. */
export const MAX_SHOWN = 64 * 1024;
/** Larger pictures are not decoded: 40 million pixels take 160 MB. */
export const MAX_PIXELS = 40e6;

const NAMES: Record<PayloadKind, string> = {
  jpeg: 'JPEG',
  png: 'PNG',
  webp: 'WebP',
  gif: 'GIF',
  json: 'JSON',
  xml: 'XML',
  text: 'text',
  binary: 'binary',
  empty: 'empty',
};
export const kindName = (kind: PayloadKind): string => NAMES[kind];
export const isImage = (kind: PayloadKind): kind is ImageKind =>
  kind === 'jpeg' || kind === 'png' || kind === 'webp' || kind === 'gif';

const ascii = (bytes: Uint8Array, at: number, text: string): boolean => {
  for (let i = 0; i < text.length; i += 1) if (bytes[at + i] !== text.charCodeAt(i)) return false;
  return true;
};

/** Decided by the bytes. The content type only tells text kinds apart. */
export function kindOf(bytes: Uint8Array, contentType = ''): PayloadKind {
  if (bytes.length === 0) return 'empty';
  if (bytes[0] === 0xff && bytes[1] === 0xd8 && bytes[2] === 0xff) return 'jpeg';
  if (bytes[0] === 0x89 && ascii(bytes, 1, 'PNG\r\n\x1a\n')) return 'png';
  if (ascii(bytes, 0, 'GIF87a') || ascii(bytes, 0, 'GIF89a')) return 'gif';
  if (ascii(bytes, 0, 'RIFF') && ascii(bytes, 8, 'WEBP')) return 'webp';
  const start = bytes.subarray(0, 4096);
  if (!isText(start, bytes.length > start.length)) return 'binary';
  const type = contentType.toLowerCase();
  let first = 0;
  if (start[0] === 0xef && start[1] === 0xbb && start[2] === 0xbf) first = 3;
  while (first < start.length && [9, 10, 13, 32].includes(start[first]!)) first += 1;
  const initial = String.fromCharCode(start[first] ?? 0);
  if (initial === '<' && (/\bxml\b/.test(type) || /[A-Za-z?!_]/.test(String.fromCharCode(start[first + 1] ?? 0))))
    return 'xml';
  if (initial === '{' || initial === '[' || /[/+]json\b/.test(type)) return 'json';
  return 'text';
}

/** UTF-8 with hardly any control characters. */
function isText(bytes: Uint8Array, isCut: boolean): boolean {
  let odd = 0;
  for (const byte of bytes) {
    if (byte === 0) return false;
    if (byte < 0x20 && byte !== 9 && byte !== 10 && byte !== 13 && byte !== 27) odd += 1;
  }
  if (odd * 20 > bytes.length) return false;
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: isCut });
    return true;
  } catch {
    return false;
  }
}

/** Width and height from a picture's header, without decoding it. */
export function imageSize(bytes: Uint8Array, kind: ImageKind): { width: number; height: number } | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  try {
    if (kind === 'png') return { width: view.getUint32(16), height: view.getUint32(20) };
    if (kind === 'gif') return { width: view.getUint16(6, true), height: view.getUint16(8, true) };
    if (kind === 'webp') {
      if (ascii(bytes, 12, 'VP8X')) {
        const at = (i: number) => 1 + bytes[i]! + (bytes[i + 1]! << 8) + (bytes[i + 2]! << 16);
        return { width: at(24), height: at(27) };
      }
      if (ascii(bytes, 12, 'VP8L')) {
        const bits = view.getUint32(21, true);
        return { width: 1 + (bits & 0x3fff), height: 1 + ((bits >> 14) & 0x3fff) };
      }
      return { width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff };
    }
    for (let at = 2; at + 9 < bytes.length;) {
      if (bytes[at] !== 0xff) return undefined;
      const marker = bytes[at + 1]!;
      const isFrame = marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
      if (isFrame) return { width: view.getUint16(at + 7), height: view.getUint16(at + 5) };
      at += marker === 0xff ? 1 : 2 + view.getUint16(at + 2);
    }
  } catch {
    // shorter than its header says
  }
  return undefined;
}

/** Whether a picture may be decoded: its header says a size, and that is bearable. */
export function canDecode(bytes: Uint8Array, kind: ImageKind): boolean {
  const size = imageSize(bytes, kind);
  return !!size && size.width > 0 && size.height > 0 && size.width * size.height <= MAX_PIXELS;
}

/** The text of a payload, as much as is shown. */
export function textOf(bytes: Uint8Array, most = MAX_SHOWN): string {
  const isCut = bytes.length > most;
  return new TextDecoder('utf-8').decode(bytes.subarray(0, most), { stream: isCut });
}

/** One line for a row of the table. */
export function glance(bytes: Uint8Array, kind: PayloadKind, most = 160): string {
  if (kind === 'json' || kind === 'xml' || kind === 'text') return textOf(bytes, most).replace(/\s+/g, ' ').trim();
  if (kind === 'binary')
    return Array.from(bytes.subarray(0, 16), (byte) => byte.toString(16).padStart(2, '0')).join(' ');
  return '';
}

/** Lines of 16 bytes: offset, hex, characters. */
export function hexLines(bytes: Uint8Array, most = 4096): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, most); at += 16) {
    let hex = '';
    let text = '';
    bytes.subarray(at, Math.min(at + 16, most)).forEach((byte, i) => {
      hex += (i === 8 ? '  ' : i ? ' ' : '') + byte.toString(16).padStart(2, '0');
      text += byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '·';
    });
    lines.push(`${at.toString(16).padStart(6, '0')}  ${hex.padEnd(48)}  ${text}`);
  }
  return lines.join('\n');
}

/** The name of a download: harmless whatever the channel is called. */
export function fileName(channel: string, id: string, kind: PayloadKind): string {
  const clean = (text: string) =>
    text
      .replace(/[^A-Za-z0-9_-]+/g, '-')
      .replace(/^-+|-+$/g, '')
      .slice(0, 60);
  const ending = { jpeg: 'jpg', png: 'png', webp: 'webp', gif: 'gif', json: 'json', xml: 'xml', text: 'txt' }[
    kind as string
  ];
  return `${[clean(channel), clean(id)].filter(Boolean).join('_') || 'event'}.${ending ?? 'bin'}`;
}
