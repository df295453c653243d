// The time that a profile does not show, by reason, each with a button that shows it.

import { setParams, useAddress } from '../../core/address';
import type { Hidden } from '../../core/api';
import type { State } from '../../core/states';
import { duration } from '../../core/time';
import { chosenStates, stateParams, WAITS } from './states';

interface Reason {
  text: string;
  ns: number;
  show(): void;
}

/** Nothing if all is shown. */
export function HiddenTime({ hidden }: { hidden: Hidden }) {
  const { params } = useAddress();
  const showStates = (states: readonly State[]) => () =>
    setParams({ state: stateParams(new Set([...chosenStates(params), ...states])), zoom: null });
  const reasons: Reason[] = [
    { text: 'outside tasks', ns: hidden.outside_ns, show: () => setParams({ outside: '1', zoom: null }) },
    { text: 'on CPU', ns: hidden.states.cpu_ns, show: showStates(['cpu']) },
    { text: 'runnable', ns: hidden.states.runnable_ns, show: showStates(['runnable']) },
    { text: 'waiting', ns: hidden.states.wait_ns, show: showStates(WAITS) },
  ];
  const shown = reasons.filter(({ ns }) => ns > 0);
  if (shown.length === 0) return null;
  return (
    <span class="hidden-time">
      Hidden:{' '}
      {shown.map(({ text, ns, show }, i) => (
        <>
          {i > 0 && ', '}
          {duration(ns)} {text}
          <span>
            {' '}
            <button class="link" aria-label={`Show time ${text}`} onClick={show}>
              show
            </button>
          </span>
        </>
      ))}
    </span>
  );
}
