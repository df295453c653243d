// Where the time went: a timeline to choose from, and one profile seen in several ways.

import { useMemo } from 'preact/hooks';
import { apiUrl, change, rangeOf, useAddress } from '../core/address';
import type { TimelineAnswer } from '../core/api';
import { fetchJson } from '../core/fetch';
import { asked, noteNow, nowMs, paused, useAnswer } from '../core/live';
import { isLive, pinned, timeMs } from '../core/time';
import { Loading, NoData, Refused } from '../parts/Notes';
import { Timeline } from '../parts/Timeline';
import { Filters } from './profile/Filters';
import { filtersOf, useProfile } from './profile/question';
import { Views } from './profile/Views';

/** How long a timeline may be: the smallest that shows the range and what came after it. */
const CONTEXTS_S = [300, 900, 3600, 21_600, 86_400, 604_800, 2_592_000, 31_536_000];
/** A range shorter than this part of the timeline could not be seen in it. */
const BAND_SHARE_MIN = 1 / 150;

/** The range of the timeline above: a moving one if it can be. */
export function contextOf(fromMs: number, toMs: number, now: number): { from: string; to: string } {
  const length = toMs - fromMs;
  const seconds = CONTEXTS_S.find((s) => now - s * 1000 <= fromMs);
  if (seconds !== undefined && length >= seconds * 1000 * BAND_SHARE_MIN) return { from: `-${seconds}s`, to: 'now' };
  return { from: pinned(fromMs - 10 * length), to: pinned(Math.min(now, toMs + 10 * length)) };
}

export function ProfilePage() {
  const { params } = useAddress();
  const pausedAt = paused.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const profile = useProfile();

  const now = pausedAt ?? nowMs();
  const [fromMs, toMs] = [timeMs(range.from, now), timeMs(range.to, now)];
  const context = contextOf(fromMs, toMs, now);
  const contextLive = isLive(context);
  const lines = filtersOf(params, []);
  const timelineKey = `${context.from} ${context.to} ${JSON.stringify(lines)} ${contextLive && pausedAt}`;
  const timeline = useAnswer<TimelineAnswer>(
    timelineKey,
    async (signal) => {
      const { from, to } = asked(context);
      const answer = await fetchJson<TimelineAnswer>(
        apiUrl('timeline', new URLSearchParams([['from', from], ['to', to], ...lines])),
        signal,
      );
      if (to === 'now') noteNow(answer.range.to_ns);
      return answer;
    },
    contextLive,
  );

  const isWhole = live && fromMs === timeMs(context.from, now);
  const band: [number, number] | undefined = isWhole ? undefined : [fromMs / 1000, toMs / 1000];
  // What else is asked for comes and goes without drawing the profile again.
  const views = useMemo(
    () => profile.value && <Views loaded={profile.value} isOld={profile.waiting} />,
    [profile.value, profile.waiting],
  );
  if (profile.problem?.kind === 'request') return <Refused problem={profile.problem} />;
  return (
    <>
      <Filters loaded={profile.value} timeline={timeline.value} />
      {timeline.value?.data && (
        <Timeline
          answer={timeline.value}
          measure="total"
          onlyTasks={params.get('outside') !== '1'}
          height={92}
          band={band}
          onSelect={(from, to) => change({ from: pinned(from * 1000), to: pinned(to * 1000) })}
        />
      )}
      {!profile.value ? <Loading problem={profile.problem} /> : profile.value.about.data === null ? <NoData /> : views}
    </>
  );
}
