import { describe, expect, it } from 'vitest';
import { defaultColumns, attributesOf, readColumns, writeColumns } from './columns';
import { curlCommand, quoted, subCommand } from './commands';
import { TapBuffer, eventOf, type Arrival } from './events';
import { FateBook, worstOf, type OutcomeOf } from './fates';
import { canDecode, fileName, glance, hexLines, imageSize, kindOf, textOf } from './payloads';
import { both, condition, indexOf, lengthAt, mistakeOf, repairText, tokens } from './predicate';
import { foldedText, jsonTree } from './trees';
import { readViews, withView, writeViews } from './views';
import { tapNote, unknownWords } from './words';

const bytesOf = (text: string) => new TextEncoder().encode(text);
const arrival = (payload = bytesOf('x'), userProperties: Record<string, string | string[]> = {}): Arrival => ({
  topic: 'uav/imagery',
  payload,
  qos: 0,
  retain: false,
  properties: { userProperties },
});

describe('the buffer of a tap', () => {
  it('keeps the newest, newest first', () => {
    const buffer = new TapBuffer(3);
    for (let i = 0; i < 5; i += 1) buffer.add(arrival(bytesOf(String(i))), 1000 * i);
    buffer.flush();
    expect(buffer.events.map((each) => textOf(each.payload!))).toEqual(['4', '3', '2']);
    expect([buffer.matched, buffer.dropped, buffer.bytes]).toEqual([5, 2, 3]);
  });

  it('gives up payloads of the oldest, beyond so many bytes', () => {
    const buffer = new TapBuffer(10, 250);
    for (let i = 0; i < 4; i += 1) {
      buffer.add(arrival(new Uint8Array(100)), 1000 * i);
      buffer.flush();
    }
    expect(buffer.events.map((each) => !!each.payload)).toEqual([true, true, false, false]);
    expect(buffer.bytes).toBe(200);
    expect(buffer.events.every((each) => each.size === 100)).toBe(true);
  });

  it('shows at most so many a second, and counts the others', () => {
    const buffer = new TapBuffer(500, 1e6, 200);
    for (let i = 0; i < 450; i += 1) buffer.add(arrival(), 5_000 + i);
    buffer.add(arrival(), 6_000);
    buffer.flush();
    expect([buffer.events.length, buffer.skipped, buffer.matched]).toEqual([201, 250, 451]);
  });

  it('leaves what is shown as it is while held, and keeps the newest beside it', () => {
    const buffer = new TapBuffer(3, 1e6);
    buffer.add(arrival(bytesOf('a')), 0);
    buffer.flush();
    const shown = buffer.events;
    buffer.isHeld = true;
    for (let i = 0; i < 8; i += 1) buffer.add(arrival(bytesOf(String(i))), 1000 * i);
    expect(buffer.flush()).toBe(false);
    expect(buffer.events).toBe(shown);
    expect(shown[0]!.payload).toBeDefined();
    expect([buffer.waiting, buffer.dropped]).toEqual([3, 5]);
    buffer.isHeld = false;
    buffer.flush();
    expect(buffer.events.map((each) => textOf(each.payload!))).toEqual(['7', '6', '5']);
    buffer.clear();
    expect([buffer.events.length, buffer.bytes, buffer.matched]).toEqual([0, 0, 0]);
  });

  it('stays below twice its bytes however long it is held', () => {
    const buffer = new TapBuffer(500, 1_000);
    buffer.isHeld = true;
    for (let i = 0; i < 100; i += 1) buffer.add(arrival(new Uint8Array(300)), 1000 * i);
    expect(buffer.bytes).toBeLessThanOrEqual(2_000);
  });
});

describe('an event', () => {
  it('has the attributes of its publisher, and what the node adds apart', () => {
    const event = eventOf(
      arrival(bytesOf('{}'), {
        cloud: '0.4',
        twice: ['a', 'b'],
        metadata: '<r/>',
        'accord-event': 'seattle:7',
        'shaped-from': '900',
        __proto__x: 'y',
      }),
      1,
      5,
    );
    expect({ ...event.attributes }).toEqual({ cloud: '0.4', twice: 'a', __proto__x: 'y' });
    expect([event.id, event.metadata, event.shapedFrom, event.kind]).toEqual(['seattle:7', '<r/>', 900, 'json']);
  });
});

