// A part of the page that is loaded when it is first shown, or a little earlier.

import type { ComponentChildren, ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Empty, Loading } from './Notes';

export interface Lazy<P> {
  (properties: P): ComponentChildren;
  /** Begins to load it; it is there when the answer is. */
  begin(): Promise<void>;
}

/** What `load` brings, once for the life of the page; a failure is tried again by reloading. */
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
      // What came since we were shown was not waited for by anybody yet.
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
    // The collector was replaced by another version, or is away.
    return (
      <Empty title="This part of the page could not be loaded">
        <button onClick={() => location.reload()}>Load the page anew</button>
      </Empty>
    );
  };
  return Object.assign(Shown, { begin });
}
