// What each worker uses: memory, processors, network, disk, descriptors; over time, or run over run.

import { along, apiUrl, change, itemHref, rangeOf, useAddress } from '../core/address';
import type { ResourceSeries, ResourcesAnswer, RunsAnswer } from '../core/api';
import { taskColour } from '../core/colours';
import { fetchJson } from '../core/fetch';
import { asked, nowMs, paused, useAnswer } from '../core/live';
import { shown } from '../core/names';
import { bytes, count, digits, isLive, pinned, rangeWords } from '../core/time';
import { Lines } from '../parts/Lines';
import { Empty, Loading, Refused } from '../parts/Notes';
import { Select } from '../parts/Select';

/** Lines that are told apart; of more workers, those with the highest peaks. */
const LINES_MAX = 12;
const CHARTS_MAX = 16;
/** Memory is what this page is looked at for first. */
const FIRST = ['process_memory', 'managed_memory', 'spilled_memory', 'host_memory', 'process_cpu', 'host_cpu'];

function writtenAs(unit: string): (value: number) => string {
  const known = shown(unit, 20);
  if (isBytes(unit)) return (value) => bytes(value) + known.slice(5);
  return (value) => `${digits(value)} ${known}`.trim();
}

const isBytes = (unit: string) => unit.startsWith('bytes');

export function MemoryPage() {
  const { params } = useAddress();
  const pausedAt = paused.use();
  const range = rangeOf(params);
  const chosenRuns = params.getAll('run');
  const isAligned = params.get('align') === '1';
  const live = isLive(range) && chosenRuns.length === 0;
  const filters = ['worker', 'measure', 'run'].flatMap((name) =>
    params.getAll(name).map((value): [string, string] => [name, value]),
  );
  const key = `${range.from} ${range.to} ${JSON.stringify(filters)} ${isAligned} ${live && pausedAt}`;
  const answer = useAnswer<ResourcesAnswer>(
    key,
    (signal) => {
      const { from, to } = asked(range);
      const when: [string, string][] =
        chosenRuns.length > 0
          ? []
          : [
              ['from', from],
              ['to', to],
            ];
      return fetchJson(
        apiUrl(
          'resources',
          new URLSearchParams([...when, ...filters, ...(isAligned ? [['align', 'true'] as [string, string]] : [])]),
        ),
        signal,
      );
    },
    live,
  );
  const runs = useAnswer<RunsAnswer>('runs', (signal) => fetchJson(apiUrl('runs'), signal), false);
  if (answer.problem?.kind === 'request') return <Refused problem={answer.problem} />;
  if (!answer.value) return <Loading problem={answer.problem} />;
  const measures = [...new Set(answer.value.series.map(({ measure }) => measure))].sort(
    (a, b) => rank(a) - rank(b) || (a < b ? -1 : 1),
  );
  const known = (runs.value?.runs ?? []).map((run) => ({ value: `${run.name}@${run.id}`, note: run.name }));
  return (
    <>
      <div class="filters">
        {params.has('worker') && (
          <button onClick={() => change({ worker: null })}>
            only <bdi>{shown(params.getAll('worker').join(', '), 60)}</bdi> ✕
          </button>
        )}
        {params.has('measure') && <button onClick={() => change({ measure: null })}>all measures</button>}
        {known.length > 0 && (
          <Select
            what="runs"
            chosen={chosenRuns}
            onChange={(run) => change({ run, align: run.length > 1 ? '1' : null })}
            choices={known}
          />
        )}
        <label class="plain" title="Times from the start of each run, so that several lie over each other">
          <input
            type="checkbox"
            checked={isAligned}
            onChange={(event) => change({ align: event.currentTarget.checked ? '1' : null })}
          />{' '}
          align starts
        </label>
        <span class="soft">{chosenRuns.length === 0 && rangeWords(range, pausedAt ?? nowMs())}</span>
      </div>
      {measures.length === 0 ? (
        <Empty title="Nothing was measured in this range">
          <p>
            Agents measure their process and machine twice a second. An older agent does not: start its worker with this
            version.
          </p>
          <button onClick={() => change({ worker: null, measure: null, run: null, from: '-1h', to: null })}>
            Show all workers of the last hour
          </button>
        </Empty>
      ) : (
        measures
          .slice(0, CHARTS_MAX)
          .map((measure) => (
            <Chart
              key={measure}
              measure={measure}
              series={answer.value!.series.filter((one) => one.measure === measure)}
              isAligned={isAligned}
              isAlone={measures.length === 1}
            />
          ))
      )}
      {measures.length > CHARTS_MAX && (
        <p class="soft">{count(measures.length - CHARTS_MAX)} more measures; choose one to see it alone.</p>
      )}
    </>
  );
}

const rank = (measure: string) => (FIRST.indexOf(measure) + FIRST.length + 1) % (FIRST.length + 1);

/** A line's name: its worker, and its run where several are shown. */
const nameOf = ({ worker, run }: ResourceSeries) => (run === null ? worker : `${worker} · ${run}`);

interface ChartProperties {
  measure: string;
  series: ResourceSeries[];
  isAligned: boolean;
  isAlone: boolean;
}

function Chart({ measure, series, isAligned, isAlone }: ChartProperties) {
  const { unit } = series[0];
  const written = writtenAs(unit);
  const highest = [...series].sort((a, b) => (b.peak ?? 0) - (a.peak ?? 0)).slice(0, LINES_MAX);
  const lines = highest.map((one) => ({
    name: nameOf(one),
    colour: taskColour(nameOf(one)),
    times: one.points.map(([at]) => at / 1e9),
    values: one.points.map(([, mean]) => mean),
  }));
  const words = shown(measure.replaceAll('_', ' '), 60);
  return (
    <section>
      <h2>
        {words}{' '}
        <small>
          {!isBytes(unit) && unit !== '' && <>{shown(unit, 20)} </>}
          {isAlone ? (
            ''
          ) : (
            <button class="link" onClick={() => change({ measure })}>
              show alone
            </button>
          )}
          {series.length > LINES_MAX && ` ${LINES_MAX} of ${count(series.length)} with the highest peaks`}
        </small>
      </h2>
      <Lines
        lines={lines}
        label={`${words} by worker`}
        height={isAlone ? 320 : 130}
        isAligned={isAligned}
        written={isBytes(unit) ? written : digits}
        onSelect={isAligned ? undefined : (from, to) => change({ from: pinned(from * 1000), to: pinned(to * 1000) })}
      />
      <div class="scroll">
        <table class="legend-table">
          <caption class="unseen">{words}, by worker</caption>
          <thead>
            <tr>
              <th>Worker</th>
              <th class="number">Newest</th>
              <th class="number">Peak</th>
            </tr>
          </thead>
          <tbody>
            {highest.slice(0, isAlone ? LINES_MAX : 5).map((one) => (
              <tr key={nameOf(one)}>
                <td>
                  <a href={itemHref('workers', one.worker, along({ worker: null }))}>
                    <i class="dot" style={{ background: taskColour(nameOf(one)) }} />
                    <bdi>{shown(nameOf(one), 60)}</bdi>
                  </a>
                </td>
                <td class="number">{one.points.length > 0 ? written(one.points[one.points.length - 1][1]) : '–'}</td>
                <td class="number">{one.peak === null ? '–' : written(one.peak)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
