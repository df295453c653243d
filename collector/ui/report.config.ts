// Builds the report: one document with script and style inside, and a place for the answers.

import { createHash } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { defineConfig, type Plugin } from 'vite';
import { withoutFormatters } from './vite.config.ts';

/** Where the command line writes the answers. */
const ANSWERS = '<!-- answers -->';

const hashOf = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/**
 * A report has no collector: the modules that reach one are replaced by those that read the answers in the
 * document.
 */
const REPLACED: [RegExp, string][] = [
  [/\/core\/address$/, 'address.ts'],
  [/\/core\/query$/, 'query.ts'],
];
const withoutCollector: Plugin = {
  name: 'report-without-collector',
  enforce: 'pre',
  resolveId(source, importer) {
    const known = REPLACED.find(([pattern]) =>
      pattern.test(importer ? new URL(source, `file://${importer}`).pathname : source),
    );
    return known ? fileURLToPath(new URL(`./src/report/${known[1]}`, import.meta.url)) : null;
  },
};

/** Puts script and style into the document. Its policy allows these two, and no request at all. */
const oneDocument: Plugin = {
  name: 'report-one-document',
  enforce: 'post',
  generateBundle(_, bundle) {
    let script = '';
    let style = '';
    for (const [name, file] of Object.entries(bundle)) {
      if (file.type === 'chunk') script += file.code;
      else if (name.endsWith('.css')) style += file.source;
      else throw new Error(`the report cannot contain ${name}`);
      delete bundle[name];
    }
    // The end of an element inside of its text would cut it.
    if (/<\/script|<!--/i.test(script) || /<\/style/i.test(style))
      throw new Error('the bundle holds the end of an element');
    const policy = `default-src 'none'; script-src ${hashOf(script)}; style-src ${hashOf(style)}; base-uri 'none'; form-action 'none'`;
    this.emitFile({
      type: 'asset',
      fileName: 'report.html',
      source: `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Emberline report</title>
<style>${style}</style>
</head>
<body>
<div id="page"></div>
<noscript>This report needs JavaScript. The file report.json next to it has the same data.</noscript>
${ANSWERS}
<script>${script}</script>
</body>
</html>
`,
    });
  },
};

export default defineConfig({
  plugins: [withoutFormatters, withoutCollector, oneDocument],
  build: {
    target: 'es2022',
    outDir: 'dist-report',
    cssCodeSplit: false,
    modulePreload: false,
    rollupOptions: { input: 'src/report/main.tsx', output: { format: 'iife', codeSplitting: false } },
  },
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
});
