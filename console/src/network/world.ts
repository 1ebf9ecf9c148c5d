/**
 * Places on a plane: Mercator's projection, turned so that the nodes are in its middle, and the outlines of countries
 * (Natural Earth, public domain, by way of the npm package world-atlas).
 */
import atlas from 'world-atlas/countries-110m.json';

export type Point = [x: number, y: number];
export type Location = readonly [latitude: number, longitude: number];

const MAX_LATITUDE = 84;
/** The width of the whole earth on the plane. */
export const EARTH = 4096;

/** Where a place is on the plane, if the middle is at that longitude. */
export function project([latitude, longitude]: Location, middle: number): Point {
  const turned = ((((longitude - middle + 180) % 360) + 360) % 360) - 180;
  return [(turned / 360) * EARTH, -northing(latitude)];
}

function northing(latitude: number): number {
  const held = (Math.max(-MAX_LATITUDE, Math.min(MAX_LATITUDE, latitude)) * Math.PI) / 180;
  return (Math.log(Math.tan(Math.PI / 4 + held / 2)) / (2 * Math.PI)) * EARTH;
}

/** The longitude in the middle of all: opposite to the middle of the widest gap between them. */
export function middleOf(longitudes: readonly number[]): number {
  if (!longitudes.length) return 0;
  const sorted = longitudes.toSorted((a, b) => a - b);
  let widest = sorted[0]! + 360 - sorted.at(-1)!;
  let end = sorted[0]!;
  for (let i = 1; i < sorted.length; i++) {
    const gap = sorted[i]! - sorted[i - 1]!;
    if (gap > widest) [widest, end] = [gap, sorted[i]!];
  }
  const middle = end + (360 - widest) / 2;
  return middle > 180 ? middle - 360 : middle;
}

/** The outlines of countries as rings on the plane, each where the first of its points is. */
export function countries(middle: number): Point[][] {
  return rings().map((ring) => {
    const first = project(ring[0]!, middle);
    let [, before] = ring[0]!;
    let x = first[0];
    return ring.map(([latitude, longitude]): Point => {
      let step = longitude - before;
      if (step > 180) step -= 360;
      else if (step < -180) step += 360;
      before = longitude;
      x += (step / 360) * EARTH;
      return [x, -northing(latitude)];
    });
  });
}

let decoded: Location[][] | undefined;

/** The rings of all countries, from arcs of differences of whole numbers. */
function rings(): Location[][] {
  if (decoded) return decoded;
  const { scale, translate } = atlas.transform as { scale: Point; translate: Point };
  const arcs = (atlas.arcs as Point[][]).map((arc) => {
    let [x, y] = [0, 0];
    return arc.map(([dx, dy]): Location => {
      x += dx;
      y += dy;
      return [y * scale[1] + translate[1], x * scale[0] + translate[0]];
    });
  });
  const ring = (numbers: number[]): Location[] =>
    numbers.flatMap((number, i) => {
      const arc = number < 0 ? arcs[~number]!.toReversed() : arcs[number]!;
      return i ? arc.slice(1) : arc;
    });
  decoded = [];
  const all = atlas.objects.countries.geometries as { type: string; arcs?: unknown }[];
  for (const each of all) {
    const polygons = (each.type === 'Polygon' ? [each.arcs] : (each.arcs ?? [])) as number[][][];
    for (const polygon of polygons) for (const numbers of polygon) decoded.push(ring(numbers));
  }
  return decoded;
}
