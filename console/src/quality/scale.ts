/**
 * The scale of a property: where its values are between the worst, at 0, and the best, at 1. Better is always to the
 * right. A value is a number or the name of a level; a level has its place in the middle of its part.
 */
import { figure } from '$lib/format';

export type Value = number | string;

/** A property as far as its scale is concerned; a `range` may have no end. */
export interface Domain {
  better: string;
  levels: readonly string[];
  range?: readonly [number | null, number | null];
  unit: string;
}

export interface Scale {
  levels: readonly string[];
  lo: number;
  hi: number;
  /** Lower values are better. */
  isFlipped: boolean;
  unit: string;
  /** What an arrow key moves by. */
  step: number;
}

export interface Tick {
  share: number;
  text: string;
}

export interface Band {
  left: number;
  width: number;
}

const EMPTY_SPAN = 10;
const NARROW = 0.3;
const MARGIN = 0.35;

/** `size` rounded up to 1, 2 or 5 times a power of ten. */
export function niceAbove(size: number): number {
  if (!(size > 0) || !Number.isFinite(size)) return 1;
  const power = 10 ** Math.floor(Math.log10(size) + 1e-9);
  for (const factor of [1, 2, 5]) if (size <= factor * power * (1 + 1e-9)) return factor * power;
  return 10 * power;
}

/** The position of a value: of a level its number; undefined if it is none of this property. */
export function positionOf(domain: Pick<Domain, 'levels'>, value: unknown): number | undefined {
  if (domain.levels.length) {
    const at = typeof value === 'string' ? domain.levels.indexOf(value) : -1;
    return at < 0 ? undefined : at;
  }
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

/**
 * The scale that shows these values. A range without an end is shown as far as they need; `isClose`: a long range whose
 * values are close together is shown around them only.
 */
export function scaleOf(domain: Domain, values: readonly unknown[], isClose = false): Scale {
  const isFlipped = domain.better === 'lower';
  const base = { levels: domain.levels, isFlipped, unit: domain.unit };
  if (domain.levels.length) return { ...base, lo: -0.5, hi: domain.levels.length - 0.5, step: 1 };
  const known = values.map((each) => positionOf(domain, each)).filter((each) => each !== undefined);
  const [low, high] = ends(domain, known);
  let [lo, hi] = [low, high];
  if (isClose && known.length) {
    const [least, most] = [Math.min(...known), Math.max(...known)];
    if (most - least < NARROW * (high - low)) {
      const grid = niceAbove(Math.max(most - least, (high - low) / 100) / 4);
      const margin = Math.max(MARGIN * (most - least), 2 * grid);
      lo = Math.max(low, Math.floor((least - margin) / grid) * grid);
      hi = Math.min(high, Math.ceil((most + margin) / grid) * grid);
    }
  }
  return { ...base, lo, hi, step: niceAbove((hi - lo) / 200) };
}

function ends(domain: Domain, known: readonly number[]): [number, number] {
  const low = domain.range?.[0] ?? undefined;
  const high = domain.range?.[1] ?? undefined;
  if (low !== undefined && high !== undefined) return [low, high];
  const most = Math.max(...known, low ?? 0);
  const least = Math.min(...known, high ?? 0);
  if (low !== undefined) return [low, low + niceAbove((most - low) * 1.15 || EMPTY_SPAN)];
  if (high !== undefined) return [high - niceAbove((high - least) * 1.15 || EMPTY_SPAN), high];
  const size = niceAbove(Math.max(Math.abs(most), Math.abs(least)) * 1.15 || EMPTY_SPAN);
  return [least < 0 ? -size : 0, size];
}

/** Between 0, the worst, and 1, the best; what is beyond the scale is at its end. */
export function shareOf(scale: Scale, value: unknown): number | undefined {
  const at = positionOf(scale, value);
  return at === undefined ? undefined : shareAt(scale, at);
}

function shareAt(scale: Scale, position: number): number {
  const share = Math.min(1, Math.max(0, (position - scale.lo) / (scale.hi - scale.lo)));
  return scale.isFlipped ? 1 - share : share;
}

/** The value at a place of the scale, rounded to its step. */
export function valueAt(scale: Scale, share: number): Value {
  const along = scale.isFlipped ? 1 - share : share;
  const position = scale.lo + Math.min(1, Math.max(0, along)) * (scale.hi - scale.lo);
  if (scale.levels.length) {
    const at = Math.min(scale.levels.length - 1, Math.max(0, Math.round(position)));
    return scale.levels[at]!;
  }
  return rounded(Math.min(scale.hi, Math.max(scale.lo, Math.round(position / scale.step) * scale.step)));
}

/** The value `steps` better than this one, or worse; it stays within the scale. */
export function stepped(scale: Scale, value: Value, steps: number): Value {
  const at = positionOf(scale, value) ?? (scale.isFlipped ? scale.hi : scale.lo);
  const next = at + (scale.isFlipped ? -steps : steps) * scale.step;
  const [lo, hi] = scale.levels.length ? [0, scale.levels.length - 1] : [scale.lo, scale.hi];
  const position = Math.min(hi, Math.max(lo, next));
  return scale.levels.length ? scale.levels[position]! : rounded(position);
}

const rounded = (value: number) => Number(value.toPrecision(12));

/** From one value to another, whichever is better. A level fills most of its part. */
export function bandOf(scale: Scale, one: unknown, other: unknown): Band | undefined {
  const [a, b] = [positionOf(scale, one), positionOf(scale, other)];
  if (a === undefined || b === undefined) return undefined;
  const part = scale.levels.length ? 0.3 : 0;
  const from = shareAt(scale, Math.min(a, b) - part);
  const to = shareAt(scale, Math.max(a, b) + part);
  return { left: Math.min(from, to), width: Math.abs(to - from) };
}

/** About five marks; the last one has the unit. */
export function ticksOf(scale: Scale, most = 5): Tick[] {
  if (scale.levels.length) {
    const every = Math.ceil(scale.levels.length / (most + 1));
    return scale.levels.flatMap((text, at) => (at % every ? [] : [{ share: shareAt(scale, at), text }]));
  }
  const step = niceAbove((scale.hi - scale.lo) / most);
  const found: Tick[] = [];
  for (let at = Math.ceil(scale.lo / step - 1e-9) * step; at <= scale.hi + step * 1e-6; at += step)
    found.push({ share: shareAt(scale, at), text: figure(rounded(at)) });
  found.sort((a, b) => a.share - b.share);
  const last = found.at(-1);
  if (last && scale.unit) last.text += `\u00a0${scale.unit}`;
  return found;
}

/** A value with its unit. */
export function said(value: unknown, unit: string): string {
  if (typeof value === 'number') return unit ? `${exact(value)}\u00a0${unit}` : exact(value);
  return typeof value === 'string' ? value : '–';
}

/** Up to four significant figures, as short as it can be. */
function exact(value: number): string {
  return Number.isFinite(value) && Math.abs(value) < 1e6 ? String(Number(value.toPrecision(4))) : figure(value);
}
