/**
 * Where nodes are on the plane. Those with coordinates are where they are on earth; others are near their neighbours,
 * or arranged by forces if no node has any. A node that has its place keeps it.
 */
import type { Snapshot } from './rows';
import { middleOf, project, type Location, type Point } from './world';

const RADIUS = 200;
const ROUNDS = 120;
const MANY = 200; // beyond so many, fewer rounds

export class Layout {
  readonly places = new Map<string, Point>();
  /** Whether there are coordinates, so that the earth is drawn. */
  isOnEarth = false;
  middle = 0;
  /** Grows when a place changed. */
  version = 0;
  #located = new Map<string, Location>();

  update(net: Snapshot): void {
    const located = [...net.nodes].flatMap(([name, node]) => (node.location ? [[name, node.location] as const] : []));
    if (located.some(([name, at]) => !isSame(this.#located.get(name), at))) this.#locate(located);
    const missing = [...net.nodes.keys()].filter((name) => !this.places.has(name));
    if (!missing.length) return;
    this.version += 1;
    const neighbours = neighboursOf(net);
    if (this.places.size === 0) for (const [name, at] of byForces(missing, neighbours)) this.places.set(name, at);
    else for (const name of missing) this.places.set(name, this.#near(name, neighbours.get(name) ?? []));
  }

  /** Take new coordinates, besides those of before: what was arranged for others does not count any more. */
  #locate(located: (readonly [string, Location])[]): void {
    for (const [name, at] of located) this.#located.set(name, at);
    this.version += 1;
    this.places.clear();
    this.isOnEarth = true;
    this.middle = middleOf([...this.#located.values()].map((at) => at[1]));
    for (const [name, at] of this.#located) this.places.set(name, project(at, this.middle));
  }

  /** Near those of its neighbours that have a place, in a direction of its own. */
  #near(name: string, neighbours: readonly string[]): Point {
    const known = neighbours.flatMap((each) => this.places.get(each) ?? []);
    const all = known.length
      ? neighbours.flatMap((each) => [this.places.get(each)].filter((at) => !!at))
      : [...this.places.values()];
    const xs = all.map(([x]) => x);
    const ys = all.map(([, y]) => y);
    const wide = Math.max(20, span([...this.places.values()]) / 12);
    const angle = hash(name) * 2 * Math.PI;
    return [mean(xs) + wide * Math.cos(angle), mean(ys) + wide * Math.sin(angle)];
  }
}

const isSame = (one: Location | undefined, other: Location): boolean =>
  one !== undefined && one[0] === other[0] && one[1] === other[1];

const mean = (values: readonly number[]): number => values.reduce((sum, each) => sum + each, 0) / (values.length || 1);

function span(points: readonly Point[]): number {
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  return Math.max(Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys), 0);
}

/** The same number from 0 to 1 for the same name. */
function hash(name: string): number {
  let value = 2166136261;
  for (const letter of name) value = Math.imul(value ^ letter.codePointAt(0)!, 16777619);
  return (value >>> 0) / 2 ** 32;
}

export function neighboursOf(net: Snapshot): Map<string, string[]> {
  const found = new Map<string, Set<string>>();
  for (const { source, target } of net.links.values()) {
    for (const [one, other] of [
      [source, target],
      [target, source],
    ] as const) {
      const known = found.get(one);
      if (known) known.add(other);
      else found.set(one, new Set([other]));
    }
  }
  return new Map([...found].map(([name, others]) => [name, [...others]]));
}

/** Neighbours attract each other, all nodes repel each other; the same result for the same network. */
export function byForces(names: readonly string[], neighbours: Map<string, string[]>): Map<string, Point> {
  const order = names.toSorted();
  const number = new Map(order.map((name, i) => [name, i]));
  const count = order.length;
  const x = new Float64Array(count);
  const y = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    const angle = (i / count) * 2 * Math.PI;
    const radius = RADIUS * (0.6 + 0.4 * hash(order[i]!));
    x[i] = radius * Math.cos(angle);
    y[i] = radius * Math.sin(angle);
  }
  const links = order.flatMap((name, i) =>
    (neighbours.get(name) ?? []).flatMap((other): [number, number][] => {
      const j = number.get(other);
      return j !== undefined && i < j ? [[i, j]] : [];
    }),
  );
  const wanted = (1.6 * RADIUS) / Math.sqrt(count || 1);
  const rounds = count > MANY ? Math.ceil((ROUNDS * MANY) / count) : ROUNDS;
  for (let round = 0; round < rounds; round++) relax(x, y, links, wanted, (RADIUS / 8) * (1 - round / rounds));
  return new Map(order.map((name, i) => [name, [x[i]!, y[i]!]]));
}

function relax(x: Float64Array, y: Float64Array, links: [number, number][], wanted: number, most: number): void {
  const count = x.length;
  const fx = new Float64Array(count);
  const fy = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    for (let j = i + 1; j < count; j++) {
      const dx = x[i]! - x[j]! || 0.01;
      const dy = y[i]! - y[j]! || 0.01;
      const push = (wanted * wanted) / (dx * dx + dy * dy);
      fx[i]! += dx * push;
      fy[i]! += dy * push;
      fx[j]! -= dx * push;
      fy[j]! -= dy * push;
    }
  }
  for (const [i, j] of links) {
    const dx = x[i]! - x[j]!;
    const dy = y[i]! - y[j]!;
    const pull = Math.hypot(dx, dy) / wanted;
    fx[i]! -= dx * pull;
    fy[i]! -= dy * pull;
    fx[j]! += dx * pull;
    fy[j]! += dy * pull;
  }
  for (let i = 0; i < count; i++) {
    const size = Math.hypot(fx[i]!, fy[i]!) || 1;
    const step = Math.min(size, most) / size;
    x[i]! += fx[i]! * step;
    y[i]! += fy[i]! * step;
  }
}