describe('payloads', () => {
  const png = Uint8Array.from([
    0x89, 0x50, 0x4e, 0x47, 13, 10, 0x1a, 10, 0, 0, 0, 13, 73, 72, 68, 82, 0, 0, 3, 32, 0, 0, 2, 88,
  ]);
  it.each([
    [png, '', 'png'],
    [Uint8Array.from([0xff, 0xd8, 0xff, 0xe0]), 'text/html', 'jpeg'],
    [bytesOf('GIF89a....'), '', 'gif'],
    [bytesOf('RIFF....WEBPVP8 '), '', 'webp'],
    [bytesOf(' {"a": 1}'), '', 'json'],
    [bytesOf('21.5'), 'application/json', 'json'],
    [bytesOf('<?xml version="1.0"?><a/>'), '', 'xml'],
    [bytesOf('<script>alert(1)</script>'), 'text/html', 'xml'],
    [bytesOf('21.5 °C'), '', 'text'],
    [bytesOf('\u001b[31mred'), '', 'text'],
    [Uint8Array.from([0, 1, 2]), 'image/png', 'binary'],
    [Uint8Array.from([0xc3, 0x28]), '', 'binary'],
    [new Uint8Array(0), 'application/json', 'empty'],
  ])('%#: is known by its bytes', (payload, type, kind) => expect(kindOf(payload, type)).toBe(kind));

  it('is text although it is cut within a character', () => {
    expect(kindOf(bytesOf('é'.repeat(3_000)))).toBe('text');
    expect(textOf(bytesOf('aéé'), 2)).toBe('a');
  });

  it('knows the size of a picture without decoding it', () => {
    expect(imageSize(png, 'png')).toEqual({ width: 800, height: 600 });
    const jpeg = Uint8Array.from([0xff, 0xd8, 0xff, 0xe0, 0, 4, 0, 0, 0xff, 0xc0, 0, 11, 8, 2, 88, 3, 32, 3, 0, 0, 0]);
    expect(imageSize(jpeg, 'jpeg')).toEqual({ width: 800, height: 600 });
    expect(imageSize(jpeg.subarray(0, 9), 'jpeg')).toBeUndefined();
    expect(imageSize(png.subarray(0, 12), 'png')).toBeUndefined();
  });

  it('does not decode what would fill the memory', () => {
    const bomb = png.slice();
    bomb.set([0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff], 16);
    expect([canDecode(png, 'png'), canDecode(bomb, 'png'), canDecode(png.subarray(0, 10), 'png')]).toEqual([
      true,
      false,
      false,
    ]);
  });

  it('shows bytes and a glance', () => {
    expect(hexLines(bytesOf('Accord\n'))).toBe(`000000  ${'41 63 63 6f 72 64 0a'.padEnd(48)}  Accord·`);
    expect(glance(bytesOf('{\n  "a": 1\n}'), 'json')).toBe('{ "a": 1 }');
  });

  it('names downloads harmlessly', () => {
    expect(fileName('../../etc/passwd', 'a:1', 'jpeg')).toBe('etc-passwd_a-1.jpg');
    expect(fileName('\u202e', '', 'binary')).toBe('event.bin');
  });
});

