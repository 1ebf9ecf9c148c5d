/** Events as a file to download, made by the node. */
import { api } from '$lib/api';
import type { HistoryQuestion } from './asking.svelte';
import { iso } from './view';

export const FORMATS = [
  ['csv', 'CSV', 'text/csv'],
  ['json', 'JSON', 'application/x-ndjson'],
  ['parquet', 'Parquet', 'application/vnd.apache.parquet'],
] as const;
export type Format = (typeof FORMATS)[number][0];
export const MOST_EXPORTED = 50_000;

export interface Exported {
  events: number;
  isComplete: boolean;
  bytes: number;
}

/** Ask for the file of a question's events, and hand it to the browser. */
export async function download(question: HistoryQuestion, format: Format, signal: AbortSignal): Promise<Exported> {
  const { view, span } = question;
  const found = await api.get('/api/v1/query/export', {
    query: {
      channel: view.channel,
      where: view.where,
      xpath: view.xpath,
      since: span.sinceMs === undefined ? '' : iso(span.sinceMs),
      until: span.untilMs === undefined ? '' : iso(span.untilMs),
      limit: MOST_EXPORTED,
      format,
    },
    signal,
  });
  const binary = atob(found.body);
  const data = Uint8Array.from(binary, (character) => character.charCodeAt(0));
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([data], { type: FORMATS.find(([name]) => name === format)![2] }));
  link.download = fileName(view.channel, format);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return { events: found.events, isComplete: found.is_complete, bytes: data.length };
}

/** Harmless whatever the channel is called. */
export function fileName(channel: string, format: Format): string {
  const clean = channel
    .replace(/[^A-Za-z0-9_-]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 60);
  return `${clean || 'events'}.${format === 'json' ? 'jsonl' : format}`;
}
