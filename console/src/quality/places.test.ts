import { expect, test } from 'vitest';
import { findPlace, pathSteps } from './places';

const TEXT = `{
  "expectations": [
    {"id": "a\\"b", "requirements": []},
    {
      "id": "often",
      "requirements": [{"property": "rate", "lower": -5.5e3, "upper": [1, {"x": "]"}]}]
    }
  ]
}`;

const marked = (text: string, place: string) => {
  const found = findPlace(text, place);
  return found && text.slice(found.from, found.to);
};

test('paths are names and numbers', () => {
  expect(pathSteps('expectations[12].requirements[0].lower')).toEqual(['expectations', 12, 'requirements', 0, 'lower']);
  expect(pathSteps('the JSON')).toEqual(['the']);
  expect(pathSteps('')).toEqual([]);
});

test('a path leads to its value, or to the deepest of it that is there', () => {
  expect(marked(TEXT, 'expectations[1].id')).toBe('"often"');
  expect(marked(TEXT, 'expectations[0].id')).toBe('"a\\"b"');
  expect(marked(TEXT, 'expectations[1].requirements[0].lower')).toBe('-5.5e3');
  expect(marked(TEXT, 'expectations[1].requirements[0].upper[1].x')).toBe('"]"');
  expect(marked(TEXT, 'expectations[0].requirements[3].lower')).toBe('[]');
  expect(marked(TEXT, 'expectations[0]')).toBe('{"id": "a\\"b", "requirements": []}');
  expect(findPlace(TEXT, 'expectations[1].requirements[0].lower')).toMatchObject({ line: 6, column: 54 });
  expect(findPlace(TEXT, 'profiles[0]')).toBeUndefined();
  expect(findPlace(TEXT, 'the JSON')).toBeUndefined();
});

test('lines and columns count from 1', () => {
  expect(findPlace('a\n  bc d\n', 'line 2')).toEqual({ line: 2, column: 3, from: 4, to: 8 });
  expect(findPlace('a\n  bc d\n', 'line 2, column 4')).toEqual({ line: 2, column: 4, from: 5, to: 6 });
  expect(findPlace('a', 'line 9, column 9')).toMatchObject({ line: 1 });
  expect(findPlace('', 'line 1, column 1')).toEqual({ line: 1, column: 1, from: 0, to: 0 });
});

test.each(['{', '{"expectations', '[[[', '{"expectations": [', '"', '{"expectations": [1'])(
  '%s ends somewhere',
  (text) => {
    expect(() => findPlace(text, 'expectations[3].x')).not.toThrow();
  },
);
