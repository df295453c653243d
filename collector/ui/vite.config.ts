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
const COMPILED_WHOLE = '//# allFunctionsCalledOnLoad';

/**
 * One chunk for what most views need, and one for all views with a flame graph: each further chunk
 * costs a request, and users visit more than one view.
 */
const COMMON =
  /\/node_modules\/preact\/|\/src\/(core|flame\/(client|transferable))|\/src\/components\/(MultiSelect|FilterMenus|Timeline|timeline-draw|Lazy|Messages|TaskSummary|Tile)/;
const GRAPH = /\/src\/(flame|pages\/profile)/;

export default defineConfig({
  // Relative addresses, so that the page works below any path of a proxy.
  base: './',
  plugins: [withoutFormatters],
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
        postBanner: COMPILED_WHOLE,
        codeSplitting: {
          groups: [
            { name: 'common', test: COMMON, priority: 1 },
            { name: 'graph', test: GRAPH },
          ],
        },
      },
    },
  },
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  worker: { format: 'es', rollupOptions: { output: { postBanner: COMPILED_WHOLE } } },
});
