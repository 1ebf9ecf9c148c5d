import { describe, expect, it } from 'vitest';
import { angleAt, curve, dotsOn, fitting, placeOf, pointAt, Room, zoomed } from './geometry';
import { pathName } from './happenings';
import { byForces, Layout } from './layout';
import { flowRows, mapModel, worstFirst } from './model';
import { sparesOf, traces } from './routes';
import { changesOf, difference, idOf, Snapshot, towards, type Change, type NetFlow, type NetRows } from './rows';
import { shownOf } from './shown';
import { Timeline } from './timeline';
import { verdict } from './words';
import { countries, EARTH, middleOf, project } from './world';

const T = 1_700_000_000_000;
const OVER_DENVER = ['seattle', 'denver', 'washington'];
const OVER_LA = ['seattle', 'la', 'washington'];

const flow = (...paths: string[][]): NetFlow => ({
  source: 'seattle',
  destination: 'washington',
  max_delay_us: 90_000,
  paths: 2,
  resiliency: 0,
  reached: 0.99,
  is_met: true,
  changes: 0,
  channels: ['seismic/alert'],
  has_more: false,
  routes: paths.map((path) => ({ path, delay_us: 30_000, state: 'in use' })),
});

const both = (one: string, other: string, ms: number, isUsed = true): Change[] =>
  (
    [
      [one, other],
      [other, one],
    ] as const
  ).map(([of, key]) => ({
    kind: 'link',
    of,
    key,
    row: { latency_us: ms * 1000, is_used: isUsed, is_up: isUsed },
  }));

const NODES: Change[] = ['seattle', 'denver', 'la', 'washington'].map((of) => ({ kind: 'node', of, key: '', row: {} }));
const START: Change[] = [
  ...NODES,
  ...both('seattle', 'denver', 12),
  ...both('denver', 'washington', 18),
  ...both('seattle', 'la', 11),
  ...both('la', 'washington', 27),
  { kind: 'flow', of: 'seattle', key: '0', row: flow(OVER_DENVER) },
];

function story(): Timeline {
  const made = new Timeline(T, START);
  made.add(T + 60_000, both('seattle', 'denver', 85));
  made.add(T + 60_300, [{ kind: 'flow', of: 'seattle', key: '0', row: flow(OVER_LA) }]);
  made.add(T + 90_000, both('seattle', 'denver', 85, false));
  return made;
}

describe('rows', () => {
  const rows = (latency: number): NetRows => ({
    nodes: { a: {}, b: { is_reachable: false } },
    links: { a: { b: { latency_us: latency } } },
    flows: {},
    arrivals: {},
  });

  it('finds what changed by identity, and by value', () => {
    const before = rows(5);
    const after: NetRows = { ...before, links: { a: { b: { latency_us: 6 } } }, nodes: { a: before.nodes['a']! } };
    expect(difference(before, after)).toEqual([
      { kind: 'node', of: 'b', key: '', row: null },
      { kind: 'link', of: 'a', key: 'b', row: { latency_us: 6 } },
    ]);
    const snapshot = new Snapshot();
    for (const each of changesOf(before)) snapshot.apply(each);
    expect(towards(snapshot, rows(5))).toEqual([]);
    expect(towards(snapshot, rows(7))).toHaveLength(1);
    expect(towards(snapshot, { ...rows(5), links: {} })).toEqual([{ kind: 'link', of: 'a', key: 'b', row: null }]);
  });

  it('is not misled by names', () => {
    const odd = JSON.parse('{"__proto__": {"is_reachable": false}, "constructor": {}}') as NetRows['nodes'];
    const none: NetRows = { nodes: {}, links: {}, flows: {}, arrivals: {} };
    expect(difference(none, { ...none, nodes: odd }).map((each) => each.of)).toEqual(['__proto__', 'constructor']);
  });
});

