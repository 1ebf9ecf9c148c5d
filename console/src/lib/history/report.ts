/** The report in words and as points of graphs. */
import type { Schemas } from '$api/contract';
import { count, number, plain, share } from '$lib/format';

export type Report = Schemas['Report'];
type Quality = Schemas['DeliveredQuality'];

/** Outcomes in the order of a column, from what is good to what is lost. */
export const OUTCOMES = [
  ['delivered', 'in time', 'in-time'],
  ['shaped', 'shaped', 'shaped'],
  ['replaced', 'replaced', 'replaced'],
  ['late', 'late', 'late'],
  ['expired', 'expired', 'expired'],
  ['shed', 'shed', 'shed'],
  ['refused', 'refused', 'refused'],
] as const;

const lost = (of: Quality): number => of.expired + of.shed + of.refused;

/** The answer first: how much was in time, and what went wrong most. */
export function reportSentence(report: Report): string {
  const { totals } = report;
  if (!totals.events) return 'Nothing was delivered in this time.';
  const good = totals.in_time === null ? 'Nothing had to arrive' : `${share(totals.in_time)} arrived in time`;
  const parts: string[] = [];
  if (totals.late) parts.push(`${number(totals.late)} late`);
  if (lost(totals)) parts.push(`${number(lost(totals))} lost`);
  if (!parts.length) return `${good}: ${count(totals.events, 'delivery', 'deliveries')}, none late or lost.`;
  const worst = report.losses.find((each) => each.outcome !== 'shaped' && each.outcome !== 'replaced');
  const cause = worst ? `, most ${lossWords(worst)}` : '';
  return `${good}: ${parts.join(' and ')} of ${number(totals.events)}${cause}.`;
}

/** `late on uav/imagery: after its deadline`. */
export function lossWords(loss: Schemas['Loss']): string {
  const where = loss.channel ? ` on ${plain(loss.channel, 60)}` : '';
  return `${loss.outcome}${where}${loss.cause ? `: ${plain(loss.cause, 80)}` : ''}`;
}

/** Columns of outcomes: those that occur. */
export function outcomeRows(report: Report): { name: string; colour: string; values: number[] }[] {
  return OUTCOMES.map(([field, name, colour]) => ({
    name,
    colour,
    values: report.series.map((each) => each[field]),
  })).filter((row) => row.values.some(Boolean) || row.colour === 'in-time');
}

/** A graph's line: a value per moment. */
export const line = (report: Report, of: (moment: Report['series'][number]) => number | null | undefined) => ({
  times: report.series.map((each) => each.at_ms + report.bucket_ms / 2),
  values: report.series.map((each) => of(each) ?? null),
});
