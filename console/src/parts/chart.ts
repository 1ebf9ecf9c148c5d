/** What a `Chart` draws. */
import type { GlyphName } from './drawings';

export interface ChartSeries {
  /** Named at the line's end. */
  label: string;
  /** Points in time order. They may be changed in place, if `version` of the chart rises. */
  times: readonly number[];
  values: readonly (number | null)[];
  /** A colour token: s1 … s5, or a fate. */
  colour: string;
  kind?: 'line' | 'dots';
  /** Dots drawn as the glyph of a fate; they are not named at the end. */
  glyph?: GlyphName;
  area?: boolean;
  dash?: number[];
  width?: number;
}

export interface Bound {
  value: number;
  text: string;
}

export interface Mark {
  ms: number;
  text: string;
}

/** The series tokens in turn. */
export function seriesColour(index: number): string {
  return `s${(index % 5) + 1}`;
}
