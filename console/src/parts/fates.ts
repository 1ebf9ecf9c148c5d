import type { GlyphName } from './drawings';

/** What became of an event, as the page shows it. */
export type Fate = 'in-time' | 'late' | 'shaped' | 'replaced' | 'expired' | 'shed' | 'refused';

export const FATES: Record<Fate, string> = {
  'in-time': 'arrived within its deadline',
  late: 'arrived, after its deadline',
  shaped: 'arrived in time, smaller',
  replaced: 'a newer one with its key went instead',
  expired: 'could not be in time; spared the link',
  shed: 'no room; less important than the rest',
  refused: 'not taken in: rate, right or admission',
};

/** The fate of an outcome of the ledger. */
export function fateOf(outcome: string): Fate {
  if (outcome === 'delivered' || outcome === 'in time') return 'in-time';
  return outcome in FATES ? (outcome as Fate) : 'shed';
}

export function isGlyph(name: string): name is GlyphName {
  return name in FATES || ['ok', 'warn', 'bad', 'stale'].includes(name);
}
