import { expect, test } from 'vitest';
import { shellQuote, subscribeCommand } from './commands';

test.each([
  ['uav/imagery', 'uav/imagery'],
  ['uav/#', "'uav/#'"],
  ["a 'b'", "'a '\\''b'\\'''"],
  ['$(rm -rf /)', "'$(rm -rf /)'"],
  ['\u001b[31m', "$'\\u001b[31m'"],
  ['', "''"],
])('%j is written %s', (word, expected) => {
  expect(shellQuote(word)).toBe(expected);
});

test('a subscription as a command', () => {
  expect(subscribeCommand({ filter: 'uav/#', where: 'cloud < 0.4', since: '-24h', expect: '{"rate": [5, 10]}' })).toBe(
    `accord sub 'uav/#' --where 'cloud < 0.4' --since=-24h --expect '{"rate": [5, 10]}'`,
  );
});
