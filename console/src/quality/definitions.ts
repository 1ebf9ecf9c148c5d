/** A property as text: the lines of a definition file. */
export interface Definition {
  name: string;
  kind: 'numbers' | 'levels';
  from: string;
  to: string;
  levels: string;
  better: 'higher' | 'lower';
  unit: string;
  overHops: string;
}

export const NEW_DEFINITION: Definition = {
  name: '',
  kind: 'numbers',
  from: '0',
  to: '',
  levels: 'low < medium < high',
  better: 'higher',
  unit: '',
  overHops: 'keep',
};

/** A line break would begin another line of the file. */
const line = (text: string) => text.replace(/[\p{Cc}\u2028\u2029]+/gu, ' ').trim();

export function definitionText(definition: Definition): string {
  const { kind, from, to, levels, better, unit, overHops } = definition;
  const domain = kind === 'levels' ? `levels = ${line(levels)}` : `range = ${line(from) || '0'}..${line(to) || 'inf'}`;
  const lines = [`name = ${line(definition.name)}`, domain, `better = ${better}`];
  if (line(unit)) lines.push(`unit = ${line(unit)}`);
  if (overHops !== 'keep') lines.push(`over hops = ${overHops}`);
  return `${lines.join('\n')}\n`;
}
