// Views of a profile other than the graph: one script, because each costs a request.

export { ChartView } from './ChartView';
export { FunctionTable } from './FunctionTable';
export { SandwichView } from './SandwichView';
export { TreeView } from './TreeView';
