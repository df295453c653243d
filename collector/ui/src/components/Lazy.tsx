// A component that is loaded when it is first shown, or earlier by `begin`.

import type { ComponentChildren, ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { EmptyState, Loading } from './Messages';

export interface Lazy<P> {
  (properties: P): ComponentChildren;
  /** Starts loading; resolves when the component is loaded. */
  begin(): Promise<void>;
}

/** Loads the component once. A failed load is retried by reloading the page. */
export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): Lazy<P> {
  let loaded: ComponentType<P> | undefined;
  let loading: Promise<void> | undefined;
  const begin = () =>
    (loading ??= load().then(
      (part) => {
        loaded = part;
      },
      (error: unknown) => {
        loading = undefined;
        throw error;
      },
    ));
  const Shown = (properties: P) => {
    const [state, setState] = useState<'waiting' | 'there' | 'failed'>(loaded ? 'there' : 'waiting');
    useEffect(() => {
      // The script may have arrived since the first render.
      begin().then(
        () => setState('there'),
        () => setState('failed'),
      );
    }, []);
    if (loaded) {
      const Part = loaded;
      return <Part {...properties} />;
    }
    if (state === 'waiting') return <Loading />;
    // The collector was replaced by another version or is unreachable.
    return (
      <EmptyState title="This view could not be loaded">
        <button onClick={() => location.reload()}>Reload</button>
      </EmptyState>
    );
  };
  return Object.assign(Shown, { begin });
}
