/** What is seen, as a command to run elsewhere. */
// eslint-disable-next-line no-control-regex -- those must not reach a terminal
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;

/** A word of a POSIX shell, bash for characters that are not seen: nothing in it is run, nor moves the cursor. */
export function quoted(text: string): string {
  if (/^[A-Za-z0-9_./:@%+,-]+$/.test(text) && !text.startsWith('-')) return text;
  if (!HIDDEN.test(text)) {
    if (!text.includes("'")) return `'${text}'`;
    if (!/["$`\\!]/.test(text)) return `"${text}"`;
    return `'${text.replaceAll("'", `'\\''`)}'`;
  }
  let found = '';
  for (const character of text) {
    const code = character.codePointAt(0)!;
    if (character === "'" || character === '\\') found += `\\${character}`;
    else if (!HIDDEN.test(character)) found += character;
    else if (code < 0x100)
      found += code < 0x80 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`;
    else found += `\\u${code.toString(16).padStart(4, '0')}`;
  }
  return `$'${found}'`;
}

export interface Tapped {
  channel: string;
  where: string;
  xpath: string;
}

/** An argument that may begin with a dash. */
const argument = (text: string): string => (text.startsWith('-') ? `-- ${quoted(text)}` : quoted(text));

export function subCommand({ channel, where, xpath }: Tapped): string {
  const options = [where && `--where ${quoted(where)}`, xpath && `--xpath ${quoted(xpath)}`].filter(Boolean).join(' ');
  return ['accord sub', options, argument(channel)].filter(Boolean).join(' ');
}

/** Kept events over HTTP: the newest ones that match. */
export function curlCommand(origin: string, { channel, where, xpath }: Tapped, user = '', limit = 20): string {
  const query = [`channel=${channel}`, where && `where=${where}`, xpath && `xpath=${xpath}`, `limit=${limit}`]
    .filter(Boolean)
    .map((each) => `--data-urlencode ${quoted(each as string)}`)
    .join(' ');
  return `curl -G ${user ? `-u ${quoted(user)} ` : ''}${quoted(`${origin}/api/v1/query`)} ${query}`;
}

export const whyCommand = (event: string): string => `accord why ${argument(event)}`;
export const pubCommand = (channel: string): string => `accord pub ${argument(channel)} 21.5`;