describe('the time line', () => {
  it('has the network of each moment', () => {
    const line = story();
    const ms = (at: number) => line.at(at).link('seattle', 'denver')?.latency_us;
    expect([ms(T + 59_999), ms(T + 60_000), ms(T)]).toEqual([12_000, 85_000, 12_000]);
    expect(line.at(T + 60_000).flows.get(idOf('seattle', '0'))?.routes[0]?.path).toEqual(OVER_DENVER);
    expect(line.at(T + 61_000).flows.get(idOf('seattle', '0'))?.routes[0]?.path).toEqual(OVER_LA);
    expect(line.current.link('seattle', 'denver')?.is_used).toBe(false);
  });

  it('says what happened, each link once', () => {
    expect(story().happenings.map((each) => `${each.kind} ${each.text.replaceAll('\u00a0', ' ')}`)).toEqual([
      'warn denver – seattle slows down: 85 ms, usually 12 ms',
      'ok seismic/alert goes over la, no longer over denver',
      'bad denver – seattle failed',
    ]);
  });

  it('says that a node is away and back', () => {
    const line = new Timeline(T, START);
    line.add(T + 1, [{ kind: 'node', of: 'denver', key: '', row: { is_reachable: false } }]);
    line.add(T + 9_000, [{ kind: 'node', of: 'denver', key: '', row: {} }]);
    expect(line.happenings.map((each) => each.text)).toEqual(['denver is not reachable', 'denver is reachable again']);
  });

  it('is bounded', () => {
    const line = new Timeline(T, START);
    for (let i = 0; i < 45_000; i++)
      line.add(T + i, [{ kind: 'link', of: 'seattle', key: 'la', row: { latency_us: i } }]);
    expect(line.steps.length).toBe(40_000);
    expect(line.at(line.fromMs).link('seattle', 'la')?.latency_us).toBe(4_999);
    line.add(T + 3_700_000, [{ kind: 'link', of: 'seattle', key: 'la', row: { latency_us: 1 } }]);
    expect(line.steps.length).toBe(1);
  });

  it('counts what arrived lately', () => {
    const line = new Timeline(T, START);
    const row = (delivered: number, late: number) => ({
      node: 'washington',
      source: 'seattle',
      channel: 'seismic/alert',
      delivered,
      late,
    });
    for (const [s, delivered, late] of [
      [0, 100, 0],
      [30, 200, 0],
      [60, 300, 10],
    ] as const)
      line.add(T + s * 1000, [{ kind: 'arrival', of: 'washington', key: '0', row: row(delivered, late) }]);
    const arrived = (at: number) => (id: string) => line.arrived(id, at);
    const [now] = flowRows(line.current, arrived(T + 60_000));
    expect([now?.inTime, now?.rateHz]).toEqual([0.95, 200 / 60]);
    expect(line.arrived(idOf('washington', '0'), T + 30_000)?.late).toBe(0);
    expect(line.arrived(idOf('washington', '0'), T - 1)).toBeUndefined();
    expect(line.arrived(idOf('washington', '0'), T + 1)).toBeUndefined();
    expect(line.arrived(idOf('washington', '0'), T + 600_000)?.delivered).toBe(0);
  });
});

describe('routes', () => {
  it('share what is left of the bound among their hops', () => {
    const [found] = traces(flow(OVER_DENVER), story().at(T));
    expect(found?.hops.map((each) => [each.target, each.ms, each.soFarMs, each.slackMs])).toEqual([
      ['denver', 12, 12, 30],
      ['washington', 18, 30, 30],
    ]);
    expect([found?.delayMs, found?.marginMs, found?.isWhole]).toEqual([30, 60, true]);
  });

  it('are broken by a link that failed', () => {
    expect(traces(flow(OVER_DENVER), story().current)[0]?.isWhole).toBe(false);
  });

  it('have time to spare, or none, at each moment', () => {
    const [line] = sparesOf(story(), idOf('seattle', '0'), T, T + 100_000);
    expect(line?.times.map((at) => at - T)).toEqual([0, 60_000, 60_300]);
    expect(line?.values).toEqual([60, -13, 52]);
  });
});

describe('the model of the map', () => {
  const usual = (line: Timeline, at: number) => (id: string) => line.usualMs(id, at);

  it('has each link once, the worst first', () => {
    const line = story();
    const slow = mapModel(line.at(T + 61_000), usual(line, T + 61_000));
    expect(slow.links).toHaveLength(4);
    const [first] = worstFirst(slow.links);
    expect([first?.state, first?.ms, first?.usualMs]).toEqual(['slow', 85, 12]);
    expect(worstFirst(mapModel(line.current, usual(line, T + 91_000)).links)[0]?.state).toBe('failed');
  });

  it('gives its sentence', () => {
    const line = story();
    const say = (at: number) => {
      const snapshot = line.at(at);
      const known = line.happenings.filter((each) => each.atMs <= at);
      return verdict(
        mapModel(snapshot, usual(line, at)),
        flowRows(snapshot, () => undefined),
        known,
      ).replaceAll('\u00a0', ' ');
    };
    expect(say(T)).toBe('All 4 nodes are reachable; the one flow has the paths that are required.');
    expect(say(T + 61_000)).toBe('denver – seattle is slow; seismic/alert went around it in 300 ms.');
    expect(say(T + 91_000)).toMatch(/^denver – seattle failed; /);
  });

  it('shows all routes, or those of the chosen flow with labels', () => {
    const line = story();
    const net = line.at(T);
    const model = mapModel(net, () => undefined);
    const choice = { chosen: undefined, node: '', link: '', own: 'la', isPast: false, idle: new Set<string>() };
    expect(shownOf(model, net, choice).routes.map((each) => [each.colour, each.hopMs])).toEqual([['s1', [12, 18]]]);
    const chosen = shownOf(model, net, { ...choice, chosen: idOf('seattle', '0') });
    expect(chosen.routes[0]?.isChosen).toBe(true);
    expect([...chosen.hops.values()]).toEqual([
      { ms: 12, slackMs: 30 },
      { ms: 18, slackMs: 30 },
    ]);
  });

  it('names paths', () => {
    expect([pathName(OVER_LA), pathName(['a', 'b'])]).toEqual(['over la', 'directly']);
  });
});

