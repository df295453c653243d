//! The module tree of a crate, read from tokens: what each module defines, imports and mentions.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::tidy::tokens;

/// All modules of a crate; the first is its root.
pub(super) struct Tree {
    pub(super) modules: Vec<Module>,
    /// Paths from the workspace's root.
    pub(super) files: Vec<String>,
}

/// One module, in a file of its own or inline.
#[derive(Default)]
pub(super) struct Module {
    pub(super) parent: Option<usize>,
    /// Index into [`Tree::files`].
    pub(super) file: usize,
    pub(super) children: BTreeMap<String, usize>,
    /// Names of its items.
    pub(super) items: BTreeMap<String, usize>,
    pub(super) imports: Vec<Import>,
    /// Paths of two or more segments outside `use`.
    pub(super) paths: Vec<PathReference>,
    /// Single identifiers outside `use`, each with its first line.
    pub(super) identifiers: BTreeMap<String, usize>,
    /// A macro is called between its items: it may define others.
    pub(super) has_item_macros: bool,
}

/// One leaf of a `use` tree.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// The name it binds; `*` imports all.
    pub(super) name: String,
    /// `pub`, or visible in a part of the crate.
    pub(super) is_visible: bool,
    pub(super) line: usize,
}

/// A path in code, such as `store::Tables::open`.
pub(super) struct PathReference {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
}

/// Keywords that the name of an item follows.
const ITEM_KEYWORDS: [&str; 8] = [
    "struct", "enum", "union", "fn", "trait", "type", "const", "static",
];
/// Keywords between [`ITEM_KEYWORDS`] and the name.
const MODIFIERS: [&str; 5] = ["mut", "fn", "unsafe", "extern", "async"];
/// Words that an item starts with, as opposed to a field, a variant or a match arm.
const ITEM_STARTS: [&str; 9] = [
    "mod",
    "use",
    "impl",
    "let",
    "pub",
    "macro_rules",
    "unsafe",
    "async",
    "extern",
];

/// Reads the crate whose root file is `source`; `load` returns the text of a file, if it exists.
///
/// # Errors
/// If a file is not Rust.
pub(super) fn read(source: &str, load: impl Fn(&str) -> Option<String>) -> Result<Tree> {
    let mut reader = Reader {
        tree: Tree {
            modules: Vec::new(),
            files: Vec::new(),
        },
        load: &load,
    };
    let folder = source.rsplit_once('/').map_or("", |(folder, _)| folder);
    reader.read_file(source, folder, None)?;
    Ok(reader.tree)
}

struct Reader<'a> {
    tree: Tree,
    load: &'a dyn Fn(&str) -> Option<String>,
}

/// Where a group of tokens stands.
#[derive(Clone, Copy)]
struct Scope<'a> {
    module: usize,
    /// The folder of the module's children.
    folder: &'a str,
    /// Whether items here are the module's, not a function's.
    has_items: bool,
}

