/** What the map shows of a model: which routes in which colour, and labels of the hops of the chosen flow. */
import { pairOf } from './happenings';
import type { MapModel } from './model';
import type { HopLabel, Shown } from './painter';
import { trace } from './routes';
import type { Snapshot } from './rows';

export interface Choice {
  /** The chosen flow. */
  chosen: string | undefined;
  node: string;
  link: string;
  own: string;
  isPast: boolean;
  /** Flows without events. */
  idle: ReadonlySet<string>;
}

const COLOURS = ['s1', 's2', 's3', 's4'];

export function shownOf(model: MapModel, net: Snapshot, choice: Choice): Shown {
  const flows = choice.chosen === undefined ? model.flows : model.flows.filter((each) => each.id === choice.chosen);
  const hops = new Map<string, HopLabel>();
  const isChosen = choice.chosen !== undefined;
  const routes = flows.flatMap(({ flow, routes: all, id }, i) =>
    all.map((each) => {
      const found = trace(flow, each.path, each.state, net);
      if (isChosen) for (const hop of found.hops) label(hops, hop);
      return {
        ...each,
        colour: isChosen || flows.length > COLOURS.length ? 'accent' : COLOURS[i]!,
        isChosen,
        hopMs: found.hops.map((hop) => hop.ms),
        isBusy: !choice.idle.has(id),
      };
    }),
  );
  const { node, link, own, isPast } = choice;
  return { model, routes, hops, node, link, own, isPast };
}

/** Of paths that share a hop, the one with the least to spare counts. */
function label(
  hops: Map<string, HopLabel>,
  { source, target, ms, slackMs }: { source: string; target: string; ms: number; slackMs: number | undefined },
): void {
  const pair = pairOf(source, target);
  const known = hops.get(pair);
  if (!known || (slackMs ?? Infinity) < (known.slackMs ?? Infinity)) hops.set(pair, { ms, slackMs });
}
