/** Addresses that come from outside, such as in `/login?next=…`. */

/** Path and query of an address of this page; '/' for everything else. */
export function ownAddress(wanted: string, origin: string): string {
  const path = pathOf(wanted, origin);
  // Read again, as a browser would: `/.//evil.example` has the path `//evil.example`, which is another host.
  return path !== undefined && pathOf(path, origin) === path ? path : '/';
}

function pathOf(wanted: string, origin: string): string | undefined {
  try {
    const url = new URL(wanted, origin);
    return url.origin === origin ? url.pathname + url.search : undefined;
  } catch {
    return undefined;
  }
}
