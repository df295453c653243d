import { defineConfig, type Plugin } from 'vite';

/**
 * uPlot creates locale formatters when it is loaded, which takes 20 ms. The page formats all texts
 * itself, so they are replaced.
 */
const UNUSED: [string, string][] = [
  ["new Intl.NumberFormat(domEnv ? nav.language : 'en-US')", '{ format: String }'],
  ['new Intl.DateTimeFormat().resolvedOptions().timeZone', "''"],
];
export const withoutFormatters: Plugin = {
  name: 'uplot-without-formatters',
  transform(code, id) {
    if (!id.endsWith('/uPlot.esm.js')) return null;
    return UNUSED.reduce((text, [made, instead]) => {
      if (!text.includes(made)) throw new Error(`uPlot does not hold \`${made}\` any more: see vite.config.ts`);
      return text.replace(made, instead);
    }, code);
  },
};

/**
 * Most of a script runs as soon as its page is shown. With this comment Chromium compiles it eagerly
 * while it arrives, off the main thread, instead of lazily per function. Other browsers ignore it.
 */
const COMPILED_WHOLE = '//# allFunctionsCalledOnLoad\n';

/** Much of a shorter script is used by few visits. */
const COMPILED_BYTES_MIN = 16_000;

/** The comment must be the first line. Vite writes lists of dependencies above a banner, so this comes last. */
const compiledWhole: Plugin = {
  name: 'compiled-whole',
  generateBundle: {
    order: 'post',
    handler(_, bundle) {
      for (const file of Object.values(bundle)) {
        if (file.type === 'chunk' && file.code.length >= COMPILED_BYTES_MIN) file.code = COMPILED_WHOLE + file.code;
      }
    },
  },
};

/**
 * Chunks: the frame of all views with what most of them need, what all views with a flame graph need, and
 * what shows tasks. The views that replace the graph are loaded later. Each further chunk costs a request,
 * and users visit more than one view.
 */
const COMMON =
  /vite\/preload-helper|\/node_modules\/preact\/|\/src\/(main|style|core|flame\/(client|transferable))|\/src\/components\/(Account|CopyLink|Disclosure|DownloadMenu|ErrorBoundary|Help|RangePicker|RangeFields|MultiSelect|FilterMenus|Timeline|timeline-draw|Lazy|Messages|tasks\/TaskSummary|Tile)/;
const GRAPH = /\/src\/(flame|pages\/profile)/;
const OTHER_VIEWS =
  /\/src\/(flame\/(chart|sandwich)|pages\/profile\/(ChartView|FunctionTable|SandwichView|TreeView|other-views))/;
const STREAM = /\/src\/(stream\/|components\/tasks\/TaskTable)/;

export default defineConfig({
  // Relative addresses, so that the page works below any path of a proxy.
  base: './',
  plugins: [withoutFormatters, compiledWhole],
  build: {
    target: 'es2022',
    // The page's content security policy forbids `data:` scripts and styles.
    assetsInlineLimit: 0,
    // The target browsers support it natively; the polyfill would cost 1 kB.
    modulePreload: { polyfill: false },
    // Names of chunks for one view. A test sums what each view loads.
    rollupOptions: {
      output: {
        chunkFileNames: 'assets/page-[name]-[hash].js',
        codeSplitting: {
          groups: [
            { name: 'common', test: COMMON, priority: 1 },
            { name: 'graph', test: (id) => GRAPH.test(id) && !OTHER_VIEWS.test(id) },
            { name: 'stream', test: STREAM },
          ],
        },
      },
    },
  },
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  worker: { format: 'es', plugins: () => [compiledWhole] },
});
