// Resource usage (memory, CPU, network, disk, descriptors) over time or aligned by run: a panel for each
// machine, with its own measures and those of its workers.

import { LineChart } from '../components/LineChart';
import { EmptyState, InvalidRequest, Loading } from '../components/Messages';
import { MultiSelect } from '../components/MultiSelect';
import { apiUrl, itemHref, rangeOf, setParams, sharedParams, useAddress } from '../core/address';
import type { ResourceSeries, ResourcesAnswer, RunsAnswer } from '../core/api';
import { nowMs } from '../core/clock';
import { lineColor } from '../core/colors';
import { fetchJson } from '../core/fetch';
import { safeText } from '../core/names';
import { pauseTime, requestRange, useQuery } from '../core/query';
import { bytes, count, digits, isLive, isoTime, percent, quantity, rangeText } from '../core/time';

/** Lines per chart; of more workers, those with the highest peaks. */
const LINES_MAX = 12;
const MACHINES_MAX = 6;
const CHARTS_MAX = 24;
/** Measures in order of interest. */
const FIRST = ['host_cpu', 'host_memory', 'process_cpu', 'process_memory', 'managed_memory', 'spilled_memory'];
/** Measures of a whole machine, which all its workers report. */
const isOfMachine = (measure: string) => /^host_|_pressure$/.test(measure);
/** Limits of other measures: lines in their charts. */
const LIMITS: Record<string, string | undefined> = {
  host_cpu: 'host_cpus',
  host_memory: 'host_memory_max',
  process_cpu: 'cgroup_cpu_max',
  process_memory: 'cgroup_memory_max',
  cgroup_memory: 'cgroup_memory_max',
  descriptors: 'descriptors_max',
};
const isLimit = (measure: string) => /_max$|_cpus$/.test(measure);

/** Formats values of a unit. Values are numbers alone if `isUnitShown`. */
function formatterOf(unit: string): (value: number) => string {
  // `bytes`, `bytes/s`
  if (unit.startsWith('bytes')) return (value) => bytes(value) + safeText(unit.slice('bytes'.length), 20);
  if (unit === 'ratio') return (value) => percent(value, 1);
  if (unit === 'count') return (value) => count(Math.round(value));
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
  const { series } = answer.value;
  const isAlone = params.getAll('measure').length === 1;
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
      {series.length === 0 ? (
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
        <Machines series={series} isAligned={isAligned} isAlone={isAlone} />
      )}
    </>
  );
}

/** A panel for each of the largest machines. */
export function Machines({ series, isAligned, isAlone }: Omit<MachineProperties, 'host'>) {
  const machines = machinesOf(series);
  return (
    <>
      {machines.slice(0, MACHINES_MAX).map(([host, all]) => (
        <Machine key={host} host={host} series={all} isAligned={isAligned} isAlone={isAlone} />
      ))}
      {machines.length > MACHINES_MAX && (
        <p class="soft">{count(machines.length - MACHINES_MAX)} more machines; choose a worker to show its machine.</p>
      )}
    </>
  );
}

/** The series by machine, those with the largest processes first. */
function machinesOf(series: ResourceSeries[]): [string, ResourceSeries[]][] {
  const machines = new Map<string, ResourceSeries[]>();
  for (const one of series) machines.set(one.host, [...(machines.get(one.host) ?? []), one]);
  const peak = (all: ResourceSeries[]) =>
    Math.max(0, ...all.filter(({ measure }) => measure === 'process_memory').map((one) => one.peak ?? 0));
  return [...machines].sort(([, a], [, b]) => peak(b) - peak(a));
}

interface MachineProperties {
  host: string;
  series: ResourceSeries[];
  isAligned: boolean;
  isAlone: boolean;
}

