import { beforeEach, expect, test, vi } from 'vitest';
import type { LoadedProfile } from '../src/flame/load';

let files: typeof import('../src/pages/profile/files');

beforeEach(async () => {
  vi.stubGlobal('window', { addEventListener: () => {} });
  vi.stubGlobal('location', new URL('http://collector/profile'));
  files = await import('../src/pages/profile/files');
});

const range = { from: '2026-01-31T12:00:00Z', to: '2026-01-31T12:01:00Z' };
const loaded = { metadata: { range } } as unknown as LoadedProfile;

/** The parameter of each format's address. */
function ofEach(name: string, view: string): Record<string, string | null> {
  const params = new URLSearchParams(view);
  const all = files.FILE_FORMATS.map((file) => {
    const url = new URL(files.fileUrl(params, [], loaded, file), 'http://collector/');
    return [file.format, url.searchParams.get(name)];
  });
  return Object.fromEntries(all);
}

test('the menu has all formats of the collector', () => {
  const formats = ['svg', 'pprof', 'speedscope', 'firefox', 'collapsed', 'csv', 'parquet', 'json', 'nested'];
  expect(files.FILE_FORMATS.map(({ format }) => format)).toEqual(formats);
  expect(ofEach('format', '')).toEqual(Object.fromEntries(formats.map((format) => [format, format])));
});

test('a part of an inverted graph has no upright files', () => {
  const formats = (view: string) => files.formatsOf(new URLSearchParams(view)).map(({ format }) => format);
  const upright = ['pprof', 'firefox', 'csv', 'parquet'];
  expect(formats('invert=1&zoom=x')).toEqual(formats('').filter((format) => !upright.includes(format)));
  expect(formats('invert=1')).toEqual(formats(''));
  expect(formats('zoom=x')).toEqual(formats(''));
});

test('a file is inverted unless its format has no inverted form', () => {
  expect(ofEach('invert', 'invert=1')).toEqual({
    svg: 'true',
    pprof: null,
    speedscope: 'true',
    firefox: null,
    collapsed: 'true',
    csv: null,
    parquet: null,
    json: 'true',
    nested: 'true',
  });
  expect(ofEach('focus', 'invert=1&focus=app::run').firefox).toBe('app::run');
});

test('a file has lines unless its format has none', () => {
  const { collapsed, ...others } = ofEach('by', 'by=line');
  expect(collapsed).toBe(null);
  expect(new Set(Object.values(others))).toEqual(new Set(['line']));
});

test('a file is named after its task, its start and its format', () => {
  const name = (task: string) => {
    const params = new URLSearchParams({ task });
    return files.FILE_FORMATS.map((file) => files.fileName(params, [], loaded, file));
  };
  expect(name('load')).toEqual(
    ['svg', 'pb.gz', 'speedscope.json', 'firefox.json', 'collapsed.txt', 'csv', 'parquet', 'json', 'nested.json'].map(
      (extension) => `emberline-load-20260131T120000Z.${extension}`,
    ),
  );
});