describe('predicates', () => {
  it('are coloured without losing a character', () => {
    for (const text of [
      "altitude_m > 300 AND platform == 'UAV' AND cloud < .4e1",
      `"a name" <> 'it''s' or 0x2A IN ('a`,
      'a\u{1f600}b <>= \u202e "open',
    ])
      expect(
        tokens(text)
          .map((each) => each.text)
          .join(''),
      ).toBe(text);
    expect(
      tokens("cloud < 0.4 and p = 'x'")
        .filter((each) => each.kind !== 'space')
        .map((each) => each.kind),
    ).toEqual(['word', 'sign', 'number', 'keyword', 'word', 'sign', 'string']);
  });

  it('show a mistake where it is, also behind characters of two units', () => {
    const text = "p = '\u{1f600}' AND >";
    expect(indexOf(text, 12)).toBe(13);
    const found = mistakeOf(text, { detail: "unexpected '>'", at: 12, expected: 'a number' });
    expect([found.at, found.character, text[found.at!]]).toEqual([13, 13, '>']);
  });

  it('are read from the reason of a SUBACK', () => {
    const text = 'altitude_m > > 300';
    const found = mistakeOf(text, { detail: "unexpected '>' at character 14, expected (, FALSE or a number" });
    expect(found).toMatchObject({ text: "unexpected '>'", at: 13, character: 14, expected: '(, FALSE or a number' });
    expect(lengthAt(text, 13)).toBe(1);
    expect(lengthAt("a = 'open", 4)).toBe(5);
    expect(lengthAt('a =', 3)).toBe(1);
  });

  it('are repaired with a few words', () => {
    expect(repairText("platform == 'UAV' AND a", "platform = 'UAV' AND a")).toBe("= 'UAV'");
    expect(repairText('cloud < 0,4', 'cloud < 0.4')).toBe('0.4');
  });

  it('are made of an attribute', () => {
    expect(condition('cloud', '0.40')).toBe('cloud = 0.40');
    expect(condition('n', '052')).toBe('n = 52');
    expect(condition('a name', "it's")).toBe(`"a name" = 'it''s'`);
    expect(condition('and', 'true')).toBe('"and" = TRUE');
    expect(condition('t', '2026-03-14T06:12:30Z')).toBe("t = TIMESTAMP '2026-03-14T06:12:30Z'");
    expect(both('a = 1 OR b = 2', 'c = 3')).toBe('(a = 1 OR b = 2) AND c = 3');
    expect(both('', 'c = 3')).toBe('c = 3');
  });
});

describe('commands', () => {
  it('quote whatever is in a name', () => {
    expect(subCommand({ channel: 'uav/imagery', where: "platform = 'UAV' AND a > 3", xpath: '' })).toBe(
      `accord sub --where "platform = 'UAV' AND a > 3" uav/imagery`,
    );
    expect(quoted('uav/#')).toBe("'uav/#'");
    expect(quoted('$(reboot)')).toBe("'$(reboot)'");
    expect(quoted("a'$b")).toBe(`'a'\\''$b'`);
    expect(quoted('\u001b[31m')).toBe("$'\\x1b[31m'");
    expect(quoted('a\u202eb')).toBe("$'a\\u202eb'");
    expect(subCommand({ channel: '--help', where: '', xpath: '' })).toBe("accord sub -- '--help'");
    expect(curlCommand('http://127.0.0.1:8080', { channel: 'a/#', where: 'b > 1', xpath: '' })).toBe(
      "curl -G http://127.0.0.1:8080/api/v1/query --data-urlencode 'channel=a/#' --data-urlencode 'where=b > 1' --data-urlencode 'limit=20'",
    );
  });
});

describe('outcomes', () => {
  const outcome = (event: string, destination: string, kind: string): OutcomeOf => ({
    event,
    destination,
    outcome: kind,
    publisher: 'raven-7',
    count: 1,
    received_ms: 100,
    done_ms: 142,
  });

  it('are joined by event, each destination once, without the page itself', () => {
    const book = new FateBook();
    const rows = [
      outcome('n:1', 'desk-1', 'delivered'),
      outcome('n:1', 'desk-2', 'late'),
      outcome('n:1', 'console-x', 'shed'),
    ];
    book.take(rows, (destination) => destination.startsWith('console-'));
    const { version } = book;
    book.take(rows, (destination) => destination.startsWith('console-'));
    expect(book.version).toBe(version);
    expect(book.of('n:1')).toMatchObject({
      counts: { 'in-time': 1, late: 1 },
      total: 2,
      publisher: 'raven-7',
      worstMs: 42,
    });
    expect(worstOf(book.of('n:1'))).toEqual({ fate: 'late', count: 1 });
    expect(worstOf(undefined)).toBeUndefined();
  });

  it('are bounded', () => {
    const book = new FateBook(10, 5);
    for (let i = 0; i < 50; i += 1) book.take([outcome(`n:${i}`, 'a', 'delivered')]);
    for (let i = 0; i < 50; i += 1) book.take([outcome('n:49', `d${i}`, 'delivered')]);
    expect([book.size, book.of('n:49')!.total, book.of('n:1')]).toEqual([10, 5, undefined]);
  });
});

