//! The files of a crate as a graph: an edge leads to the file that defines what another one uses.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::modules::{Import, Module, Tree};

/// Files and the references between them.
pub(super) struct Graph {
    pub(super) files: Vec<String>,
    pub(super) references: BTreeMap<Edge, Reference>,
}

/// From a file to another, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Names that one file uses of another.
pub(super) struct Reference {
    /// The first line that names it.
    pub(super) line: usize,
    pub(super) names: BTreeSet<String>,
}

/// Files that all reach each other: a strongly connected component of at least two.
pub(super) struct Component {
    pub(super) files: Vec<usize>,
    /// The edges between them.
    pub(super) edges: Vec<Edge>,
}

/// Target of a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Module(usize),
    /// An item, by the file that defines it.
    Item(usize),
}

impl Graph {
    /// Resolves all references of `tree`.
    pub(super) fn new(tree: &Tree) -> Graph {
        let mut graph = Graph {
            files: tree.files.clone(),
            references: BTreeMap::new(),
        };
        let resolver = Resolver {
            tree,
            known: RefCell::default(),
        };
        for (index, module) in tree.modules.iter().enumerate() {
            for import in &module.imports {
                graph.add_import(&resolver, index, import);
            }
            for path in &module.paths {
                let targets = resolver.resolve(index, &path.segments);
                graph.add(module.file, targets, path.line, &path.segments.join("::"));
            }
        }
        graph
    }

    fn add_import(&mut self, resolver: &Resolver<'_>, index: usize, import: &Import) {
        let module = &resolver.tree.modules[index];
        let targets = resolver.resolve(index, &import.path);
        if import.name != "*" {
            // A name that is only re-exported is used elsewhere.
            let is_used = module.identifiers.contains_key(&import.name);
            if !import.is_visible || is_used {
                self.add(module.file, targets, import.line, &import.path.join("::"));
            }
            return;
        }
        for target in targets {
            match target {
                // The variants of an enum.
                Target::Item(_) => self.add(
                    module.file,
                    vec![target],
                    import.line,
                    &import.path.join("::"),
                ),
                Target::Module(from) => {
                    for (name, &line) in &module.identifiers {
                        let targets = resolver.named(from, name);
                        self.add(module.file, targets, line, name);
                    }
                }
            }
        }
    }

    fn add(&mut self, from: usize, targets: Vec<Target>, line: usize, name: &str) {
        for target in targets {
            let Target::Item(to) = target else { continue };
            if to != from {
                let reference =
                    self.references
                        .entry(Edge { from, to })
                        .or_insert_with(|| Reference {
                            line,
                            names: BTreeSet::new(),
                        });
                reference.line = reference.line.min(line);
                reference.names.insert(name.to_owned());
            }
        }
    }

    /// The groups of files that use each other, the largest first.
    pub(super) fn components(&self) -> Vec<Component> {
        self.components_of(&self.references.keys().copied().collect::<Vec<_>>())
    }

    /// The size of the largest circle that stays of `component` if `edge` is cut.
    pub(super) fn largest_without(&self, component: &Component, edge: Edge) -> usize {
        let edges: Vec<Edge> = component
            .edges
            .iter()
            .copied()
            .filter(|other| *other != edge)
            .collect();
        self.components_of(&edges)
            .first()
            .map_or(1, |largest| largest.files.len())
    }

    fn components_of(&self, edges: &[Edge]) -> Vec<Component> {
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); self.files.len()];
        for edge in edges {
            next[edge.from].push(edge.to);
        }
        let reached: Vec<BTreeSet<usize>> =
            (0..next.len()).map(|file| reach(&next, file)).collect();
        let mut components = Vec::new();
        for file in 0..next.len() {
            let files: Vec<usize> = reached[file]
                .iter()
                .copied()
                .filter(|other| reached[*other].contains(&file))
                .collect();
            // Each circle is found at its first file.
            if files.len() > 1 && files[0] == file {
                let edges = edges
                    .iter()
                    .copied()
                    .filter(|edge: &Edge| files.contains(&edge.from) && files.contains(&edge.to))
                    .collect();
                components.push(Component { files, edges });
            }
        }
        components.sort_by_key(|component| std::cmp::Reverse(component.files.len()));
        components
    }
}

