// Computes for some windows of the client, partly in a task. Arguments: URL, name, token.
'use strict';

const Pyroscope = require('@pyroscope/nodejs');

const SECONDS = 12;
const [url, name, token] = process.argv.slice(2);

Pyroscope.init({
  serverAddress: url,
  appName: name,
  tags: { 'a.b': 'c', region: 'eu' },
  basicAuthUser: 'emberline',
  basicAuthPassword: token,
  flushIntervalMs: 5000,
  wall: { samplingDurationMs: 5000, collectCpuTime: true },
});
Pyroscope.start();

function fibonacci(number) {
  return number < 2 ? number : fibonacci(number - 1) + fibonacci(number - 2);
}

function compute() {
  fibonacci(24);
}

const end = Date.now() + 1000 * SECONDS;
const timer = setInterval(() => {
  Pyroscope.wrapWithLabels({ task: 'checkout' }, compute);
  compute();
  if (Date.now() > end) {
    clearInterval(timer);
    Pyroscope.stop().then(() => process.exit(0));
  }
}, 1);