impl Reader<'_> {
    /// Adds the module in the file at `path`, whose children's files are in `folder`.
    fn read_file(
        &mut self,
        path: &str,
        folder: &str,
        parent: Option<usize>,
    ) -> Result<Option<usize>> {
        let Some(text) = (self.load)(path) else {
            return Ok(None);
        };
        let stream: TokenStream = text.parse().map_err(|error| anyhow!("{path}: {error}"))?;
        let file = self.tree.files.len();
        self.tree.files.push(path.to_owned());
        let module = self.add_module(file, parent);
        self.walk(
            stream,
            Scope {
                module,
                folder,
                has_items: true,
            },
        )?;
        Ok(Some(module))
    }

    fn add_module(&mut self, file: usize, parent: Option<usize>) -> usize {
        self.tree.modules.push(Module {
            file,
            parent,
            ..Module::default()
        });
        self.tree.modules.len() - 1
    }

    fn walk(&mut self, stream: TokenStream, scope: Scope<'_>) -> Result<()> {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < trees.len() {
            at = self.step(&trees, at, scope)?;
        }
        Ok(())
    }

    /// Reads what starts at `at`; returns where the next thing starts.
    fn step(&mut self, trees: &[TokenTree], at: usize, scope: Scope<'_>) -> Result<usize> {
        match &trees[at] {
            TokenTree::Punct(mark) if mark.as_char() == '#' => Ok(after_attribute(trees, at)),
            TokenTree::Group(group) => {
                self.walk(
                    group.stream(),
                    Scope {
                        has_items: false,
                        ..scope
                    },
                )?;
                Ok(at + 1)
            }
            TokenTree::Ident(_) => self.word(trees, at, scope),
            _ => Ok(at + 1),
        }
    }

    fn word(&mut self, trees: &[TokenTree], at: usize, scope: Scope<'_>) -> Result<usize> {
        let word = ident(trees.get(at)).unwrap_or_default();
        let line = trees[at].span().start().line;
        match word.as_str() {
            "pub" => {
                return Ok(at
                    + 1
                    + usize::from(group(trees.get(at + 1), Delimiter::Parenthesis).is_some()));
            }
            "use" => return Ok(self.import(trees, at, scope.module)),
            "mod" if scope.has_items => return self.module(trees, at, scope),
            "macro_rules" => return Ok(self.macro_rules(trees, at, scope)),
            _ => {}
        }
        if scope.has_items && ITEM_KEYWORDS.contains(&word.as_str()) {
            let mut name_at = at + 1;
            while ident(trees.get(name_at)).is_some_and(|word| MODIFIERS.contains(&word.as_str())) {
                name_at += 1;
            }
            if let Some(name) = ident(trees.get(name_at)) {
                self.tree.modules[scope.module].items.insert(name, line);
                return Ok(name_at + 1);
            }
        }
        // A macro between items, such as `thread_local!`, may define items itself.
        if scope.has_items
            && is_mark(trees.get(at + 1), '!')
            && group(trees.get(at + 2), Delimiter::Brace).is_some()
        {
            self.tree.modules[scope.module].has_item_macros = true;
            self.mention(vec![word], line, scope.module);
            let inner = group(trees.get(at + 2), Delimiter::Brace).expect("it was just seen");
            self.walk(inner.stream(), scope)?;
            return Ok(at + 3);
        }
        let mut segments = vec![word];
        let mut next = at + 1;
        while is_path_separator(trees, next)
            && let Some(segment) = ident(trees.get(next + 2))
        {
            segments.push(segment);
            next += 3;
        }
        // Fields, methods and the rest of a path behind a generic argument belong to what is before them.
        let continues = at > 0
            && (is_mark(trees.get(at - 1), '.')
                || is_mark(trees.get(at - 1), ':') && at > 1 && is_path_separator(trees, at - 2));
        if !continues {
            self.mention(segments, line, scope.module);
        }
        Ok(next)
    }

    fn mention(&mut self, segments: Vec<String>, line: usize, module: usize) {
        let module = &mut self.tree.modules[module];
        module
            .identifiers
            .entry(segments[0].clone())
            .or_insert(line);
        if segments.len() > 1 {
            module.paths.push(PathReference { segments, line });
        }
    }

    fn import(&mut self, trees: &[TokenTree], at: usize, module: usize) -> usize {
        let end = (at..trees.len())
            .find(|&index| is_mark(trees.get(index), ';'))
            .unwrap_or(trees.len());
        let mut imports = Vec::new();
        read_use(&trees[at + 1..end], &mut Vec::new(), &mut imports);
        let is_visible = at > 0
            && (ident(trees.get(at - 1)).is_some_and(|word| word == "pub")
                || group(trees.get(at - 1), Delimiter::Parenthesis).is_some());
        let line = trees[at].span().start().line;
        let imports = imports.into_iter().map(|(path, name)| Import {
            path,
            name,
            is_visible,
            line,
        });
        self.tree.modules[module].imports.extend(imports);
        end + 1
    }

    /// `mod name;` or `mod name { … }`.
    fn module(&mut self, trees: &[TokenTree], at: usize, scope: Scope<'_>) -> Result<usize> {
        let Some(name) = ident(trees.get(at + 1)) else {
            return Ok(at + 1);
        };
        let folder = if scope.folder.is_empty() {
            name.clone()
        } else {
            format!("{}/{name}", scope.folder)
        };
        let child = if let Some(body) = group(trees.get(at + 2), Delimiter::Brace) {
            let child = self.add_module(self.tree.modules[scope.module].file, Some(scope.module));
            self.walk(
                body.stream(),
                Scope {
                    module: child,
                    folder: &folder,
                    has_items: true,
                },
            )?;
            Some(child)
        } else {
            let parent = Some(scope.module);
            match self.read_file(&format!("{folder}.rs"), &folder, parent)? {
                Some(child) => Some(child),
                None => self.read_file(&format!("{folder}/mod.rs"), &folder, parent)?,
            }
        };
        if let Some(child) = child {
            self.tree.modules[scope.module].children.insert(name, child);
        }
        Ok(at + 3)
    }

    fn macro_rules(&mut self, trees: &[TokenTree], at: usize, scope: Scope<'_>) -> usize {
        if let Some(name) = ident(trees.get(at + 2)) {
            let line = trees[at].span().start().line;
            self.tree.modules[scope.module].items.insert(name, line);
        }
        at + 3
    }
}

