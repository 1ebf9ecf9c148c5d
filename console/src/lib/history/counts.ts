/** A histogram that comes in parts: older and older times. */
import type { Schemas } from '$api/contract';

export interface Counts {
  firstMs: number;
  widthMs: number;
  values: readonly number[];
  total: number;
  /** Older times are not counted yet. */
  readMs: number;
  isComplete: boolean;
  files: number;
  known: number;
}

/** With one part more. */
export function withPart(before: Counts | undefined, part: Schemas['EventCounts']): Counts {
  const values = part.counts.map((value, i) => value + (before?.values[i] ?? 0));
  return {
    firstMs: Date.parse(part.first),
    widthMs: part.width_ms,
    values,
    total: values.reduce((sum, value) => sum + value, 0),
    readMs: Date.parse(part.read),
    isComplete: part.cursor === null,
    files: (before?.files ?? 0) + part.files,
    known: (before?.known ?? 0) + part.files_known,
  };
}

/** The share of the time that has been counted. */
export function readShare(counts: Counts): number {
  if (counts.isComplete) return 1;
  const endMs = counts.firstMs + counts.values.length * counts.widthMs;
  return Math.min(1, Math.max(0, (endMs - counts.readMs) / Math.max(1, endMs - counts.firstMs)));
}

/** Buckets between two places of a drag, as the time they cover. */
export function timeOf(counts: Counts, from: number, to: number): [fromMs: number, toMs: number] {
  const last = counts.values.length - 1;
  const clamp = (place: number) => Math.min(last, Math.max(0, Math.floor(place)));
  const low = clamp(Math.min(from, to));
  const high = clamp(Math.max(from, to));
  return [counts.firstMs + low * counts.widthMs, counts.firstMs + (high + 1) * counts.widthMs];
}
