/**
 * Indices of the `count` largest values that are kept, the largest first. Avoids sorting many
 * thousands of values for a few.
 */
export function indicesOfLargest(
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
