import { defineConfig } from 'vite';

export default defineConfig({
  // Relative addresses, so that the page works below any path of a proxy.
  base: './',
  build: {
    target: 'es2022',
    // The strict policy of the page forbids `data:` scripts and styles; images are our own.
    assetsInlineLimit: 0,
    // The browsers of the target know it, and the polyfill would cost 1 kB.
    modulePreload: { polyfill: false },
    // A part that only one view needs is told by its name; a test counts what any one view loads.
    rollupOptions: { output: { chunkFileNames: 'assets/page-[name]-[hash].js' } },
  },
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  worker: { format: 'es' },
});
