//! The public Rust interface: each name of it is in public.txt, and what may grow is no promise to be exhaustive.
//!
//! Rustdoc's JSON would tell more, but needs a nightly toolchain. This reads source text as rustfmt lays it out, and resolves
//! `pub use`; the lint `unreachable_pub` sees to it that `pub` means public. What is `#[doc(hidden)]` is for tests alone.

use std::collections::{BTreeMap, BTreeSet};

use super::sources;

const LIST: &str = include_str!("public.txt");

/// Types that will not grow: a `match` on them, or a literal of them, stays whole.
const CLOSED: &[(&str, &str)] = &[
    ("CopyMode", "a copy is forbidden, allowed or asked for"),
    ("MemoryOrder", "NumPy's C, F and A"),
    ("PerColumn", "one value for all columns, or one for each"),
    ("Side", "a row has two ends"),
];

/// Types that a macro makes, with their module.
const OF_MACROS: &[(&str, &str)] = &[("dtype", "DType")];

/// An item at the top of a file.
struct Item<'a> {
    kind: &'a str,
    name: &'a str,
    attributes: Vec<&'a str>,
    /// The lines of its body, of which the first one is its head.
    lines: Vec<&'a str>,
}

impl Item<'_> {
    fn is_hidden(&self) -> bool {
        self.attributes.contains(&"#[doc(hidden)]")
    }

    /// The paths that a `use` names, public or not.
    fn paths(&self) -> Vec<String> {
        let text = self.lines.concat();
        let tree = text.split_once("use ").filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
        tree.map_or_else(Vec::new, |(_, tree)| paths(tree.trim_end().trim_end_matches(';')))
    }

    /// The type that an `impl` without a trait is of.
    fn implements(&self) -> Option<&str> {
        let head = self.lines[0].strip_prefix("impl")?.split(" where ").next()?.trim_end_matches(" {");
        let of = head.strip_prefix('<').map_or(head, |head| head.split_once("> ").map_or(head, |(_, of)| of));
        (!head.contains(" for ")).then(|| of.trim().split('<').next().unwrap_or_default())
    }
}

/// The words of a declaration behind `pub`, without what stands before its kind.
fn kind_and_name(line: &str) -> Option<(&str, &str)> {
    let mut words = line.strip_prefix("pub ")?.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let is_before = matches!(word, "unsafe" | "extern" | "\"C\"") || word == "const" && words.peek() == Some(&"fn");
        if !is_before {
            let end = |name: &str| name.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
            return words.next().map(|name| (word, &name[..end(name).unwrap_or(name.len())]));
        }
    }
    None
}

/// The items of a file, or of a block that is indented by `indent`.
fn items<'a>(lines: impl Iterator<Item = &'a str>, indent: &str) -> Vec<Item<'a>> {
    let (mut items, mut attributes): (Vec<Item<'a>>, Vec<&'a str>) = (Vec::new(), Vec::new());
    for line in lines {
        let own = line.strip_prefix(indent).filter(|own| !own.starts_with([' ', '}', ')']) && !own.is_empty());
        let Some(own) = own else {
            items.last_mut().into_iter().for_each(|item| item.lines.push(line));
            continue;
        };
        if own.starts_with("#[") {
            attributes.push(own);
        } else if !own.starts_with("//") {
            let (kind, name) = kind_and_name(own).unwrap_or_default();
            items.push(Item { kind, name, attributes: std::mem::take(&mut attributes), lines: vec![own] });
        }
    }
    items
}

/// The module that a file is.
fn module_of(file: &str) -> String {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if path == "lib" { String::new() } else { path.replace('/', "::") }
}

/// A path in a module.
fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

/// The paths of a tree of `use`, without its keyword.
fn paths(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let rest = rest.trim_end().strip_suffix('}').expect("the braces of a use list are closed");
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (place, letter) in rest.char_indices().chain([(rest.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = &rest[start..place];
                found.extend(
                    paths(part)
                        .into_iter()
                        .filter(|path| !path.is_empty())
                        .map(|path| format!("{}{path}", head.trim())),
                );
                start = place + 1;
            }
            _ => {}
        }
    }
    found
}

