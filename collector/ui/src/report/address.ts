// Replaces `core/address` in a report: the state of its views is in memory, and links lead to sections.

import { useEffect, useState } from 'preact/hooks';
import type { Address, Changes } from '../core/address';
import type { Range } from '../core/time';

export type { Address, Changes };

let params = new URLSearchParams();
const listeners = new Set<() => void>();

export const currentAddress = (): Address => ({ page: 'report', item: null, params });

export function useAddress(): Address {
  const [address, setAddress] = useState(currentAddress);
  useEffect(() => {
    const listener = () => setAddress(currentAddress());
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return address;
}

export function withParams(before: URLSearchParams, changes: Changes): URLSearchParams {
  const next = new URLSearchParams(before);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    for (const one of value === null ? [] : [value].flat()) next.append(name, one);
  }
  return next;
}

export function setParams(changes: Changes): void {
  params = withParams(params, changes);
  listeners.forEach((listener) => listener());
}

/** Scrolls to the section about `page`; a report cannot filter by the other parameters. */
export function navigate(page: string): void {
  document.getElementById(page)?.scrollIntoView({ behavior: 'smooth' });
}

export const href = (page: string): string => `#${page.split('/')[0]}`;
export const itemHref = (page: string): string => `#${page}`;
export const apiUrl = href;
export const sharedParams = (): URLSearchParams => new URLSearchParams();
export const rangeOf = (): Range => ({ from: '', to: '' });
