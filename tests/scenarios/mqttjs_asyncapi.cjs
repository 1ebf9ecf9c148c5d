// MQTT.js does operations of a node of which it knows the AsyncAPI document, and nothing else: topics,
// requests and replies are read from there. Prints nothing when all is well.
'use strict'

const assert = require('node:assert/strict')
const { once } = require('node:events')
const mqtt = require('mqtt')

const [url, documentUrl] = process.argv.slice(2)
const clientId = 'asyncapi-reader'
const ANNOTATIONS = new Set(['title', 'description', 'default', 'examples'])
let api

function at (reference) {
  const parts = reference.replace(/^#\//, '').split('/')
  const found = parts.reduce((node, part) => node[part.replaceAll('~1', '/').replaceAll('~0', '~')], api)
  return found.$ref ? at(found.$ref) : found
}

const TYPES = {
  object: (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
  array: Array.isArray,
  string: (value) => typeof value === 'string',
  number: (value) => typeof value === 'number',
  integer: Number.isInteger,
  boolean: (value) => typeof value === 'boolean',
  null: (value) => value === null
}

const KEYWORDS = {
  $ref: (reference, value) => fits(at(reference), value),
  type: (types, value) => [types].flat().some((type) => TYPES[type](value)),
  const: (only, value) => value === only,
  enum: (all, value) => all.includes(value),
  allOf: (all, value) => all.every((one) => fits(one, value)),
  anyOf: (all, value) => all.some((one) => fits(one, value)),
  oneOf: (all, value) => all.filter((one) => fits(one, value)).length === 1,
  required: (names, value) => !TYPES.object(value) || names.every((name) => name in value),
  properties: (all, value) => !TYPES.object(value) ||
    Object.entries(all).every(([name, one]) => !(name in value) || fits(one, value[name])),
  additionalProperties: (one, value, schema) => !TYPES.object(value) ||
    Object.entries(value).every(([name, each]) =>
      name in (schema.properties ?? {}) || (one !== false && fits(one, each))),
  items: (one, value) => !Array.isArray(value) || one === false || value.every((each) => fits(one, each)),
  prefixItems: (all, value) => !Array.isArray(value) ||
    value.every((each, n) => n >= all.length || fits(all[n], each)),
  minItems: (least, value) => !Array.isArray(value) || value.length >= least,
  maxItems: (most, value) => !Array.isArray(value) || value.length <= most,
  minLength: (least, value) => typeof value !== 'string' || value.length >= least,
  maxLength: (most, value) => typeof value !== 'string' || value.length <= most,
  minimum: (least, value) => typeof value !== 'number' || value >= least,
  maximum: (most, value) => typeof value !== 'number' || value <= most
}

function fits (schema, value) {
  return Object.entries(schema).every(([keyword, expected]) => {
    if (ANNOTATIONS.has(keyword)) return true
    assert.ok(KEYWORDS[keyword], `a keyword of JSON Schema that is unknown here: ${keyword}`)
    return KEYWORDS[keyword](expected, value, schema)
  })
}

// A request: the values given, and for other required fields what the schema allows or shows.
function filled (schema, values) {
  const whole = schema.$ref ? at(schema.$ref) : schema
  const request = { ...values }
  for (const name of whole.required ?? []) {
    if (name in request) continue
    const field = whole.properties[name]
    request[name] = (field.enum ?? field.examples)[0]
  }
  assert.ok(fits(schema, request), `not a request: ${JSON.stringify(request)}`)
  return request
}

async function main () {
  api = await (await fetch(documentUrl)).json()
  const client = mqtt.connect(url, { protocolVersion: 5, clientId, reconnectPeriod: 0 })
  await once(client, 'connect')
  const waiting = new Map()
  client.on('message', (topic, payload, { properties }) => {
    waiting.get(String(properties.correlationData))(JSON.parse(payload))
  })
  let asked = 0

  async function ask (name, values = {}) {
    const operation = api.operations[name]
    const [request] = operation.messages.map((each) => at(each.$ref))
    const [reply] = operation.reply.messages.map((each) => at(each.$ref))
    const id = String(++asked)
    const places = { client: clientId, id }
    const responseTopic = at(operation.reply.channel.$ref).address.replace(/{(\w+)}/g, (_, place) => places[place])
    await client.subscribeAsync(responseTopic, { qos: 1 })
    const arrived = new Promise((resolve) => waiting.set(id, resolve))
    const properties = { responseTopic, correlationData: Buffer.from(id), contentType: request.contentType }
    const body = JSON.stringify(filled(request.payload, values))
    await client.publishAsync(at(operation.channel.$ref).address, body, { qos: 1, properties })
    const answer = await arrived
    assert.ok(fits(reply.payload, answer), `not as the document says: ${JSON.stringify(answer)}`)
    return answer
  }

  const status = await ask('status.get')
  assert.deepEqual([status.ok, status.is_ready], [true, true])

  const channel = await ask('channels.create', { paths: 2 })
  assert.deepEqual([channel.ok, channel.paths], [true, 2])
  const listed = await ask('channels.list')
  assert.deepEqual(listed.channels.map((each) => each.name), [channel.name])

  const changed = await ask('policies.put_policy', { name: 'Alarms' })
  const policy = await ask('policies.get_policy', { name: 'Alarms' })
  assert.equal(policy.version, changed.version)

  const refused = await ask('clients.get', { client: 'nobody' })
  assert.deepEqual([refused.ok, refused.status, refused.place], [false, 404, 'client'])
  await client.endAsync(true)
}

main().then(
  () => process.exit(0),
  (problem) => {
    console.error(problem)
    process.exit(1)
  }
)
