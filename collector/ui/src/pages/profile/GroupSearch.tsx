// Finds the groups of a timeline that are too light for a layer of their own.

import { useEffect, useState } from 'preact/hooks';
import { apiUrl, setParams } from '../../core/address';
import type { Series, TimelineAnswer } from '../../core/api';
import { fetchJson } from '../../core/fetch';
import { safeText } from '../../core/names';
import { count, duration } from '../../core/time';
import { GROUPS_SEARCHED, groupFilter, groupsWith } from './groups';

/** Wait after a key before the collector is asked. */
const TYPING_MS = 150;
const LISTED_MAX = 20;

interface Properties {
  /** Kind of the groups: `worker`, `label:zone`. */
  kind: string;
  others: number;
  /** The timeline's parameters. */
  query: [string, string][];
  rangeMs: number;
}

export function GroupSearch({ kind, others, query, rangeMs }: Properties) {
  const [text, setText] = useState('');
  const [found, setFound] = useState<{ key: string; series: Series[] }>();
  const key = JSON.stringify(query);
  const isKnown = found?.key === key;
  useEffect(() => {
    if (text === '' || isKnown) return;
    const stop = new AbortController();
    const ask = () => {
      // One step: only totals are listed.
      const step = `${Math.max(1, Math.ceil(rangeMs / 1000))}s`;
      const more = [
        ['group', kind],
        ['groups', String(GROUPS_SEARCHED)],
        ['step', step],
      ];
      const answer = fetchJson<TimelineAnswer>(
        apiUrl('timeline', new URLSearchParams([...query, ...more])),
        stop.signal,
      );
      // Without a response the list stays as it is.
      answer.then(
        ({ series }) => setFound({ key, series }),
        () => {},
      );
    };
    const timer = setTimeout(ask, TYPING_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text, key, isKnown]);
  const listed = text === '' ? [] : groupsWith(found?.series ?? [], text, LISTED_MAX);
  return (
    <div class="legend">
      <input
        value={text}
        placeholder={`find one of ${count(others)} others`}
        aria-label={`find one of the other groups by ${kind}`}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      {listed.map(({ name, totals }) => {
        const filter = groupFilter(kind, name);
        return (
          <span key={name}>
            {filter ? (
              <button class="link" onClick={() => setParams({ [filter[0]]: filter[1], zoom: null })}>
                <bdi>{safeText(name, 60)}</bdi>
              </button>
            ) : (
              <bdi>{safeText(name, 60)}</bdi>
            )}{' '}
            {duration(totals.total_ns)}
          </span>
        );
      })}
      {text !== '' && isKnown && listed.length === 0 && <span class="soft">no matches</span>}
    </div>
  );
}
