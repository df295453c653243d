// Validates the exported file for speedscope against its schema, and prints the sums of three JSON formats.
// Argument: the folder of the files.
const { readFileSync } = require("node:fs");
const Ajv = require("ajv");

const folder = process.argv[1];
const read = (path) => JSON.parse(readFileSync(path, "utf8"));
const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);

const speedscope = read(`${folder}/large.speedscope.json`);
const schema = read("node_modules/speedscope/dist/release/file-format-schema.json");
const ajv = new Ajv({ strict: false });
if (!ajv.validate(schema, speedscope)) {
  throw new Error(`speedscope's schema: ${ajv.errorsText()}`);
}
console.log("speedscope", ...speedscope.profiles.map((profile) => sum(profile.weights)));

const firefox = read(`${folder}/large.firefox.json`);
const nanoseconds = (weights) => sum(weights.map((weight) => Math.round(weight * 1e6)));
console.log("firefox", sum(firefox.threads.map((thread) => nanoseconds(thread.samples.weight))));

console.log("nested", read(`${folder}/large.nested.json`).count);
