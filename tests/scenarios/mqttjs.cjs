// MQTT.js, unchanged, in the scenarios that test_mqttjs.py names. Prints nothing when all is well.
'use strict'

const assert = require('node:assert/strict')
const { once } = require('node:events')
const mqtt = require('mqtt')

const [scenario, url, version, topic] = process.argv.slice(2)
const protocolVersion = Number(version)
const clients = []

// A connected client that collects its messages.
async function join (options = {}) {
  const client = mqtt.connect(url, { protocolVersion, reconnectPeriod: 0, ...options })
  clients.push(client)
  client.on('error', (problem) => { throw problem })
  client.messages = []
  client.on('message', (name, payload, packet) => {
    client.messages.push({ topic: name, payload: payload.toString(), packet })
    client.emit('taken')
  })
  const [connack] = await once(client, 'connect')
  client.connack = connack
  return client
}

async function take (client, name, payload, qos = 0) {
  while (client.messages.length === 0) await once(client, 'taken')
  const message = client.messages.shift()
  assert.deepEqual([message.topic, message.payload, message.packet.qos], [name, payload, qos])
  return message.packet
}

const stays = (clientId) => protocolVersion === 5
  ? { clientId, clean: false, properties: { sessionExpiryInterval: 3600 } }
  : { clientId, clean: false }

const scenarios = {
  async publishAndSubscribe () {
    for (const qos of [0, 1, 2]) {
      const sub = await join()
      const pub = await join()
      await sub.subscribeAsync(`${topic}/${qos}`, { qos })
      for (let n = 0; n < 20; n++) await pub.publishAsync(`${topic}/${qos}`, `${n}`, { qos })
      for (let n = 0; n < 20; n++) await take(sub, `${topic}/${qos}`, `${n}`, qos)
    }
  },

  async wildcards () {
    const client = await join()
    await client.subscribeAsync([`${topic}/+/end`, `${topic}/deep/#`])
    for (const each of ['a/end', 'a/other', 'deep', 'deep/er']) {
      await client.publishAsync(`${topic}/${each}`, 'x', { qos: 1 })
    }
    for (const each of ['a/end', 'deep', 'deep/er']) await take(client, `${topic}/${each}`, 'x')
  },

  async retained () {
    const pub = await join()
    await pub.publishAsync(topic, 'kept', { qos: 1, retain: true })
    const sub = await join()
    await sub.subscribeAsync(topic)
    assert.equal((await take(sub, topic, 'kept')).retain, true)
  },

  async will () {
    const witness = await join()
    await witness.subscribeAsync(topic, { qos: 1 })
    const lost = await join({ will: { topic, payload: Buffer.from('gone'), qos: 1 } })
    lost.stream.destroy()
    await take(witness, topic, 'gone', 1)
  },

  async session () {
    const name = topic.replaceAll('/', '-')
    let sub = await join(stays(name))
    assert.equal(sub.connack.sessionPresent, false)
    await sub.subscribeAsync(topic, { qos: 1 })
    await sub.endAsync()
    const pub = await join()
    for (let n = 0; n < 5; n++) await pub.publishAsync(topic, `${n}`, { qos: 1 })
    sub = await join(stays(name))
    assert.equal(sub.connack.sessionPresent, true)
    for (let n = 0; n < 5; n++) await take(sub, topic, `${n}`, 1)
  },

  async large () {
    const payload = '0123456789abcdef'.repeat(65536)
    const client = await join()
    await client.subscribeAsync(topic, { qos: 1 })
    await client.publishAsync(topic, payload, { qos: 1 })
    await take(client, topic, payload, 1)
  },

  async shared () {
    const members = [await join(), await join()]
    for (const member of members) {
      await member.subscribeAsync(`$share/g/${topic}`, { qos: 1 })
      await member.subscribeAsync(`${topic}/end`, { qos: 1 })
    }
    const pub = await join()
    for (let n = 0; n < 20; n++) await pub.publishAsync(topic, `${n}`, { qos: 1 })
    await pub.publishAsync(`${topic}/end`, '', { qos: 1 })
    const numbers = []
    for (const member of members) {
      while (true) {
        while (member.messages.length === 0) await once(member, 'taken')
        const message = member.messages.shift()
        if (message.topic !== topic) break
        numbers.push(Number(message.payload))
      }
    }
    assert.deepEqual(numbers.sort((a, b) => a - b), [...Array(20).keys()])
  },

  async properties () {
    const properties = {
      contentType: 'text/plain',
      responseTopic: `${topic}/answer`,
      correlationData: Buffer.from([0, 255]),
      payloadFormatIndicator: true,
      userProperties: { b: ['1', '2'], a: '3' }
    }
    const client = await join()
    await client.subscribeAsync(topic, { qos: 1, properties: { subscriptionIdentifier: 9 } })
    await client.publishAsync(topic, 'x', { qos: 1, properties })
    const packet = await take(client, topic, 'x', 1)
    assert.deepEqual(JSON.parse(JSON.stringify(packet.properties)), JSON.parse(JSON.stringify({
      ...properties, subscriptionIdentifier: 9
    })))
  },

  async aliases () {
    const pub = await join({ autoAssignTopicAlias: true })
    const sub = await join({ properties: { topicAliasMaximum: 5 } })
    await sub.subscribeAsync(`${topic}/#`)
    for (let n = 0; n < 30; n++) {
      await pub.publishAsync(`${topic}/${n % 8}`, `${n}`, { qos: 1 })
      await take(sub, `${topic}/${n % 8}`, `${n}`)
    }
  },

  async requestAndResponse () {
    const asker = await join()
    const answerer = await join()
    await asker.subscribeAsync(`${topic}/answers`)
    await answerer.subscribeAsync(topic)
    const properties = { responseTopic: `${topic}/answers`, correlationData: Buffer.from('7') }
    await asker.publishAsync(topic, '?', { qos: 1, properties })
    const asked = (await take(answerer, topic, '?')).properties
    const { correlationData } = asked
    await answerer.publishAsync(asked.responseTopic, '!', { qos: 1, properties: { correlationData } })
    const answer = await take(asker, `${topic}/answers`, '!')
    assert.equal(answer.properties.correlationData.toString(), '7')
  },

  async predicate () {
    const client = await join()
    const where = { userProperties: { where: "altitude_m > 300 AND platform = 'UAV'" } }
    await client.subscribeAsync(topic, { qos: 1, properties: where })
    for (const altitude of ['100', '400', '300', '500']) {
      const userProperties = { altitude_m: altitude, platform: 'UAV' }
      await client.publishAsync(topic, altitude, { qos: 1, properties: { userProperties } })
    }
    await take(client, topic, '400', 1)
    await take(client, topic, '500', 1)
    assert.equal(client.messages.length, 0)
  },

  async badPredicate () {
    const client = await join()
    let suback
    client.on('packetreceive', (packet) => { if (packet.cmd === 'suback') suback = packet })
    const properties = { userProperties: { where: 'altitude_m >' } }
    await assert.rejects(client.subscribeAsync(topic, { qos: 1, properties }))
    assert.ok(suback.granted[0] >= 0x80)
    assert.match(suback.properties.reasonString, /altitude_m >/)
  }
}

scenarios[scenario]().then(
  async () => {
    for (const client of clients) await client.endAsync(true)
    process.exit(0)
  },
  (problem) => {
    console.error(problem)
    process.exit(1)
  }
)
