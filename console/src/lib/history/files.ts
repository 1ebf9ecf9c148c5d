/** Events as a file to download, made by the node. */
import { download as request, queryOf } from '$lib/api';
import type { HistoryQuestion } from './asking.svelte';
import { iso } from './view';

export const FORMATS = [
  ['csv', 'CSV'],
  ['json', 'JSON'],
  ['parquet', 'Parquet'],
] as const;
export type Format = (typeof FORMATS)[number][0];

/** Ask for the file of a question's events, and hand it to the browser; returns its size. */
export async function download(question: HistoryQuestion, format: Format, signal: AbortSignal): Promise<number> {
  const { view, span } = question;
  const query = {
    channel: view.channel,
    where: view.where,
    xpath: view.xpath,
    since: span.sinceMs === undefined ? '' : iso(span.sinceMs),
    until: span.untilMs === undefined ? '' : iso(span.untilMs),
    format,
  };
  const data = await request(`/api/v1/query/export${queryOf(query)}`, signal);
  const link = document.createElement('a');
  link.href = URL.createObjectURL(data);
  link.download = fileName(view.channel, format);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return data.size;
}

/** Harmless whatever the channel is called. */
export function fileName(channel: string, format: Format): string {
  const clean = channel
    .replace(/[^A-Za-z0-9_-]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 60);
  return `${clean || 'events'}.${format === 'json' ? 'jsonl' : format}`;
}
