// Copies a link to what is displayed now: ranges that move with the clock are pinned.

import { copyText, useCopyNotice } from '../core/clipboard';
import { nowMs } from '../core/clock';
import { pinnedAddress } from '../core/pinned';
import { pauseTime } from '../core/query';

export function CopyLink() {
  const notice = useCopyNotice();
  const copy = () => copyText(pinnedAddress(new URL(location.href), pauseTime.value ?? nowMs()), 'link');
  return (
    <>
      <button class="copy-link" title="Copy a link to this view, with its times fixed" onClick={() => void copy()}>
        <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
          <path d="M5 5V2.5h8.5V11H11M2.5 5H11v8.5H2.5z" />
        </svg>
        <span>Copy link</span>
      </button>
      <span class="notice" role="status">
        {notice}
      </span>
    </>
  );
}
