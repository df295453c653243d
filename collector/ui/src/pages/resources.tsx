// Resource usage of each worker (memory, CPU, network, disk, descriptors) over time, or aligned by
// run.

import { LineChart } from '../components/LineChart';
import { EmptyState, InvalidRequest, Loading } from '../components/Messages';
import { MultiSelect } from '../components/MultiSelect';
import { apiUrl, itemHref, rangeOf, setParams, sharedParams, useAddress } from '../core/address';
import type { ResourceSeries, ResourcesAnswer, RunsAnswer } from '../core/api';
import { taskColor } from '../core/colors';
import { fetchJson } from '../core/fetch';
import { safeText } from '../core/names';
import { nowMs, pauseTime, requestRange, useQuery } from '../core/query';
import { bytes, count, digits, isLive, isoTime, percent, rangeText } from '../core/time';

/** Lines per chart; of more workers, those with the highest peaks. */
const LINES_MAX = 12;
const CHARTS_MAX = 16;
/** Measures in order of interest. */
const FIRST = ['process_memory', 'managed_memory', 'spilled_memory', 'host_memory', 'process_cpu', 'host_cpu'];

/** Formats values of a unit. Values are numbers alone if `isUnitShown`. */
function formatterOf(unit: string): (value: number) => string {
  // `bytes`, `bytes/s`
  if (unit.startsWith('bytes')) return (value) => bytes(value) + safeText(unit.slice('bytes'.length), 20);
  if (unit === 'ratio') return (value) => percent(value, 1);
  return digits;
}

/** Whether values need their unit next to them. */
const isUnitShown = (unit: string) => !unit.startsWith('bytes') && !['', 'ratio', 'count'].includes(unit);

export function ResourcesPage() {
  const { params } = useAddress();
  const pausedAt = pauseTime.use();
  const range = rangeOf(params);
  const chosenRuns = params.getAll('run');
  const isAligned = params.get('align') === '1';
  const live = isLive(range) && chosenRuns.length === 0;
  const filters = ['worker', 'measure', 'run'].flatMap((name) =>
    params.getAll(name).map((value): [string, string] => [name, value]),
  );
  const key = `${range.from} ${range.to} ${JSON.stringify(filters)} ${isAligned} ${live && pausedAt}`;
  const answer = useQuery<ResourcesAnswer>(
    key,
    (signal) => {
      const { from, to } = requestRange(range);
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
  const runs = useQuery<RunsAnswer>('runs', (signal) => fetchJson(apiUrl('runs'), signal), false);
  if (answer.problem?.kind === 'request') return <InvalidRequest problem={answer.problem} />;
  if (!answer.value) return <Loading problem={answer.problem} />;
  const measures = [...new Set(answer.value.series.map(({ measure }) => measure))].sort(
    (a, b) => rank(a) - rank(b) || (a < b ? -1 : 1),
  );
  const known = (runs.value?.runs ?? []).map((run) => ({ value: `${run.name}@${run.id}`, note: run.name }));
  return (
    <>
      <div class="filters">
        {params.has('worker') && (
          <button onClick={() => setParams({ worker: null })}>
            only <bdi>{safeText(params.getAll('worker').join(', '), 60)}</bdi> ✕
          </button>
        )}
        {params.has('measure') && <button onClick={() => setParams({ measure: null })}>all measures</button>}
        {known.length > 0 && (
          <MultiSelect
            what="runs"
            chosen={chosenRuns}
            onChange={(run) => setParams({ run, align: run.length > 1 ? '1' : null })}
            choices={known}
          />
        )}
        <label class="plain" title="Show times relative to the start of each run, to overlay runs">
          <input
            type="checkbox"
            checked={isAligned}
            onChange={(event) => setParams({ align: event.currentTarget.checked ? '1' : null })}
          />{' '}
          align run starts
        </label>
        <span class="soft">{chosenRuns.length === 0 && rangeText(range, pausedAt ?? nowMs())}</span>
      </div>
      {measures.length === 0 ? (
        <EmptyState title="No measurements in this range">
          <p>
            Agents measure their process and host twice a second. Older agents do not; restart the worker with this
            version.
          </p>
          <button onClick={() => setParams({ worker: null, measure: null, run: null, from: '-1h', to: null })}>
            Show all workers, last hour
          </button>
        </EmptyState>
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
        <p class="soft">{count(measures.length - CHARTS_MAX)} more measures; choose one to show only that.</p>
      )}
    </>
  );
}

const rank = (measure: string) => (FIRST.indexOf(measure) + FIRST.length + 1) % (FIRST.length + 1);

/** A line's name: its worker, and its run if several are shown. */
const nameOf = ({ worker, run }: ResourceSeries) => (run === null ? worker : `${worker} · ${run}`);

interface ChartProperties {
  measure: string;
  series: ResourceSeries[];
  isAligned: boolean;
  isAlone: boolean;
}

function Chart({ measure, series, isAligned, isAlone }: ChartProperties) {
  const { unit } = series[0];
  const format = formatterOf(unit);
  const unitText = isUnitShown(unit) ? ` ${safeText(unit, 20)}` : '';
  const highest = [...series].sort((a, b) => (b.peak ?? 0) - (a.peak ?? 0)).slice(0, LINES_MAX);
  const lines = highest.map((one) => ({
    name: nameOf(one),
    color: taskColor(nameOf(one)),
    times: one.points.map(([at]) => at / 1e9),
    values: one.points.map(([, mean]) => mean),
  }));
  const title = safeText(measure.replaceAll('_', ' '), 60);
  return (
    <section>
      <h2>
        {title}{' '}
        <small>
          {unitText}{' '}
          {isAlone ? (
            ''
          ) : (
            <button class="link" onClick={() => setParams({ measure })}>
              show only this
            </button>
          )}
          {series.length > LINES_MAX && ` ${LINES_MAX} of ${count(series.length)} with the highest peaks`}
        </small>
      </h2>
      <LineChart
        lines={lines}
        label={`${title} by worker`}
        height={isAlone ? 320 : 130}
        isAligned={isAligned}
        written={format}
        onSelect={
          isAligned ? undefined : (from, to) => setParams({ from: isoTime(from * 1000), to: isoTime(to * 1000) })
        }
      />
      <div class="scroll">
        <table class="legend-table">
          <caption class="visually-hidden">{title}, by worker</caption>
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
                  <a href={itemHref('workers', one.worker, sharedParams({ worker: null }))}>
                    <i class="dot" style={{ background: taskColor(nameOf(one)) }} />
                    <bdi>{safeText(nameOf(one), 60)}</bdi>
                  </a>
                </td>
                <td class="number">
                  {one.points.length > 0 ? format(one.points[one.points.length - 1][1]) + unitText : '–'}
                </td>
                <td class="number">{one.peak === null ? '–' : format(one.peak) + unitText}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
