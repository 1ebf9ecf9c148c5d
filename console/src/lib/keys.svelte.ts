/**
 * Keys. A page declares its own with `keys(() => ({ c: copy }))`; they count while it is shown, unless something is
 * typed. The shell's are below them: Ctrl-K, `g` and a letter, `/`, `?`, Space.
 */
export type KeyMap = Record<string, (event: KeyboardEvent) => void>;

const layers: (() => KeyMap)[] = [];
const GO_MS = 1_200;

class KeyState {
  /** `g` was pressed, and the next letter leads to a page. */
  isGoing = $state(false);
  #timer: ReturnType<typeof setTimeout> | undefined;

  going(isGoing: boolean): void {
    clearTimeout(this.#timer);
    this.isGoing = isGoing;
    if (isGoing) this.#timer = setTimeout(() => (this.isGoing = false), GO_MS);
  }
}

export const keyState = new KeyState();

/** Declare keys while the component is shown. Later ones go first. */
export function keys(map: () => KeyMap): void {
  $effect(() => {
    layers.push(map);
    return () => {
      layers.splice(layers.indexOf(map), 1);
    };
  });
}

export function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

/** The shell calls it for each key. Returns whether one was found. */
export function onKey(event: KeyboardEvent): boolean {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return false;
  if (isTyping(event.target)) return false;
  const isButton =
    event.target instanceof HTMLElement && !!event.target.closest('button, a, [role=menuitem], [role=switch]');
  if (isButton && (event.key === ' ' || event.key === 'Enter')) return false; // it presses the button
  for (const layer of layers.toReversed()) {
    const found = layer()[event.key];
    if (found) {
      event.preventDefault();
      found(event);
      return true;
    }
  }
  return false;
}
