import type { Picture } from '$lib/pictures';
import type { Schemas } from '$api/contract';
import { isReceived } from '$lib/client_view';
import { fateOf, type Fate } from './fates';

/** What became of a picture at its receiver. */
export interface PictureFate {
  event: string;
  fate: Fate;
  isReceived: boolean;
  atMs: number;
  bytes: number;
  /** Bytes before it was shaped; 0 if it was not. */
  fromBytes: number;
  tookMs: number | undefined;
  reason: string;
  policy: string;
  /** What to show of it. */
  picture: Picture | undefined;
}

/** From an outcome of the ledger; `picture` may be what the page itself received of the same event. */
export function pictureFate(outcome: Schemas['DeliveryOutcome'], picture?: Picture): PictureFate {
  return {
    event: outcome.event,
    fate: fateOf(outcome.outcome),
    isReceived: isReceived(outcome.outcome),
    atMs: outcome.done_ms,
    bytes: outcome.size,
    fromBytes: outcome.from_size ?? 0,
    tookMs: isReceived(outcome.outcome)
      ? Math.max(0, outcome.done_ms - outcome.received_ms + (outcome.sending_ms ?? 0))
      : undefined,
    reason: outcome.reason,
    policy: outcome.policy,
    picture,
  };
}
