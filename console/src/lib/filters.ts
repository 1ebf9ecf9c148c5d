/** Filters of channels, as MQTT has them. */

/** Whether a channel is in a filter. */
export function isIn(filter: string, channel: string): boolean {
  const wanted = filter.replace(/^\$share\/[^/]*\//, '').split('/');
  const parts = channel.split('/');
  if (channel.startsWith('$') && /^[+#]$/.test(wanted[0]!)) return false; // only who names it gets it
  for (let i = 0; i < wanted.length; i += 1) {
    if (wanted[i] === '#') return true;
    if (i >= parts.length || (wanted[i] !== '+' && wanted[i] !== parts[i])) return false;
  }
  return wanted.length === parts.length;
}

/** What is wrong with a filter, and at which character, from 1; undefined if nothing is. */
export function problemWithFilter(filter: string): { text: string; at: number } | undefined {
  if (filter === '') return { text: 'expected a filter, such as uav/#', at: 1 };
  if (filter.includes('\0')) return { text: 'no NUL is allowed', at: filter.indexOf('\0') + 1 };
  if (new TextEncoder().encode(filter).length > 65_535) return { text: 'at most 65,535 bytes', at: 65_535 };
  let at = 1;
  const parts = filter.split('/');
  for (const [i, part] of parts.entries()) {
    if (part.includes('#') && (part !== '#' || i < parts.length - 1))
      return { text: '# stands alone, at the end', at: at + part.indexOf('#') };
    if (part.includes('+') && part !== '+')
      return { text: '+ stands alone between slashes', at: at + part.indexOf('+') };
    at += part.length + 1;
  }
  return undefined;
}