describe('columns and views', () => {
  it('are the frequent, short attributes', () => {
    const events = [1, 2, 3].map((i) =>
      eventOf(
        arrival(bytesOf('x'), { cloud: `0.${i}`, note: 'z'.repeat(99), ...(i === 1 ? { rare: '1' } : {}) }),
        i,
        i,
      ),
    );
    const uses = attributesOf(events);
    expect(uses[0]).toEqual({ name: 'cloud', count: 3, isNumber: true, longest: 3 });
    expect(defaultColumns(uses, 3)).toEqual(['cloud']);
  });

  it('survive the address', () => {
    for (const names of [['a', 'b,c', '-', '%2C'], ['-'], []]) expect(readColumns(writeColumns(names))).toEqual(names);
    expect(readColumns(null)).toBeUndefined();
  });

  it('are bounded, and only lead within the page', () => {
    let stored = JSON.stringify([{ name: 'x', address: 'https://elsewhere/' }, { name: 'y', address: '//e' }, 7]);
    const store = { getItem: () => stored, setItem: (_: string, value: string) => void (stored = value) };
    expect(readViews(store)).toEqual([]);
    let views = readViews(store);
    for (let i = 0; i < 60; i += 1) views = withView(views, { name: `v${i}`, address: `/channels/${i}` });
    expect(writeViews(store, withView(views, { name: ' v59 ', address: '/channels' }))).toBe(true);
    expect(readViews(store)).toHaveLength(40);
    expect(readViews(store)[0]).toEqual({ name: 'v59', address: '/channels' });
    stored = 'not JSON';
    expect(readViews(store)).toEqual([]);
  });
});

describe('trees', () => {
  it('are bounded', () => {
    expect(jsonTree('{"a": ')).toBeUndefined();
    const tree = jsonTree(JSON.stringify({ position: { lat: 1, lon: 2 }, list: Array(3_000).fill({}) }))!;
    expect(foldedText(tree.children[0]!)).toBe('lat, lon');
    expect(foldedText(tree.children[1]!)).toBe('3000 objects');
    expect(tree.children[1]!.more).toBe(2_500);
    expect(jsonTree('['.repeat(200) + ']'.repeat(200))).toBeDefined();
  });
});

describe('what a tap says', () => {
  it('names an attribute that no event had', () => {
    expect(unknownWords(['alt', 'altitute'], ['alt', 'speed'])).toBe(
      'No event so far had an attribute “altitute”; known: alt, speed.',
    );
    expect(unknownWords(['alt'], ['alt'])).toBe('');
    expect(unknownWords(['alt'], [])).toBe('');
  });

  const figures = {
    rateHz: 4.1,
    publishedHz: 4.1,
    hasFilter: false,
    kept: 500,
    skipped: 0,
    dropped: 9,
    waiting: 0,
    pausedAtMs: 0,
  };
  it('tells how much is shown', () => {
    expect(tapNote(figures)).toBe('all 4.1 events/s, the last 500 stay');
    expect(tapNote({ ...figures, rateHz: 200, publishedHz: 1_200 })).toBe('200 of 1,200 events/s, the last 500 stay');
    expect(tapNote({ ...figures, rateHz: 2, publishedHz: 1_200, hasFilter: true, kept: 3, dropped: 0 })).toBe(
      'matching 2 events/s',
    );
  });
});
