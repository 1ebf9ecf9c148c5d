/** Routes hop by hop: what each takes, and how much longer it may take. As `accord net CHANNEL` shows it. */
import { idOf, type NetFlow, type Snapshot } from './rows';
import type { Timeline } from './timeline';

export interface Hop {
  source: string;
  target: string;
  isUp: boolean;
  /** The latency of the link, and the time at its end. */
  ms: number;
  soFarMs: number;
  loss: number;
  /** How long an event may wait for this link without being late; undefined: as long as it likes. */
  slackMs: number | undefined;
}

export interface Trace {
  path: string[];
  state: string;
  hops: Hop[];
  delayMs: number;
  marginMs: number | undefined;
  isWhole: boolean;
}

export function trace(flow: NetFlow, path: readonly string[], state: string, net: Snapshot): Trace {
  const steps = path.slice(1).map((target, i) => [path[i]!, target] as const);
  const took = steps.map(([source, target]) => {
    const link = net.link(source, target);
    return ((link?.latency_us ?? 0) + (net.nodes.get(target)?.processing_us ?? 0)) / 1000;
  });
  const delayMs = took.reduce((sum, each) => sum + each, 0);
  const marginMs = flow.max_delay_us ? flow.max_delay_us / 1000 - delayMs : undefined;
  const slackMs = marginMs === undefined || !steps.length ? undefined : Math.max(0, marginMs / steps.length);
  let soFarMs = 0;
  const hops = steps.map(([source, target], i) => {
    const link = net.link(source, target);
    soFarMs += took[i]!;
    const isUp = link !== undefined && link.is_used !== false;
    return { source, target, isUp, ms: took[i]!, soFarMs, loss: link?.loss ?? 0, slackMs };
  });
  return { path: [...path], state, hops, delayMs, marginMs, isWhole: hops.every((each) => each.isUp) };
}

export const traces = (flow: NetFlow, net: Snapshot): Trace[] =>
  flow.routes.map((route) => trace(flow, route.path, route.state, net));

/** A value over time that stays until the next; null: none. */
export interface Line {
  times: number[];
  values: (number | null)[];
}

/** Time to spare of each path of a flow, from a moment on: the n-th line is that of the n-th path. */
export function sparesOf(timeline: Timeline, id: string, fromMs: number, toMs: number): Line[] {
  const net = timeline.first();
  const lines: Line[] = [];
  const note = (atMs: number) => {
    const flow = net.flows.get(id);
    const inUse = flow?.routes.filter((each) => each.state !== 'setting up') ?? [];
    const values = inUse.map((each) => {
      const found = trace(flow!, each.path, each.state, net);
      return found.isWhole ? (found.marginMs ?? null) : null;
    });
    for (let i = lines.length; i < values.length; i++) lines.push({ times: [], values: [] });
    for (const [i, line] of lines.entries()) {
      const value = values[i] ?? null;
      if (line.values.length && line.values.at(-1) === value) continue;
      line.times.push(atMs);
      line.values.push(value);
    }
  };
  let isBegun = false;
  for (const step of timeline.steps) {
    if (step.atMs > toMs) break;
    if (!isBegun && step.atMs >= fromMs) {
      isBegun = true;
      note(Math.max(fromMs, timeline.fromMs));
    }
    let concerns = false;
    for (const change of step.changes) {
      net.apply(change);
      concerns ||= change.kind !== 'arrival' && (change.kind !== 'flow' || idOf(change.of, change.key) === id);
    }
    if (isBegun && concerns) note(step.atMs);
  }
  if (!isBegun) note(Math.max(fromMs, timeline.fromMs));
  return lines;
}
