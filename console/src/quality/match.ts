/**
 * Requested, offered and granted, property by property, and what would have to change for an expectation to be met.
 * Pure: what is shown follows from the live set alone.
 */
import type {
  CapabilityRow,
  ExpectationRow,
  NearestProfile,
  PropertyRow,
  QualityAction,
  QualityState,
} from '$api/contract';
import { isIn } from '$lib/filters';
import { count, number, plain } from '$lib/format';
import { costOf, isFree, readCost } from './costs';
import { expectationOf, expectForm, type Expectation, type Requirement } from './documents';
import { positionOf, said, scaleOf, type Domain, type Scale, type Value } from './scale';

export type MatchState = 'satisfied' | 'satisfiable' | 'unsatisfied' | 'missing' | 'unasked';

export interface MatchRow {
  property: string;
  domain: Domain;
  scale: Scale;
  state: MatchState;
  /** The worst sufficient value and the best useful one; what is not bounded is left out. */
  worst?: Value | undefined;
  best?: Value | undefined;
  isAsked: boolean;
  offer?: CapabilityRow | undefined;
  note: string;
}

export interface Change {
  kind: 'warn' | 'bad' | 'ok' | 'stale';
  property: string;
  text: string;
  /** The value to ask for instead, with which it would be met or could be. */
  ask?: Value | undefined;
}

const NUMBERS: Domain = { better: 'higher', levels: [], range: [null, null], unit: '' };

export const key = (row: { client: string; id: string }) => `${row.client}\n${row.id}`;

/** A property as far as its scale is concerned; of one that is not known, that of any number. */
export function domainOf(properties: Record<string, PropertyRow>, name: string): Domain {
  const found = Object.hasOwn(properties, name) ? properties[name] : undefined;
  if (!found) return NUMBERS;
  const range = found.range ? { range: found.range as [number | null, number | null] } : {};
  return { better: found.better, levels: found.levels, unit: found.unit, ...range };
}

/** The bounds as the worse and the better one. */
export function ordered(domain: Pick<Domain, 'better'>, bounds: { lower?: unknown; upper?: unknown }) {
  const [worst, best] = domain.better === 'lower' ? [bounds.upper, bounds.lower] : [bounds.lower, bounds.upper];
  return { worst: worst as Value | undefined, best: best as Value | undefined };
}

/** Whether a value is at least as good as another one, which may be left out. */
function isGood(domain: Domain, value: unknown, least: unknown): boolean {
  const at = positionOf(domain, value);
  const needed = positionOf(domain, least);
  if (at === undefined) return false;
  if (needed === undefined) return true;
  return domain.better === 'lower' ? at <= needed : at >= needed;
}

/** What is asked for, then what else the profile has. */
export function matchRows(row: ExpectationRow, properties: Record<string, PropertyRow>): MatchRow[] {
  const offers = new Map((row.nearest?.capabilities ?? []).map((each) => [each.property, each]));
  const asked = expectationOf(row).requirements;
  const others = [...offers.keys()].filter((name) => !asked.some((each) => each.property === name));
  return [
    ...asked.map((each) => rowOf(each.property, properties, offers.get(each.property), each, row)),
    ...others.map((name) => rowOf(name, properties, offers.get(name), undefined, row)),
  ];
}

function rowOf(
  property: string,
  properties: Record<string, PropertyRow>,
  offer: CapabilityRow | undefined,
  asked: Requirement | undefined,
  row: ExpectationRow,
): MatchRow {
  const domain = domainOf(properties, property);
  const { worst, best } = asked ? ordered(domain, asked) : { worst: undefined, best: undefined };
  const values = [worst, best, offer?.lower, offer?.upper, offer?.current];
  const state = stateOf(domain, offer, worst, !!asked);
  return {
    property,
    domain,
    scale: scaleOf(domain, values, !!asked),
    state,
    worst,
    best,
    isAsked: !!asked,
    offer,
    note: noteOf(domain, state, offer, row),
  };
}

function stateOf(
  domain: Domain,
  offer: CapabilityRow | undefined,
  worst: Value | undefined,
  isAsked: boolean,
): MatchState {
  if (!isAsked) return 'unasked';
  if (!offer) return 'missing';
  if (isGood(domain, offer.current, worst)) return 'satisfied';
  return isGood(domain, ordered(domain, offer).best, worst) ? 'satisfiable' : 'unsatisfied';
}

function noteOf(domain: Domain, state: MatchState, offer: CapabilityRow | undefined, row: ExpectationRow): string {
  if (!offer) return row.state === 'suspended' ? 'nothing is done for it now' : 'nobody offers it';
  const now = said(offer.current, domain.unit);
  const who = plain(row.nearest?.publisher ?? '', 40);
  if (state === 'satisfied' || state === 'unasked') return `${now}, ${offer.is_measured ? 'measured' : who}`;
  const most = said(ordered(domain, offer).best, domain.unit);
  if (state === 'satisfiable') return `${now} now, ${who} can do ${most}`;
  return `${now} now, ${most} at best`;
}

