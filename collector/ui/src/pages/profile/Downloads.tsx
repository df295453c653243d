// A menu of files of the displayed profile.

import { useEffect, useRef } from 'preact/hooks';
import { useAddress } from '../../core/address';
import { canCopyPictures, copyPicture } from '../../core/clipboard';
import type { LoadedProfile } from '../../flame/load';
import { FILE_FORMATS, fileName, fileUrl } from './files';
import type { Params } from './question';

interface Properties {
  loaded: LoadedProfile;
  fixed: Params;
  /** Draws the displayed graph; none if no graph is displayed. */
  picture: (() => Promise<Blob>) | undefined;
}

export function Downloads({ loaded, fixed, picture }: Properties) {
  const { params } = useAddress();
  const box = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: Event) => {
      const inside = event.type === 'pointerdown' && box.current?.contains(event.target as Node);
      const isOther = event instanceof KeyboardEvent && event.key !== 'Escape';
      if (!inside && !isOther && box.current) box.current.open = false;
    };
    document.addEventListener('pointerdown', close);
    document.addEventListener('keydown', close);
    return () => {
      document.removeEventListener('pointerdown', close);
      document.removeEventListener('keydown', close);
    };
  }, []);
  const name = fileName(params, fixed, loaded, { extension: 'png' });
  return (
    <details class="download" ref={box}>
      <summary>Download</summary>
      <div>
        {FILE_FORMATS.map((file) => (
          <a
            key={file.format}
            href={fileUrl(params, fixed, loaded, file)}
            download={fileName(params, fixed, loaded, file)}
            onClick={() => {
              box.current!.open = false;
            }}
          >
            {file.label} <small>{file.reader}</small>
          </a>
        ))}
        {picture && (
          <>
            <button class="link" onClick={() => void picture().then((blob) => save(blob, name))}>
              PNG picture <small>chats, documents: the graph as displayed</small>
            </button>
            {canCopyPictures() && (
              <button
                class="link"
                onClick={() => {
                  box.current!.open = false;
                  void copyPicture(picture());
                }}
              >
                Copy picture <small>to the clipboard</small>
              </button>
            )}
          </>
        )}
      </div>
    </details>
  );
}

/** Lets the browser save a file. */
function save(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
