import { defineConfig, type Plugin } from 'vite';

/** uPlot makes the language's formatters as it is loaded, which takes 20 ms. It is given texts of our own, so
 * it needs none. */
const UNUSED: [string, string][] = [
  ["new Intl.NumberFormat(domEnv ? nav.language : 'en-US')", '{ format: String }'],
  ['new Intl.DateTimeFormat().resolvedOptions().timeZone', "''"],
];
const withoutFormatters: Plugin = {
  name: 'uplot-without-formatters',
  transform(code, id) {
    if (!id.endsWith('/uPlot.esm.js')) return null;
    return UNUSED.reduce((text, [made, instead]) => {
      if (!text.includes(made)) throw new Error(`uPlot does not hold \`${made}\` any more: see vite.config.ts`);
      return text.replace(made, instead);
    }, code);
  },
};

/** Most of a script runs as soon as its page is shown. Told so, Chromium compiles it whole, away from the page's
 * own thread, as it arrives, and not each function again when it is first called; to others it is a comment. */
const COMPILED_WHOLE = '//# allFunctionsCalledOnLoad';

/** What most views need is one script, and what all with a flame graph need is another: each further one costs
 * a request, and nobody looks at one view only. */
const COMMON =
  /\/node_modules\/preact\/|\/src\/(core|flame\/(ask|parcel))|\/src\/parts\/(Select|Menus|Timeline|timeline-draw|Lazy|Notes|TaskNames|Tile)/;
const GRAPH = /\/src\/(flame|pages\/profile)/;

export default defineConfig({
  // Relative addresses, so that the page works below any path of a proxy.
  base: './',
  plugins: [withoutFormatters],
  build: {
    target: 'es2022',
    // The strict policy of the page forbids `data:` scripts and styles; images are our own.
    assetsInlineLimit: 0,
    // The browsers of the target know it, and the polyfill would cost 1 kB.
    modulePreload: { polyfill: false },
    // A part that only one view needs is told by its name; a test counts what any one view loads.
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