/** What would have to change for the expectation to be met; what is done already is said too. */
export function changesFor(row: ExpectationRow, rows: readonly MatchRow[]): Change[] {
  if (row.state === 'suspended')
    return [
      { kind: 'stale', property: '', text: 'It is suspended, or its client is offline: nothing is done for it.' },
    ];
  const unmet = rows.filter((each) => each.isAsked && each.state !== 'satisfied');
  if (row.state === 'satisfied') {
    const by = row.relies_on.map((each) => plain(each, 60)).join(', ');
    return [{ kind: 'ok', property: '', text: by ? `Nothing. It depends on ${by}.` : 'Nothing.' }];
  }
  const wanted = Number(row.expect['publishers'] ?? 1);
  const found = unmet.map((each) => changeOf(row, each));
  if (!row.nearest)
    return [
      {
        kind: 'bad',
        property: '',
        text: `No publisher on ${plain(row.channel, 80)} offers ${names(rows)}. One would have to register a profile.`,
      },
    ];
  if (wanted > 1)
    found.push({ kind: 'warn', property: '', text: `${number(wanted)} publishers have to meet all of it at once.` });
  if (row.decision && row.decision !== 'adapting')
    found.push({ kind: 'warn', property: '', text: `The node has ${decisionText(row.decision)}.` });
  return found;
}

const names = (rows: readonly MatchRow[]) => rows.map((each) => plain(each.property, 40)).join(' and ');

function decisionText(decision: string): string {
  const said_ = plain(decision, 200);
  return said_.startsWith('declined') ? said_ : `tried, and ${said_}`;
}

function changeOf(row: ExpectationRow, match: MatchRow): Change {
  const { property, domain, offer } = match;
  const who = plain(row.nearest?.publisher ?? 'a publisher', 60);
  const wanted = said(match.worst, domain.unit);
  if (!offer) return { kind: 'bad', property, text: `${who} would have to offer it.` };
  const best = ordered(domain, offer).best;
  if (match.state === 'satisfiable') {
    if (offer.is_measured)
      return {
        kind: 'warn',
        property,
        text: `the node can reach ${said(best, domain.unit)} by acting; ${wanted} is asked for.`,
      };
    const advised = row.decision === 'adapting' ? ' It is advised.' : '';
    return { kind: 'warn', property, text: `${who} would have to change to ${wanted}${priceOf(match)}.${advised}` };
  }
  const rest = offer.is_measured
    ? `is measured: ${said(best, domain.unit)} is the best`
    : `can do ${said(best, domain.unit)} at best`;
  const text = offer.is_measured
    ? `it ${rest}, and ${wanted} is asked for.`
    : `${who} ${rest}, and ${wanted} is asked for.`;
  return { kind: 'bad', property, text, ask: best };
}

/** What the change would cost the publisher. */
function priceOf(match: MatchRow): string {
  const cost = readCost(match.offer?.cost);
  if (isFree(cost)) return '';
  const then = costOf(cost, match.worst, match.domain.levels);
  const now = costOf(cost, match.offer?.current, match.domain.levels);
  if (then === undefined || now === undefined) return '';
  return `, at a cost of ${said(then, '')} instead of ${said(now, '')}`;
}

// Drafts

const OUT_OF_REACH = 1_000;

/** The profile of this node that comes nearest to a draft; `known` is that of the registered one, maybe elsewhere. */
export function nearestTo(
  draft: Expectation,
  state: Pick<QualityState, 'profiles' | 'properties'>,
  known?: NearestProfile,
): NearestProfile | undefined {
  let found = known;
  let least = found ? lacks(draft, found.capabilities, state.properties) : Infinity;
  for (const each of Object.values(state.profiles)) {
    if (!isIn(draft.channel, each.channel)) continue;
    const lacking = lacks(draft, each.capabilities, state.properties);
    if (lacking >= least) continue;
    least = lacking;
    found = { publisher: each.publisher, channel: each.channel, capabilities: each.capabilities, is_remote: false };
  }
  return found;
}

/** How far the capabilities are from the draft: what they can't reach counts most. */
function lacks(
  draft: Expectation,
  capabilities: readonly CapabilityRow[],
  properties: Record<string, PropertyRow>,
): number {
  let found = 0;
  for (const each of draft.requirements) {
    const domain = domainOf(properties, each.property);
    const offer = capabilities.find((one) => one.property === each.property);
    const state = stateOf(domain, offer, ordered(domain, each).worst, true);
    found += { satisfied: 0, unasked: 0, satisfiable: 1, unsatisfied: OUT_OF_REACH, missing: 10 * OUT_OF_REACH }[state];
  }
  return found;
}

