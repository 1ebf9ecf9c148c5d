/** Predicates in the page: colours of their words, the place of a mistake, its repair. The node decides what is valid. */
export type Token = { text: string; kind: 'word' | 'keyword' | 'string' | 'number' | 'sign' | 'space' };

const KEYWORDS = /^(?:AND|OR|NOT|BETWEEN|IN|LIKE|ESCAPE|IS|NULL|TRUE|FALSE|TIMESTAMP|XPATH|USING)$/i;
const PARTS =
  /\s+|'(?:[^']|'')*'?|"(?:[^"]|"")*"?|(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)[lLdDfF]?|[\p{L}_$][\p{L}\p{N}_$.]*|<>|<=|>=|!=|./gsu;

/** Words of a selector, for colouring. Together they are the text again. */
export function tokens(text: string): Token[] {
  return (text.match(PARTS) ?? []).map((part) => ({ text: part, kind: kindOf(part) }));
}

function kindOf(part: string): Token['kind'] {
  const first = part[0]!;
  if (/\s/.test(first)) return 'space';
  if (first === "'") return 'string';
  if (first === '"') return 'word';
  if (/[\d.]/.test(first) && part !== '.') return 'number';
  if (/[\p{L}_$]/u.test(first)) return KEYWORDS.test(part) ? 'keyword' : 'word';
  return 'sign';
}

/** Something wrong with a predicate. */
export interface Mistake {
  /** The node's words, without the place. */
  text: string;
  /** Index in the text, in UTF-16 as the page counts; undefined if it is about the whole. */
  at: number | undefined;
  /** The character, counted from 1 as people do. */
  character: number | undefined;
  expected: string;
  /** The whole predicate as it may have been meant. */
  repair: string;
}

/** Where the n-th character (code point, from 0) begins. */
export function indexOf(text: string, position: number): number {
  let index = 0;
  for (let i = 0; i < position && index < text.length; i += 1) index += text.codePointAt(index)! > 0xffff ? 2 : 1;
  return index;
}

/** How long the word is that begins there: what is marked. */
export function lengthAt(text: string, index: number): number {
  let start = 0;
  for (const token of tokens(text)) {
    if (index < start + token.text.length)
      return token.kind === 'space' ? 1 : Math.max(1, start + token.text.length - index);
    start += token.text.length;
  }
  return 1;
}

/** From problem details of `predicates.check`, or from the reason string of a SUBACK. */
export function mistakeOf(
  predicate: string,
  problem: { detail?: string; at?: number | null | undefined; expected?: string; repair?: string },
): Mistake {
  let text = problem.detail ?? '';
  let position = problem.at ?? undefined;
  let expected = problem.expected ?? '';
  const said = /^(.*?) at character (\d+)(?:, expected (.*))?$/s.exec(text);
  if (said) {
    text = said[1]!;
    position ??= Number(said[2]) - 1;
    expected ||= said[3] ?? '';
  }
  const at = position === undefined ? undefined : indexOf(predicate, position);
  return {
    text: text || 'it is not a predicate',
    at,
    character: position === undefined ? undefined : position + 1,
    expected,
    repair: problem.repair && problem.repair !== predicate ? problem.repair : '',
  };
}

/** What a repair changes, short enough for a button: `= 'UAV'` of `platform == 'UAV'`. */
export function repairText(before: string, after: string): string {
  let start = 0;
  while (start < before.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end))
    end += 1;
  // Whole words: what is around the change belongs to it.
  while (start > 0 && !/\s/.test(after[start - 1]!)) start -= 1;
  let stop = after.length - end;
  while (stop < after.length && !/\s/.test(after[stop]!)) stop += 1;
  const next = /^\s*\S+/.exec(after.slice(stop))?.[0] ?? '';
  const changed = after.slice(start, stop).trim();
  const text = changed.length < 4 ? `${changed}${next}` : changed;
  return text.length > 40 ? `${text.slice(0, 39)}…` : text || after.slice(0, 40);
}

/** A condition on one attribute as the publisher set it. */
export function condition(name: string, value: string): string {
  const subject =
    /^[\p{L}_$][\p{L}\p{N}_$.]*$/u.test(name) && !KEYWORDS.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
  if (/^-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/.test(value)) return `${subject} = ${decimal(value)}`;
  if (/^(?:true|false)$/i.test(value)) return `${subject} = ${value.toUpperCase()}`;
  if (/^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)$/.test(value)) return `${subject} = TIMESTAMP '${value}'`;
  return `${subject} = '${value.replaceAll("'", "''")}'`;
}

/** A leading zero would make it octal. */
const decimal = (value: string): string => value.replace(/^(-?)0+(?=\d)/, '$1');

/** Both conditions. */
export function both(before: string, more: string): string {
  if (!before.trim()) return more;
  return /\bOR\b/i.test(before) ? `(${before}) AND ${more}` : `${before} AND ${more}`;
}
