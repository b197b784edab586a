//! What a source file imports and names, from its text.

use std::collections::HashSet;

#[derive(Debug)]
struct Token {
    line: usize,
    text: String,
}

/// Identifiers and punctuation; comments, strings, characters and lifetimes leave nothing behind.
fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut found = Vec::new();
    let (mut i, mut line) = (0, 1);
    while i < chars.len() {
        let (start, first_line) = (i, line);
        let c = at(i);
        if c == '/' && at(i + 1) == '/' {
            while i < chars.len() && at(i) != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            let mut depth = 0;
            loop {
                match (at(i), at(i + 1)) {
                    ('/', '*') => (depth, i) = (depth + 1, i + 2),
                    ('*', '/') => (depth, i) = (depth - 1, i + 2),
                    _ => i += 1,
                }
                if depth == 0 || i >= chars.len() {
                    break;
                }
            }
        } else if c == '"' {
            i = string_end(&chars, i);
        } else if c == '\'' {
            // 'x' and '\n' are characters; 'name without a closing quote is a lifetime or a label.
            if at(i + 1) == '\\' {
                i += 3;
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
            } else if at(i + 2) == '\'' {
                i += 3;
            } else {
                i += 1;
                while is_word(at(i)) {
                    i += 1;
                }
            }
        } else if is_word(c) {
            while is_word(at(i)) {
                i += 1;
            }
            let word: String = chars[start..i].iter().collect();
            let hashes = (i..chars.len()).take_while(|&k| at(k) == '#').count();
            match word.as_str() {
                "r" | "br" | "cr" if at(i + hashes) == '"' => i = raw_string_end(&chars, i, hashes),
                "b" | "c" if at(i) == '"' => i = string_end(&chars, i),
                _ => found.push(Token { line, text: word }),
            }
        } else if c == ':' && at(i + 1) == ':' {
            i += 2;
            found.push(Token { line, text: "::".to_owned() });
        } else {
            i += 1;
            if !c.is_whitespace() {
                found.push(Token { line, text: c.to_string() });
            }
        }
        line = first_line + chars[start..i.min(chars.len())].iter().filter(|&&c| c == '\n').count();
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn string_end(chars: &[char], open: usize) -> usize {
    let mut i = open + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

fn raw_string_end(chars: &[char], after_prefix: usize, hashes: usize) -> usize {
    let mut i = after_prefix + hashes + 1;
    while i < chars.len() && !(chars[i] == '"' && (1..=hashes).all(|k| chars.get(i + k) == Some(&'#'))) {
        i += 1;
    }
    i + 1 + hashes
}

/// What one file imports and names.
#[derive(Default)]
pub(crate) struct Scan {
    /// Where the file stands in the crate.
    pub(crate) module: Vec<String>,
    /// Every path outside test modules.
    pub(crate) paths: Vec<Path>,
    /// The identifiers outside test modules and `use` declarations.
    pub(crate) used: HashSet<String>,
    /// Line, identifier, and whether it stands in a test module.
    pub(crate) words: Vec<(usize, String, bool)>,
    /// Line and name of what would make source text and modules differ.
    pub(crate) tricks: Vec<(usize, &'static str)>,
    /// Modules in files of their own that are test code.
    pub(crate) test_modules: Vec<String>,
    /// Lines of `vec![value; length]`, whose length no constant is, outside test modules.
    pub(crate) filled: Vec<usize>,
    /// The functions with a body that C calls, outside test modules.
    pub(crate) callbacks: Vec<Callback>,
    /// The types that are declared outside test modules, without associated types.
    pub(crate) types: Vec<Type>,
}

/// A struct, enum, union, trait or type alias.
pub(crate) struct Type {
    pub(crate) line: usize,
    pub(crate) name: String,
    /// Whether it is a class of Python.
    pub(crate) is_class: bool,
}

/// A path in the text, such as `super::view::Leaf`.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) line: usize,
    /// Where it leads from the crate's root; where `is_relative`, from the module `here`, if that knows its first name.
    pub(crate) segments: Vec<String>,
    pub(crate) is_relative: bool,
    /// The module in which it stands.
    pub(crate) here: Vec<String>,
    /// The name that a `use` gives it there, and whether others may use that name.
    pub(crate) alias: Option<(String, bool)>,
}

impl Path {
    /// The room, or what else stands at the crate root, that it leads to; `None` for one that may lead to another crate.
    pub(crate) fn room(&self) -> Option<&str> {
        (!self.is_relative).then(|| self.segments.first().map_or("{self}", String::as_str))
    }
}

/// An `extern "C"` function.
pub(crate) struct Callback {
    pub(crate) line: usize,
    pub(crate) name: String,
    /// What it calls: `module::function` or `function`.
    pub(crate) calls: Vec<String>,
}

impl Callback {
    /// The function whose `extern` is at `start`; `None` for a type, or a declaration.
    fn read(tokens: &[Token], start: usize) -> Option<Self> {
        let is = |i: usize, text: &str| word(tokens, i) == text;
        let name = word(tokens, start + 2);
        if !is(start + 1, "fn") || !name.starts_with(|c: char| is_word(c)) {
            return None;
        }
        let arguments = (start..tokens.len()).find(|i| is(*i, "("))?;
        let body = (closing(tokens, arguments)..tokens.len()).find(|i| is(*i, "{") || is(*i, ";"))?;
        if is(body, ";") {
            return None;
        }
        let called = |i: &usize| is(*i + 1, "(") && word(tokens, *i).chars().all(is_word);
        let calls = (body..closing(tokens, body)).filter(called).map(|i| match is(i - 1, "::") {
            true => format!("{}::{}", word(tokens, i - 2), word(tokens, i)),
            false => word(tokens, i).to_owned(),
        });
        Some(Self { line: tokens[start].line, name: name.to_owned(), calls: calls.collect() })
    }
}

/// Reads one file of the crate, which is that module.
pub(crate) fn scan(module: Vec<String>, text: &str) -> Scan {
    let tokens = tokens(text);
    let is = |i: usize, text: &str| word(&tokens, i) == text;
    let mut scan = Scan { module, ..Scan::default() };
    // Where this token stands in the crate, with the inline modules open around it and the depth of their braces.
    let mut here = scan.module.clone();
    let mut open: Vec<usize> = Vec::new();
    let mut depth = 0_usize;
    // The `mod` that a `cfg(test)` belongs to, and the depth of the test module that is open. Exempt, because a test
    // may build its input with any room, and is not shipped.
    let mut test_mod = None;
    let mut test_depth = None;
    // For each open brace, whether an `impl` or a trait is in it, where `type` declares an associated type.
    let mut associates = Vec::new();
    // The `struct` or `enum` that a `pyclass` belongs to.
    let mut class = None;
    // Paths up to here were read already, or are a visibility, which imports nothing.
    let mut read_to = 0;
    let mut used_from = 0;
    for (i, token) in tokens.iter().enumerate() {
        let mut found = Vec::new();
        match token.text.as_str() {
            "#" if is(i + 1, "[") => {
                let attribute = &tokens[i..closing(&tokens, i + 1)];
                if is_test_cfg(attribute) {
                    test_mod = item_keyword(&tokens, i);
                }
                if attribute.iter().any(|token| token.text == "pyclass") {
                    class = item_keyword(&tokens, i);
                }
                if attribute.windows(2).any(|pair| pair[0].text == "path" && pair[1].text == "=") {
                    scan.tricks.push((token.line, "#[path]"));
                }
            }
            "extern" if test_depth.is_none() => scan.callbacks.extend(Callback::read(&tokens, i)),
            "vec" | "smallvec" if is(i + 1, "!") && test_depth.is_none() => {
                let list = &tokens[i + 2..closing(&tokens, i + 2)];
                scan.filled.extend(is_filled(list).then_some(token.line));
            }
            "include" if is(i + 1, "!") => scan.tricks.push((token.line, "include!")),
            // `pub(crate)` or `pub(in …)`, not a public field of a tuple type.
            "pub" if is(i + 1, "(") && (is(i + 2, "in") || is(i + 3, ")")) => read_to = closing(&tokens, i + 1),
            "mod" if is(i + 2, ";") && test_mod == Some(i) => {
                let name = word(&tokens, i + 1).to_owned();
                scan.test_modules.push(here.iter().cloned().chain([name]).collect::<Vec<_>>().join("/"));
            }
            "mod" if is(i + 2, "{") => {
                here.push(word(&tokens, i + 1).to_owned());
                open.push(depth + 1);
                if test_mod == Some(i) && test_depth.is_none() {
                    test_depth = Some(depth + 1);
                }
            }
            "{" => {
                depth += 1;
                associates.push(is_associating(&tokens[..i]));
            }
            "}" => {
                associates.pop();
                if open.last() == Some(&depth) {
                    open.pop();
                    here.pop();
                }
                if test_depth == Some(depth) {
                    test_depth = None;
                }
                depth = depth.saturating_sub(1);
            }
            "struct" | "enum" | "union" | "trait" | "type"
                if test_depth.is_none()
                    && is_type_name(word(&tokens, i + 1))
                    && (token.text != "type" || associates.last() != Some(&true)) =>
            {
                let (name, is_class) = (word(&tokens, i + 1).to_owned(), class == Some(i));
                scan.types.push(Type { line: token.line, name, is_class });
            }
            // Not `use<'a>`, which captures.
            "use" if !is(i + 1, "<") => {
                let is_public = i > 0 && matches!(word(&tokens, i - 1), "pub" | ")");
                read_to = UseTree { tokens: &tokens, here: &here, is_public, found: &mut found }.read(i + 1, None);
                used_from = read_to;
            }
            first if i >= read_to && is(i + 1, "::") && first.chars().all(is_word) => {
                read_to = path(&tokens, i, &here, &mut found);
            }
            _ => {}
        }
        if test_depth.is_none() {
            scan.paths.extend(found);
        }
        if token.text.chars().all(is_word) {
            // Of `mod name;` and `value.name()` the name is no use of what has it here.
            let is_named = i > 0 && matches!(word(&tokens, i - 1), "mod" | ".");
            if test_depth.is_none() && i >= used_from && !is_named {
                scan.used.insert(token.text.clone());
            }
            scan.words.push((token.line, token.text.clone(), test_depth.is_some()));
        }
    }
    scan
}

fn word(tokens: &[Token], i: usize) -> &str {
    tokens.get(i).map_or("", |token| token.text.as_str())
}

fn is_type_name(word: &str) -> bool {
    word.starts_with(char::is_uppercase)
}

/// Whether the brace after these tokens opens an `impl` or a trait.
fn is_associating(before: &[Token]) -> bool {
    let item = before.iter().rposition(|token| matches!(token.text.as_str(), ";" | "{" | "}")).map_or(0, |end| end + 1);
    let kind =
        before[item..].iter().map(|token| token.text.as_str()).find(|word| matches!(*word, "fn" | "impl" | "trait"));
    matches!(kind, Some("impl" | "trait"))
}

/// The index behind the bracket that closes the one at `open`.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// Whether the list of a `vec!` repeats a value, and not as often as a number or a constant says.
fn is_filled(list: &[Token]) -> bool {
    let mut depth = 0_usize;
    let semicolon = list.iter().position(|token| {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 1 && token.text == ";"
    });
    let Some(semicolon) = semicolon else { return false };
    let is_constant = |token: &Token| !token.text.chars().any(char::is_lowercase);
    let length = list.get(semicolon + 1..list.len().saturating_sub(1)).unwrap_or(&[]);
    !length.iter().all(is_constant)
}

/// `cfg(test)` and `cfg(all(test, …))`: compiled for tests alone.
fn is_test_cfg(attribute: &[Token]) -> bool {
    let words: Vec<&str> = attribute.iter().map(|token| token.text.as_str()).collect();
    matches!(
        words.as_slice(),
        ["#", "[", "cfg", "(", "test", ")", "]"] | ["#", "[", "cfg", "(", "all", "(", "test", ",", ..]
    )
}

/// The keyword of the item that the attribute at `i` belongs to.
fn item_keyword(tokens: &[Token], mut i: usize) -> Option<usize> {
    loop {
        match word(tokens, i) {
            "#" => i = closing(tokens, i + 1),
            "pub" if word(tokens, i + 1) == "(" => i = closing(tokens, i + 1),
            "pub" => i += 1,
            _ => return (i < tokens.len()).then_some(i),
        }
    }
}

/// Takes one more segment of a path.
fn step(segments: &mut Vec<String>, segment: &str) {
    match segment {
        "crate" => segments.clear(),
        "super" => drop(segments.pop()),
        "self" => {}
        // The crate's own name, where a path begins with it.
        "arrow_dlpack" if segments.is_empty() => {}
        name => segments.push(name.to_owned()),
    }
}

/// Where a path that begins with this word begins, seen from module `here`, and whether that is relative to `here`.
fn origin(word: &str, here: &[String]) -> (Vec<String>, bool) {
    match word {
        "crate" | "arrow_dlpack" => (Vec::new(), false),
        "super" => (here[..here.len().saturating_sub(1)].to_vec(), false),
        "self" => (here.to_vec(), false),
        name => (vec![name.to_owned()], true),
    }
}

/// Reads a path in code; returns the index behind it.
fn path(tokens: &[Token], start: usize, here: &[String], found: &mut Vec<Path>) -> usize {
    let (mut segments, is_relative) = origin(word(tokens, start), here);
    let mut i = start + 1;
    while word(tokens, i) == "::" && word(tokens, i + 1).chars().all(is_word) {
        step(&mut segments, word(tokens, i + 1));
        i += 2;
    }
    // What goes on behind generic arguments belongs to what they are of.
    while word(tokens, i) == "::" && word(tokens, i + 1) == "<" {
        i += 1;
    }
    found.push(Path { line: tokens[start].line, segments, is_relative, here: here.to_vec(), alias: None });
    i
}

/// What a `use` is read with.
struct UseTree<'a> {
    tokens: &'a [Token],
    here: &'a [String],
    is_public: bool,
    found: &'a mut Vec<Path>,
}

impl UseTree<'_> {
    /// Reads a tree, below a prefix (none at its start); returns the index of the `,`, `}` or `;` behind it.
    fn read(&mut self, start: usize, prefix: Option<(&[String], bool)>) -> usize {
        let tokens = self.tokens;
        let mut i = start;
        let mut from = prefix.map(|(segments, is_relative)| (segments.to_vec(), is_relative));
        let mut renamed = None;
        loop {
            match word(tokens, i) {
                "," | "}" | ";" | "" => break,
                "{" => {
                    i += 1;
                    while !matches!(word(tokens, i), "}" | "") {
                        i = self.read(i, from.as_ref().map(|(segments, relative)| (segments.as_slice(), *relative)));
                        i += usize::from(word(tokens, i) == ",");
                    }
                    return i + 1;
                }
                // Between segments, before another crate's name, before `crate` in a macro.
                "::" | "$" => {}
                "as" => {
                    i += 1;
                    renamed = Some(word(tokens, i).to_owned());
                }
                name => match &mut from {
                    Some((segments, _)) => step(segments, name),
                    None => from = Some(origin(name, self.here)),
                },
            }
            i += 1;
        }
        if let Some((segments, is_relative)) = from {
            let alias = renamed.or_else(|| segments.last().cloned()).map(|name| (name, self.is_public));
            let (line, here) = (tokens[start].line, self.here.to_vec());
            self.found.push(Path { line, segments, is_relative, here, alias });
        }
        i
    }
}
