/** Figures, units and times as text. Every function gives '–' for what has no value. */
const NONE = '–';
const THIN = '\u00a0'; // no-break space, between figure and unit
type Value = number | null | undefined;

const formats = new Map<number, Intl.NumberFormat>();

function isNumber(value: Value): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}

/** A number with `digits` decimals and thousands separated. */
export function number(value: Value, digits = 0): string {
  if (!isNumber(value)) return NONE;
  let format = formats.get(digits);
  if (!format) {
    format = new Intl.NumberFormat('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
    formats.set(digits, format);
  }
  const text = format.format(value);
  return /^-0(\.0+)?$/.test(text) ? text.slice(1) : text;
}

/** A number with about three significant figures. */
export function figure(value: Value): string {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  if (size !== 0 && size < 0.01) return value.toPrecision(2).replace(/\.?0+(e|$)/, '$1');
  if (size >= 100 || Number.isInteger(value)) return number(value);
  return number(value, size >= 0.995 ? 1 : 2);
}

/** A share of 0 … 1 as per cent. What is not all never reads as 100 %, nor what is not nothing as 0 %. */
export function share(value: Value, digits = 1): string {
  if (!isNumber(value)) return NONE;
  const step = 10 ** -digits;
  let percent = value * 100;
  if (value < 1 && percent > 100 - step) percent = 100 - step;
  if (value > 0 && percent < step) percent = step;
  return `${number(percent, value === 1 || value === 0 ? 0 : digits)}${THIN}%`;
}

/** The parts of a scaled figure, for showing the unit smaller. */
export interface Scaled {
  value: string;
  unit: string;
}

function scale(value: Value, units: [factor: number, unit: string][], least = 0): Scaled {
  if (!isNumber(value)) return { value: NONE, unit: units[0]![1] };
  const size = Math.abs(value);
  let found = units[0]!;
  for (const each of units) if (size >= each[0] * 0.9995) found = each;
  const shown = value / found[0];
  return { value: least && size && size < least ? `<${THIN}${least}` : figure(shown), unit: found[1] };
}

function joined({ value, unit }: Scaled): string {
  return value === NONE ? NONE : `${value}${THIN}${unit}`;
}

const BYTES: [number, string][] = [
  [1, 'B'],
  [1e3, 'KB'],
  [1e6, 'MB'],
  [1e9, 'GB'],
  [1e12, 'TB'],
];
const BITS: [number, string][] = [
  [1, 'bit/s'],
  [1e3, 'kbit/s'],
  [1e6, 'Mbit/s'],
  [1e9, 'Gbit/s'],
];
const MILLISECONDS: [number, string][] = [
  [1, 'ms'],
  [1e3, 's'],
  [60e3, 'min'],
  [3600e3, 'h'],
  [86400e3, 'd'],
];

export const bytesParts = (value: Value): Scaled => scale(value, BYTES);
export const bytes = (value: Value): string => joined(bytesParts(value));
/** Bits per second, from kbit/s as the node counts. */
export const kbpsParts = (value: Value): Scaled => scale(isNumber(value) ? value * 1e3 : value, BITS);
export const kbps = (value: Value): string => joined(kbpsParts(value));
export const bps = (value: Value): string => joined(scale(value, BITS));
/** Events per second. */
export const rate = (value: Value): string => (isNumber(value) ? `${figure(value)}${THIN}/s` : NONE);
/** A latency: 0.4 ms, 96 ms, 2.8 s. */
export function latencyParts(value: Value): Scaled {
  if (!isNumber(value)) return { value: NONE, unit: 'ms' };
  if (Math.abs(value) >= 60e3) return scale(value, MILLISECONDS);
  return Math.abs(value) >= 10 && Math.abs(value) < 999.5
    ? { value: number(value), unit: 'ms' }
    : scale(value, MILLISECONDS.slice(0, 2));
}
export const latency = (value: Value): string => joined(latencyParts(value));

/** How long something took or lasts, in the two largest units: 5 min, 2 h 14 min, 3 d 4 h. */
export function duration(ms: Value): string {
  if (!isNumber(ms)) return NONE;
  const s = Math.round(Math.abs(ms) / 1000);
  if (s < 1) return `${number(Math.abs(ms))}${THIN}ms`;
  if (s < 60) return `${s}${THIN}s`;
  const minutes = Math.floor(s / 60);
  if (minutes < 60) return minutes < 10 && s % 60 ? `${minutes}${THIN}min ${s % 60}${THIN}s` : `${minutes}${THIN}min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours}${THIN}h ${minutes % 60}${THIN}min` : `${hours}${THIN}h`;
  const days = Math.floor(hours / 24);
  return hours % 24 && days < 10 ? `${days}${THIN}d ${hours % 24}${THIN}h` : `${days}${THIN}d`;
}

/** Roughly how long ago: 4 s, 5 min, 2 h, 3 d. */
export function age(ms: Value): string {
  if (!isNumber(ms)) return NONE;
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s}${THIN}s`;
  if (s < 3600) return `${Math.floor(s / 60)}${THIN}min`;
  if (s < 86400) return `${Math.floor(s / 3600)}${THIN}h`;
  return `${Math.floor(s / 86400)}${THIN}d`;
}

const two = (value: number): string => String(value).padStart(2, '0');

function clock(date: Date, isUtc: boolean, digits: 0 | 1 | 3, seconds = true): string {
  const [h, m, s, ms] = isUtc
    ? [date.getUTCHours(), date.getUTCMinutes(), date.getUTCSeconds(), date.getUTCMilliseconds()]
    : [date.getHours(), date.getMinutes(), date.getSeconds(), date.getMilliseconds()];
  const fraction = digits ? `.${String(ms).padStart(3, '0').slice(0, digits)}` : '';
  return `${two(h)}:${two(m)}${seconds ? `:${two(s)}${fraction}` : ''}`;
}

/** A day in ISO order: 2026-11-18. */
export function day(ms: Value, isUtc = false): string {
  if (!isNumber(ms)) return NONE;
  const date = new Date(ms);
  return isUtc
    ? `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`
    : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** A time in the viewer's zone: 14:32:06; with the day if it isn't today. `utc()` says the same in UTC. */
export function time(
  ms: Value,
  { digits = 0, seconds = true, now = Date.now() }: { digits?: 0 | 1 | 3; seconds?: boolean; now?: number } = {},
): string {
  if (!isNumber(ms)) return NONE;
  const text = clock(new Date(ms), false, digits, seconds);
  return day(ms) === day(now) ? text : `${day(ms)} ${text}`;
}

/** For hovering over a time: 2026-11-18 21:32:06.412 UTC. */
export function utc(ms: Value): string {
  return isNumber(ms) ? `${day(ms, true)} ${clock(new Date(ms), true, 3)} UTC` : '';
}

/** A trend per second, with its sign. */
export function trend(value: Value): string {
  if (!isNumber(value)) return NONE;
  if (value === 0) return '0';
  return `${value > 0 ? '+' : '−'}${figure(Math.abs(value))}`;
}

/** `1 client`, `2 clients`. */
export function count(value: number, one: string, many = `${one}s`): string {
  return `${number(value)} ${value === 1 ? one : many}`;
}

// eslint-disable-next-line no-control-regex -- those are meant
const HIDDEN_CHARACTERS = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const MAX_NAME = 200;

/**
 * Text of others, made harmless to look at: characters that are not seen or turn the writing direction become marks,
 * and what is too long is cut. The whole text belongs in the title (`cutTitle`).
 */
export function plain(text: string, most = MAX_NAME): string {
  const short = text.length > most ? `${text.slice(0, most)}…` : text;
  return short.replace(HIDDEN_CHARACTERS, (c) => {
    const code = c.codePointAt(0)!;
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return code === 0x7f ? '\u2421' : '\ufffd';
  });
}

/** The title for a text that `plain` shows: up to 2,000 characters. */
export function cutTitle(text: string): string {
  return text.length > 2_000 ? `${plain(text, 2_000)} (${number(text.length)} characters)` : plain(text, 2_000);
}

/** The unit of a series, from the quantity that its name begins with. */
export function unitOf(series: string): string {
  const parts = series.split('/');
  const quantity = (['channel', 'client', 'importance', 'node'].includes(parts[0]!) ? parts[1] : parts[0]) ?? '';
  if (quantity.endsWith('_hz')) return '/s';
  if (quantity.endsWith('_kbps')) return 'kbit/s';
  if (quantity.endsWith('_ms')) return 'ms';
  if (quantity.endsWith('_percent')) return '%';
  if (quantity.endsWith('_mb')) return 'MB';
  if (quantity.endsWith('bytes')) return 'B';
  return '';
}

/** A value of a series with its unit, scaled where that reads better. */
export function withUnit(value: Value, unit: string): string {
  if (!isNumber(value)) return NONE;
  if (unit === 'kbit/s') return kbps(value);
  if (unit === 'ms') return latency(value);
  if (unit === 'B') return bytes(value);
  if (unit === 'MB') return bytes(value * 1e6);
  if (unit === 'share') return share(value);
  return unit ? `${figure(value)}${THIN}${unit}` : figure(value);
}
