// The profile page: a timeline that selects the range, and the profile below it.

import { useMemo } from 'preact/hooks';
import { InvalidRequest, Loading, NoData } from '../components/Messages';
import { Timeline } from '../components/Timeline';
import { apiUrl, rangeOf, setParams, useAddress } from '../core/address';
import type { TimelineAnswer } from '../core/api';
import { nowMs } from '../core/clock';
import { fetchJson } from '../core/fetch';
import { pauseTime, requestRange, useQuery } from '../core/query';
import { isLive, isoTime, parseTimeMs } from '../core/time';
import { Filters } from './profile/Filters';
import { GroupSearch } from './profile/GroupSearch';
import { GROUPS_SHOWN } from './profile/groups';
import { filtersOf } from './profile/query';
import { useProfile } from './profile/useProfile';
import { Views } from './profile/Views';

/** Lengths of the timeline. The shortest that shows the range and what followed is used. */
const CONTEXTS_S = [300, 900, 3600, 21_600, 86_400, 604_800, 2_592_000, 31_536_000];
/** A range that is a smaller part of the timeline would be invisible in it. */
const BAND_SHARE_MIN = 1 / 150;

/** The timeline's range; it moves with the clock if possible. */
export function contextOf(fromMs: number, toMs: number, now: number): { from: string; to: string } {
  const length = toMs - fromMs;
  const seconds = CONTEXTS_S.find((s) => now - s * 1000 <= fromMs);
  if (seconds !== undefined && length >= seconds * 1000 * BAND_SHARE_MIN) return { from: `-${seconds}s`, to: 'now' };
  return { from: isoTime(fromMs - 10 * length), to: isoTime(Math.min(now, toMs + 10 * length)) };
}

export function ProfilePage() {
  const { params } = useAddress();
  const pausedAt = pauseTime.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const profile = useProfile();

  const now = pausedAt ?? nowMs();
  const fromMs = parseTimeMs(range.from, now);
  const toMs = parseTimeMs(range.to, now);
  const context = contextOf(fromMs, toMs, now);
  const contextLive = isLive(context);
  const lines = filtersOf(params, []);
  const kind = params.get('lines');
  const groups: [string, string][] =
    kind === null
      ? []
      : [
          ['group', kind],
          ['groups', String(GROUPS_SHOWN)],
        ];
  const query = [...lines, ...groups];
  const timelineKey = `${context.from} ${context.to} ${JSON.stringify(query)} ${contextLive && pausedAt}`;
  const timeline = useQuery<TimelineAnswer>(
    timelineKey,
    (signal) => {
      const { from, to } = requestRange(context);
      return fetchJson(apiUrl('timeline', new URLSearchParams([['from', from], ['to', to], ...query])), signal);
    },
    contextLive,
  );

  const isWhole = live && fromMs === parseTimeMs(context.from, now);
  const band: [number, number] | undefined = isWhole ? undefined : [fromMs / 1000, toMs / 1000];
  // The timeline updates without redrawing the profile.
  const views = useMemo(
    () => profile.value && <Views loaded={profile.value} isStale={profile.waiting} />,
    [profile.value, profile.waiting],
  );
  if (profile.problem?.kind === 'request') return <InvalidRequest problem={profile.problem} />;
  return (
    <>
      <Filters loaded={profile.value} timeline={timeline.value} />
      {timeline.value?.data && (
        <Timeline
          answer={timeline.value}
          measure="total"
          onlyTasks={params.get('outside') !== '1'}
          layersMax={kind === null ? undefined : GROUPS_SHOWN}
          height={80}
          band={band}
          onSelect={(from, to) => setParams({ from: isoTime(from * 1000), to: isoTime(to * 1000) })}
        />
      )}
      {kind !== null && timeline.value !== undefined && timeline.value.others > 0 && (
        <GroupSearch
          kind={kind}
          others={timeline.value.others}
          query={[['from', context.from], ['to', context.to], ...lines]}
          rangeMs={(timeline.value.range.to_ns - timeline.value.range.from_ns) / 1e6}
        />
      )}
      {!profile.value ? (
        <Loading problem={profile.problem} />
      ) : profile.value.metadata.data === null ? (
        <NoData />
      ) : (
        views
      )}
    </>
  );
}
