/** The glyphs of fates on a canvas, as `Glyph` draws them in the document. */
import { GLYPHS, type GlyphName } from './drawings';

const BOX = 14;

/** Draw a glyph around a point. `surface` is the colour of what lies below it. */
export function drawGlyph(
  context: CanvasRenderingContext2D,
  name: GlyphName,
  x: number,
  y: number,
  size: number,
  colour: string,
  surface: string,
): void {
  context.save();
  context.translate(x - size / 2, y - size / 2);
  context.scale(size / BOX, size / BOX);
  const paint = (value: string | undefined) => (value === 'C' ? colour : value === 'S' ? surface : undefined);
  for (const [tag, attributes] of GLYPHS[name]) {
    const all = attributes as Record<string, string | undefined>;
    const of = (key: string) => Number(all[key] ?? 0);
    const path = new Path2D();
    if (tag === 'circle') path.arc(of('cx'), of('cy'), of('r'), 0, 2 * Math.PI);
    else if (tag === 'rect') path.roundRect(of('x'), of('y'), of('width'), of('height'), of('rx'));
    else path.addPath(new Path2D(all['d']));
    context.save();
    const turned = /^rotate\(([\d.]+) ([\d.]+) ([\d.]+)\)$/.exec(all['transform'] ?? '');
    if (turned) {
      context.translate(Number(turned[2]), Number(turned[3]));
      context.rotate((Number(turned[1]) * Math.PI) / 180);
      context.translate(-Number(turned[2]), -Number(turned[3]));
    }
    const fill = paint(all['fill']);
    if (fill) {
      context.fillStyle = fill;
      context.fill(path);
    }
    const stroke = paint(all['stroke']);
    if (stroke) {
      context.strokeStyle = stroke;
      context.lineWidth = Number(all['stroke-width'] ?? 1);
      context.lineCap = (all['stroke-linecap'] as CanvasLineCap) ?? 'butt';
      context.setLineDash((all['stroke-dasharray'] ?? '').split(' ').filter(Boolean).map(Number));
      context.stroke(path);
    }
    context.restore();
  }
  context.restore();
}
