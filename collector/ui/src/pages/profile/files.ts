// Files of the displayed profile.

import { apiUrl } from '../../core/address';
import type { LoadedProfile } from '../../flame/load';
import { filtersOf, type Params, queryOf, valuesOf } from './query';

export interface FileFormat {
  /** The collector's name of the format. */
  format: string;
  label: string;
  /** Programs that open it. */
  reader: string;
  extension: string;
  /** It has no inverted form: its readers invert by themselves, or it has rows. The collector rejects `invert`. */
  isNeverInverted?: boolean;
  /** It has no lines of source files. */
  isWithoutLines?: boolean;
}

export const FILE_FORMATS: FileFormat[] = [
  { format: 'svg', label: 'SVG flame graph', reader: 'any browser', extension: 'svg' },
  { format: 'pprof', label: 'pprof', reader: 'go tool pprof, Pyroscope', extension: 'pb.gz', isNeverInverted: true },
  { format: 'speedscope', label: 'speedscope', reader: 'speedscope.app', extension: 'speedscope.json' },
  {
    format: 'firefox',
    label: 'Firefox Profiler',
    reader: 'profiler.firefox.com',
    extension: 'firefox.json',
    isNeverInverted: true,
  },
  {
    format: 'collapsed',
    label: 'Collapsed stacks',
    reader: 'flamegraph.pl, inferno',
    extension: 'collapsed.txt',
    isWithoutLines: true,
  },
  { format: 'csv', label: 'CSV', reader: 'spreadsheets: functions', extension: 'csv', isNeverInverted: true },
  {
    format: 'parquet',
    label: 'Parquet',
    reader: 'DuckDB, pandas: functions',
    extension: 'parquet',
    isNeverInverted: true,
  },
  { format: 'json', label: 'JSON', reader: 'scripts: a table of nodes', extension: 'json' },
  { format: 'nested', label: 'Nested JSON', reader: 'scripts: a tree, as of Dask', extension: 'nested.json' },
];

/** The formats that the displayed profile has. A zoom into an inverted graph selects nothing of an upright one. */
export function formatsOf(params: URLSearchParams): FileFormat[] {
  const isInvertedPart = params.get('invert') === '1' && params.has('zoom');
  return FILE_FORMATS.filter(({ isNeverInverted }) => !(isNeverInverted && isInvertedPart));
}

/** The displayed profile as a file: the same samples, filters, transforms and zoom. */
export function fileUrl(params: URLSearchParams, fixed: Params, loaded: LoadedProfile, file: FileFormat): string {
  const { from, to } = loaded.metadata.range;
  const query = queryOf(params, fixed).filter(([name]) => !file.isWithoutLines || name !== 'by');
  const changes = valuesOf(params, ['focus', 'hide', 'merge', 'zoom']);
  if (params.get('recursion') === '1') changes.push(['recursion', 'true']);
  if (params.get('invert') === '1' && !file.isNeverInverted) changes.push(['invert', 'true']);
  return apiUrl(
    'profile',
    new URLSearchParams([['from', from], ['to', to], ...query, ...changes, ['format', file.format]]),
  );
}

/** `emberline-load-20260131T120000Z.svg` */
export function fileName(
  params: URLSearchParams,
  fixed: Params,
  loaded: LoadedProfile,
  file: Pick<FileFormat, 'extension'>,
): string {
  const tasks = filtersOf(params, fixed).filter(([name]) => name === 'task');
  const task = tasks.length === 1 ? tasks[0][1] : tasks.length === 0 ? 'all' : `${tasks.length}-tasks`;
  const from = `${loaded.metadata.range.from.slice(0, 19).replace(/[-:]/g, '')}Z`;
  return `emberline-${task.replace(/[^\w.-]+/g, '_').slice(0, 60)}-${from}.${file.extension}`;
}
