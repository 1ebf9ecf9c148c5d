/** The model of the map: what is drawn of a snapshot, without where and how. */
import { isSlow, pairOf } from './happenings';
import { idOf, type NetFlow, type NetLink, type Snapshot } from './rows';

export type LinkState = 'up' | 'slow' | 'lossy' | 'failed';

export interface MapLink {
  /** The same for both directions. */
  id: string;
  source: string;
  target: string;
  state: LinkState;
  /** Of the slower direction; undefined if it does not work. */
  ms: number | undefined;
  usualMs: number | undefined;
  loss: number;
  failure: number;
}

export interface MapNode {
  name: string;
  isReachable: boolean;
  processingMs: number;
  startedMs: number;
}

export interface MapRoute {
  id: string;
  flow: string;
  path: string[];
  state: string;
  delayMs: number;
}

export interface MapFlow {
  id: string;
  flow: NetFlow;
  channels: string[];
  routes: MapRoute[];
}

export interface MapModel {
  nodes: MapNode[];
  links: MapLink[];
  flows: MapFlow[];
}

const LOSSY = 0.02;
const SEVERITY: Record<LinkState, number> = { failed: 0, slow: 1, lossy: 2, up: 3 };

export type UsualMs = (id: string) => number | undefined;

export function mapModel(net: Snapshot, usualMs: UsualMs): MapModel {
  const nodes = [...net.nodes].map(([name, node]) => ({
    name,
    isReachable: node.is_reachable !== false,
    processingMs: (node.processing_us ?? 0) / 1000,
    startedMs: node.started_ms ?? 0,
  }));
  return { nodes, links: linksOf(net, usualMs), flows: flowsOf(net) };
}

function linksOf(net: Snapshot, usualMs: UsualMs): MapLink[] {
  const found: MapLink[] = [];
  for (const [id, there] of net.links) {
    const { source, target } = there;
    const back = net.links.get(idOf(target, source));
    if (back && target < source) continue; // it is found from its other end
    found.push(linkOf(there, back, id, usualMs));
  }
  return found;
}

function linkOf(
  there: NetLink & { source: string; target: string },
  back: NetLink | undefined,
  id: string,
  usualMs: UsualMs,
): MapLink {
  const { source, target } = there;
  const isUsed = there.is_used !== false;
  const ms = Math.max(there.latency_us, back?.latency_us ?? 0) / 1000;
  const loss = Math.max(there.loss ?? 0, back?.loss ?? 0);
  const usual = usualMs(id);
  const slow =
    isSlow(there.latency_us / 1000, usual) || (back && isSlow(back.latency_us / 1000, usualMs(idOf(target, source))));
  return {
    id: pairOf(source, target),
    source,
    target,
    state: !isUsed ? 'failed' : slow ? 'slow' : loss > LOSSY ? 'lossy' : 'up',
    ms: isUsed ? ms : undefined,
    usualMs: usual,
    loss,
    failure: Math.max(there.failure ?? 0, back?.failure ?? 0),
  };
}

function flowsOf(net: Snapshot): MapFlow[] {
  return [...net.flows].map(([id, flow]) => ({
    id,
    flow,
    channels: flow.channels,
    routes: flow.routes
      .filter((each) => each.state !== 'setting up')
      .map((each) => ({
        id: `${id}\u0000${each.path.join('\u0000')}`,
        flow: id,
        path: each.path,
        state: each.state,
        delayMs: each.delay_us / 1000,
      })),
  }));
}

export const worstFirst = (links: readonly MapLink[]): MapLink[] =>
  links.toSorted((a, b) => SEVERITY[a.state] - SEVERITY[b.state] || b.loss - a.loss || (b.ms ?? 0) - (a.ms ?? 0));

/** A channel with what it needs and gets: a row of the list of channels. */
export interface FlowRow {
  id: string;
  channel: string;
  flow: NetFlow;
  inTime: number | undefined;
  rateHz: number | undefined;
}

export type Arrived = (id: string) => { delivered: number; late: number; spanMs: number } | undefined;

/** A row for each channel of each flow; those that miss what they require first, then the least in time. */
export function flowRows(net: Snapshot, arrived: Arrived): FlowRow[] {
  const counts = new Map<string, string>();
  for (const [id, each] of net.arrivals) counts.set(JSON.stringify([each.source, each.node, each.channel]), id);
  const rows = [...net.flows].flatMap(([id, flow]) =>
    (flow.channels.length ? flow.channels : ['']).map((channel): FlowRow => {
      const key = counts.get(JSON.stringify([flow.source, flow.destination, channel]));
      const found = key === undefined ? undefined : arrived(key);
      return {
        id,
        channel,
        flow,
        inTime: found?.delivered ? 1 - found.late / found.delivered : undefined,
        rateHz: found && found.spanMs > 0 ? (found.delivered / found.spanMs) * 1000 : undefined,
      };
    }),
  );
  return rows.toSorted(
    (a, b) =>
      Number(a.flow.is_met) - Number(b.flow.is_met) ||
      (a.inTime ?? 1) - (b.inTime ?? 1) ||
      (a.channel < b.channel ? -1 : a.channel > b.channel ? 1 : 0),
  );
}
