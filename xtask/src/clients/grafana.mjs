// Asks the collector at URL what Grafana's Pyroscope data source asks, with a client of the Connect protocol
// over HTTP/1.1 and HTTP/2, in both encodings, and compares the totals with those of the collector's own API.

import assert from 'node:assert/strict';
import { createFileRegistry, fromJson } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';

const url = process.argv[2];
const CPU = 'process_cpu:cpu:nanoseconds:cpu:nanoseconds';
const PERIOD_NS = 10_000_000;

// The part of Pyroscope's definition that the data source uses. A field is `[number, name, type]`, with `*`
// after the type of a repeated one and `?` after that of an optional one.
const TYPES = { string: 9, int64: 3, int32: 5, double: 1 };
const MESSAGES = {
  ProfileType: [[1, 'ID', 'string'], [2, 'name', 'string'], [4, 'sample_type', 'string'],
    [5, 'sample_unit', 'string'], [6, 'period_type', 'string'], [7, 'period_unit', 'string']],
  ProfileTypesRequest: [[1, 'start', 'int64'], [2, 'end', 'int64']],
  ProfileTypesResponse: [[1, 'profile_types', 'ProfileType*']],
  LabelNamesRequest: [[1, 'matchers', 'string*'], [2, 'start', 'int64'], [3, 'end', 'int64']],
  LabelNamesResponse: [[1, 'names', 'string*']],
  LabelValuesRequest: [[1, 'name', 'string'], [2, 'matchers', 'string*'], [3, 'start', 'int64'],
    [4, 'end', 'int64']],
  LabelValuesResponse: [[1, 'names', 'string*']],
  SelectMergeStacktracesRequest: [[1, 'profile_typeID', 'string'], [2, 'label_selector', 'string'],
    [3, 'start', 'int64'], [4, 'end', 'int64'], [5, 'max_nodes', 'int64?']],
  SelectMergeStacktracesResponse: [[1, 'flamegraph', 'FlameGraph']],
  SelectMergeSpanProfileRequest: [[1, 'profile_typeID', 'string'], [2, 'label_selector', 'string'],
    [3, 'span_selector', 'string*'], [4, 'start', 'int64'], [5, 'end', 'int64'], [6, 'max_nodes', 'int64?']],
  SelectMergeSpanProfileResponse: [[1, 'flamegraph', 'FlameGraph']],
  FlameGraph: [[1, 'names', 'string*'], [2, 'levels', 'Level*'], [3, 'total', 'int64'], [4, 'max_self', 'int64']],
  Level: [[1, 'values', 'int64*']],
  SelectSeriesRequest: [[1, 'profile_typeID', 'string'], [2, 'label_selector', 'string'], [3, 'start', 'int64'],
    [4, 'end', 'int64'], [5, 'group_by', 'string*'], [6, 'step', 'double'], [9, 'limit', 'int64?']],
  SelectSeriesResponse: [[1, 'series', 'Series*']],
  Series: [[1, 'labels', 'LabelPair*'], [2, 'points', 'Point*']],
  LabelPair: [[1, 'name', 'string'], [2, 'value', 'string']],
  Point: [[1, 'value', 'double'], [2, 'timestamp', 'int64']],
};
const METHODS = ['ProfileTypes', 'LabelNames', 'LabelValues', 'SelectMergeStacktraces',
  'SelectMergeSpanProfile', 'SelectSeries', 'GetProfileStats'];

function message(name, fields) {
  const optional = fields.filter(([, , type]) => type.endsWith('?')).map(([, field]) => field);
  const field = fields.map(([number, field, type]) => {
    const plain = type.replace(/[*?]$/, '');
    return {
      name: field, number, label: type.endsWith('*') ? 3 : 1,
      // As protoc writes it: protobuf-es does not derive it.
      jsonName: field.replace(/_(.)/g, (_, letter) => letter.toUpperCase()),
      ...(TYPES[plain] ? { type: TYPES[plain] } : { type: 11, typeName: `.querier.v1.${plain}` }),
      ...(optional.includes(field) ? { proto3Optional: true, oneofIndex: optional.indexOf(field) } : {}),
    };
  });
  return { name, field, oneofDecl: optional.map((field) => ({ name: `_${field}` })) };
}

