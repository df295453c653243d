// Other flame graphs in the browser, with the same profile.

import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';

const FOLDER = path.join(import.meta.dirname, 'peers/node_modules');
const TYPES = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.wasm': 'application/wasm',
};

/** Nodes (parents before children, root not listed) as the tree of d3-flame-graph. */
function nested(nodes) {
  const tree = [{ name: 'all', value: 0, children: [] }];
  for (const { parent, name, self } of nodes) {
    const node = { name, value: self.cpu, children: [] };
    tree[parent].children.push(node);
    tree.push(node);
  }
  // Values are totals.
  for (let i = nodes.length; i > 0; i--) tree[nodes[i - 1].parent].value += tree[i].value;
  return tree[0];
}

/** The same as collapsed stacks, which speedscope reads. */
function collapsed(nodes) {
  const paths = [''];
  const lines = [];
  for (const { parent, name, self } of nodes) {
    const path = parent === 0 ? name : `${paths[parent]};${name}`;
    paths.push(path);
    if (self.cpu > 0) lines.push(`${path} ${self.cpu}`);
  }
  return lines.join('\n');
}

/** Modules of d3 that d3-flame-graph needs, in dependency order. */
const D3_PARTS = [
  'dispatch',
  'ease',
  'timer',
  'color',
  'interpolate',
  'selection',
  'array',
  'format',
  'time',
  'time-format',
  'hierarchy',
  'scale',
  'transition',
];

const d3Page = () => `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><div id="chart"></div>
${D3_PARTS.map((part) => `<script src="/d3-${part}/dist/d3-${part}.min.js"></script>`).join('\n')}
<script src="/d3-flame-graph/dist/d3-flamegraph.umd.min.js"></script>
<script type="module">
  const data = await (await fetch('/profile.json')).json();
  const make = window.flamegraph.flamegraph ?? window.flamegraph.default ?? window.flamegraph;
  d3.select('#chart').datum(data).call(make().width(1240).transitionDuration(0));
  document.body.dataset.ready = 'yes';
</script>`;

/** Serves the peers' pages; returns their URLs and the selectors that show that they are ready. */
export async function servePeers(nodes) {
  const made = {
    '/blank.html': '<link rel="icon" href="data:,">blank',
    '/d3.html': d3Page(),
    '/profile.json': JSON.stringify(nested(nodes)),
    '/profile.txt': collapsed(nodes),
  };
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://localhost');
    const file = path.join(FOLDER, path.normalize(pathname));
    const body =
      made[pathname] ?? (fs.existsSync(file) && fs.statSync(file).isFile() ? fs.readFileSync(file) : undefined);
    response
      .writeHead(body === undefined ? 404 : 200, { 'content-type': TYPES[path.extname(pathname)] ?? 'text/plain' })
      .end(body);
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  const base = `http://127.0.0.1:${server.address().port}`;
  return {
    blank: `${base}/blank.html`,
    peers: [
      { name: 'd3-flame-graph', url: `${base}/d3.html`, ready: 'body[data-ready]' },
      {
        name: 'speedscope',
        url: `${base}/speedscope/dist/release/index.html#profileURL=${encodeURIComponent(`${base}/profile.txt`)}`,
        ready: 'canvas',
      },
    ],
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
