/** The same as the page does, as a command to copy. */

/** A word of a shell's command, quoted if it has to be. Control characters are written as escapes. */
export function shellQuote(word: string): string {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  // eslint-disable-next-line no-control-regex -- those are meant
  if (/[\u0000-\u001f\u007f-\u009f]/.test(word)) {
    const text = word.replace(/[\\']/g, '\\$&').replace(
      // eslint-disable-next-line no-control-regex -- those are meant
      /[\u0000-\u001f\u007f-\u009f]/g,
      (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
    );
    return `$'${text}'`;
  }
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

export interface Subscription {
  filter: string;
  where?: string;
  xpath?: string;
  since?: string;
  expect?: string;
}

/** `accord sub …` for a subscription. */
export function subscribeCommand({ filter, where, xpath, since, expect }: Subscription): string {
  const words = ['accord', 'sub', shellQuote(filter)];
  if (where) words.push('--where', shellQuote(where));
  if (xpath) words.push('--xpath', shellQuote(xpath));
  // A value that begins with a dash would be read as an option.
  if (since) words.push(since.startsWith('-') ? `--since=${shellQuote(since)}` : `--since ${shellQuote(since)}`);
  if (expect) words.push('--expect', shellQuote(expect));
  return words.join(' ');
}
