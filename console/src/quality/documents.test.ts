import { expect, test } from 'vitest';
import { definitionText, NEW_DEFINITION } from './definitions';
import {
  capabilitiesForm,
  expectationOf,
  expectForm,
  formatOf,
  freshId,
  profileOf,
  ranked,
  readDocument,
  writeDocument,
} from './documents';

test('an expectation is read from what the node tells, and sent as that', () => {
  const form = { rate: [5, 10], trust: ['high', null], latency: [null, 200], utility: 3, publishers: 2, id: 'often' };
  const found = expectationOf({ id: 'often', channel: 'lab/#', expect: form });
  expect(found.requirements).toEqual([
    { property: 'rate', lower: 5, upper: 10 },
    { property: 'trust', lower: 'high' },
    { property: 'latency', upper: 200 },
  ]);
  expect(expectForm(found)).toEqual(form);
});

test('a profile has what its publisher declared, and not what is measured', () => {
  const rate = { property: 'rate', lower: 1, upper: 50, current: 2, is_measured: false, cost: { base: 0, slope: 0.1 } };
  const latency = { property: 'latency', lower: 5, upper: 5, current: 5, is_measured: true, cost: 0 };
  const found = profileOf({ publisher: 'p', channel: 'c', capabilities: [rate, latency] });
  expect(capabilitiesForm(found)).toEqual({ rate: { range: [1, 50], current: 2, cost: { base: 0, slope: 0.1 } } });
});

test('documents are written as they are read', () => {
  const text = writeDocument({
    expectations: [
      {
        id: 'a',
        subscription: 's',
        channel: 'c',
        utility: 2,
        publishers: 1,
        requirements: [{ property: 'rate', lower: 1 }],
      },
    ],
    profiles: [{ publisher: 'p', channel: 'c', capabilities: [], couplings: [{ of: 'a', on: 'b', per_unit: -1 }] }],
  });
  expect(writeDocument(readDocument(text))).toBe(text);
  expect(readDocument('{}')).toEqual({ expectations: [], profiles: [] });
});

test('alternatives are ranked by utility', () => {
  expect(
    ranked([
      { utility: 1, at: 0 },
      { utility: 3, at: 1 },
      { utility: 1, at: 2 },
    ]).map((each) => each.at),
  ).toEqual([1, 0, 2]);
});

test('names are fresh, formats are known by the file or its first character', () => {
  expect(freshId('a', ['a', 'a-2'])).toBe('a-3');
  expect(freshId('', [])).toBe('expectation-2');
  expect([formatOf('x.XML', ''), formatOf('x.json', '<'), formatOf('x', ' <q/>'), formatOf('x', '{}')]).toEqual([
    'xml',
    'json',
    'xml',
    'json',
  ]);
});

test('a definition is one property, whatever is typed', () => {
  expect(
    definitionText({ ...NEW_DEFINITION, name: 'depth', to: '100', unit: 'm', better: 'lower', overHops: 'add' }),
  ).toBe('name = depth\nrange = 0..100\nbetter = lower\nunit = m\nover hops = add\n');
  const sly = definitionText({ ...NEW_DEFINITION, kind: 'levels', name: 'a\nname = b', unit: 'm\u2028x' });
  expect(sly.split('\n')).toEqual([
    'name = a name = b',
    'levels = low < medium < high',
    'better = higher',
    'unit = m x',
    '',
  ]);
});
