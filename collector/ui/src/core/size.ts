// The size of an element, and of the picture in a canvas.

import type { RefObject } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';

export interface Size {
  width: number;
  height: number;
}

/** The inner size of an element, known before its first paint, so that its content is drawn once. */
export function useSize(box: RefObject<HTMLElement | null>): Size {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const element = box.current!;
    const measure = () => {
      const { clientWidth: width, clientHeight: height } = element;
      setSize((old) => (old.width === width && old.height === height ? old : { width, height }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return size;
}

/** Sets the resolution of a canvas for `size`. Returns whether it has room for a picture. */
export function fitCanvas(canvas: HTMLCanvasElement, size: Size): boolean {
  const scale = devicePixelRatio || 1;
  const width = Math.round(size.width * scale);
  const height = Math.round(size.height * scale);
  // An assignment clears the canvas, even if it changes nothing.
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  return width > 0 && height > 0;
}
