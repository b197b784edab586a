//! Which file of the crate uses which, and where that goes in a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::scan::{Path, Scan};

type Module = Vec<String>;

/// Where a path leads.
enum Target {
    Module(Module),
    /// What a file defines.
    Item(String),
}

/// The files, by module, and the names that `use` gives in them.
struct Files<'a> {
    modules: BTreeMap<&'a [String], &'a str>,
    aliases: BTreeMap<(&'a [String], &'a str), &'a Path>,
}

/// An arrow from a file to one that it uses.
pub(crate) type Arrow = (String, String);

/// Every use of a file by another. What a file only hands on (`pub use`) is used by whoever names it there, not by the file.
pub(crate) fn arrows(sources: &[(&str, &Scan)]) -> BTreeSet<Arrow> {
    let mut files = Files { modules: BTreeMap::new(), aliases: BTreeMap::new() };
    for (name, scan) in sources {
        files.modules.insert(&scan.module, name);
        for path in &scan.paths {
            if let Some((alias, _)) = &path.alias {
                files.aliases.insert((&path.here, alias), path);
            }
        }
    }
    let mut found = BTreeSet::new();
    for (name, scan) in sources {
        for path in &scan.paths {
            let is_handed_on = |(alias, is_public): &(String, bool)| *is_public && !scan.used.contains(alias);
            if path.alias.as_ref().is_some_and(is_handed_on) {
                continue;
            }
            if let Some(file) = files.used_by(path).filter(|file| file != name) {
                found.insert(((*name).to_owned(), file));
            }
        }
    }
    found
}

impl Files<'_> {
    /// The file that defines what a path names.
    fn used_by(&self, path: &Path) -> Option<String> {
        match self.resolve(path, 0)? {
            Target::Item(file) => Some(file),
            // A function may have the name of its module.
            Target::Module(module) => {
                let (name, parent) = module.split_last()?;
                let path = self.aliases.get(&(parent, name.as_str()))?;
                match self.resolve(path, 0)? {
                    Target::Item(file) => Some(file),
                    Target::Module(_) => None,
                }
            }
        }
    }

    fn resolve(&self, path: &Path, depth: usize) -> Option<Target> {
        let mut module = if path.is_relative { path.here.clone() } else { Module::new() };
        let known = |module: &[String], name: &String| {
            let inside: Module = module.iter().chain([name]).cloned().collect();
            self.modules.contains_key(inside.as_slice()) || self.aliases.contains_key(&(module, name.as_str()))
        };
        // Another crate's, or a name of the file's own.
        if path.is_relative && !path.segments.first().is_some_and(|first| known(&module, first)) {
            return None;
        }
        for name in &path.segments {
            let inside: Module = module.iter().chain([name]).cloned().collect();
            if self.modules.contains_key(inside.as_slice()) {
                module = inside;
            } else if let Some(alias) = self.aliases.get(&(module.as_slice(), name.as_str())).filter(|_| depth < 16) {
                if std::ptr::eq(*alias, path) {
                    return None;
                }
                match self.resolve(alias, depth + 1)? {
                    Target::Module(target) => module = target,
                    item @ Target::Item(_) => return Some(item),
                }
            } else {
                return Some(Target::Item(self.file_of(&module)));
            }
        }
        Some(Target::Module(module))
    }

    /// The file that a module is in, which an inline module shares with others.
    fn file_of(&self, module: &[String]) -> String {
        let file = (0..=module.len()).rev().find_map(|length| self.modules.get(&module[..length]));
        file.map_or("lib.rs", |file| *file).to_owned()
    }
}

/// The files that a file uses, by arrows, and that those use.
pub(crate) fn reached<'a>(arrows: &'a BTreeSet<Arrow>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next = vec![from.to_owned()];
    while let Some(file) = next.pop() {
        // Sorted: those of a file stand together.
        let own = arrows.range((file.clone(), String::new())..).take_while(|(of, _)| *of == file);
        next.extend(own.filter(|(_, to)| found.insert(to.as_str())).map(|(_, to)| to.clone()));
    }
    found
}

/// Sets of files, each of which leads to every other of its set.
pub(crate) fn circles(arrows: &BTreeSet<Arrow>) -> Vec<BTreeSet<&str>> {
    let starts: BTreeSet<&str> = arrows.iter().map(|(from, _)| from.as_str()).collect();
    let reach: BTreeMap<&str, BTreeSet<&str>> = starts.iter().map(|file| (*file, reached(arrows, file))).collect();
    let leads = |from: &str, to: &str| reach.get(from).is_some_and(|files| files.contains(to));
    let mut found: Vec<BTreeSet<&str>> = Vec::new();
    for file in starts.iter().filter(|file| leads(file, file)) {
        if !found.iter().any(|circle| circle.contains(file)) {
            found.push(starts.iter().filter(|other| leads(file, other) && leads(other, file)).copied().collect());
        }
    }
    found
}
