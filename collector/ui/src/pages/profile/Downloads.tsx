// A menu of files of the displayed profile.

import { DownloadMenu } from '../../components/DownloadMenu';
import { useAddress } from '../../core/address';
import { canCopyPictures, copyPicture } from '../../core/clipboard';
import type { LoadedProfile } from '../../flame/load';
import { FILE_FORMATS, fileName, fileUrl, formatsOf } from './files';
import type { Params } from './query';

interface Properties {
  loaded: LoadedProfile;
  fixed: Params;
  /** Draws the displayed graph; none if no graph is displayed. */
  picture: (() => Promise<Blob>) | undefined;
}

export function Downloads({ loaded, fixed, picture }: Properties) {
  const { params } = useAddress();
  const files = () => {
    const formats = formatsOf(params);
    const name = fileName(params, fixed, loaded, { extension: 'png' });
    return (
      <>
        {formats.map((file) => (
          <a
            key={file.format}
            href={fileUrl(params, fixed, loaded, file)}
            download={fileName(params, fixed, loaded, file)}
          >
            {file.label} <small>{file.reader}</small>
          </a>
        ))}
        {formats.length < FILE_FORMATS.length && (
          <p class="soft">
            {FILE_FORMATS.filter((file) => !formats.includes(file))
              .map(({ label }) => label)
              .join(', ')}
            : zoom out or turn the graph first
          </p>
        )}
        {picture && (
          <>
            <button class="link" onClick={() => void picture().then((blob) => save(blob, name))}>
              PNG picture <small>chats, documents: the graph as displayed</small>
            </button>
            {canCopyPictures() && (
              <button class="link" onClick={() => void copyPicture(picture())}>
                Copy picture <small>to the clipboard</small>
              </button>
            )}
          </>
        )}
      </>
    );
  };
  return <DownloadMenu files={files} />;
}

/** Lets the browser save a file. */
function save(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
