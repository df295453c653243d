// The collector's answers, as the command line wrote them into the document.

import type {
  EventsAnswer,
  ResourcesAnswer,
  TaskColumnsAnswer,
  TaskSummaryAnswer,
  TasksAnswer,
  ThreadTimeAnswer,
  TimelineAnswer,
  TransferSummaryAnswer,
  WorkersAnswer,
} from '../core/api';
import type { ProfileBody } from '../flame/load';

/** The report's metadata, from the command line. */
export interface About {
  /** The named run, if the report is about one. */
  run: string | null;
  /** The part, if it is not a whole report. */
  part: 'profile' | 'tasks' | 'resources' | null;
  command: string;
  /** The command line of the program that ran, if it is known. */
  program?: string;
  version: string;
}

export interface Answers {
  about: About;
  timeline: TimelineAnswer;
  workers: WorkersAnswer;
  summary: TaskSummaryAnswer;
  tasks: TasksAnswer;
  longest: TasksAnswer;
  columns: TaskColumnsAnswer;
  threads: ThreadTimeAnswer;
  resources: ResourcesAnswer;
  transfers: TransferSummaryAnswer;
  events: EventsAnswer;
  profile: ProfileBody;
  agent: ProfileBody;
  blocked: ProfileBody;
}

/** Parses the answer of this name; `undefined` if this part of a report has none. */
export function answerOf<Name extends keyof Answers>(name: Name): Answers[Name] | undefined {
  const element = document.getElementById(`answer-${name}`);
  return element ? (JSON.parse(element.textContent ?? '') as Answers[Name]) : undefined;
}
