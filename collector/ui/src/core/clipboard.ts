// Copies text, and says whether it worked.

import { useEffect, useState } from 'preact/hooks';

const SHOWN_MS = 3000;

const listeners = new Set<(notice: string) => void>();

/** Copies `text`; `what` it is, for the notice. */
export async function copyText(text: string, what: string): Promise<void> {
  const isCopied = await write(text);
  for (const listener of listeners) listener(isCopied ? `Copied the ${what}` : `Could not copy the ${what}`);
}

/** Whether the browser can copy pictures from this origin. */
export const canCopyPictures = () => typeof ClipboardItem === 'function' && navigator.clipboard?.write !== undefined;

/** Copies a PNG file, and says whether it worked. */
export async function copyPicture(picture: Promise<Blob>): Promise<void> {
  const isCopied = await navigator.clipboard
    .write([new ClipboardItem({ 'image/png': picture })])
    .then(() => true)
    .catch(() => false);
  for (const listener of listeners) listener(isCopied ? 'Copied the picture' : 'Could not copy the picture');
}

async function write(text: string): Promise<boolean> {
  try {
    // Missing on origins that are not secure, such as plain HTTP by an address.
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return true;
    }
  } catch {
    // Not permitted: the old way may be.
  }
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'visually-hidden';
  document.body.append(area);
  const focused = document.activeElement as HTMLElement | null;
  area.select();
  const isCopied = document.execCommand('copy');
  area.remove();
  focused?.focus();
  return isCopied;
}

/** The notice about the last copy, for a few seconds. */
export function useCopyNotice(): string {
  const [notice, setNotice] = useState('');
  useEffect(() => {
    const listener = (text: string) => setNotice(text);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  useEffect(() => {
    if (notice === '') return;
    const timer = setTimeout(() => setNotice(''), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [notice]);
  return notice;
}