function service() {
  const method = METHODS.map((name) => {
    const [input, output] = MESSAGES[`${name}Request`] ? [`${name}Request`, `${name}Response`]
      : ['ProfileTypesRequest', 'ProfileTypesResponse'];
    return { name, inputType: `.querier.v1.${input}`, outputType: `.querier.v1.${output}` };
  });
  const messageType = Object.entries(MESSAGES).map(([name, fields]) => message(name, fields));
  const file = {
    name: 'querier.proto', package: 'querier.v1', syntax: 'proto3', messageType,
    service: [{ name: 'QuerierService', method }],
  };
  const set = fromJson(FileDescriptorSetSchema, { file: [file] });
  return createFileRegistry(set).getService('querier.v1.QuerierService');
}

/** Pushes stacks of a service, with the number of samples of each, in the last 30 s. */
async function push(name, stacks) {
  const until = Math.floor(Date.now() / 1_000);
  const parameters = new URLSearchParams({ name, from: until - 30, until, sampleRate: 100, format: 'folded' });
  const body = Object.entries(stacks).map(([stack, count]) => `${stack} ${count}\n`).join('');
  const answer = await fetch(`${url}/ingest?${parameters}`, { method: 'POST', body });
  assert.equal(answer.status, 200, await answer.text());
}

/** The total of the collector's own API. */
async function ours(parameters) {
  const answer = await fetch(`${url}/api/v1/profile?from=-5m&state=cpu${parameters}`);
  assert.equal(answer.status, 200);
  return (await answer.json()).totals.total_ns;
}

const SHARES = { 'main;parse': 300, 'main;write': 100 };
await push('shop{region=eu}', SHARES);
await push('shop{region=us}', { 'main;parse': 70 });

for (const httpVersion of ['1.1', '2']) {
  for (const useBinaryFormat of [true, false]) {
    const options = { baseUrl: url, httpVersion, useBinaryFormat, defaultTimeoutMs: 30_000 };
    const client = createClient(service(), createConnectTransport(options));
    const end = BigInt(Date.now());
    const range = { start: end - 300_000n, end };

    const { profileTypes } = await client.profileTypes(range);
    assert.ok(profileTypes.some(({ ID }) => ID === CPU));
    const { names } = await client.labelNames({ matchers: [`{__profile_type__="${CPU}"}`], ...range });
    assert.ok(names.includes('region') && names.includes('service_name'), names);
    const values = await client.labelValues({ name: 'region', matchers: ['{service_name="shop"}'], ...range });
    assert.deepEqual(values.names, ['eu', 'us']);

    for (const [labelSelector, parameters] of [
      ['{service_name="shop"}', '&label=service_name%3Dshop'],
      ['{service_name=~"sh.*", region!="us"}', '&label=region%3Deu'],
    ]) {
      const asked = { profileTypeID: CPU, labelSelector, ...range };
      const expected = await ours(parameters);
      const { flamegraph } = await client.selectMergeStacktraces(asked);
      assert.equal(Number(flamegraph.total), expected, labelSelector);
      assert.ok(flamegraph.names.includes('parse'), flamegraph.names);
      const whole = Number(flamegraph.levels[0].values[1]);
      assert.equal(whole, expected);
      const spans = await client.selectMergeSpanProfile({ ...asked, maxNodes: 8n });
      assert.equal(Number(spans.flamegraph.total), expected);
      const { series } = await client.selectSeries({ ...asked, step: 15, groupBy: ['region'] });
      const sum = series.flatMap(({ points }) => points).reduce((sum, { value }) => sum + value, 0);
      assert.equal(sum, expected, 'the sum of the series');
    }
    const one = await client.selectMergeStacktraces(
      { profileTypeID: CPU, labelSelector: '{region="eu"}', ...range });
    assert.equal(Number(one.flamegraph.total), 400 * PERIOD_NS);

    const failed = async (code, asked) => {
      const error = await asked.then(() => assert.fail('no error'), (error) => ConnectError.from(error));
      assert.equal(error.code, code, error.message);
    };
    await failed(Code.Unimplemented, client.getProfileStats({}));
    await failed(Code.InvalidArgument, client.selectSeries({ profileTypeID: CPU, ...range }));
    await failed(Code.InvalidArgument,
      client.selectMergeStacktraces({ profileTypeID: CPU, labelSelector: '{', ...range }));
    console.log(`HTTP/${httpVersion}, ${useBinaryFormat ? 'Protobuf' : 'JSON'}: equal totals`);
  }
}
process.exit(0);
