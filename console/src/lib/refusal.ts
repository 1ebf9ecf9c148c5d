/** Refusals of a subscription, as SUBACK tells them, in words. */
import { bps, bytes, rate } from './format';

type Properties = Record<string, string | string[]>;

export interface Suback {
  granted?: readonly unknown[];
  reasonCode?: number | undefined;
  properties?: { reasonString?: string; userProperties?: Properties | undefined } | undefined;
}

export interface Refusal {
  code: number;
  /** `orlando refused uav/#: bandwidth, asked 2.1 Mbit/s, free 0.8 Mbit/s.` */
  sentence: string;
  /** What lacks it, such as `client ann`. */
  of: string;
  node: string;
  resource: string;
  reason: string;
  /** The character of the predicate, from 1, where the mistake is. */
  at?: number;
}

const QUOTA_EXCEEDED = 0x97;

function amount(resource: string, value: string): string {
  const found = Number(value);
  if (value === '' || !Number.isFinite(found)) return '';
  if (resource === 'bandwidth') return bps(found);
  if (resource === 'cpu') return rate(found);
  return resource === 'memory' ? bytes(found) : value;
}

/** The refusal in a SUBACK of one filter; undefined if it was granted. */
export function refusalOf(filter: string, packet: Suback | undefined): Refusal | undefined {
  const code = Number(packet?.granted?.[0] ?? packet?.reasonCode ?? 0x80);
  if (code < 0x80) return undefined;
  const said = packet?.properties?.userProperties ?? {};
  const one = (name: string) => {
    const value = said[name];
    return (Array.isArray(value) ? value[0] : value) ?? '';
  };
  const reason = packet?.properties?.reasonString ?? '';
  const node = one('node');
  const resource = one('resource');
  const asked = amount(resource, one('asked'));
  const free = amount(resource, one('free'));
  const found = { code, of: one('of'), node, resource, reason };
  if (code === QUOTA_EXCEEDED && resource) {
    const what =
      resource === 'path'
        ? 'it did not reply'
        : [resource, asked && `asked ${asked}`, free && `free ${free}`].filter(Boolean).join(', ');
    return { ...found, sentence: `${node || 'The node'} refused ${filter}: ${what}.` };
  }
  const at = Number(/ at character (\d+)/.exec(reason)?.[1] ?? 0);
  const why = reason || (code === 0x87 ? 'you may not subscribe to it' : `reason code 0x${code.toString(16)}`);
  return { ...found, sentence: `The node refused ${filter}: ${why}`, ...(at ? { at } : {}) };
}
