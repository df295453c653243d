// Names of functions as engineers know them: short labels, crates, and which frames are the user's own. The
// collector has the same rules (`flamegraph/src/symbols.rs`); the examples in `flamegraph/symbols.json` are for both.

import { shortFile, withoutGenerics } from './names';

/** Crates of the language. */
const STANDARD = new Set(['core', 'alloc', 'std', 'proc_macro', 'test']);

/** Longer names are not parsed. */
const PARSED_MAX = 4096;

/** The parts of a path, split at `::` outside of brackets. */
function partsOf(path: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let from = 0;
  for (let i = 0; i < path.length; i++) {
    const unit = path[i];
    if (unit === '<' || unit === '(' || unit === '[' || unit === '{') depth++;
    else if (unit === '>' && path[i - 1] !== '-') depth--;
    else if (unit === ')' || unit === ']' || unit === '}') depth--;
    else if (unit === ':' && path[i + 1] === ':' && depth === 0) {
      parts.push(path.slice(from, i));
      from = i + 2;
      i++;
    }
  }
  parts.push(path.slice(from));
  return parts;
}

/** The type of `<Type as Trait>` or `<Type>`; any other part as it is. */
function typeOf(part: string): string {
  if (!part.startsWith('<') || !part.endsWith('>')) return part;
  let depth = 0;
  let typeEnd = -1;
  for (let i = 0; i < part.length; i++) {
    if (part[i] === '<') depth++;
    else if (part[i] === '>' && part[i - 1] !== '-') depth--;
    else if (depth === 1 && typeEnd < 0 && part.startsWith(' as ', i)) typeEnd = i;
    // The first bracket ends before the last one: it belongs to the type.
    if (depth === 0 && i < part.length - 1) return part;
  }
  if (typeEnd >= 0) return typeOf(part.slice(1, typeEnd));
  return typeOf(part.slice(1, -1).replace(/^impl .* for /, ''));
}

/** `Vec` for `alloc::vec::Vec<T>`; references and slices keep their sign. */
function lastName(part: string): string {
  const sign = /^(?:&(?:mut )?|\*(?:const|mut) |dyn )+/.exec(part)?.[0] ?? '';
  const path = partsOf(part.slice(sign.length));
  const name = path[path.length - 1];
  const bracket = name.indexOf('<');
  return sign + (bracket > 0 ? name.slice(0, bracket) : name);
}

/** A name of code without one, as in Python: `<module>`, `<lambda>`. */
const PLACEHOLDER = /^<[a-z]*>$/;

const isClosure = (part: string) => part.startsWith('{');

/** Variants of one function of the C library, which it selects by processor. */
const LIBC_VARIANT = /(?:_(?:sse\d?(?:_\d)?|ssse3|avx\d*|evex\d*|erms|unaligned|movbe|rtm|nocancel|cancel|internal))+$/;

/** A function of the C library without its internal prefixes and variants. */
function libcName(name: string): string {
  return name.replace(/^(?:__GI_|_IO_)?_*(?:libc_|pthread_(?=pthread))?/, '').replace(LIBC_VARIANT, '') || name;
}

function isLibc(module: string): boolean {
  return /\/(?:libc|libm|libpthread|ld-linux[\w-]*)[-.\d]*\.so/.test(module);
}

/**
 * A function's label: the last two parts of its path, `pipeline::digest_chunk`. Closures have the name of their
 * function, methods that of their type.
 */
export function shortName(name: string, module = ''): string {
  if (name.length > PARSED_MAX) return name;
  const parts = partsOf(name);
  let end = parts.length;
  while (end > 1 && isClosure(parts[end - 1])) end--;
  const closure = end < parts.length ? '::{closure}' : '';
  const method = withoutGenerics(parts[end - 1]);
  if (end === 1) {
    if (closure === '' && isLibc(module)) return libcName(method);
    return (PLACEHOLDER.test(method) ? method : typeOf(method)) + closure;
  }
  // `{impl#3}` does not name its type: the module says more.
  const at = end > 2 && parts[end - 2].startsWith('{impl') ? end - 3 : end - 2;
  const owner = isClosure(parts[at]) ? parts[at] : lastName(typeOf(parts[at]));
  return `${owner}::${method}${closure}`;
}

/** Names that many functions share. */
const VAGUE = /^(?:\{|call_once|call_mut|(?:call|main|run|poll)\b)/;

/** A function's label: its short name, with its file if the name is vague, and with its line if it has one. */
export function functionLabel(name: string, file: string, line: number, module: string): string {
  const label = shortName(name, module);
  if (line === 0 && (file === '' || !VAGUE.test(label))) return label;
  return `${label} · ${shortFile(file).split('/').pop() ?? ''}${line > 0 ? `:${line}` : ''}`;
}

/** The crate at the start of a path, or of a method's type or trait. */
function crateOfPath(name: string): string | undefined {
  // The type of a method comes first; that of `<usize as core::ops::Add>` has no crate, but its trait does.
  for (const [path] of name.matchAll(/[A-Za-z_]\w*(?:::[A-Za-z_{]\w*)+/g)) return path.slice(0, path.indexOf(':'));
  return undefined;
}

/** The crate of a function, or else its library; decides the color. */
export function crateOf(name: string, file: string, module: string): string {
  const path = name.length > PARSED_MAX ? undefined : crateOfPath(name);
  if (path !== undefined) return path;
  const standard = /\/library\/([\w-]+)\//.exec(file);
  if (standard) return standard[1];
  const registry = /\/registry\/src\/[^/]+\/([^/]+?)-\d+\.\d+[^/]*\//.exec(file);
  if (registry) return registry[1];
  if (isLibc(module)) return '[libc]';
  const parts = file.split('/');
  const source = parts.lastIndexOf('src');
  if (source > 0) return parts[source - 1].replace(/-\d+\.\d+.*$/, '') || 'unknown';
  if (source < 0 && parts.length > 1 && parts[parts.length - 2] !== '.') return parts[parts.length - 2] || 'unknown';
  return module.slice(module.lastIndexOf('/') + 1) || 'unknown';
}

/** Whether a function is of the profiled program itself and not of a dependency. */
export function isOwn(name: string, file: string): boolean {
  if (file !== '') return !/\/(?:registry\/src|git\/checkouts|library|rustc|usr\/(?:include|src|lib))\//.test(file);
  const crate = name.length > PARSED_MAX ? undefined : crateOfPath(name);
  return crate !== undefined && !STANDARD.has(crate);
}
