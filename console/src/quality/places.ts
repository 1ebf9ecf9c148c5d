/** Where in a text a mistake is: by line and column, or by the path of a field in JSON. */

export interface Place {
  /** From 1. */
  line: number;
  column: number;
  /** The characters that are marked. */
  from: number;
  to: number;
}

/** The place that the node named; undefined if it is none in the text. */
export function findPlace(text: string, place: string): Place | undefined {
  const named = /^line (\d+)(?:, column (\d+))?/.exec(place);
  if (named) return atLine(text, Number(named[1]), Number(named[2] ?? 0));
  const steps = pathSteps(place);
  const from = steps.length ? findPath(text, steps) : undefined;
  return from === undefined ? undefined : placeAt(text, from, endOf(text, from));
}

function atLine(text: string, line: number, column: number): Place {
  let from = 0;
  for (let left = line - 1; left > 0; left -= 1) {
    const end = text.indexOf('\n', from);
    if (end < 0) break;
    from = end + 1;
  }
  const end = text.indexOf('\n', from);
  const stop = end < 0 ? text.length : end;
  if (column > 0) {
    const at = Math.min(from + column - 1, stop);
    return placeAt(text, at, Math.min(at + 1, text.length));
  }
  const blank = /^\s*/.exec(text.slice(from, stop))![0].length;
  return placeAt(text, from + blank, stop);
}

function placeAt(text: string, from: number, to: number): Place {
  const before = text.slice(0, from);
  return { line: before.split('\n').length, column: from - before.lastIndexOf('\n'), from, to };
}

/** `expectations[0].requirements[1].lower` as names and numbers. */
export function pathSteps(path: string): (string | number)[] {
  const found: (string | number)[] = [];
  const pattern = /([A-Za-z_]\w*)|\[(\d+)\]|\./y;
  while (pattern.lastIndex < path.length) {
    const step = pattern.exec(path);
    if (!step) break;
    if (step[1] !== undefined) found.push(step[1]);
    else if (step[2] !== undefined) found.push(Number(step[2]));
  }
  return found;
}

/** Where the value at this path begins, or the deepest of it that is there. */
function findPath(text: string, steps: readonly (string | number)[]): number | undefined {
  let at = skip(text, 0);
  let found: number | undefined;
  for (const step of steps) {
    const next = typeof step === 'number' ? element(text, at, step) : member(text, at, step);
    if (next === undefined) break;
    found = at = next;
  }
  return found;
}

function member(text: string, from: number, name: string): number | undefined {
  if (text[from] !== '{') return undefined;
  let at = skip(text, from + 1);
  while (text[at] === '"') {
    const end = endOf(text, at);
    const isIt = unquoted(text.slice(at, end)) === name;
    at = skip(text, end);
    if (text[at] !== ':') return undefined;
    at = skip(text, at + 1);
    if (isIt) return at;
    at = skip(text, endOf(text, at));
    if (text[at] !== ',') return undefined;
    at = skip(text, at + 1);
  }
  return undefined;
}

function unquoted(text: string): string {
  try {
    return JSON.parse(text) as string;
  } catch {
    return text;
  }
}

function element(text: string, from: number, number: number): number | undefined {
  if (text[from] !== '[') return undefined;
  let at = skip(text, from + 1);
  for (let left = number; left > 0; left -= 1) {
    at = skip(text, endOf(text, at));
    if (text[at] !== ',') return undefined;
    at = skip(text, at + 1);
  }
  return at < text.length && text[at] !== ']' ? at : undefined;
}

function skip(text: string, at: number): number {
  while (at < text.length && /\s/.test(text[at]!)) at += 1;
  return at;
}

/** The end of the value that begins here. */
function endOf(text: string, from: number): number {
  if (text[from] === '"') return endOfString(text, from);
  if (text[from] !== '{' && text[from] !== '[') {
    let at = from;
    while (at < text.length && !/[\s,:\]}]/.test(text[at]!)) at += 1;
    return Math.max(at, from + 1);
  }
  let depth = 0;
  for (let at = from; at < text.length; at += 1) {
    const c = text[at]!;
    if (c === '"') at = endOfString(text, at) - 1;
    else if (c === '{' || c === '[') depth += 1;
    else if (c === '}' || c === ']') {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  return text.length;
}

function endOfString(text: string, from: number): number {
  let at = from + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return Math.min(at + 1, text.length);
}