/// Reads the tree of a `use`: each leaf is its whole path and the name that it binds.
fn read_use(
    trees: &[TokenTree],
    prefix: &mut Vec<String>,
    leaves: &mut Vec<(Vec<String>, String)>,
) {
    for branch in trees.split(|tree| is_mark(Some(tree), ',')) {
        let depth = prefix.len();
        let mut name = None;
        let mut index = 0;
        let mut is_leaf = !branch.is_empty();
        while index < branch.len() {
            if let Some(inner) = group(branch.get(index), Delimiter::Brace) {
                let inner: Vec<TokenTree> = inner.stream().into_iter().collect();
                read_use(&inner, prefix, leaves);
                is_leaf = false;
            } else if is_mark(branch.get(index), '*') {
                name = Some("*".to_owned());
            } else if let Some(word) = ident(branch.get(index)) {
                match word.as_str() {
                    "as" => {
                        name = ident(branch.get(index + 1));
                        index += 1;
                    }
                    // `use a::{self}` binds `a`.
                    "self" if !prefix.is_empty() => {}
                    _ => prefix.push(word),
                }
            }
            index += 1;
        }
        if is_leaf {
            let name = name.or_else(|| prefix.last().cloned()).unwrap_or_default();
            leaves.push((prefix.clone(), name));
        }
        prefix.truncate(depth);
    }
}

/// Behind an attribute, and behind the item it stands at if only tests are built with that.
fn after_attribute(trees: &[TokenTree], at: usize) -> usize {
    let inner = usize::from(is_mark(trees.get(at + 1), '!'));
    let Some(attribute) = group(trees.get(at + 1 + inner), Delimiter::Bracket) else {
        return at + 1;
    };
    let next = at + 2 + inner;
    if !tokens::marks_test(attribute) {
        return next;
    }
    // `#![cfg(test)]` leaves out all that follows.
    if inner == 1 {
        trees.len()
    } else {
        after_item(trees, next)
    }
}

/// Behind the item, field or arm that starts at `at`.
fn after_item(trees: &[TokenTree], at: usize) -> usize {
    let mut start = at;
    // Further attributes.
    while is_mark(trees.get(start), '#') {
        start += 2;
    }
    let starts_item = ident(trees.get(start)).is_some_and(|word| {
        ITEM_STARTS.contains(&word.as_str()) || ITEM_KEYWORDS.contains(&word.as_str())
    });
    let ends = |tree: &TokenTree| {
        is_mark(Some(tree), ';')
            || (!starts_item && is_mark(Some(tree), ','))
            || group(Some(tree), Delimiter::Brace).is_some()
    };
    let end = trees
        .get(start..)
        .and_then(|rest| rest.iter().position(ends));
    end.map_or(trees.len(), |length| start + length + 1)
}

fn ident(tree: Option<&TokenTree>) -> Option<String> {
    match tree {
        Some(TokenTree::Ident(word)) => Some(word.to_string().trim_start_matches("r#").to_owned()),
        _ => None,
    }
}

fn group(tree: Option<&TokenTree>, delimiter: Delimiter) -> Option<&Group> {
    match tree {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

fn is_mark(tree: Option<&TokenTree>, mark: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

/// Whether `::` stands at `at`.
fn is_path_separator(trees: &[TokenTree], at: usize) -> bool {
    is_mark(trees.get(at), ':') && is_mark(trees.get(at + 1), ':')
}
