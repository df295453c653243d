/** Where the largest values stand, the largest first: at most `count`, of those that are kept. A few of many
 * thousands are found without sorting all. */
export function heaviest(
  values: ArrayLike<number>,
  count: number,
  isKept: (index: number) => boolean = () => true,
): number[] {
  const top: number[] = [];
  for (let i = 0; i < values.length; i++) {
    if ((top.length === count && !(values[i] > values[top[count - 1]])) || !isKept(i)) continue;
    let at = top.length;
    while (at > 0 && values[top[at - 1]] < values[i]) at--;
    top.splice(at, 0, i);
    if (top.length > count) top.pop();
  }
  return top;
}
