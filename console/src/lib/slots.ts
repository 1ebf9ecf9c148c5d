/** Rates of outcomes as stacked slots of time. */
import type { Points } from './series.svelte';

/** From the bottom up. `colour` draws, `ink` writes. What arrived in time is what is left of the delivered. */
export const SLOT_ROWS = [
  { field: 'shaped_hz', name: 'shaped', colour: 'shaped', ink: 'shaped' },
  { field: 'replaced_hz', name: 'replaced', colour: 'replaced', ink: 'replaced' },
  { field: 'late_hz', name: 'late', colour: 'late', ink: 'late' },
  { field: 'expired_hz', name: 'expired', colour: 'expired', ink: 'expired' },
  { field: 'shed_hz', name: 'shed', colour: 'shed', ink: 'shed' },
  { field: 'refused_hz', name: 'refused', colour: 'refused', ink: 'refused' },
];

export interface SlotRow {
  field: string;
  name: string;
  colour: string;
  ink: string;
  values: number[];
}

/** Means of a series in slots; what is empty is 0. */
export function slotMeans(points: Points, starts: readonly number[], slotMs: number): number[] {
  const sums = starts.map(() => 0);
  const counts = starts.map(() => 0);
  const first = starts[0] ?? 0;
  for (let i = points.times.length - 1; i >= 0; i -= 1) {
    const slot = Math.floor((points.times[i]! - first) / slotMs);
    if (slot < 0) break;
    if (slot >= starts.length) continue;
    sums[slot]! += points.values[i]!;
    counts[slot]! += 1;
  }
  return sums.map((sum, i) => (counts[i] ? sum / counts[i]! : 0));
}

export function outcomeSlots(
  of: (field: string) => Points,
  endMs: number,
  windowMs: number,
  slotMs: number,
): { starts: number[]; rows: SlotRow[]; lastInTime: number } {
  const length = Math.floor(windowMs / slotMs);
  const starts = Array.from({ length }, (_, i) => endMs - (length - 1 - i) * slotMs);
  const delivered = slotMeans(of('delivered_hz'), starts, slotMs);
  const rows = SLOT_ROWS.map((each) => ({ ...each, values: slotMeans(of(each.field), starts, slotMs) }));
  const arrived = new Map(rows.map((row) => [row.field, row.values]));
  const inTime = delivered.map((value, i) =>
    Math.max(0, value - (arrived.get('late_hz')?.[i] ?? 0) - (arrived.get('shaped_hz')?.[i] ?? 0)),
  );
  return {
    starts,
    rows: [
      { field: 'delivered_hz', name: 'in time', colour: 'in-time-quiet', ink: 'in-time', values: inTime },
      ...rows,
    ],
    lastInTime: inTime.at(-1) || (inTime.at(-2) ?? 0),
  };
}
