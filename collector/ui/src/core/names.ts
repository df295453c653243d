// Names come from profiled programs and are untrusted. They are shown as text, with invisible and
// reordering characters escaped.

/** Longer names are cut. */
const SHOWN_MAX = 300;

// Controls, zero-width characters, directional marks and lone surrogates.
const INVISIBLE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** A name that is safe to show. */
export function safeText(name: string, max = SHOWN_MAX): string {
  const cut = name.length > max ? `${name.slice(0, max)}…` : name;
  return cut.replace(INVISIBLE, (unit) => `\\u{${unit.charCodeAt(0).toString(16)}}`);
}

/** Cuts the middle of a longer name, because ends distinguish names. The end starts with a word if one is near. */
export function middleCut(name: string, max: number): string {
  if (name.length <= max) return name;
  const tail = Math.floor(max * 0.4);
  const near = name.slice(-tail).search(/::|_|(?<=^:)/);
  const from = name.length - (near > 0 && 2 * near <= tail ? tail - near : tail);
  return `${name.slice(0, Math.max(1, max - 1 - name.length + from))}…${name.slice(from)}`;
}

/** A function's name with the contents of angle brackets elided. */
export function withoutGenerics(name: string): string {
  if (!name.includes('<') || name.length > 4096) return name;
  let depth = 0;
  let text = '';
  for (let i = 0; i < name.length; i++) {
    const unit = name[i];
    const arrow = unit === '>' && (name[i - 1] === '-' || name[i - 1] === '=');
    // The leading bracket of `<Type as Trait>::method` holds the name itself.
    if (unit === '<' && i > 0 && name[i - 1] !== '<' && /[\w:}]/.test(name[i - 1])) {
      if (depth++ === 0) text += '<…';
    }
    if (depth === 0) text += unit;
    if (unit === '>' && !arrow && depth > 0 && --depth === 0) text += '>';
  }
  return depth === 0 ? text : name;
}

/** The informative end of a path: from the crate's directory, or the last two parts. */
export function shortFile(file: string): string {
  const known = /\/(?:registry\/src\/[^/]+|library)\/(.+)/.exec(file);
  if (known) return known[1];
  const parts = file.split('/');
  const source = parts.lastIndexOf('src');
  const from = Math.max(0, source >= 0 ? source - 1 : parts.length - 2);
  return parts.slice(from).join('/');
}

/** FNV-1a: a name keeps its color on every page and in every session. */
export function hash(text: string): number {
  let value = 2166136261;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return value >>> 0;
}