/// The module that a path of a `use` starts from, as a path from the root.
fn resolve(module: &str, path: &str) -> String {
    if let Some(path) = path.strip_prefix("crate::") {
        return path.to_owned();
    }
    match path.strip_prefix("super::") {
        Some(path) => resolve(module.rsplit_once("::").map_or("", |(above, _)| above), path),
        None => join(module, path.strip_prefix("self::").unwrap_or(path)),
    }
}

/// The items of each module.
type Modules<'a> = BTreeMap<String, Vec<Item<'a>>>;

/// The public names that are found, and what is wrong with the items.
struct Found<'a> {
    modules: &'a Modules<'a>,
    names: BTreeSet<String>,
    faults: Vec<String>,
}

impl Found<'_> {
    /// Collects the public names of a module.
    fn module(&mut self, module: &str) {
        let modules = self.modules;
        for (_, name) in OF_MACROS.iter().filter(|(of, _)| *of == module) {
            self.made(module, name, module);
        }
        for item in modules[module].iter().filter(|item| !item.is_hidden()) {
            match item.kind {
                "" => {}
                "mod" => {
                    let inner = join(module, item.name);
                    self.names.insert(inner.clone());
                    self.module(&inner);
                }
                "use" => {
                    for path in item.paths() {
                        match path.rsplit_once("::") {
                            Some((from, name)) => self.handed_on(&resolve(module, from), name, module),
                            // A crate.
                            None => self.names.extend([join(module, &path)]),
                        }
                    }
                }
                _ => self.item(module, item, module),
            }
        }
    }

    /// Collects an item of a module that another one hands on.
    fn handed_on(&mut self, module: &str, name: &str, shown: &str) {
        let modules = self.modules;
        let items = modules.get(module).unwrap_or_else(|| unreachable!("no file is the module {module:?}"));
        if let Some(item) = items.iter().find(|item| item.name == name && !matches!(item.kind, "mod" | "use")) {
            return self.item(module, item, shown);
        }
        if OF_MACROS.contains(&(module, name)) {
            return self.made(module, name, shown);
        }
        let path = items.iter().flat_map(Item::paths).find(|path| path.rsplit("::").next() == Some(name));
        let path = path.unwrap_or_else(|| unreachable!("{module} has no {name}"));
        let (from, _) = path.rsplit_once("::").expect("a path out of the module");
        self.handed_on(&resolve(module, from), name, shown);
    }

    /// Collects a type that a macro makes.
    fn made(&mut self, module: &str, own: &str, shown: &str) {
        let name = join(shown, own);
        self.methods(module, own, &name);
        self.names.insert(name);
    }

    fn item(&mut self, module: &str, item: &Item<'_>, shown: &str) {
        let name = join(shown, item.name);
        if matches!(item.kind, "struct" | "enum") {
            let fields = item.lines.iter().filter_map(|line| line.strip_prefix("    pub ")?.split_once(':'));
            let fields: Vec<String> = fields.map(|(field, _)| format!("{name}.{field}")).collect();
            let may_grow = item.kind == "enum" || !fields.is_empty();
            let is_open = item.attributes.contains(&"#[non_exhaustive]");
            // The structs of the protocols are what their headers say.
            let is_closed = shown.starts_with("ffi") || CLOSED.iter().any(|(closed, _)| *closed == name);
            if may_grow && is_open == is_closed {
                self.faults.push(format!("{name} is to be #[non_exhaustive], or in CLOSED with the reason"));
            }
            if !shown.starts_with("ffi") {
                self.names.extend(fields);
            }
            self.methods(module, item.name, &name);
        }
        self.names.insert(name);
    }

    /// Collects the public methods and constants of a type, from the files of its room and of those that import it.
    fn methods(&mut self, module: &str, own: &str, name: &str) {
        // Classes of Python have the names of types of the core, and one file each.
        let is_class = |file: &str| file.split("::").next() == Some("python");
        let of_class = is_class(module);
        for (_, items) in
            self.modules.iter().filter(|(file, _)| if of_class { *file == module } else { !is_class(file) })
        {
            for block in items.iter().filter(|item| item.implements() == Some(own)) {
                let methods = self::items(block.lines[1..].iter().copied(), "    ");
                let public = methods.iter().filter(|item| matches!(item.kind, "fn" | "const") && !item.is_hidden());
                self.names.extend(public.map(|item| format!("{name}::{}", item.name)));
                self.names.extend(setters(&block.lines).map(|field| format!("{name}::{field}")));
            }
        }
    }
}

