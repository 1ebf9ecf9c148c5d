/**
 * Draws the map on four canvases: land, links, routes with their dots, nodes with labels. Only routes and dots are drawn
 * with every frame, land for each view.
 */
import { latency, plain } from '$lib/format';
import {
  angleAt,
  curve,
  distanceTo,
  dotsOn,
  fitting,
  placeOf,
  pointAt,
  Room,
  zoomed,
  type Curve,
  type View,
} from './geometry';
import { pairOf } from './happenings';
import type { Layout } from './layout';
import type { MapLink, MapModel, MapNode, MapRoute } from './model';
import { countries, EARTH, type Point } from './world';

export interface Shown {
  model: MapModel;
  /** Routes that are drawn: with their colour, wide if chosen, and what each hop takes. */
  routes: ShownRoute[];
  /** Labels of hops, by link. */
  hops: Map<string, HopLabel>;
  node: string;
  link: string;
  /** The node that tells all this. */
  own: string;
  isPast: boolean;
}

export interface ShownRoute extends MapRoute {
  colour: string;
  isChosen: boolean;
  hopMs: number[];
  /** Whether events are known to be on their way, or it is not known. */
  isBusy: boolean;
}

export interface HopLabel {
  ms: number;
  slackMs: number | undefined;
}

export interface Target {
  node?: string;
  link?: string;
}

interface Outline {
  ring: Point[];
  box: [left: number, top: number, right: number, bottom: number];
}

function outline(ring: Point[]): Outline {
  const xs = ring.map(([x]) => x);
  const ys = ring.map(([, y]) => y);
  return { ring, box: [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)] };
}

interface Fading {
  route: ShownRoute;
  untilMs: number;
}

const FADE_MS = 3_000;
const APPEAR_MS = 240;
const SLOWEST_S = 7; // how long dots take for the slowest route
const MAX_DOTS = 1_200;
const MANY = 60; // nodes or links with labels
const PADDING = 76;
const TAU = 2 * Math.PI;

export class Painter {
  /** How often routes and dots were drawn. */
  frames = 0;
  isStill = false;
  view: View = { scale: 1, left: 0, top: 0 };
  #width = 0;
  #height = 0;
  #shown: Shown | undefined;
  #isTouched = false; // the view was moved by hand
  #fitted = -1;
  #places = new Map<string, Point>();
  #curves = new Map<string, Curve>();
  #lines = new Map<string, Curve[]>();
  #since = new Map<string, number>();
  #fading: Fading[] = [];
  #land: { middle: number; outlines: Outline[] } | undefined;
  #landDrawn = '';

  constructor(
    readonly land: HTMLCanvasElement,
    readonly back: HTMLCanvasElement,
    readonly middle: HTMLCanvasElement,
    readonly front: HTMLCanvasElement,
    readonly layout: Layout,
    readonly colour: (token: string) => string,
  ) {}

