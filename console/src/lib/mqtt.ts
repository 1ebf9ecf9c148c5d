/** The page's own MQTT connection. The library is loaded when it is first needed. */
import type { IClientOptions, MqttClient } from 'mqtt';
import type { ConnectToken } from '$api/contract';
import { request } from './api';
import { asProblem } from './problem';

export type { MqttClient, IPublishPacket } from 'mqtt';

/**
 * Connect over `/mqtt` with a token made for this connection. It doesn't reconnect by itself, because a token counts
 * once: on 'close', call it again (`backoff` of the caller). `options` are those of MQTT.js.
 */
export async function connectMqtt(options: IClientOptions = {}): Promise<MqttClient> {
  const [{ default: mqtt }, token] = await Promise.all([import('mqtt'), fetchToken()]);
  const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
  return mqtt.connect(`${scheme}://${location.host}/mqtt`, {
    protocolVersion: 5,
    clean: true,
    keepalive: 30,
    connectTimeout: 10_000,
    timerVariant: 'native', // the other ones need a worker from a blob, which the page's policy forbids
    clientId: token.client_prefix + randomName(),
    ...(token.username ? { username: token.username, password: token.password } : {}),
    ...options,
    reconnectPeriod: 0,
  });
}

async function fetchToken(): Promise<ConnectToken> {
  try {
    return (await request('post', '/api/v1/session/token')) as ConnectToken;
  } catch (error) {
    if (asProblem(error).status !== 404) throw error;
    return { username: '', password: '', client_prefix: 'console-', expires_ms: 0 };
  }
}

function randomName(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
