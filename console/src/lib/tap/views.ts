/** Saved views: names for addresses, kept in this browser. */
export interface SavedView {
  name: string;
  /** Path and query. */
  address: string;
}

const KEY = 'accord.views';
const MAX_VIEWS = 40;
const MAX_LENGTH = 4_000;

type Store = Pick<Storage, 'getItem' | 'setItem'>;

export function readViews(store: Store): SavedView[] {
  try {
    const found: unknown = JSON.parse(store.getItem(KEY) ?? '[]');
    if (!Array.isArray(found)) return [];
    return found
      .filter(
        (each): each is SavedView =>
          typeof each === 'object' &&
          each !== null &&
          typeof (each as SavedView).name === 'string' &&
          typeof (each as SavedView).address === 'string' &&
          /^\/(?![/\\])/.test((each as SavedView).address),
      )
      .slice(0, MAX_VIEWS);
  } catch {
    return [];
  }
}

/** Newest first; one of the same name is replaced, the oldest give way. */
export function withView(views: readonly SavedView[], view: SavedView): SavedView[] {
  const name = view.name.trim().slice(0, 80);
  if (!name || view.address.length > MAX_LENGTH) return [...views];
  return [{ name, address: view.address }, ...views.filter((each) => each.name !== name)].slice(0, MAX_VIEWS);
}

export function writeViews(store: Store, views: readonly SavedView[]): boolean {
  try {
    store.setItem(KEY, JSON.stringify(views));
    return true;
  } catch {
    return false; // full, or not allowed
  }
}
