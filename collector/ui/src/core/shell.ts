// Commands for people to copy. The collector has the same function (`api/src/shell.rs`).

/** Control characters but the newline, and those that change the direction of a line. */
const ACTS_ON_TERMINALS = /[\x01-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

function octal(character: string): string {
  const bytes = [...new TextEncoder().encode(character)];
  return bytes.map((byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('');
}

/** `text` as one word of a shell: names come from other programs. */
export function shellQuoted(text: string): string {
  if (/^[A-Za-z0-9\-_./:@,+%]+$/.test(text)) return text;
  const quoted = text
    .replaceAll('\0', '')
    .replaceAll("'", `'\\''`)
    .replace(ACTS_ON_TERMINALS, (character) => `'"$(printf '${octal(character)}')"'`);
  return `'${quoted}'`;
}
