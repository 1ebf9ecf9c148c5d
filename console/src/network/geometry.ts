/** Curves of links and the way of events along a route. */
import type { Point } from './world';

/** A quadratic curve from one node to another. */
export interface Curve {
  from: Point;
  control: Point;
  to: Point;
}

const BEND = 0.07; // of the length

/** The curve of a link; `slot` sets routes beside each other that share it. Both directions run alike. */
export function curve(from: Point, to: Point, isReversed: boolean, slot = 0): Curve {
  const dx = to[0] - from[0];
  const dy = to[1] - from[1];
  const length = Math.hypot(dx, dy) || 1;
  const side = (isReversed ? -1 : 1) * (BEND * length + slot * 2);
  return {
    from,
    control: [(from[0] + to[0]) / 2 - (dy / length) * side, (from[1] + to[1]) / 2 + (dx / length) * side],
    to,
  };
}

export function pointAt({ from, control, to }: Curve, t: number): Point {
  const s = 1 - t;
  return [
    s * s * from[0] + 2 * s * t * control[0] + t * t * to[0],
    s * s * from[1] + 2 * s * t * control[1] + t * t * to[1],
  ];
}

/** The direction of a curve there, as an angle. */
export function angleAt({ from, control, to }: Curve, t: number): number {
  const s = 1 - t;
  return Math.atan2(
    s * (control[1] - from[1]) + t * (to[1] - control[1]),
    s * (control[0] - from[0]) + t * (to[0] - control[0]),
  );
}

/** How far a point is from a curve, roughly. */
export function distanceTo(line: Curve, [x, y]: Point): number {
  let least = Infinity;
  for (let t = 0.1; t < 0.95; t += 0.08) {
    const [px, py] = pointAt(line, t);
    least = Math.min(least, Math.hypot(px - x, py - y));
  }
  return least;
}

/** Which hop is under way after a part (0 … 1) of the time a route takes, and which part of the hop is done. */
export function placeOf(part: number, tookMs: readonly number[]): [hop: number, t: number] {
  const total = tookMs.reduce((sum, each) => sum + each, 0);
  let left = part * total;
  for (const [hop, ms] of tookMs.entries()) {
    if (left < ms || hop === tookMs.length - 1) return [hop, ms > 0 ? Math.min(1, left / ms) : part];
    left -= ms;
  }
  return [0, part];
}

const MAX_DOTS = 40;
const DOT_S = 0.8;

/** How many dots are on a route that they take that long for. */
export const dotsOn = (seconds: number): number => Math.max(1, Math.min(MAX_DOTS, Math.round(seconds / DOT_S)));

export interface View {
  /** On the screen: x · scale + left. */
  scale: number;
  left: number;
  top: number;
}

const MAX_SCALE = 60;
const MIN_SCALE = 0.05;

/** The view in which all points are seen. */
export function fitting(points: readonly Point[], width: number, height: number, padding: number): View {
  if (!points.length) return { scale: 1, left: width / 2, top: height / 2 };
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const room = (size: number) => Math.max(40, size - 2 * padding);
  const scale = Math.min(room(width) / Math.max(x1 - x0, 1), room(height) / Math.max(y1 - y0, 1), MAX_SCALE / 4);
  return { scale, left: width / 2 - ((x0 + x1) / 2) * scale, top: height / 2 - ((y0 + y1) / 2) * scale };
}

export function zoomed(view: View, factor: number, [x, y]: Point): View {
  const scale = Math.max(MIN_SCALE, Math.min(MAX_SCALE, view.scale * factor));
  const by = scale / view.scale;
  return { scale, left: x - (x - view.left) * by, top: y - (y - view.top) * by };
}

/** Rectangles that are taken already: what would cover them finds no room. */
export class Room {
  #taken: [number, number, number, number][] = [];

  take(x: number, y: number, width: number, height: number): boolean {
    const isTaken = this.#taken.some(
      ([left, top, right, bottom]) => x < right && x + width > left && y < bottom && y + height > top,
    );
    if (!isTaken) this.#taken.push([x, y, x + width, y + height]);
    return !isTaken;
  }
}