function Machine({ host, series, isAligned, isAlone }: MachineProperties) {
  const measures = [...new Set(series.map(({ measure }) => measure))]
    .filter((measure) => isAlone || !isLimit(measure))
    .sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const of = (measure: string | undefined) => series.filter((one) => one.measure === measure);
  return (
    <section class="machine">
      <h2>
        <bdi>{safeText(host, 60) || 'unknown machine'}</bdi>{' '}
        <small>{quantity(new Set(series.map(({ worker }) => worker)).size, 'worker')}</small>
      </h2>
      {measures.slice(0, CHARTS_MAX).map((measure) => (
        <Chart
          key={measure}
          measure={measure}
          series={isOfMachine(measure) ? oncePerRun(of(measure)) : of(measure)}
          limit={limitOf(of(LIMITS[measure]))}
          isAligned={isAligned}
          isAlone={isAlone}
        />
      ))}
    </section>
  );
}

/** Of each run, the series of the worker that measured longest. */
function oncePerRun(series: ResourceSeries[]): ResourceSeries[] {
  const longest = new Map<string | null, ResourceSeries>();
  for (const one of series)
    if ((longest.get(one.run)?.points.length ?? -1) < one.points.length) longest.set(one.run, one);
  return [...longest.values()];
}

/** The newest value of a limit; the least of several workers. */
function limitOf(series: ResourceSeries[]): number | undefined {
  const values = series.flatMap(({ points }) => (points.length > 0 ? [points[points.length - 1][1]] : []));
  return values.length > 0 ? Math.min(...values) : undefined;
}

const rank = (measure: string) => (FIRST.indexOf(measure) + FIRST.length + 1) % (FIRST.length + 1);

/** A line's name: its worker or machine, and its run if several are shown. */
const nameOf = ({ worker, host, measure, run }: ResourceSeries) =>
  [isOfMachine(measure) ? host : worker, ...(run === null ? [] : [run])].join(' · ');

interface ChartProperties {
  measure: string;
  series: ResourceSeries[];
  limit: number | undefined;
  isAligned: boolean;
  isAlone: boolean;
}

function Chart({ measure, series, limit, isAligned, isAlone }: ChartProperties) {
  const { unit } = series[0];
  const format = formatterOf(unit);
  const unitText = isUnitShown(unit) ? ` ${safeText(unit, 20)}` : '';
  const highest = [...series].sort((a, b) => (b.peak ?? 0) - (a.peak ?? 0)).slice(0, LINES_MAX);
  const lines = highest.map((one) => ({
    name: nameOf(one),
    color: lineColor(nameOf(one)),
    times: one.points.map(([at]) => at / 1e9),
    values: one.points.map(([, mean]) => mean),
  }));
  const title = safeText(measure.replaceAll('_', ' '), 60);
  const facts = [unitText.trim(), limit === undefined ? '' : `limit ${format(limit)}${unitText}`].filter(Boolean);
  return (
    <div>
      <h3>
        {title}{' '}
        <small>
          {facts.length > 0 && `(${facts.join(', ')}) `}
          {isAlone ? (
            ''
          ) : (
            <button class="link" onClick={() => setParams({ measure })}>
              show only this
            </button>
          )}
          {series.length > LINES_MAX && ` ${LINES_MAX} of ${count(series.length)} with the highest peaks`}
        </small>
      </h3>
      <LineChart
        lines={lines}
        limit={limit}
        label={`${title} by worker`}
        height={isAlone ? 320 : 110}
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
              <th>{isOfMachine(measure) ? 'Machine' : 'Worker'}</th>
              <th class="number">Newest</th>
              <th class="number">Peak</th>
            </tr>
          </thead>
          <tbody>
            {highest.slice(0, isAlone ? LINES_MAX : 5).map((one) => (
              <tr key={nameOf(one)}>
                <td>
                  <i class="dot" style={{ background: lineColor(nameOf(one)) }} />
                  {isOfMachine(measure) ? (
                    <bdi>{safeText(nameOf(one), 60)}</bdi>
                  ) : (
                    <a href={itemHref('workers', one.worker, sharedParams({ worker: null }))}>
                      <bdi>{safeText(nameOf(one), 60)}</bdi>
                    </a>
                  )}
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
    </div>
  );
}
