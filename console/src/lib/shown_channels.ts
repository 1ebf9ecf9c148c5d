/** Which channels of a client the graphs show, each with a colour that it keeps. */
import type { Line } from './client_view';
import { byImportance } from './client_view';

export const MOST_SHOWN = 5; // as many as there are colours

export class ShownChannels {
  #slots: (string | undefined)[] = Array.from({ length: MOST_SHOWN }, () => undefined);

  /** The most important of those that something came of, in order of importance. */
  choose(lines: readonly Line[]): { shown: string[]; colours: Map<string, string> } {
    const shown = lines
      .filter((each) => each.received + each.dropped > 0)
      .sort(byImportance)
      .slice(0, MOST_SHOWN)
      .map((each) => each.channel);
    this.#slots = this.#slots.map((each) => (each !== undefined && shown.includes(each) ? each : undefined));
    for (const channel of shown) {
      if (!this.#slots.includes(channel)) this.#slots[this.#slots.indexOf(undefined)] = channel;
    }
    return { shown, colours: new Map(shown.map((each) => [each, `s${this.#slots.indexOf(each) + 1}`])) };
  }
}
