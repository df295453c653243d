// A value that components follow.

import { useEffect, useState } from 'preact/hooks';

/** A value with listeners. */
export class Observable<T> {
  private readonly listeners = new Set<() => void>();
  constructor(public value: T) {}
  set(value: T): void {
    if (Object.is(this.value, value)) return;
    this.value = value;
    this.listeners.forEach((listener) => listener());
  }
  use(): T {
    const [value, setValue] = useState(this.value);
    useEffect(() => {
      const listener = () => setValue(() => this.value);
      this.listeners.add(listener);
      listener();
      return () => void this.listeners.delete(listener);
    }, []);
    return value;
  }
  on(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }
}
