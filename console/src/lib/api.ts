/**
 * Calls of the node's operations, typed by its OpenAPI document.
 *
 *     const page = await api.get('/api/v1/clients', { query: { limit: 50 } });
 *     await api.put('/api/v1/policies/{name}', { path: { name }, body: policy, ifMatch: version });
 *
 * A failure is a `ProblemError`. A call without a login leads to the login page.
 */
import type { paths } from '$api/schema';
import { ProblemError } from './problem';
import { session } from './session.svelte';

type Method = 'get' | 'put' | 'post' | 'patch' | 'delete';
type PathsWith<M extends Method> = { [P in keyof paths]: paths[P] extends Record<M, object> ? P : never }[keyof paths];
type Operation<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never;
type In<O, Where extends string> = O extends { parameters: infer A }
  ? Where extends keyof A
    ? NonNullable<A[Where]>
    : never
  : never;
type BodyOf<O> = O extends { requestBody?: infer B }
  ? NonNullable<B> extends { content: infer C }
    ? C[keyof C]
    : never
  : never;
type Ok<O> = O extends { responses: infer R } ? R[Extract<keyof R, 200 | 201 | 202 | 204>] : never;
type Answer<O> = Ok<O> extends { content: { 'application/json': infer J } } ? J : unknown;
/** Members with a default may be left out of a request. */
export type Loose<T> = T extends (infer E)[] ? Loose<E>[] : T extends object ? { [K in keyof T]?: Loose<T[K]> } : T;

export interface CallOptions<O> {
  path?: In<O, 'path'>;
  query?: Loose<In<O, 'query'>>;
  body?: Loose<BodyOf<O>>;
  /** The version that is replaced: the node answers 409 or 412 if it is no longer current. */
  ifMatch?: number;
  signal?: AbortSignal;
}

async function call<M extends Method, P extends keyof paths>(
  method: M,
  path: P,
  options: CallOptions<Operation<P, M>> = {},
): Promise<Answer<Operation<P, M>>> {
  const address = fill(path, (options.path ?? {}) as Record<string, unknown>) + queryOf(options.query);
  return (await request(method, address, options)) as Answer<Operation<P, M>>;
}

export const api = {
  get: <P extends PathsWith<'get'>>(path: P, options?: CallOptions<Operation<P, 'get'>>) => call('get', path, options),
  put: <P extends PathsWith<'put'>>(path: P, options?: CallOptions<Operation<P, 'put'>>) => call('put', path, options),
  post: <P extends PathsWith<'post'>>(path: P, options?: CallOptions<Operation<P, 'post'>>) =>
    call('post', path, options),
  patch: <P extends PathsWith<'patch'>>(path: P, options?: CallOptions<Operation<P, 'patch'>>) =>
    call('patch', path, options),
  delete: <P extends PathsWith<'delete'>>(path: P, options?: CallOptions<Operation<P, 'delete'>>) =>
    call('delete', path, options),
};

/** A call by address, for what the OpenAPI document does not have. */
export async function request(
  method: string,
  address: string,
  {
    body,
    text,
    ifMatch,
    signal,
    leadsToLogin = true,
  }: { body?: unknown; text?: string; ifMatch?: number; signal?: AbortSignal; leadsToLogin?: boolean } = {},
): Promise<unknown> {
  const headers: Record<string, string> = { Accept: 'application/json' };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  else if (text !== undefined) headers['Content-Type'] = 'text/plain';
  if (ifMatch !== undefined) headers['If-Match'] = `"${ifMatch}"`;
  const response = await fetch(address, {
    method: method.toUpperCase(),
    headers,
    credentials: 'same-origin',
    cache: 'no-store',
    ...(body === undefined ? (text === undefined ? {} : { body: text }) : { body: JSON.stringify(body) }),
    ...(signal ? { signal } : {}),
  });
  const answer = await response.text();
  const isJson = /\bjson\b/.test(response.headers.get('content-type') ?? '');
  const found: unknown = isJson && answer ? JSON.parse(answer) : answer;
  if (response.ok) return found;
  if (response.status === 401 && leadsToLogin) session.askLogin();
  throw problemOf(response, found);
}

/** A file, of any length. */
export async function download(address: string, signal: AbortSignal): Promise<Blob> {
  const response = await fetch(address, { credentials: 'same-origin', cache: 'no-store', signal });
  if (response.ok) return response.blob();
  if (response.status === 401) session.askLogin();
  throw problemOf(response, await response.json().catch(() => null));
}

function problemOf(response: Response, found: unknown): ProblemError {
  const problem = typeof found === 'object' && found !== null ? found : { title: response.statusText };
  return new ProblemError({ ...problem, status: response.status }, Number(response.headers.get('retry-after')) || 0);
}

function fill(path: string, values: Record<string, unknown>): string {
  return path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(values[name] ?? '')));
}

/** A query string; lists repeat their parameter, what is undefined, null or empty is left out. */
export function queryOf(values: object | undefined): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values ?? {})) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== '') found.append(name, String(each));
    }
  }
  const text = found.toString();
  return text && `?${text}`;
}
