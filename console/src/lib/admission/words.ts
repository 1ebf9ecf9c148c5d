/** Admission in figures and words. */
import type { Schemas } from '$api/contract';
import { bps, bytes, count, number, plain, rate, share } from '../format';

export type Pool = Schemas['PoolStatus'];
export type Book = Schemas['NodeBook'];
export type Refusal = Schemas['RefusalStatus'] & { node: string };
type Interval = Schemas['ReportedInterval'];

const TIGHT = 0.9;

/** Bytes of memory, events per second of CPU, bits per second of bandwidth. */
export function amount(value: number | null | undefined, resource: string): string {
  if (resource === 'bandwidth') return bps(value);
  if (resource === 'memory') return bytes(value);
  return rate(value);
}

export function resourceText(resource: string, of = ''): string {
  const name = resource === 'cpu' ? 'CPU' : plain(resource, 40);
  return of ? `${name} of ${plain(of, 60)}` : name;
}

/** As in a predicate of this project: `stock WHERE price > 5`. */
export function filterText(filter: string, where: string): string {
  return plain(filter, 80) + (where ? ` WHERE ${plain(where, 120)}` : '');
}

/** The share that is promised, or used if that is more; 0 without a limit. */
export function taken(pool: Pool): number {
  return pool.capacity ? Math.max(pool.promised, pool.used) / pool.capacity : 0;
}

export const isTight = (pool: Pool): boolean => taken(pool) > TIGHT;

export function tightestFirst(pools: readonly Pool[]): Pool[] {
  return [...pools].sort((one, other) => taken(other) - taken(one) || compare(nameOf(one), nameOf(other)));
}

/** The pool that is to stand for a resource of a node: of bandwidth the tightest one. */
export function poolOf(book: Book, resource: string): Pool | undefined {
  return tightestFirst(book.pools.filter((each) => each.resource === resource))[0];
}

const nameOf = (pool: Pool): string => `${pool.resource} ${pool.of}`;
const compare = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0);
export const refusalsOf = (book: Book): number => Object.values(book.refused).reduce((sum, each) => sum + each, 0);

/** The latest refusals of all nodes. */
export function refusals(books: readonly Book[]): Refusal[] {
  return books
    .flatMap((book) => book.lately.map((each) => ({ ...each, node: book.node })))
    .sort((one, other) => other.at_ms - one.at_ms);
}

/** The page's sentence. */
export function sentence(mode: string, books: readonly Book[]): string {
  if (mode === 'off') return 'Admission is off at this node: every subscription is accepted.';
  const sum = (of: (book: Book) => number) => books.reduce((all, book) => all + of(book), 0);
  const promised = sum((book) => book.subscriptions);
  const refused = sum(refusalsOf);
  const verb = mode === 'report' ? 'would have been refused' : refused === 1 ? 'was refused' : 'were refused';
  const parts = [
    `${promised ? count(promised, 'subscription has a promise', 'subscriptions have promises') : 'No subscription has a promise'}${books.length > 1 ? ` at ${number(books.length)} nodes` : ''}`,
    refused ? `${number(refused)} ${verb}` : 'nothing was refused',
  ];
  const silent = books.filter((book) => book.problem);
  if (silent.length) parts.push(`${plain(silent[0]!.node, 40)} does not answer${others(silent.length - 1)}`);
  const tight = tightestFirst(books.flatMap((book) => book.pools)).filter(isTight);
  const worst = tight[0];
  if (worst) {
    const of = resourceText(worst.resource, worst.of);
    const left = 1 - taken(worst);
    parts.push(
      left < 0
        ? `${plain(worst.node, 40)} promised more of its ${of} than there is`
        : `${plain(worst.node, 40)} has ${share(left, 0)} of its ${of} left`,
    );
  }
  return `${parts.join('; ')}.`;
}

const others = (more: number): string => (more ? `, nor do ${count(more, 'other', 'others')}` : '');

export function interval(found: Interval, text: (value: number) => string): string {
  if (found.high === found.low) return text(found.low);
  return found.high === null ? `${text(found.low)} or more` : `${text(found.low)} to ${text(found.high)}`;
}

export function advertisements(found: Interval): string {
  return `${interval(found, (value) => number(value))} ${found.high === 1 ? 'advertisement' : 'advertisements'}`;
}

export const isAdmitted = (need: Schemas['DemandStatus']): boolean => need.state === 'admitted';
