import { describe, expect, it } from 'vitest';
import { ownAddress } from './own_address';

const HERE = 'https://node.example:8443';

describe('addresses from outside', () => {
  it.each([
    ['/', '/'],
    ['/channels', '/channels'],
    ['/channels?q=a%2Fb', '/channels?q=a%2Fb'],
    [`${HERE}/why`, '/why'],
    ['channels', '/channels'],
    ['', '/'],
  ])('leads to %s', (wanted, found) => expect(ownAddress(wanted, HERE)).toBe(found));

  it.each([
    '/.//evil.example',
    '/..//evil.example/x',
    '//evil.example',
    '/\\evil.example',
    '/.//\\evil.example',
    '/%2e//evil.example',
    '/.\t//evil.example',
    'https://evil.example',
    'https://node.example:8444/',
    'javascript:alert(1)',
    'data:text/html,x',
    'http://[',
    '//',
  ])('does not lead to %s', (wanted) => expect(ownAddress(wanted, HERE)).toBe('/'));
});
