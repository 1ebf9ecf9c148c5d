/** What a page tells the shell. */
import type { Snippet } from 'svelte';

/** An entry of the palette. */
export interface Action {
  id: string;
  text: string;
  note?: string;
  key?: string;
  run: () => void;
}

class Shell {
  isPaletteOpen = $state(false);
  /** Typed while the palette was being loaded. */
  typedAhead = '';
  isHelpOpen = $state(false);
  /** Shown at the right of the top bar. */
  tools = $state.raw<Snippet>();
  /** Actions of the page, offered by the palette. */
  actions = $state.raw<Action[]>([]);
}

export const shell = new Shell();

/** Put controls of the page at the right of the top bar. Call it while the page is initialised. */
export function useTools(tools: () => Snippet): void {
  $effect(() => {
    const mine = tools();
    shell.tools = mine;
    return () => {
      if (shell.tools === mine) shell.tools = undefined;
    };
  });
}

/** Offer actions in the palette while the page is shown. `id: 'copy'` is what the key `c` does. */
export function useActions(actions: () => Action[]): void {
  $effect(() => {
    const mine = actions();
    shell.actions = mine;
    return () => {
      if (shell.actions === mine) shell.actions = [];
    };
  });
}
