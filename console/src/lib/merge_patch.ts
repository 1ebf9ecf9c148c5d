/** JSON merge patches (RFC 7396). What a patch does not name stays the same object, so that only what changed is drawn again. */
export function mergePatch<T>(target: T, patch: unknown): T {
  if (!isObject(patch)) return patch as T;
  const merged: Record<string, unknown> = isObject(target) ? { ...target } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete merged[name];
    // defineProperty: a member may be called __proto__
    else
      Object.defineProperty(merged, name, {
        value: mergePatch(Object.hasOwn(merged, name) ? merged[name] : undefined, value),
        enumerable: true,
        configurable: true,
        writable: true,
      });
  }
  return merged as T;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