/// The public rows `pub field: Argument;` of a block's `setters!`, each of which is a method.
fn setters<'a>(block: &[&'a str]) -> impl Iterator<Item = &'a str> {
    let rows = block.iter().skip_while(|line| !line.starts_with("    setters! {")).take_while(|line| **line != "    }");
    rows.filter_map(|line| line.strip_prefix("        pub ")?.split_once(':')).map(|(field, _)| field)
}

/// The public names of a crate, given as (file, text), and what is wrong with its items.
fn found(files: &[(String, String)]) -> (BTreeSet<String>, Vec<String>) {
    let files = files.iter().filter(|(file, _)| file.ends_with(".rs"));
    let modules: Modules<'_> = files.map(|(file, text)| (module_of(file), items(text.lines(), ""))).collect();
    let mut found = Found { modules: &modules, names: BTreeSet::new(), faults: Vec::new() };
    found.module("");
    (found.names, found.faults)
}

#[test]
fn the_public_interface_is_listed() {
    let (names, mut faults) = found(&sources("src"));
    let listed: BTreeSet<String> = LIST.lines().map(str::to_owned).collect();
    faults.extend(names.difference(&listed).map(|name| format!("+ {name}")));
    faults.extend(listed.difference(&names).map(|name| format!("- {name}")));
    let expected = "tests/rooms/public.txt has what a user needs, and no more";
    assert!(faults.is_empty(), "\n  {}\n{expected}\n", faults.join("\n  "));
}

#[cfg(test)]
mod tests {
    use super::found;

    fn of(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let files: Vec<_> = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let (names, faults) = found(&files);
        (names.into_iter().collect(), faults)
    }

    #[test]
    fn public_names_are_found_wherever_they_come_from() {
        let root =
            "mod a;\npub mod b;\npub use a::{A, deep::{f, G}};\npub(crate) use a::hidden;\npub use {one, other};\n";
        let a = "mod deep;\npub use deep::A;\npub(crate) fn hidden() {}\n";
        let deep = "#[non_exhaustive]\npub struct A {\n    pub x: u8,\n    y: u8,\n}\n\nimpl<T> A<T> {\n    pub const fn g() {\n        \
                    let pub_ = 1;\n    }\n\n    fn own() {}\n\n    #[doc(hidden)]\n    pub fn of_tests() {}\n\n    setters! { A:\n        /// x\n        pub s: u8;\n        pub(crate) t: u8;\n    }\n}\n\nimpl B for A {\n    \
                    fn of_trait() {}\n}\n\npub unsafe extern \"C\" fn f() {}\n\npub trait G {}\n";
        let b = "#[doc(hidden)]\npub fn of_tests() {}\n\npub(crate) struct Own;\npub const C: u8 = 0;\npub use super::a::A;\n";
        let (names, faults) = of(&[("lib.rs", root), ("a.rs", a), ("a/deep.rs", deep), ("b/mod.rs", b)]);
        let own =
            ["A", "A.x", "A::g", "A::s", "G", "b", "b::A", "b::A.x", "b::A::g", "b::A::s", "b::C", "f", "one", "other"];
        assert_eq!((names, faults), (own.map(str::to_owned).to_vec(), Vec::new()));
    }

    #[test]
    fn what_may_grow_is_not_exhaustive() {
        for (text, expected) in [
            ("pub struct A {\n    pub x: u8,\n}\n", 1),
            ("#[non_exhaustive]\npub struct A {\n    pub x: u8,\n}\n", 0),
            ("pub struct A {\n    x: u8,\n}\n", 0),
            ("pub enum A {\n    X,\n}\n", 1),
            ("#[derive(Debug)]\n#[non_exhaustive]\npub enum A {\n    X,\n}\n", 0),
            ("pub enum CopyMode {\n    X,\n}\n", 0),
            ("#[non_exhaustive]\npub enum CopyMode {\n    X,\n}\n", 1),
        ] {
            assert_eq!(of(&[("lib.rs", text)]).1.len(), expected, "{text}");
        }
    }
}
