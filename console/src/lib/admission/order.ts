/**
 * The order of advertised filters as a drawing: each filter below those that cover it directly.
 *
 * Filters come widest first, and `below` are places in the same list. A prefix of the list has the same order among its
 * members, because what is between two filters counts more than the lower one: so a part can be drawn on its own.
 */
export interface OrderedFilter {
  channel: string;
  where: string;
  rate_hz: number;
  count: number;
  below: readonly number[];
}

export interface Box<F> {
  filter: F;
  /** Its place in the list. */
  place: number;
  layer: number;
  x: number;
  y: number;
  /** Directly above it. */
  above: number[];
}

export interface Edge {
  /** The filter that covers, and the one that is covered. */
  from: number;
  to: number;
  path: string;
}

export interface Drawing<F> {
  boxes: Box<F>[];
  edges: Edge[];
  width: number;
  height: number;
  /** How many of the list are not drawn. */
  leftOut: number;
}

export interface Sizes {
  width: number;
  height: number;
  gapX: number;
  gapY: number;
  /** How many filters at most, and how many beside each other. */
  most: number;
  across: number;
}

export const SIZES: Sizes = { width: 216, height: 46, gapX: 16, gapY: 44, most: 60, across: 8 };
const SWEEPS = 4;

export function draw<F extends OrderedFilter>(filters: readonly F[], sizes: Sizes = SIZES): Drawing<F> {
  const boxes = layered(filters.slice(0, sizes.most), sizes.across);
  const layers = arranged(boxes);
  const widest = Math.max(0, ...layers.map((layer) => layer.length));
  const step = sizes.width + sizes.gapX;
  const width = Math.max(0, widest * step - sizes.gapX);
  for (const layer of layers) {
    const start = (width - (layer.length * step - sizes.gapX)) / 2;
    layer.forEach((box, i) => {
      box.x = Math.round(start + i * step);
      box.y = box.layer * (sizes.height + sizes.gapY);
    });
  }
  const height = layers.length ? layers.length * (sizes.height + sizes.gapY) - sizes.gapY : 0;
  return { boxes, edges: edgesOf(boxes, sizes), width, height, leftOut: filters.length - boxes.length };
}

/** What it covers and what covers it, directly or not, itself included: to be pointed out. */
export function related(boxes: readonly Box<OrderedFilter>[], place: number): Set<number> {
  const byPlace = new Map(boxes.map((box) => [box.place, box]));
  const found = new Set<number>([place]);
  const walk = (at: number, next: (box: Box<OrderedFilter>) => readonly number[]) => {
    const box = byPlace.get(at);
    for (const each of box ? next(box) : []) {
      if (!byPlace.has(each) || found.has(each)) continue;
      found.add(each);
      walk(each, next);
    }
  };
  walk(place, (box) => box.filter.below);
  walk(place, (box) => box.above);
  return found;
}

/** Boxes one layer below the lowest filter that covers them; what has no room in its layer is left out. */
function layered<F extends OrderedFilter>(filters: readonly F[], across: number): Box<F>[] {
  const above = new Map<number, number[]>();
  filters.forEach((filter, place) => {
    for (const each of filter.below) above.set(each, [...(above.get(each) ?? []), place]);
  });
  const layers = new Map<number, number>();
  const room: number[] = [];
  const boxes: Box<F>[] = [];
  filters.forEach((filter, place) => {
    // Those above come first in the list; if one is left out, what it covers is, too.
    const covering = above.get(place) ?? [];
    if (covering.some((each) => !layers.has(each))) return;
    const layer = Math.max(-1, ...covering.map((each) => layers.get(each)!)) + 1;
    if ((room[layer] ?? 0) >= across) return;
    room[layer] = (room[layer] ?? 0) + 1;
    layers.set(place, layer);
    boxes.push({ filter, place, layer, x: 0, y: 0, above: covering });
  });
  return boxes;
}

/** Layers with their boxes ordered by the middle of their neighbours, so that few edges cross. */
function arranged<F extends OrderedFilter>(boxes: Box<F>[]): Box<F>[][] {
  const layers: Box<F>[][] = [];
  for (const box of boxes) (layers[box.layer] ??= []).push(box);
  const at = new Map<number, number>();
  const number = (layer: Box<F>[]) => layer.forEach((box, i) => at.set(box.place, (i + 0.5) / layer.length));
  layers.forEach(number);
  const sort = (layer: Box<F>[], neighbours: (box: Box<F>) => readonly number[]) => {
    const middles = new Map(
      layer.map((box) => {
        const near = neighbours(box)
          .map((each) => at.get(each))
          .filter((each) => each !== undefined);
        const middle = near.length ? near.reduce((a, b) => a + b, 0) / near.length : at.get(box.place)!;
        return [box, middle];
      }),
    );
    layer.sort((one, other) => middles.get(one)! - middles.get(other)! || one.place - other.place);
    number(layer);
  };
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const layer of layers.slice(1)) sort(layer, (box) => box.above);
    for (const layer of layers.slice(0, -1).reverse()) sort(layer, (box) => box.filter.below);
  }
  return layers;
}

function edgesOf<F extends OrderedFilter>(boxes: Box<F>[], sizes: Sizes): Edge[] {
  const byPlace = new Map(boxes.map((box) => [box.place, box]));
  return boxes.flatMap((box) =>
    box.above.map((place) => {
      const from = byPlace.get(place)!;
      const [x1, y1] = [from.x + sizes.width / 2, from.y + sizes.height];
      const [x2, y2] = [box.x + sizes.width / 2, box.y];
      const bend = Math.min(sizes.gapY / 2, (y2 - y1) / 2);
      return {
        from: place,
        to: box.place,
        path: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`,
      };
    }),
  );
}