  resize(width: number, height: number): void {
    if (width === this.#width && height === this.#height) return;
    this.#width = width;
    this.#height = height;
    const scale = devicePixelRatio || 1;
    for (const canvas of [this.land, this.back, this.middle, this.front]) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    this.#fitted = -1;
    this.#landDrawn = '';
    this.draw();
  }

  show(shown: Shown, nowMs: number): void {
    const before = this.#shown;
    this.#shown = shown;
    const ids = new Set(shown.routes.map((each) => each.id));
    for (const route of shown.routes) if (!this.#since.has(route.id)) this.#since.set(route.id, before ? nowMs : 0);
    for (const route of before?.routes ?? [])
      if (!ids.has(route.id)) {
        this.#since.delete(route.id);
        const flows = new Set(shown.routes.map((each) => each.flow));
        if (!this.isStill && flows.has(route.flow)) this.#fading.push({ route, untilMs: nowMs + FADE_MS });
      }
    this.#fading = this.#fading.filter((each) => each.untilMs > nowMs && !ids.has(each.route.id)).slice(-20);
    this.draw();
  }

  get isMoving(): boolean {
    return !this.isStill && ((this.#shown?.routes.length ?? 0) > 0 || this.#fading.length > 0);
  }

  fit(): void {
    this.#isTouched = false;
    this.#fitted = -1;
    this.draw();
  }

  pan(dx: number, dy: number): void {
    this.#isTouched = true;
    this.view = { ...this.view, left: this.view.left + dx, top: this.view.top + dy };
    this.draw();
  }

  zoom(factor: number, at: Point = [this.#width / 2, this.#height / 2]): void {
    this.#isTouched = true;
    this.view = zoomed(this.view, factor, at);
    this.draw();
  }

  /** Where a node is drawn. */
  place(name: string): Point | undefined {
    return this.#places.get(name);
  }

  /** What is at a point. */
  target(at: Point): Target {
    let least = 16;
    let node: string | undefined;
    for (const [name, [x, y]] of this.#places) {
      const distance = Math.hypot(x - at[0], y - at[1]);
      if (distance < least) [least, node] = [distance, name];
    }
    if (node !== undefined) return { node };
    least = 8;
    let link: string | undefined;
    for (const [id, line] of this.#curves) {
      const distance = distanceTo(line, at);
      if (distance < least) [least, link] = [distance, id];
    }
    return link === undefined ? {} : { link };
  }

  /** Draw all of it: after what is shown, the view or the colours have changed. */
  draw(): void {
    const shown = this.#shown;
    if (!shown || !this.#width) return;
    if (!this.#isTouched && this.#fitted !== this.layout.version) {
      this.#fitted = this.layout.version;
      this.view = fitting([...this.layout.places.values()], this.#width, this.#height, PADDING);
    }
    this.#arrange(shown);
    this.#drawBack(shown);
    this.frame(performance.now());
    this.#drawFront(shown);
  }

  /** Draw routes and dots. */
  frame(nowMs: number): void {
    const shown = this.#shown;
    if (!shown || !this.#width) return;
    this.frames += 1;
    const context = this.#clear(this.middle);
    for (const { route, untilMs } of this.#fading) {
      if (untilMs <= nowMs) continue;
      context.globalAlpha = 0.9 * ((untilMs - nowMs) / FADE_MS);
      context.setLineDash([6, 5]);
      this.#stroke(context, this.#lines.get(route.id) ?? [], this.colour(route.colour), 2);
      context.setLineDash([]);
    }
    const slowest = Math.max(1, ...shown.routes.map((each) => each.hopMs.reduce((sum, ms) => sum + ms, 0)));
    const share = Math.min(1, MAX_DOTS / Math.max(1, shown.routes.length * 10));
    for (const route of shown.routes) {
      const lines = this.#lines.get(route.id);
      if (!lines?.length) continue;
      const age = nowMs - (this.#since.get(route.id) ?? 0);
      context.globalAlpha = this.isStill ? 1 : Math.min(1, 0.2 + age / APPEAR_MS);
      const colour = this.colour(route.colour);
      if (route.isChosen) this.#stroke(context, lines, this.colour('surface'), 7);
      this.#stroke(context, lines, colour, route.isChosen ? 3.2 : 2.2);
      if (this.isStill || shown.isPast) this.#arrows(context, lines, colour);
      else if (route.isBusy) this.#dots(context, route, lines, colour, slowest, share, nowMs);
    }
    context.globalAlpha = 1;
  }

  /** Where everything is on the screen. */
  #arrange({ model, routes }: Shown): void {
    const { scale, left, top } = this.view;
    this.#places.clear();
    for (const { name } of model.nodes) {
      const at = this.layout.places.get(name);
      if (at) this.#places.set(name, [at[0] * scale + left, at[1] * scale + top]);
    }
    this.#curves.clear();
    for (const link of model.links) {
      const line = this.#curve(link.source, link.target);
      if (line) this.#curves.set(link.id, line);
    }
    this.#arrangeRoutes(routes);
  }

  #curve(source: string, target: string, slot = 0): Curve | undefined {
    const from = this.#places.get(source);
    const to = this.#places.get(target);
    return from && to ? curve(from, to, source > target, slot) : undefined;
  }

  /** The curves of routes; those that share a link run beside each other. */
  #arrangeRoutes(routes: readonly ShownRoute[]): void {
    const beside = new Map<string, string[]>();
    for (const { id, path } of routes)
      for (let i = 1; i < path.length; i++) {
        const pair = pairOf(path[i - 1]!, path[i]!);
        const known = beside.get(pair);
        if (!known) beside.set(pair, [id]);
        else if (!known.includes(id)) known.push(id);
      }
    this.#lines.clear();
    for (const { id, path } of [...routes, ...this.#fading.map((each) => each.route)])
      this.#lines.set(
        id,
        path.slice(1).flatMap((target, i) => {
          const ids = beside.get(pairOf(path[i]!, target)) ?? [];
          const slot = ids.length > 8 || !ids.includes(id) ? 0 : ids.indexOf(id) - (ids.length - 1) / 2;
          return this.#curve(path[i]!, target, slot * 5) ?? [];
        }),
      );
  }

  #clear(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
    const context = canvas.getContext('2d')!;
    const scale = devicePixelRatio || 1;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, this.#width, this.#height);
    return context;
  }

  #drawBack(shown: Shown): void {
    this.#drawLand();
    const context = this.#clear(this.back);
    const colours = { up: 'link-up', slow: 'late', lossy: 'late', failed: 'shed' } as const;
    for (const state of ['up', 'lossy', 'slow', 'failed'] as const) {
      context.setLineDash(state === 'slow' ? [7, 5] : state === 'failed' ? [9, 6] : []);
      const lines = shown.model.links.flatMap((each) =>
        each.state === state ? (this.#curves.get(each.id) ?? []) : [],
      );
      const isMany = shown.model.links.length > 300;
      this.#stroke(context, lines, this.colour(colours[state]), state === 'up' ? (isMany ? 0.8 : 1.5) : 2.6);
    }
    context.setLineDash([]);
    const chosen = this.#curves.get(shown.link);
    if (chosen) this.#stroke(context, [chosen], this.colour('accent'), 4);
    if (shown.node) {
      const own = shown.model.links.filter((each) => each.source === shown.node || each.target === shown.node);
      const lines = own.flatMap((each) => this.#curves.get(each.id) ?? []);
      this.#stroke(context, lines, this.colour('accent'), 2);
    }
  }

  /** Countries in sight; only again for another view or theme. */
  #drawLand(): void {
    const { scale, left, top } = this.view;
    const { isOnEarth, middle } = this.layout;
    const key = [scale, left, top, this.#width, this.#height, isOnEarth, middle, this.colour('land')].join();
    if (key === this.#landDrawn) return;
    this.#landDrawn = key;
    const context = this.#clear(this.land);
    if (!isOnEarth) return;
    if (this.#land?.middle !== middle) this.#land = { middle, outlines: countries(middle).map(outline) };
    context.beginPath();
    for (const turn of [-1, 0, 1]) {
      const x0 = turn * EARTH * scale + left;
      for (const { ring, box } of this.#land.outlines) {
        if (box[2] * scale + x0 < 0 || box[0] * scale + x0 > this.#width) continue;
        if (box[3] * scale + top < 0 || box[1] * scale + top > this.#height) continue;
        for (const [i, [x, y]] of ring.entries()) {
          if (i) context.lineTo(x * scale + x0, y * scale + top);
          else context.moveTo(x * scale + x0, y * scale + top);
        }
        context.closePath();
      }
    }
    context.fillStyle = this.colour('land');
    context.strokeStyle = this.colour('land-line');
    context.lineWidth = 0.9;
    context.fill('evenodd');
    context.stroke();
  }

  #stroke(context: CanvasRenderingContext2D, lines: readonly Curve[], colour: string, width: number): void {
    if (!lines.length) return;
    context.beginPath();
    for (const { from, control, to } of lines) {
      context.moveTo(from[0], from[1]);
      context.quadraticCurveTo(control[0], control[1], to[0], to[1]);
    }
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.lineCap = 'round';
    context.stroke();
  }

  #dots(
    context: CanvasRenderingContext2D,
    route: ShownRoute,
    lines: readonly Curve[],
    colour: string,
    slowest: number,
    share: number,
    nowMs: number,
  ): void {
    const seconds = SLOWEST_S * Math.max(0.1, route.hopMs.reduce((sum, ms) => sum + ms, 0) / slowest);
    const count = Math.max(1, Math.round(dotsOn(seconds) * share));
    const radius = route.isChosen ? 4.2 : 3.2;
    context.beginPath();
    for (let i = 0; i < count; i++) {
      const part = (nowMs / 1000 / seconds + i / count) % 1;
      const [hop, t] = placeOf(part, route.hopMs);
      const line = lines[hop];
      if (!line) continue;
      const [x, y] = pointAt(line, t);
      context.moveTo(x + radius, y);
      context.arc(x, y, radius, 0, TAU);
    }
    context.fillStyle = this.colour('surface');
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.fill();
    context.stroke();
  }

  #arrows(context: CanvasRenderingContext2D, lines: readonly Curve[], colour: string): void {
    context.fillStyle = colour;
    for (const line of lines) {
      const [x, y] = pointAt(line, 0.6);
      context.save();
      context.translate(x, y);
      context.rotate(angleAt(line, 0.6));
      context.beginPath();
      context.moveTo(8, 0);
      context.lineTo(-5, -6);
      context.lineTo(-5, 6);
      context.fill();
      context.restore();
    }
  }

  #drawFront(shown: Shown): void {
    const context = this.#clear(this.front);
    const room = new Room();
    const isMany = shown.model.nodes.length > MANY;
    const ends = new Set(shown.routes.flatMap((each) => [each.path[0], each.path.at(-1)]));
    for (const node of shown.model.nodes) this.#drawNode(context, node, shown, ends.has(node.name), isMany);
    for (const [, [x, y]] of isMany ? [] : this.#places) room.take(x - 11, y - 11, 22, 22);
    this.#labelNodes(context, shown, room, isMany, ends);
    this.#labelLinks(context, shown, room);
  }

  #drawNode(context: CanvasRenderingContext2D, node: MapNode, shown: Shown, isEnd: boolean, isMany: boolean): void {
    const at = this.#places.get(node.name);
    if (!at) return;
    const isChosen = shown.node === node.name;
    const colour = this.colour(!node.isReachable ? 'shed' : isEnd || isChosen ? 'accent' : 'ink-2');
    const radius = isMany ? 3.5 : 10;
    context.beginPath();
    context.arc(at[0], at[1], isChosen ? radius + 3 : radius, 0, TAU);
    context.fillStyle = this.colour('surface');
    context.strokeStyle = colour;
    context.lineWidth = isMany ? 1.5 : 2;
    context.setLineDash(node.isReachable ? [] : [3, 3]);
    context.fill();
    context.stroke();
    context.setLineDash([]);
    if (isMany) return;
    context.beginPath();
    context.arc(at[0], at[1], 4.5, 0, TAU);
    context.fillStyle = colour;
    context.fill();
  }

  #labelNodes(
    context: CanvasRenderingContext2D,
    shown: Shown,
    room: Room,
    isMany: boolean,
    ends: ReadonlySet<string | undefined>,
  ): void {
    const rank = (node: MapNode) =>
      node.name === shown.node ? 0 : !node.isReachable ? 1 : ends.has(node.name) ? 2 : node.name === shown.own ? 3 : 4;
    for (const node of shown.model.nodes.toSorted((a, b) => rank(a) - rank(b))) {
      const at = this.#places.get(node.name);
      if (!at || !this.#isSeen(at)) continue;
      const name = plain(node.name, 32);
      const below = !node.isReachable ? 'not reachable' : node.name === shown.own ? 'this node' : '';
      context.font = `650 13px ${SANS}`;
      const width = Math.max(context.measureText(name).width, below ? 76 : 0);
      const height = below ? 30 : 16;
      const gap = isMany ? 6 : 14;
      const places: Point[] = [
        [at[0] - width / 2, at[1] + gap],
        [at[0] - width / 2, at[1] - gap - height],
        [at[0] + gap + 2, at[1] - height / 2],
        [at[0] - gap - 2 - width, at[1] - height / 2],
      ];
      const free = places.find(([x, y]) => room.take(x, y, width, height));
      if (!free) continue;
      this.#text(context, name, free[0], free[1] + 12, 'ink-1');
      context.font = `11px ${SANS}`;
      if (below) this.#text(context, below, free[0], free[1] + 26, node.isReachable ? 'ink-2' : 'shed-ink');
    }
  }

  #labelLinks(context: CanvasRenderingContext2D, shown: Shown, room: Room): void {
    const isMany = shown.model.links.length > MANY;
    const rank = (link: MapLink) =>
      link.id === shown.link ? 0 : shown.hops.has(link.id) ? 1 : link.state === 'up' ? 3 : 2;
    const labelled = isMany ? shown.model.links.filter((each) => rank(each) < 3).slice(0, 400) : [...shown.model.links];
    let left = MANY;
    for (const link of labelled.sort((a, b) => rank(a) - rank(b))) {
      const line = this.#curves.get(link.id);
      if (!line || left <= 0) continue;
      const hop = shown.hops.get(link.id);
      if (this.#labelLink(context, link, hop, line, room)) left -= 1;
    }
  }

  #labelLink(
    context: CanvasRenderingContext2D,
    link: MapLink,
    hop: HopLabel | undefined,
    line: Curve,
    room: Room,
  ): boolean {
    const isFailed = link.state === 'failed';
    const main = isFailed ? 'failed' : latency(hop ? hop.ms : link.ms);
    const extra = isFailed
      ? ''
      : hop?.slackMs !== undefined
        ? `${latency(hop.slackMs)} to spare`
        : link.state === 'slow'
          ? `usually ${latency(link.usualMs)}`
          : link.state === 'lossy'
            ? `loses ${Math.round(link.loss * 1000) / 10}\u00a0%`
            : '';
    const isQuiet = !hop && link.state === 'up';
    context.font = `${isQuiet ? 400 : 600} ${isQuiet ? 11 : 12}px ${SANS}`;
    const wide = context.measureText(main).width;
    context.font = `11px ${SANS}`;
    const width = 16 + wide + (extra ? 5 + context.measureText(extra).width : 0);
    const hasBar = hop?.slackMs !== undefined && !isFailed;
    const height = hasBar ? 32 : isQuiet ? 18 : 22;
    for (const t of [0.5, 0.38, 0.62, 0.28, 0.72]) {
      const [x, y] = pointAt(line, t);
      const [x0, y0] = [x - width / 2, y - height / 2];
      if (!this.#isSeen([x, y]) || !room.take(x0 - 2, y0 - 2, width + 4, height + 4)) continue;
      context.beginPath();
      context.roundRect(x0, y0, width, height, 6);
      context.fillStyle = this.colour('surface');
      context.fill();
      if (!isQuiet) {
        context.strokeStyle = this.colour(hop ? 'accent' : isFailed ? 'shed' : 'late');
        context.lineWidth = 1;
        context.stroke();
      }
      context.textAlign = 'left';
      context.font = `${isQuiet ? 400 : 600} ${isQuiet ? 11 : 12}px ${SANS}`;
      context.fillStyle = this.colour(isQuiet ? 'ink-3' : isFailed ? 'shed-ink' : 'ink-1');
      context.fillText(main, x0 + 8, y0 + (isQuiet ? 13 : 15));
      context.font = `11px ${SANS}`;
      context.fillStyle = this.colour(hop ? 'ink-2' : 'late-ink');
      if (extra) context.fillText(extra, x0 + 13 + wide, y0 + 15);
      if (hasBar) this.#bar(context, hop!, x0 + 8, y0 + 21, width - 16);
      return true;
    }
    return false;
  }

  #bar(context: CanvasRenderingContext2D, { ms, slackMs }: HopLabel, x: number, y: number, width: number): void {
    context.fillStyle = this.colour('accent-soft');
    context.fillRect(x, y, width, 5);
    context.fillStyle = this.colour(slackMs ? 'accent' : 'late');
    context.fillRect(x, y, width * Math.min(1, ms / (ms + (slackMs ?? 0) || 1)), 5);
  }

  #text(context: CanvasRenderingContext2D, text: string, x: number, y: number, colour: string): void {
    context.textAlign = 'left';
    context.lineJoin = 'round';
    context.lineWidth = 4;
    context.strokeStyle = this.colour('surface');
    context.strokeText(text, x, y);
    context.fillStyle = this.colour(colour);
    context.fillText(text, x, y);
  }

  #isSeen([x, y]: Point): boolean {
    return x > -20 && y > -20 && x < this.#width + 20 && y < this.#height + 20;
  }
}

const SANS = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif';
