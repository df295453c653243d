// Shows an error of a view in place of the view, so that no address and no answer blanks the page.

import { Component, type ComponentChildren } from 'preact';
import { href } from '../core/address';
import { safeText } from '../core/names';
import { EmptyState } from './Messages';

interface Properties {
  /** A new key is a new attempt. */
  attempt: string;
  children: ComponentChildren;
}

interface State {
  error: Error | null;
  attempt: string;
}

export class ErrorBoundary extends Component<Properties, State> {
  override state: State = { error: null, attempt: this.props.attempt };

  static getDerivedStateFromError(error: unknown): Partial<State> {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  static getDerivedStateFromProps({ attempt }: Properties, state: State): Partial<State> | null {
    return attempt === state.attempt ? null : { attempt, error: null };
  }

  override render() {
    const { error } = this.state;
    if (error === null) return this.props.children;
    return (
      <EmptyState title="This view failed">
        <p>
          <bdi>{safeText(error.message, 300)}</bdi>
        </p>
        <p>This is a bug in Emberline. The address of the page shows how to repeat it.</p>
        <button onClick={() => location.reload()}>Reload</button> <a href={href('')}>Go to the status page</a>
      </EmptyState>
    );
  }
}
