// Moving and zooming along an axis: by dragging, by the wheel with Ctrl, by two fingers.

import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

/** What part of the axis is shown. */
export interface Stretch {
  from: number;
  to: number;
}

interface Options {
  /** The box that takes the pointer; the axis begins that far from its left edge. */
  box: RefObject<HTMLElement | null>;
  leftPx: number;
  widthPx: number;
  shown: Stretch;
  lengthMin: number;
  isMovable: boolean;
  onMove(to: Stretch): void;
  /** The pointer is over the box, with nothing in its grip; or `null`. */
  onHover(event: PointerEvent | null): void;
}

/** How far the pointer moves before a press is a drag and no click. */
const DRAG_PX = 4;
/** Fingers that are nearer would zoom without bounds. */
const APART_PX_MIN = 12;

/** What to attach to the box, and how else to zoom. */
export function usePan(options: Options) {
  const newest = useRef(options);
  newest.current = options;
  // Where the press is that has not ended, and what was shown when it began.
  const drag = useRef<(Stretch & { px: number }) | null>(null);
  // The newest press moved, which the click that ends it must know.
  const dragged = useRef(false);
  // Where each finger is.
  const fingers = useRef(new Map<number, number>()).current;

  /** Shows `factor` times as much, around a place: 0 is the left edge, 1 the right one. */
  const zoom = (factor: number, share: number) => {
    const {
      shown: { from, to },
      lengthMin,
      onMove,
    } = newest.current;
    const length = Math.max(lengthMin, (to - from) * factor);
    const centre = from + share * (to - from);
    onMove({ from: centre - share * length, to: centre + (1 - share) * length });
  };
  const shareAt = (clientX: number) => {
    const { box, leftPx, widthPx } = newest.current;
    return Math.max(0, Math.min(1, (clientX - box.current!.getBoundingClientRect().left - leftPx) / widthPx));
  };
  // Preact listens passively to wheels, which could not be kept from zooming the whole page.
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

  /** Two fingers that part or meet. */
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
