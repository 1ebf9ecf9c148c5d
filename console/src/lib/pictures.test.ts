import { expect, test } from 'vitest';
import { pictureOf, Pictures } from './pictures';

const PNG = new Uint8Array(30);
PNG.set([
  0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13, 0x49, 0x48, 0x44, 0x52, 0, 0, 3, 32, 0, 0, 2, 88,
]);

test('types and sizes', () => {
  expect(pictureOf(PNG)).toEqual({ type: 'image/png', width: 800, height: 600 });
  const jpeg = new Uint8Array(40);
  jpeg.set([0xff, 0xd8, 0xff, 0xe0, 0, 4, 0, 0, 0xff, 0xc2, 0, 11, 8, 0x02, 0x58, 0x03, 0x20]);
  expect(pictureOf(jpeg)).toEqual({ type: 'image/jpeg', width: 800, height: 600 });
  expect(pictureOf(new TextEncoder().encode('GIF89a\x10\x00\x20\x00xx'))).toEqual({
    type: 'image/gif',
    width: 16,
    height: 32,
  });
});

test('what is none, or broken', () => {
  for (const text of ['', '{}', '<svg onload="alert(1)"/>', 'GIF8']) {
    expect(pictureOf(new TextEncoder().encode(text))).toBeUndefined();
  }
  expect(pictureOf(new Uint8Array([0xff, 0xd8, 0xff, 0xe0]))).toEqual({ type: 'image/jpeg', width: 0, height: 0 });
  const endless = new Uint8Array(100).fill(0xff);
  endless[1] = 0xd8;
  expect(pictureOf(endless)?.width).toBe(0);
});

test('the store is bounded, and revokes what makes room', () => {
  const alive = new Set<string>();
  let n = 0;
  const urls = {
    make: () => {
      alive.add(`u${++n}`);
      return `u${n}`;
    },
    revoke: (url: string) => alive.delete(url),
  };
  const pictures = new Pictures(3, 2, 150, urls);
  for (let i = 0; i < 100; i += 1) pictures.add(PNG, { event: `${i}`, channel: 'a', atMs: i, fromBytes: 0 });
  expect(pictures.of('a').map((each) => each.event)).toEqual(['99', '98', '97']);
  expect(alive.size).toBe(3 + 16); // 16 may still be shown
  for (const channel of ['b', 'b', 'b', 'c']) pictures.add(PNG, { event: 'x', channel, atMs: 0, fromBytes: 0 });
  expect(pictures.channels).toEqual(['a', 'b']);
  expect(pictures.bytes).toBe(150);
  expect(alive.size).toBe(5 + 16);
  expect(pictures.add(new Uint8Array(9), { event: 'x', channel: 'a', atMs: 0, fromBytes: 0 })).toBeUndefined();
  pictures.clear();
  expect(alive.size).toBe(0);
  expect(pictures.bytes).toBe(0);
});