/// The files that `start` reaches by one edge or more.
fn reach(next: &[Vec<usize>], start: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        for &to in &next[file] {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}

struct Resolver<'a> {
    tree: &'a Tree,
    /// Earlier results of [`Resolver::named`], by module and name.
    known: RefCell<HashMap<(usize, String), Vec<Target>>>,
}

impl<'a> Resolver<'a> {
    /// Resolves `path` in a module: to a module, an item, both (their names are separate), or nothing
    /// of this crate.
    fn resolve(&self, module: usize, path: &[String]) -> Vec<Target> {
        let mut targets = Vec::new();
        let mut is_start = true;
        for segment in path {
            let is_relative = ["crate", "self", "super"].contains(&segment.as_str());
            targets = if !is_start {
                self.descend(&targets, segment)
            } else if is_relative {
                self.relative(module, segment)
            } else {
                self.named(module, segment)
            };
            is_start = false;
        }
        targets
    }

    fn relative(&self, module: usize, word: &str) -> Vec<Target> {
        let target = match word {
            "crate" => Some(0),
            "self" => Some(module),
            _ => self.module(module).parent,
        };
        target.map(Target::Module).into_iter().collect()
    }

    fn descend(&self, targets: &[Target], segment: &str) -> Vec<Target> {
        let modules: Vec<usize> = targets
            .iter()
            .filter_map(|target| match target {
                Target::Module(module) => Some(*module),
                Target::Item(_) => None,
            })
            .collect();
        if modules.is_empty() {
            // A variant or an associated item is where its type is.
            return targets.to_vec();
        }
        let mut found = Vec::new();
        for module in modules {
            if segment == "super" {
                found.extend(self.relative(module, segment));
                continue;
            }
            let named = self.named(module, segment);
            // A macro between the module's items must have made it.
            let is_made = named.is_empty() && self.module(module).has_item_macros;
            found.extend(named);
            found.extend(is_made.then_some(Target::Item(self.module(module).file)));
        }
        found
    }

    /// Resolves `name` in a module: to an item, a child, or the target of an import.
    fn named(&self, index: usize, name: &str) -> Vec<Target> {
        let key = (index, name.to_owned());
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        // Imports may be circular: asked again on the way, the name means nothing.
        self.known.borrow_mut().insert(key.clone(), Vec::new());
        let found = self.find_named(index, name);
        self.known.borrow_mut().insert(key, found.clone());
        found
    }

    fn find_named(&self, index: usize, name: &str) -> Vec<Target> {
        let module = self.module(index);
        let mut found = Vec::new();
        if module.items.contains_key(name) {
            found.push(Target::Item(module.file));
        }
        if let Some(child) = module.children.get(name) {
            found.push(Target::Module(*child));
        }
        for import in module.imports.iter().filter(|import| import.name == name) {
            // `use name::name`: asking this module for `name` again would not end.
            if import.path.first().is_some_and(|first| first == name) {
                let child = module
                    .children
                    .get(name)
                    .map(|child| Target::Module(*child));
                let start: Vec<Target> = child.into_iter().collect();
                found.extend(self.descend_all(&start, &import.path[1..]));
            } else {
                found.extend(self.resolve(index, &import.path));
            }
        }
        if found.is_empty() {
            for import in module.imports.iter().filter(|import| import.name == "*") {
                for target in self.resolve(index, &import.path) {
                    if let Target::Module(from) = target
                        && from != index
                    {
                        found.extend(self.named(from, name));
                    }
                }
            }
        }
        found.sort();
        found.dedup();
        found
    }

    fn descend_all(&self, start: &[Target], path: &[String]) -> Vec<Target> {
        path.iter().fold(start.to_vec(), |targets, segment| {
            self.descend(&targets, segment)
        })
    }

    fn module(&self, index: usize) -> &'a Module {
        &self.tree.modules[index]
    }
}
