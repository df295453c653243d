// A menu of files of the displayed profile.

import { useEffect, useRef } from 'preact/hooks';
import { useAddress } from '../../core/address';
import type { LoadedProfile } from '../../flame/load';
import { FILE_FORMATS, fileName, fileUrl } from './files';
import type { Params } from './question';

export function Downloads({ loaded, fixed }: { loaded: LoadedProfile; fixed: Params }) {
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
      </div>
    </details>
  );
}
