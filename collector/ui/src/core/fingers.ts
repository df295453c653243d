// Two fingers on a canvas: how far they are apart, and where between them.

/** Watches the fingers of one canvas. */
export class Fingers {
  private readonly at = new Map<number, number>();

  down(event: PointerEvent): void {
    if (event.pointerType === 'touch') this.at.set(event.pointerId, event.clientX);
  }

  up(event: PointerEvent): void {
    this.at.delete(event.pointerId);
  }

  /** Whether two are down: then one that moves moves nothing, but zooms. */
  get both(): boolean {
    return this.at.size === 2;
  }

  /** A finger moved: how much less is to be seen than before, around which place; `null` if it is
   * alone. */
  moved(event: PointerEvent): { factor: number; clientX: number } | null {
    if (!this.at.has(event.pointerId)) return null;
    const before = [...this.at.values()];
    this.at.set(event.pointerId, event.clientX);
    if (!this.both) return null;
    const now = [...this.at.values()];
    const [was, is] = [before, now].map(([a, b]) => Math.max(APART_PX_MIN, Math.abs(a - b)));
    return { factor: was / is, clientX: (now[0] + now[1]) / 2 };
  }
}

/** Fingers that are nearer would zoom without bounds. */
const APART_PX_MIN = 12;
