// A figure with its name and a note.

export interface TileProperties {
  name: string;
  value: string;
  note: string;
  to?: string;
  alarm?: boolean;
}

export function Tile({ name, value, note, to, alarm }: TileProperties) {
  const inside = (
    <>
      <span class="tile-name">{name}</span>
      <b>
        {alarm ? '⚠ ' : ''}
        {value}
      </b>
      <small>{note}</small>
    </>
  );
  return <li class={alarm ? 'tile alarm' : 'tile'}>{to ? <a href={to}>{inside}</a> : inside}</li>;
}
