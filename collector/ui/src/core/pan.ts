// Panning and zooming along an axis: by dragging, Ctrl+scroll or two fingers.

import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

/** The visible part of the axis. */
export interface Interval {
  from: number;
  to: number;
}

interface Options {
  /** The element that receives the pointer; the axis begins `leftPx` from its left edge. */
  box: RefObject<HTMLElement | null>;
  leftPx: number;
  widthPx: number;
  shown: Interval;
  lengthMin: number;
  isMovable: boolean;
  onMove(to: Interval): void;
  /** The pointer moves over the box without dragging, or leaves it (`null`). */
  onHover(event: PointerEvent | null): void;
}

/** A press that moves less is a click. */
const DRAG_PX = 4;
/** Lower bound on the distance of two fingers; less would zoom without bounds. */
const APART_PX_MIN = 12;

/** Returns the handlers to attach to the box, and the zoom function. */
export function usePan(options: Options) {
  const newest = useRef(options);
  newest.current = options;
  // Where the current press began, and what was visible then.
  const drag = useRef<(Interval & { px: number }) | null>(null);
  // Whether the newest press was a drag; the click that ends it must know.
  const dragged = useRef(false);
  // Position of each finger.
  const fingers = useRef(new Map<number, number>()).current;

  /** Shows `factor` times as much around `share`: 0 is the left edge, 1 the right one. */
  const zoom = (factor: number, share: number) => {
    const {
      shown: { from, to },
      lengthMin,
      onMove,
    } = newest.current;
    const length = Math.max(lengthMin, (to - from) * factor);
    const center = from + share * (to - from);
    onMove({ from: center - share * length, to: center + (1 - share) * length });
  };
  const shareAt = (clientX: number) => {
    const { box, leftPx, widthPx } = newest.current;
    return Math.max(0, Math.min(1, (clientX - box.current!.getBoundingClientRect().left - leftPx) / widthPx));
  };
  // Preact adds passive wheel listeners, which cannot prevent the browser's zoom.
  useEffect(() => {
    const element = newest.current.box.current!;
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.002), shareAt(event.clientX));
    };
    element.addEventListener('wheel', wheel, { passive: false });
    return () => element.removeEventListener('wheel', wheel);
  }, []);

  /** Two fingers move apart or together. */
  function pinch({ pointerId, clientX }: PointerEvent): void {
    const before = [...fingers.values()];
    fingers.set(pointerId, clientX);
    const now = [...fingers.values()];
    const [was, is] = [before, now].map(([a, b]) => Math.max(APART_PX_MIN, Math.abs(a - b)));
    zoom(was / is, shareAt((now[0] + now[1]) / 2));
  }

  function move(event: PointerEvent): void {
    const start = drag.current;
    const { widthPx, isMovable, onMove, onHover } = newest.current;
    if (fingers.size === 2) {
      dragged.current = true;
      if (fingers.has(event.pointerId)) pinch(event);
      return;
    }
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, event.clientX);
    if (start && Math.abs(event.clientX - start.px) > DRAG_PX) dragged.current = true;
    if (!start || !dragged.current || !isMovable) {
      onHover(event);
      return;
    }
    const shift = ((start.px - event.clientX) / widthPx) * (start.to - start.from);
    onMove({ from: start.from + shift, to: start.to + shift });
    onHover(null);
  }

  const end = (event: PointerEvent) => {
    fingers.delete(event.pointerId);
    drag.current = null;
  };
  const handlers = {
    onPointerMove: move,
    onPointerDown: (event: PointerEvent) => {
      if (event.pointerType === 'touch') fingers.set(event.pointerId, event.clientX);
      drag.current = { px: event.clientX, ...newest.current.shown };
      dragged.current = false;
    },
    onPointerUp: end,
    onPointerCancel: end,
    onPointerLeave: (event: PointerEvent) => {
      end(event);
      newest.current.onHover(null);
    },
  };
  return { handlers, zoom, wasDrag: () => dragged.current };
}