describe('places', () => {
  it('are where they are on earth, the middle in the middle', () => {
    for (const each of project([0, 10], 10)) expect(each).toBeCloseTo(0);
    expect(project([0, 100], 10)[0]).toBeCloseTo(EARTH / 4);
    expect(project([48, 0], 0)[1]).toBeLessThan(0);
    expect(project([90, 0], 0)[1]).toBeCloseTo(project([84, 0], 0)[1]);
  });

  it('on both sides of the date line are side by side', () => {
    const middle = middleOf([170, -170]);
    expect(Math.abs(middle)).toBe(180);
    expect(Math.abs(project([0, 170], middle)[0] - project([0, -170], middle)[0])).toBeCloseTo((20 / 360) * EARTH);
    expect(middleOf([-122, -77])).toBeCloseTo(-99.5);
    expect(middleOf([])).toBe(0);
  });

  it('has outlines of countries without jumps', () => {
    const rings = countries(-99.5);
    expect(rings.length).toBeGreaterThan(200);
    const jumps = rings.flatMap((ring) => ring.slice(1).map(([x], i) => Math.abs(x - ring[i]![0])));
    expect(jumps.every((each) => each <= EARTH / 2)).toBe(true);
  });

  it('stay when others come', () => {
    const net = new Snapshot();
    for (const each of START) net.apply(each);
    const layout = new Layout();
    layout.update(net);
    const before = new Map(layout.places);
    expect([layout.isOnEarth, before.size]).toEqual([false, 4]);
    net.apply({ kind: 'node', of: 'orlando', key: '', row: {} });
    net.apply(both('orlando', 'la', 5)[0]!);
    layout.update(net);
    for (const [name, at] of before) expect(layout.places.get(name)).toEqual(at);
    expect(layout.places.has('orlando')).toBe(true);
  });

  it('by coordinates, others beside their neighbours', () => {
    const net = new Snapshot();
    for (const each of START) net.apply(each);
    net.apply({ kind: 'node', of: 'la', key: '', row: { location: [34.05, -118.24] } });
    net.apply({ kind: 'node', of: 'denver', key: '', row: { location: [39.74, -104.99] } });
    const layout = new Layout();
    layout.update(net);
    expect(layout.isOnEarth).toBe(true);
    expect(layout.places.get('la')![0]).toBeLessThan(layout.places.get('denver')![0]);
    expect([...layout.places.values()].flat().every(Number.isFinite)).toBe(true);
  });

  it('by forces are the same each time, and apart', () => {
    const names = Array.from({ length: 40 }, (_, i) => `n${i}`);
    const neighbours = new Map(names.map((name, i) => [name, [names[(i + 1) % 40]!]]));
    const one = byForces(names, neighbours);
    expect(one).toEqual(byForces(names.toReversed(), neighbours));
    const places = [...one.values()];
    for (const [i, a] of places.entries())
      for (const b of places.slice(i + 1)) expect(Math.hypot(a[0] - b[0], a[1] - b[1])).toBeGreaterThan(4);
  });
});

describe('geometry', () => {
  const line = curve([0, 0], [100, 0], false);

  it('bends both directions of a link alike', () => {
    const back = curve([100, 0], [0, 0], true);
    expect(back.control[1]).toBeCloseTo(line.control[1]);
    expect(pointAt(line, 0.5)[0]).toBe(50);
    expect(angleAt(line, 0.5)).toBeCloseTo(0);
  });

  it('moves dots as the events move: slower where it takes longer', () => {
    expect(placeOf(0.25, [10, 30])).toEqual([1, 0]);
    expect(placeOf(0.125, [10, 30])).toEqual([0, 0.5]);
    expect(placeOf(1, [10, 30])).toEqual([1, 1]);
    expect(placeOf(0.5, [0])[0]).toBe(0);
    expect([dotsOn(0), dotsOn(8), dotsOn(1e9)]).toEqual([1, 10, 40]);
  });

  it('fits, and zooms around a point', () => {
    const view = fitting(
      [
        [0, 0],
        [10, 10],
      ] as [number, number][],
      200,
      100,
      20,
    );
    expect(view.scale).toBe(6);
    const nearer = zoomed(view, 2, [50, 50]);
    const there = (50 - view.left) / view.scale;
    expect(there * nearer.scale + nearer.left).toBeCloseTo(50);
    expect(zoomed(view, 1e9, [0, 0]).scale).toBeLessThan(100);
    expect(fitting([], 100, 100, 10).scale).toBe(1);
  });

  it('finds no room twice', () => {
    const room = new Room();
    expect([room.take(0, 0, 10, 10), room.take(5, 5, 10, 10), room.take(10, 0, 5, 5)]).toEqual([true, false, true]);
  });
});
