/** What the page asks for expectations and profiles: for itself over MQTT, for other clients over HTTP. */
import { api, request } from '$lib/api';
import { pageClient } from './page_client.svelte';

export const PAGE = '';

const isPage = (client: string) => client === PAGE || client === pageClient.client;

/** Register alternatives for a subscription of a client; returns their IDs. */
export async function register(client: string, channel: string, expect: Record<string, unknown>[]): Promise<string[]> {
  const reply = isPage(client)
    ? await pageClient.register(channel, expect)
    : await api.post('/api/v1/expectations', { body: { client, channel, expect } as never });
  const found = (reply as { expectations?: { expectation: string }[] }).expectations ?? [];
  return found.map((each) => each.expectation);
}

export async function update(client: string, id: string, expect: Record<string, unknown>): Promise<void> {
  if (isPage(client)) await pageClient.ask('expectations', { do: 'update', id, expect });
  else await api.put('/api/v1/expectations/{id}', { path: { id }, body: { client, expect } as never });
}

export async function setSuspended(client: string, id: string, isSuspended: boolean): Promise<void> {
  const what = isSuspended ? 'suspend' : 'resume';
  if (isPage(client)) await pageClient.ask('expectations', { do: what, id });
  else await api.post(`/api/v1/expectations/{id}/${what}`, { path: { id }, body: { client } as never });
}

export async function revoke(client: string, id: string): Promise<void> {
  if (isPage(client)) await pageClient.ask('expectations', { do: 'revoke', id });
  else await api.delete('/api/v1/expectations/{id}', { path: { id }, query: { client } as never });
}

export async function registerProfile(
  client: string,
  channel: string,
  capabilities: Record<string, unknown>,
  couplings: object[],
): Promise<void> {
  const body = { capabilities, ...(couplings.length ? { couplings } : {}) };
  if (isPage(client)) await pageClient.ask('capabilities', { do: 'register', channel, ...body });
  else await api.put('/api/v1/capabilities/{channel}', { path: { channel }, body: { client, ...body } as never });
}

export async function setCurrent(channel: string, property: string, value: number | string): Promise<void> {
  await pageClient.ask('capabilities', { do: 'update', channel, current: { [property]: value } });
}

export async function revokeProfile(client: string, channel: string): Promise<void> {
  if (isPage(client)) await pageClient.ask('capabilities', { do: 'revoke', channel });
  else await api.delete('/api/v1/capabilities/{channel}', { path: { channel }, query: { client } as never });
}

/** Filters that a client is subscribed to. */
export async function subscriptionsOf(client: string): Promise<string[]> {
  const found = await api.get('/api/v1/clients/{client}', { path: { client } });
  return found.subscriptions.map((each) => each.filter).filter((each) => !each.startsWith('$accord/'));
}

export async function convert(text: string, to: 'json' | 'xml', signal?: AbortSignal): Promise<string> {
  const found = await api.post('/api/v1/quality/convert', { body: { text, to }, ...(signal ? { signal } : {}) });
  return found.text;
}

export async function defineProperties(text: string): Promise<string[]> {
  const found = (await request('post', '/api/v1/quality/properties', { text })) as { properties: string[] };
  return found.properties;
}
