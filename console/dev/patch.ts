/** The JSON merge patch that makes `after` of `before`; undefined if they are equal. */
export function patchOf(before: unknown, after: unknown): unknown {
  if (!isObject(before) || !isObject(after))
    return JSON.stringify(before) === JSON.stringify(after) ? undefined : after;
  const patch: Record<string, unknown> = {};
  for (const name of Object.keys(before)) if (!(name in after)) patch[name] = null;
  for (const [name, value] of Object.entries(after)) {
    const inner = name in before ? patchOf(before[name], value) : value;
    if (inner !== undefined) patch[name] = inner;
  }
  return Object.keys(patch).length ? patch : undefined;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
