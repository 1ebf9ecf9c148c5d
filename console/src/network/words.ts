/** What the network page says first. */
import { count, duration, latency, number, plain } from '$lib/format';
import { linkName, pairOf, pathName, type Happening } from './happenings';
import type { FlowRow, MapLink, MapModel } from './model';

const MOST = 3;
const CAUSE_MS = 5_000; // what happens in that time has one cause

const some = (names: readonly string[]): string =>
  names.length <= MOST
    ? names.map((each) => plain(each, 40)).join(', ')
    : `${names
        .slice(0, MOST)
        .map((each) => plain(each, 40))
        .join(', ')} and ${number(names.length - MOST)} more`;

/** Whether the network does what channels require of it; if not, what is wrong, the worst first. */
export function verdict(
  { nodes, links }: MapModel,
  rows: readonly FlowRow[],
  happenings: readonly Happening[],
): string {
  if (nodes.length <= 1) return 'This node is alone.';
  const away = nodes.filter((each) => !each.isReachable).map((each) => each.name);
  const isAway = new Set(away);
  const isOwn = (each: MapLink) => !isAway.has(each.source) && !isAway.has(each.target);
  const failed = links.filter((each) => each.state === 'failed' && isOwn(each));
  const slow = links.filter((each) => each.state === 'slow');
  const unmet = new Set(rows.filter((each) => !each.flow.is_met).map((each) => each.id)).size;
  const wrong = [
    away.length ? `${some(away)} ${away.length === 1 ? 'is' : 'are'} not reachable` : '',
    failed.length ? `${linksSaid(failed)} failed` : '',
    slow.length ? `${linksSaid(slow)} ${slow.length === 1 ? 'is' : 'are'} slow` : '',
  ].filter(Boolean);
  const flows = new Set(rows.map((each) => each.id)).size;
  if (!wrong.length && !unmet)
    return `All ${number(nodes.length)} nodes are reachable${
      flows
        ? `; ${flows === 1 ? 'the one flow has' : `all ${number(flows)} flows have`} the paths that are required`
        : ''
    }.`;
  if (unmet)
    wrong.push(`${number(unmet)} of ${count(flows, 'flow')} ${unmet === 1 ? 'misses' : 'miss'} what is required`);
  else {
    const around = wentAround(happenings);
    if (around) wrong.push(around);
    else if (flows)
      wrong.push(flows === 1 ? 'the one flow has its paths' : `all ${number(flows)} flows have their paths`);
  }
  return `${wrong.join('; ')}.`;
}

function linksSaid(links: readonly MapLink[]): string {
  const first = linkName(links[0]!.source, links[0]!.target);
  return links.length === 1 ? first : `${first} and ${count(links.length - 1, 'more link', 'more links')}`;
}

/** Which channel avoided what happened last, and how soon. */
function wentAround(happenings: readonly Happening[]): string {
  const causes = happenings.filter((each) => (each.link || each.node) && each.kind !== 'ok');
  const last = causes.at(-1);
  if (!last) return '';
  const recent = causes.filter((each) => last.atMs - each.atMs < CAUSE_MS);
  for (const move of happenings) {
    const cause = recent.find((each) => move.atMs >= each.atMs - 1_000 && isAround(move, each));
    if (!move.channel || !cause) continue;
    const took = move.atMs - cause.atMs;
    const soon = took < 50 ? 'at once' : `in ${took < 1000 ? latency(took) : duration(took)}`;
    return `${plain(move.channel, 60)} went around it ${soon}`;
  }
  return '';
}

/** Whether a channel gave up a path over a link or node. */
function isAround({ left = [] }: Happening, { link, node }: Happening): boolean {
  return left.some((path) => path.some((each, i) => each === node || (i > 0 && pairOf(path[i - 1]!, each) === link)));
}

/** The map for those who do not see it. */
export function described(model: MapModel): string {
  const away = model.nodes.filter((each) => !each.isReachable).length;
  const failed = model.links.filter((each) => each.state === 'failed').length;
  const slow = model.links.filter((each) => each.state === 'slow').length;
  return `Map of ${count(model.nodes.length, 'node')}, ${number(away)} not reachable; ${count(
    model.links.length,
    'link',
  )}, ${number(failed)} failed, ${number(slow)} slow; ${count(model.flows.length, 'flow')}. The tables below say the same.`;
}

/** Its path and how long it takes, of a bound. */
export function flowSaid({ flow }: FlowRow): string {
  const inUse = flow.routes.filter((each) => each.state !== 'setting up');
  const slowest = Math.max(0, ...inUse.map((each) => each.delay_us / 1000));
  const ends = `${plain(flow.source, 40)} → ${plain(flow.destination, 40)}`;
  const within = flow.max_delay_us ? ` of ${latency(flow.max_delay_us / 1000)}` : '';
  return inUse.length ? `${ends} · ${latency(slowest)}${within}` : `${ends} · no path`;
}

export const pathsSaid = (paths: readonly (readonly string[])[]): string =>
  paths.map((each) => pathName(each)).join('; ');
