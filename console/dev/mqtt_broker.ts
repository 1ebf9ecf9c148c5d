/** Just enough of an MQTT broker for taps: it publishes made-up events to whoever subscribes, and returns publishes. */
import mqtt from 'mqtt-packet';
import type { WebSocket } from 'ws';
import { channels, eventId, hash } from './world.ts';

// A picture of 1 × 1 in PNG.
const PICTURE = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkmM9QDwADeQGB0X1a0gAAAABJRU5ErkJggg==',
  'base64',
);

export function serveMqtt(socket: WebSocket): void {
  const parser = mqtt.parser({ protocolVersion: 5 });
  const filters = new Map<string, number>();
  let count = 0;
  const send = (packet: mqtt.Packet) => socket.send(mqtt.generate(packet, { protocolVersion: 5 }));
  socket.on('message', (data: Buffer) => parser.parse(data));
  parser.on('packet', (packet) => {
    if (packet.cmd === 'connect') send({ cmd: 'connack', sessionPresent: false, reasonCode: 0 });
    else if (packet.cmd === 'pingreq') send({ cmd: 'pingresp' });
    else if (packet.cmd === 'subscribe') {
      for (const each of packet.subscriptions) filters.set(each.topic, each.qos);
      send({ cmd: 'suback', messageId: packet.messageId!, granted: packet.subscriptions.map((each) => each.qos) });
    } else if (packet.cmd === 'unsubscribe') {
      for (const each of packet.unsubscriptions) filters.delete(each);
      send({ cmd: 'unsuback', messageId: packet.messageId!, granted: packet.unsubscriptions.map(() => 0) });
    } else if (packet.cmd === 'publish') {
      if (packet.qos === 1) send({ cmd: 'puback', messageId: packet.messageId!, reasonCode: 0 });
      if ([...filters.keys()].some((filter) => isIn(filter, packet.topic))) send({ ...packet, qos: 0 });
    } else if (packet.cmd === 'disconnect') socket.close();
  });
  parser.on('error', () => socket.close());
  const timer = setInterval(() => {
    for (const channel of channels.slice(0, 14)) {
      if (!channel.hz || hash(`${channel.name} ${count++} ${Date.now()}`) > Math.min(0.9, channel.hz / 8)) continue;
      if (![...filters.keys()].some((filter) => isIn(filter, channel.name))) continue;
      const isImage = channel.kb > 20;
      const cloud = Number(hash(`c${count}`).toFixed(2));
      send({
        cmd: 'publish',
        topic: channel.name,
        qos: 0,
        dup: false,
        retain: false,
        payload: isImage
          ? PICTURE
          : Buffer.from(
              JSON.stringify({
                unit: `unit-${count % 90}`,
                at: new Date().toISOString(),
                speed: cloud * 20,
                note: '<b>not bold</b>',
              }),
            ),
        properties: {
          contentType: isImage ? 'image/png' : 'application/json',
          userProperties: {
            cloud: String(cloud),
            unit: `unit-${count % 90}`,
            'accord-event': eventId(Math.floor(Date.now() / 1000) * 100),
          },
        },
      });
    }
  }, 250);
  socket.on('close', () => clearInterval(timer));
}

/** Whether a channel is in a filter of MQTT. Options before the filter (`$where/…`) are not known here. */
function isIn(filter: string, channel: string): boolean {
  const wanted = filter.split('/');
  const parts = channel.split('/');
  for (let i = 0; i < wanted.length; i += 1) {
    if (wanted[i] === '#') return true;
    if (wanted[i] !== '+' && wanted[i] !== parts[i]) return false;
  }
  return wanted.length === parts.length;
}
