/**
 * Documents of expectations and profiles, as files have them in JSON and XML. The node alone reads and writes XML, and
 * checks both: what is here follows its JSON.
 */
import type { CapabilityRow, ExpectationRow, ProfileRow } from '$api/contract';
import { costForm, isFree, readCost, type Cost } from './costs';
import type { Value } from './scale';

export interface Requirement {
  property: string;
  lower?: Value;
  upper?: Value;
}

export interface Expectation {
  id: string;
  subscription: string;
  channel: string;
  utility: number;
  publishers: number;
  requirements: Requirement[];
}

export interface Capability {
  property: string;
  lower: Value;
  upper: Value;
  current: Value;
  cost?: Cost;
}

export interface Coupling {
  of: string;
  on: string;
  per_unit: number;
}

export interface Profile {
  publisher: string;
  channel: string;
  capabilities: Capability[];
  couplings: Coupling[];
}

export interface QualityDocument {
  expectations: Expectation[];
  profiles: Profile[];
}

const ABOUT = ['utility', 'publishers', 'id'];

/** A document that the node has checked. */
export function readDocument(text: string): QualityDocument {
  const found = JSON.parse(text) as { expectations?: Partial<Expectation>[]; profiles?: Partial<Profile>[] };
  return {
    expectations: (found.expectations ?? []).map((each) => ({
      id: '',
      subscription: '',
      channel: '',
      utility: 1,
      publishers: 1,
      requirements: [],
      ...each,
    })),
    profiles: (found.profiles ?? []).map((each) => ({
      publisher: '',
      channel: '',
      capabilities: [],
      couplings: [],
      ...each,
    })),
  };
}

export function writeDocument(document: QualityDocument): string {
  return `${JSON.stringify(document, null, 2)}\n`;
}

/** An expectation as the node's operations take it. */
export function expectForm(expectation: Expectation): Record<string, unknown> {
  const form: Record<string, unknown> = {};
  for (const each of expectation.requirements) form[each.property] = [each.lower ?? null, each.upper ?? null];
  form['utility'] = expectation.utility;
  if (expectation.publishers !== 1) form['publishers'] = expectation.publishers;
  if (expectation.id) form['id'] = expectation.id;
  return form;
}

export function expectationOf(row: Pick<ExpectationRow, 'id' | 'channel' | 'expect'>): Expectation {
  const expect = row.expect;
  const requirements = Object.entries(expect)
    .filter(([name]) => !ABOUT.includes(name))
    .map(([property, bounds]) => {
      const [lower, upper] = Array.isArray(bounds) ? (bounds as (Value | null | undefined)[]) : [bounds as Value];
      return requirement(property, lower, upper);
    });
  return {
    id: row.id,
    subscription: row.channel,
    channel: row.channel,
    utility: Number(expect['utility'] ?? 1),
    publishers: Number(expect['publishers'] ?? 1),
    requirements,
  };
}

/** Without the bounds that are not there. */
export function requirement(property: string, lower?: Value | null, upper?: Value | null): Requirement {
  return {
    property,
    ...(lower === null || lower === undefined ? {} : { lower }),
    ...(upper === null || upper === undefined ? {} : { upper }),
  };
}

/** A profile as the node's operations take it. */
export function capabilitiesForm(profile: Profile): Record<string, unknown> {
  const form: Record<string, unknown> = {};
  for (const each of profile.capabilities) {
    const cost = each.cost && !isFree(each.cost) ? { cost: costForm(each.cost) } : {};
    form[each.property] = { range: [each.lower, each.upper], current: each.current, ...cost };
  }
  return form;
}

/** What its publisher declared; the node measures the rest. */
export function profileOf(row: Pick<ProfileRow, 'publisher' | 'channel' | 'capabilities'>): Profile {
  return {
    publisher: row.publisher,
    channel: row.channel,
    capabilities: row.capabilities.filter((each) => !each.is_measured).map(capabilityOf),
    couplings: [],
  };
}

function capabilityOf(row: CapabilityRow): Capability {
  const cost = readCost(row.cost);
  return {
    property: row.property,
    lower: row.lower,
    upper: row.upper,
    current: row.current,
    ...(isFree(cost) ? {} : { cost }),
  };
}

/** Alternatives as the node ranks them: by utility, of equal ones the one registered first. */
export function ranked<T extends { utility: number }>(alternatives: readonly T[]): T[] {
  return [...alternatives].sort((a, b) => b.utility - a.utility);
}

/** An ID that none of these has. */
export function freshId(start: string, taken: readonly string[]): string {
  if (start && !taken.includes(start)) return start;
  for (let number = 2; ; number += 1) {
    const id = `${start || 'expectation'}-${number}`;
    if (!taken.includes(id)) return id;
  }
}

/** The end of a file's name decides what is in it, else its first character. */
export function formatOf(name: string, text: string): 'json' | 'xml' {
  if (/\.xml$/i.test(name)) return 'xml';
  if (/\.json$/i.test(name)) return 'json';
  return text.trimStart().startsWith('<') ? 'xml' : 'json';
}
