// A part of the page that is loaded when it is first shown.

import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Empty, Loading } from './Notes';

/** What `load` brings, once for the life of the page; a failure is tried again by reloading. */
export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | undefined;
  return function Lazy(properties: P) {
    const [state, setState] = useState<'waiting' | 'there' | 'failed'>(loaded ? 'there' : 'waiting');
    useEffect(() => {
      if (loaded) return;
      load().then((part) => { loaded = part; setState('there'); }, () => setState('failed'));
    }, []);
    if (loaded) {
      const Part = loaded;
      return <Part {...properties} />;
    }
    if (state === 'waiting') return <Loading />;
    // The collector was replaced by another version, or is away.
    return <Empty title="This part of the page could not be loaded"><button onClick={() => location.reload()}>Load the page anew</button></Empty>;
  };
}