/** Whether a draft would be met, as far as it can be said from here. */
export function previewOf(draft: Expectation, state: QualityState, known?: NearestProfile): Change {
  const nearest = nearestTo(draft, state, known);
  const row: ExpectationRow = {
    rank: 0,
    client: '',
    id: draft.id,
    channel: draft.channel,
    subscription: draft.channel,
    expect: expectForm(draft),
    state: 'unsatisfied',
    decision: '',
    reasons: [],
    relies_on: [],
    ...(nearest ? { nearest } : {}),
  };
  const rows = matchRows(row, state.properties);
  const unmet = rows.filter((each) => each.isAsked && each.state !== 'satisfied');
  const who = plain(nearest?.publisher ?? '', 60);
  const more = draft.publishers > 1 ? ` ${number(draft.publishers)} publishers are asked for.` : '';
  if (!draft.requirements.length || !draft.channel)
    return { kind: 'stale', property: '', text: 'Nothing is asked for yet.' };
  if (!nearest)
    return {
      kind: 'bad',
      property: '',
      text: `No publisher at this node offers ${names(rows)} on ${plain(draft.channel, 80)}. Other nodes are asked once it is registered.`,
    };
  if (!unmet.length) return { kind: 'ok', property: '', text: `${who} gives that now.${more}` };
  const bad = unmet.filter((each) => each.state !== 'satisfiable');
  const said_ = (bad.length ? bad : unmet)
    .map((each) => changeOf(row, each))
    .map((each) => `${plain(each.property, 40)}: ${each.text}`);
  return { kind: bad.length ? 'bad' : 'warn', property: '', text: `${said_.join(' ')}${more}` };
}

// The page as a whole

/** The worst first. */
export function expectationsOf(state: QualityState): ExpectationRow[] {
  return Object.values(state.expectations).sort((a, b) => a.rank - b.rank);
}

export function verdictOf(state: QualityState): string {
  const { states } = state.totals;
  const total = Object.values(states).reduce((sum, each) => sum + each, 0);
  if (!total) return 'Nobody expects anything yet.';
  const met = states['satisfied'] ?? 0;
  const worst = expectationsOf(state)[0];
  const why = met < total && worst ? ` ${worstText(worst, state)}` : '';
  if (total === 1) return `The only expectation is ${met ? '' : 'not '}satisfied.${why}`;
  if (met === total) return `All ${number(total)} expectations are satisfied.`;
  if (!met) return `None of ${number(total)} expectations is satisfied.${why}`;
  return `${number(met)} of ${number(total)} expectations ${met === 1 ? 'is' : 'are'} satisfied.${why}`;
}

function worstText(worst: ExpectationRow, state: QualityState): string {
  const who = plain(worst.client, 40);
  const first = worst.reasons[0]?.property ?? '';
  if (worst.state === 'suspended') return `${who}’s is suspended.`;
  if (!worst.nearest) return `Nobody offers what ${who} asks for.`;
  const rows = matchRows(worst, state.properties).filter((each) => each.isAsked);
  const bad =
    rows.find((each) => each.state === 'missing' || each.state === 'unsatisfied') ??
    rows.find((each) => each.state === 'satisfiable');
  if (worst.state === 'unsatisfied')
    return `${who} asks for more ${plain(bad?.property ?? first, 40)} than anybody can give.`;
  if (worst.decision === 'adapting')
    return `${who} waits for ${plain(worst.nearest.publisher, 60)} to change its ${plain(first, 40)}.`;
  return `${who}’s could be, if ${plain(worst.nearest.publisher, 60)} changed its ${plain(bad?.property ?? first, 40)}.`;
}

/** `advised 14 times, 12 of the last 13 helped`. */
export function adviceText(state: QualityState): string {
  const advice = state.totals.advice;
  if (!advice) return 'no advice sent yet';
  const judged = Object.values(state.actions).filter(
    (each) => !each.is_release && (each.outcome === 'reached' || each.outcome === 'missed'),
  );
  const helped = judged.filter((each) => each.outcome === 'reached').length;
  const last = judged.length ? `, ${number(helped)} of the last ${number(judged.length)} followed` : '';
  return `advised ${count(advice, 'time')}${last}`;
}

/** The newest first. */
export function actionsOf(state: QualityState): QualityAction[] {
  return Object.values(state.actions).sort((a, b) => b.number - a.number);
}

export interface Effect {
  kind: 'ok' | 'warn' | 'bad' | 'stale';
  text: string;
}

/** What came of an action, in words. */
export function effectOf(action: QualityAction, unit: string): Effect {
  const now = said(action.after, unit);
  switch (action.outcome) {
    case 'reached': {
      const ms = action.reached_ms - action.at_ms;
      const after = ms >= 1_000 ? ` within ${number(ms / 1_000)} s` : '';
      return { kind: 'ok', text: action.act.startsWith('filter') ? 'filtered' : `now ${now}${after}` };
    }
    case 'missed':
      return { kind: 'bad', text: action.after === undefined ? 'not followed' : `not followed: ${now}` };
    case 'superseded':
      return { kind: 'stale', text: 'superseded by newer advice' };
    case 'ended':
      return { kind: 'stale', text: 'the profile is gone' };
    default:
      return { kind: 'warn', text: action.after === undefined ? 'waiting' : `waiting, ${now} now` };
  }
}
