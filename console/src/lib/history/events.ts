/** Kept events in the form that the parts of a tap show. */
import type { Schemas } from '$api/contract';
import type { TapEvent } from '$lib/tap/events';
import { kindOf } from '$lib/tap/payloads';

export interface HistoryEvent extends TapEvent {
  /** What of it can't be read. */
  problem: string;
}

/** What an event takes besides its payload, roughly. */
const OVERHEAD = 400;
const encoder = new TextEncoder();
let lastKey = 0;

export function historyEvent(found: Schemas['QueryEvent']): HistoryEvent {
  const payload = found.payload_base64 ? fromBase64(found.payload_base64) : encoder.encode(found.payload ?? '');
  const attributes: Record<string, string> = Object.create(null) as Record<string, string>;
  for (const [name, value] of Object.entries(found.attributes ?? {})) attributes[name] = String(value);
  if (found.key) attributes['key'] ??= found.key;
  if (found.deadline_ms) attributes['deadline-ms'] ??= String(found.deadline_ms);
  return {
    key: (lastKey += 1),
    id: found.id,
    channel: found.channel,
    publisher: found.publisher,
    atMs: Date.parse(found.received),
    qos: found.qos ?? 0,
    isRetained: false,
    size: payload.length,
    kind: kindOf(payload),
    contentType: '',
    payload,
    attributes,
    metadata: found.metadata ?? '',
    shapedFrom: 0,
    problem: found.problem ?? '',
  };
}

/** Roughly what it takes in memory. */
export function sizeOf(event: HistoryEvent): number {
  let size = OVERHEAD + event.size + event.metadata.length;
  for (const [name, value] of Object.entries(event.attributes)) size += 2 * (name.length + value.length);
  return size;
}

function fromBase64(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
