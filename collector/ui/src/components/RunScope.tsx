// The run that an address names.

import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { apiUrl, setParams, useAddress } from '../core/address';
import type { RunsAnswer } from '../core/api';
import { ApiError, fetchJson } from '../core/fetch';
import { useQuery } from '../core/query';
import { changesForRun, runName } from '../core/runs';
import { InvalidRequest, Loading } from './Messages';

/** How often the end of an open run is looked up. */
const OPEN_INTERVAL_MS = 10_000;

/** Shows a view when the address has the range of the run that it names; or why there is no such run. */
export function RunScope({ children }: { children: ComponentChildren }) {
  const { params } = useAddress();
  const names = params.getAll('run');
  const query = new URLSearchParams(names.map((name) => ['run', name]));
  const known = useQuery<RunsAnswer>(
    String(query),
    (signal) => {
      if (names.length > 1)
        throw new ApiError('request', `This page shows one run, but the address names ${names.length}.`);
      return fetchJson(apiUrl('runs', query), signal);
    },
    true,
    OPEN_INTERVAL_MS,
  );
  const found = known.value?.runs[0];
  const run = found && (known.key === String(query) || names.join() === runName(found)) ? found : undefined;
  const changes = run && changesForRun(run, params);
  useEffect(() => {
    if (changes) setParams(changes, true);
  });
  if (known.problem?.kind === 'request') return <InvalidRequest problem={known.problem} />;
  if (!run || changes) return <Loading problem={known.problem} />;
  return children;
}
