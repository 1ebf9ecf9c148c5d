/** Where the time of an event went, as rows of a waterfall. Ages in ms; positions are the component's. */
import type { Schemas } from '$api/contract';
import { latency } from './format';

type Path = Schemas['EventPath'];
type Hop = Schemas['PathHop'];
type Step = Schemas['PathStep'];

export type BarKind = 'handling' | 'outbox' | 'busy' | 'link' | 'again' | 'transit';

export interface Bar {
  kind: BarKind;
  label: string;
  text: string;
  fromMs: number;
  untilMs: number;
  /** Where it exceeds what it was allowed. */
  overFromMs: number | null;
  isEstimated: boolean;
}

export interface HopRows {
  node: string;
  bars: Bar[];
  budgetFromMs: number | null;
  budgetUntilMs: number | null;
  /** `4 ms to spare`, `43 ms over`; empty without a budget. */
  verdict: string;
  isOver: boolean;
  budget: string;
}

export interface Waterfall {
  hops: HopRows[];
  spanMs: number;
  /** Within the span, or null: a deadline far away is only said. */
  dueMs: number | null;
  ticks: number[];
}

const KINDS: Record<string, BarKind> = { 'sent again': 'again', 'link busy': 'busy' };
const FAR = 3; // times what it took: a deadline beyond is not drawn
const ROOM = 1.06;

export function waterfall(path: Path): Waterfall {
  const hops = path.hops.map((hop, place) => rowsOf(hop, place === path.hops.length - 1));
  const ends = hops.flatMap((hop) => hop.bars.map((bar) => bar.untilMs));
  const longest = Math.max(path.took_ms, ...ends, 0.5);
  const isNear = path.due_ms !== null && path.due_ms <= longest * FAR;
  const spanMs = Math.max(longest, isNear ? path.due_ms! : 0) * ROOM;
  return { hops, spanMs, dueMs: isNear ? path.due_ms : null, ticks: ticksOf(spanMs) };
}

function rowsOf(hop: Hop, isLast: boolean): HopRows {
  const shown = hop.steps.filter((step) => step.until_ms - step.from_ms >= 0.05);
  const steps = shown.length ? shown : hop.steps.slice(0, 1);
  const isOver = (hop.over_ms ?? 0) > 0;
  const hasBudget = hop.budget_from_ms !== null && hop.budget_ms !== null;
  return {
    node: hop.node,
    bars: steps.map((step) => barOf(step, hop, isLast)),
    budgetFromMs: hasBudget ? hop.budget_from_ms : null,
    budgetUntilMs: hasBudget ? hop.budget_from_ms! + hop.budget_ms! : null,
    verdict: !hop.over_ms ? '' : `${latency(Math.abs(hop.over_ms))} ${isOver ? 'over' : 'to spare'}`,
    isOver,
    budget: hop.budget_ms === null ? '' : `budget ${latency(hop.budget_ms)}`,
  };
}

function barOf(step: Step, hop: Hop, isLast: boolean): Bar {
  const kind = KINDS[step.kind] ?? (step.kind as BarKind);
  const took = step.until_ms - step.from_ms;
  const allowed = step.allowed_ms;
  const isOver = kind === 'outbox' && allowed !== null && took > allowed;
  return {
    kind,
    label: labelOf(kind, hop.to, isLast),
    text: textOf(kind, took, allowed, isLast && step.estimated),
    fromMs: step.from_ms,
    untilMs: step.until_ms,
    overFromMs: isOver ? step.from_ms + Math.max(allowed!, 0) : null,
    isEstimated: step.estimated,
  };
}

function labelOf(kind: BarKind, to: string, isLast: boolean): string {
  switch (kind) {
    case 'handling':
      return 'until queued';
    case 'again':
      return 'until sent again';
    case 'outbox':
      return to ? `outbox to ${to}` : 'outbox';
    case 'busy':
      return 'its link is busy';
    case 'link':
      return isLast ? 'its link' : `link to ${to}`;
    default:
      return `node, link to ${to}`;
  }
}

function textOf(kind: BarKind, took: number, allowed: number | null, isAbout: boolean): string {
  if (kind === 'busy') return `${latency(took)} or more`;
  if (kind === 'link') return isAbout ? `about ${latency(took)}` : `${latency(took)}, as usual`;
  return kind === 'outbox' && allowed !== null ? `${latency(took)}, may ${latency(allowed)}` : latency(took);
}

/** Round ages, about five of them. */
export function ticksOf(spanMs: number): number[] {
  const rough = spanMs / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? rough;
  const found: number[] = [];
  for (let at = 0; at <= spanMs && found.length < 12; at += step) found.push(Number(at.toPrecision(6)));
  return found;
}

const OPENING =
  /^(?:[\d.,]+ m?s (?:later than its channel allows|late)|Expired|Shed|Refused|Replaced|Lost|Late|In time|Delivered|Made smaller|Still waiting|Nobody)/;

/** The sentence in two: what became of the event, which is coloured, and the rest. */
export function parted(sentence: string): [string, string] {
  const found = OPENING.exec(sentence)?.[0] ?? '';
  return [found, sentence.slice(found.length)];
}
