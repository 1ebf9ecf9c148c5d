/** Addresses of the page: which page, which thing, and the state of the view in the query string. */
import type { Component } from 'svelte';

type Load = () => Promise<{ default: Component }>;

export interface PageInfo {
  id: string;
  /** Its title and name in the rail. */
  title: string;
  path: string;
  /** The letter after `g`. */
  key: string;
  load: Load;
  /** The page of one thing, whose name follows in the address. */
  one?: Load;
}

/** In the order in which people ask. */
export const PAGES: PageInfo[] = [
  { id: 'overview', title: 'Overview', path: '/', key: 'o', load: () => import('../pages/Overview.svelte') },
  {
    id: 'channels',
    title: 'Channels',
    path: '/channels',
    key: 'c',
    load: () => import('../pages/Channels.svelte'),
    one: () => import('../pages/Channel.svelte'),
  },
  {
    id: 'clients',
    title: 'Clients',
    path: '/clients',
    key: 'l',
    load: () => import('../pages/Clients.svelte'),
    one: () => import('../pages/Client.svelte'),
  },
  {
    id: 'policies',
    title: 'Policies',
    path: '/policies',
    key: 'p',
    load: () => import('../pages/Policies.svelte'),
    one: () => import('../pages/Policy.svelte'),
  },
  { id: 'network', title: 'Network', path: '/network', key: 'n', load: () => import('../pages/Network.svelte') },
  { id: 'quality', title: 'Quality', path: '/quality', key: 'q', load: () => import('../pages/Quality.svelte') },
  {
    id: 'admission',
    title: 'Admission',
    path: '/admission',
    key: 'a',
    load: () => import('../pages/Admission.svelte'),
  },
  { id: 'history', title: 'History', path: '/history', key: 'h', load: () => import('../pages/History.svelte') },
  {
    id: 'why',
    title: 'Why',
    path: '/why',
    key: 'w',
    load: () => import('../pages/Why.svelte'),
    one: () => import('../pages/Why.svelte'),
  },
  {
    id: 'internals',
    title: 'Internals',
    path: '/internals',
    key: 'i',
    load: () => import('../pages/Internals.svelte'),
  },
];

const LOGIN: PageInfo = {
  id: 'login',
  title: 'Login',
  path: '/login',
  key: '',
  load: () => import('../pages/Login.svelte'),
};

export interface Match {
  page: PageInfo | undefined;
  /** The thing that the page is about: a channel, client, policy or event. */
  name: string;
}

/** Which page an address leads to. */
export function match(pathname: string, query: URLSearchParams): Match {
  if (pathname === '/' || pathname === '') return { page: PAGES[0], name: '' };
  const [, first = '', rest = ''] = /^\/([^/]*)\/?(.*)$/.exec(pathname) ?? [];
  const page = [...PAGES.slice(1), LOGIN].find((each) => each.path === `/${first}`);
  if (!page) return { page: undefined, name: '' };
  const name = page.one ? decode(rest) || (query.get('name') ?? '') : '';
  return { page, name };
}

/** The address of one thing. Slashes of names stay, unless the browser would take parts for steps upwards. */
export function pathOf(
  page: 'channels' | 'clients' | 'policies' | 'why',
  name: string,
  query: Record<string, string> = {},
): string {
  const search = new URLSearchParams(query);
  if (name === '' || name === '.' || name === '..' || (page === 'clients' && name === 'watch')) {
    // /clients/watch is the page that watches as a client.
    search.set('name', name);
    return `/${page}?${search}`;
  }
  const parts = name.split('/');
  const isPlain = parts.every((part) => part !== '' && part !== '.' && part !== '..');
  const path = isPlain ? parts.map(encodeURIComponent).join('/') : encodeURIComponent(name);
  const text = search.toString();
  return `/${page}/${path}${text && `?${text}`}`;
}

/** The address of the outcomes of a channel, to or from a client, of one kind. */
export function outcomesPath(query: { channel?: string; client?: string; outcome?: string }): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  return `/why?${search}`;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

class Route {
  #href = $state(location.href);
  readonly url = $derived(new URL(this.#href));
  readonly path = $derived(this.url.pathname);
  /** The state of the view; change it with `setQuery`. */
  readonly query = $derived(this.url.searchParams);
  readonly #match = $derived(match(this.path, this.query));
  readonly page = $derived(this.#match.page);
  readonly name = $derived(this.#match.name);
  #renamed = $state.raw<{ name: string; was: string }>();
  /** The name that the page was opened with: a page stays when its thing is renamed. */
  readonly openedName = $derived(this.#renamed?.name === this.name ? this.#renamed.was : this.name);

  start(): void {
    addEventListener('popstate', () => {
      this.#href = location.href;
    });
    document.addEventListener('click', (event) => {
      const link = (event.target as Element | null)?.closest('a');
      if (
        !link ||
        event.defaultPrevented ||
        event.button !== 0 ||
        event.ctrlKey ||
        event.metaKey ||
        event.shiftKey ||
        event.altKey
      )
        return;
      if (link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
      if (!match(link.pathname, new URLSearchParams(link.search)).page) return; // the node's, such as /docs
      event.preventDefault();
      this.go(link.href);
    });
    document.addEventListener('pointerover', (event) => {
      const link = (event.target as Element | null)?.closest('a');
      if (link?.origin === location.origin) prefetch(link.pathname, link.search);
    });
  }

  /** The thing of this page has another name now: the address follows, and nothing on the page moves. */
  rename(page: Parameters<typeof pathOf>[0], name: string): void {
    this.#renamed = { name, was: this.openedName };
    history.replaceState(null, '', pathOf(page, name));
    this.#href = location.href;
  }

  go(href: string, { replace = false } = {}): void {
    const url = new URL(href, location.href);
    if (url.href === location.href) return;
    const isOther = url.pathname !== location.pathname;
    history[replace ? 'replaceState' : 'pushState'](null, '', url);
    this.#href = url.href;
    if (isOther) {
      document.querySelector('main')?.scrollTo(0, 0);
      scrollTo(0, 0);
    }
  }

  /** Change the view's state in the address; null or '' removes. It replaces the entry of the history unless `push`. */
  setQuery(changes: Record<string, string | number | boolean | null | undefined>, { push = false } = {}): void {
    const url = new URL(location.href);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === '' || value === false) url.searchParams.delete(name);
      else url.searchParams.set(name, String(value));
    }
    this.go(url.href, { replace: !push });
  }
}

export function prefetch(pathname: string, search = ''): void {
  const found = match(pathname, new URLSearchParams(search));
  void (found.name ? found.page?.one : found.page?.load)?.().catch(() => undefined);
}

export const route = new Route();
