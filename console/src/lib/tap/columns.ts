/** Which attributes are columns of a tap. */
import type { TapEvent } from './events';

export interface AttributeUse {
  name: string;
  /** In how many of the kept events. */
  count: number;
  isNumber: boolean;
  longest: number;
}

const NUMBER = /^-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/;
const MAX_NAMES = 100;
/** Sent as attributes are, but about the delivery. */
const PROPERTIES = new Set(['deadline-ms', 'key']);

/** Attributes of these events, the most frequent first. */
export function attributesOf(events: readonly TapEvent[], most = 60): AttributeUse[] {
  const found = new Map<string, AttributeUse>();
  for (const event of events.slice(0, most)) {
    for (const [name, value] of Object.entries(event.attributes)) {
      let use = found.get(name);
      if (!use) {
        if (found.size >= MAX_NAMES) continue;
        found.set(name, (use = { name, count: 0, isNumber: true, longest: 0 }));
      }
      use.count += 1;
      use.longest = Math.max(use.longest, value.length);
      if (!NUMBER.test(value)) use.isNumber = false;
    }
  }
  return [...found.values()].sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));
}

/** What is shown unless somebody chooses: attributes of most events with short names and values. */
export function defaultColumns(uses: readonly AttributeUse[], events: number, most = 3): string[] {
  return uses
    .filter((each) => !PROPERTIES.has(each.name))
    .filter((each) => each.count * 2 >= Math.min(events, 60) && each.longest <= 24 && each.name.length <= 24)
    .slice(0, most)
    .map((each) => each.name);
}

/** The choice in the address: encoded names between commas. '-' is none. */
export function readColumns(text: string | null): string[] | undefined {
  if (!text) return undefined;
  if (text === '-') return [];
  return text
    .split(',')
    .map((each) => {
      try {
        return decodeURIComponent(each);
      } catch {
        return each;
      }
    })
    .filter(Boolean)
    .slice(0, 20);
}

export function writeColumns(names: readonly string[]): string {
  return names.map((each) => (each === '-' ? '%2D' : encodeURIComponent(each))).join(',') || '-';
}
