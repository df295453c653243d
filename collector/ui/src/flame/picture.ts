// The flame graph as a picture of its whole height.

import { Painter, ROW_PX, type View } from './draw';
import type { Functions, Layout } from './layout';

const WIDTH_PX = 1600;
/** Browsers draw nothing into larger canvases. */
const SIDE_MAX = 16_000;

/** A PNG file of the graph, at twice the resolution of a screen if that is not too large. */
export async function pictureOf(
  layout: Layout,
  functions: Functions,
  rootLabel: string,
  view: Omit<View, 'top'>,
): Promise<Blob> {
  const size = { width: WIDTH_PX, height: Math.min(SIDE_MAX, (layout.rowStarts.length - 1) * ROW_PX) };
  const scale = size.height * 2 <= SIDE_MAX ? 2 : 1;
  const canvas = document.createElement('canvas');
  canvas.width = size.width * scale;
  canvas.height = size.height * scale;
  new Painter(functions, rootLabel).draw(canvas, size, layout, { ...view, top: 0 });
  return new Promise((done, fail) =>
    canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error('the picture is too large'))), 'image/png'),
  );
}
