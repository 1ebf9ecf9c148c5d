/** What it costs a publisher to operate at a value: a number, a line, or a table of points. */
import { positionOf, type Scale, type Value } from './scale';

export type Cost =
  | { form: 'constant'; cost: number }
  | { form: 'linear'; base: number; slope: number }
  | { form: 'table'; points: { at: Value; cost: number }[] };

/** As the node sends it: a number, `{base, slope}`, or pairs of value and cost. */
export function readCost(found: unknown): Cost {
  if (typeof found === 'number') return { form: 'constant', cost: found };
  if (Array.isArray(found)) {
    const points = found.filter((each): each is [Value, number] => Array.isArray(each) && each.length === 2);
    return { form: 'table', points: points.map(([at, cost]) => ({ at, cost })) };
  }
  const line = (found ?? {}) as { base?: number; slope?: number };
  return typeof line.slope === 'number'
    ? { form: 'linear', base: line.base ?? 0, slope: line.slope }
    : { form: 'constant', cost: 0 };
}

/** As it is sent to the node. */
export function costForm(cost: Cost): unknown {
  if (cost.form === 'constant') return cost.cost;
  if (cost.form === 'linear') return { base: cost.base, slope: cost.slope };
  return cost.points.map((each) => [each.at, each.cost]);
}

export const isFree = (cost: Cost): boolean => cost.form === 'constant' && cost.cost === 0;

/** The cost of operating at a position; between the points of a table it is interpolated, beyond them constant. */
export function costAt(cost: Cost, position: number, levels: readonly string[] = []): number {
  if (cost.form === 'constant') return cost.cost;
  if (cost.form === 'linear') return cost.base + cost.slope * position;
  let before: { at: number; cost: number } | undefined;
  for (const point of cost.points) {
    const at = positionOf({ levels }, point.at);
    if (at === undefined) continue;
    if (at >= position) {
      if (!before || at === position) return point.cost;
      return before.cost + ((position - before.at) / (at - before.at)) * (point.cost - before.cost);
    }
    before = { at, cost: point.cost };
  }
  return before?.cost ?? 0;
}

/** The cost of a value; undefined if the value is none of the property. */
export function costOf(cost: Cost, value: unknown, levels: readonly string[] = []): number | undefined {
  const at = positionOf({ levels }, value);
  return at === undefined ? undefined : costAt(cost, at, levels);
}

/** The corners of the curve over the range, from its lower end to its upper one: costs are straight between them. */
export function corners(cost: Cost, scale: Scale, lower: unknown, upper: unknown): { at: number; cost: number }[] {
  const low = positionOf(scale, lower) ?? scale.lo;
  const high = positionOf(scale, upper) ?? scale.hi;
  const inner =
    cost.form === 'table'
      ? cost.points.map((each) => positionOf(scale, each.at)).filter((at) => at !== undefined && at > low && at < high)
      : [];
  const found = [low, ...(inner as number[]).sort((a, b) => a - b), high];
  return found.map((at) => ({ at, cost: costAt(cost, at, scale.levels) }));
}
