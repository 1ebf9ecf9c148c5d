/** Light or dark: as the system says, unless chosen. */
const KEY = 'accord.theme';

export type Theme = 'system' | 'light' | 'dark';

class ThemeState {
  chosen = $state<Theme>('system');
  #isSystemDark = $state(false);
  readonly isDark = $derived(this.chosen === 'dark' || (this.chosen === 'system' && this.#isSystemDark));
  #colours = new Map<string, string>();

  start(): void {
    const system = matchMedia('(prefers-color-scheme: dark)');
    this.#isSystemDark = system.matches;
    system.addEventListener('change', () => {
      this.#colours.clear();
      this.#isSystemDark = system.matches;
    });
    const stored = localStorage.getItem(KEY);
    if (stored === 'light' || stored === 'dark') this.choose(stored);
  }

  choose(theme: Theme): void {
    this.#colours.clear();
    if (theme === 'system') {
      delete document.documentElement.dataset['theme'];
      localStorage.removeItem(KEY);
    } else {
      document.documentElement.dataset['theme'] = theme;
      localStorage.setItem(KEY, theme);
    }
    this.chosen = theme;
  }

  toggle(): void {
    this.choose(this.isDark ? 'light' : 'dark');
  }

  /** The value of a colour token, for canvases; it is reactive. `in-time-quiet` is that of a mark that should be pale. */
  colour(token: string): string {
    void this.isDark;
    if (token.endsWith('-quiet'))
      return `color-mix(in srgb, ${this.colour(token.slice(0, -6))} 38%, ${this.colour('surface')})`;
    let found = this.#colours.get(token);
    if (found === undefined) {
      found = getComputedStyle(document.documentElement).getPropertyValue(`--${token}`).trim() || 'gray';
      // A token that names another one is resolved by the browser already.
      this.#colours.set(token, found);
    }
    return found;
  }
}

export const theme = new ThemeState();
