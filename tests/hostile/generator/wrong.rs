//! Everything that can be wrong with a node's structs and be seen: each field in turn.

use super::kind::Kind;
use super::node::{Node, Pointer};

/// Which of a node's structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Schema,
    Array,
}

/// One thing to make wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    Format(Option<Vec<u8>>),
    Name(Option<Vec<u8>>),
    Metadata(Vec<u8>),
    Flags(i64),
    ChildCount(Side, i64),
    Children(Side, Pointer),
    Child(Side, Pointer),
    Dictionary(Side, Pointer),
    StrayDictionary(Side),
    Released(Side),
    Length(i64),
    Offset(i64),
    NullCount(i64),
    BufferCount(i64),
    Buffers(Pointer),
    Buffer(usize, Pointer),
    /// All bytes of a buffer.
    Fill(usize, u8),
    /// An entry of a buffer: buffer, index, bytes, value.
    Entry(usize, usize, usize, i64),
    /// No child or one more, in both structs.
    FewerChildren,
    MoreChildren,
}

/// What is made wrong, and where in the tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wrong {
    pub(crate) path: Vec<usize>,
    pub(crate) what: What,
}

/// Formats that are malformed, or of another type than the array.
const FORMATS: &[&[u8]] = &[
    b"",
    b"?",
    b" ",
    b":",
    b"+",
    b"i ",
    b"ii",
    b"I:",
    b"+w",
    b"+w:",
    b"+w:x",
    b"+w:-1",
    b"+w:0",
    b"+w:2147483647",
    b"+w:2147483648",
    b"+w:2,3",
    b"+w: 2",
    b"+w:+2",
    b"w",
    b"w:",
    b"w:0",
    b"w:-1",
    b"w:2147483647",
    b"w:99999999999999999999",
    b"d",
    b"d:",
    b"d:1",
    b"d:0,0",
    b"d:39,0",
    b"d:10,2,16",
    b"d:10,2,128,1",
    b"d:10,999",
    b"d:-1,0",
    b"d:9,2,32",
    b"d:5,-3",
    b"ts",
    b"ts:",
    b"tsq:",
    b"tss",
    b"tss:",
    b"tsn:Nowhere/None",
    b"tsn:\x01",
    b"tdX",
    b"ttx",
    b"tDx",
    b"tix",
    b"+us:",
    b"+ud:",
    b"+us:0,0",
    b"+ud:-1,0",
    b"+us:128,0",
    b"+ud:0,1,2,3",
    b"+us:5,6",
    b"+ud:5,6",
    b"+us:,",
    b"+q",
    b"v",
    b"vq",
    b"+v",
    b"+vq",
    b"n",
    b"b",
    b"c",
    b"S",
    b"i",
    b"l",
    b"g",
    b"e",
    b"tin",
    b"z",
    b"u",
    b"U",
    b"vu",
    b"vz",
    b"+l",
    b"+L",
    b"+vl",
    b"+vL",
    b"+s",
    b"+m",
    b"+r",
    b"+w:1",
    b"+w:2",
    b"w:2",
    b"tdD",
    b"\xff",
    b"i\xff",
    b"\xe2\x82",
    b"n\0rest",
];

const COUNTS: [i64; 6] = [-1, i64::MIN, i64::MAX, 1 << 31, 1 << 46, i64::MAX / 8];
const ENTRIES: [i64; 8] = [-1, i64::MIN, i64::MAX, 0, 1, 3, 100, 1 << 31];

/// The bytes of a name, and the levels of JSON. Tree Borrows looks at each byte of a text whenever a part of it is borrowed.
const LONG: usize = if cfg!(miri) { 300 } else { 9000 };
const DEEP: usize = if cfg!(miri) { 200 } else { 5000 };

fn number(value: i32) -> [u8; 4] {
    value.to_ne_bytes()
}

/// Metadata of one pair.
pub(crate) fn pair(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&number(1)[..], &number(key.len() as i32), key, &number(value.len() as i32), value].concat()
}

fn metadata() -> Vec<Vec<u8>> {
    let name = |name: &[u8]| pair(b"ARROW:extension:name", name);
    let tensor = |parameters: &[u8]| {
        let mut both = name(b"arrow.fixed_shape_tensor");
        both[..4].copy_from_slice(&number(2));
        both.extend_from_slice(&pair(b"ARROW:extension:metadata", parameters)[4..]);
        both
    };
    let mut all = vec![
        number(-1).to_vec(),
        number(i32::MIN).to_vec(),
        number(0).to_vec(),
        [number(1), number(-1)].concat(),
        [number(1), number(i32::MIN)].concat(),
        [&number(1)[..], &number(1), b"k", &number(-5)].concat(),
        [&number(3)[..], &pair(b"k", b"v")[4..]].concat(),
        pair(b"", b""),
        pair(b"\xff\xfe", b"\xc3\x28"),
        pair(b"k", &[0; 300]),
        name(b""),
        name(b"\xff"),
        name(b"arrow.bool8"),
        name(b"arrow.nothing"),
        name(b"arrow.fixed_shape_tensor"),
        name(b"arrow.variable_shape_tensor"),
        name(b"arrow.opaque"),
        name(b"arrow.uuid"),
    ];
    for parameters in [
        "",
        "{",
        "null",
        "[]",
        "3",
        "{}",
        r#"{"shape":null}"#,
        r#"{"shape":2}"#,
        r#"{"shape":[]}"#,
        r#"{"shape":[2]}"#,
        r#"{"shape":[1,2]}"#,
        r#"{"shape":[-1,-2]}"#,
        r#"{"shape":["2"]}"#,
        r#"{"shape":[2.5]}"#,
        r#"{"shape":[9223372036854775807,2]}"#,
        r#"{"shape":[18446744073709551618]}"#,
        r#"{"shape":[4294967296,4294967296,0]}"#,
        r#"{"shape":[2],"permutation":[1]}"#,
        r#"{"shape":[2,1],"permutation":[0,0]}"#,
        r#"{"shape":[2,1],"permutation":[-1,0]}"#,
        r#"{"shape":[2,1],"permutation":[1]}"#,
        r#"{"shape":[2,1],"permutation":null}"#,
        r#"{"shape":[2,1],"permutation":[1,0],"dim_names":["a"]}"#,
        r#"{"shape":[2],"shape":[3]}"#,
        r#"{"shape":[1,2],"dim_names":[1,2]}"#,
    ] {
        all.push(tensor(parameters.as_bytes()));
    }
    // Deep enough to end a stack, for a reader that recurses.
    all.push(tensor(&[b'['; DEEP]));
    all
}

/// Everything that can be wrong with one node. Of the formats and metadata, some do for children and for types
/// that differ in their width.
fn of_node(node: &Node, is_root: bool) -> Vec<What> {
    use What::{
        Buffer, BufferCount, Buffers, Child, ChildCount, Children, Dictionary, Entry, FewerChildren, Fill, Flags,
        Format, Length, Metadata, MoreChildren, Name, NullCount, Offset, Released, StrayDictionary,
    };
    let is_plain = matches!(node.kind(), Some(Kind::Fixed(_))) && node.format.as_deref() != Some(b"i");
    let some = if is_root && !is_plain { 1 } else { 7 };
    let mut all: Vec<What> = FORMATS.iter().step_by(some).map(|format| Format(Some(format.to_vec()))).collect();
    all.extend([
        Format(None),
        Name(None),
        Name(Some(b"\xff\xfe".to_vec())),
        Name(Some(Vec::new())),
        Name(Some(vec![b'n'; LONG])),
    ]);
    all.extend(metadata().into_iter().step_by(some).map(Metadata));
    all.extend([0, 1, 4, 7, -1, i64::MIN, i64::MAX].map(Flags));
    let children = node.children.len() as i64;
    for side in [Side::Schema, Side::Array] {
        all.extend(COUNTS.into_iter().chain([0, children - 1, children + 1]).map(|count| ChildCount(side, count)));
        all.extend([Pointer::Null, Pointer::Misaligned].map(|pointer| Children(side, pointer)));
        if children > 0 {
            all.extend([Pointer::Null, Pointer::Misaligned].map(|pointer| Child(side, pointer)));
        }
        match node.dictionary {
            Some(_) => all.extend([Pointer::Null, Pointer::Misaligned].map(|pointer| Dictionary(side, pointer))),
            None => all.push(StrayDictionary(side)),
        }
        all.push(Released(side));
    }
    let (length, offset, buffers) = (node.length, node.offset, node.buffers.len());
    all.extend(COUNTS.into_iter().chain([0, length - 1, length + 1, length + 9, i64::MAX - offset]).map(Length));
    all.extend(COUNTS.into_iter().chain([0, offset + 1, offset + 8, i64::MAX - length]).map(Offset));
    all.extend(COUNTS.into_iter().chain([-2, 0, 1, length, length + 1]).map(NullCount));
    all.extend(
        COUNTS.into_iter().chain([0, buffers as i64 - 1, buffers as i64 + 1, buffers as i64 + 2]).map(BufferCount),
    );
    all.extend([Pointer::Null, Pointer::Misaligned].map(Buffers));
    all.extend([FewerChildren, MoreChildren]);
    for index in 0..buffers {
        all.extend([Pointer::Null, Pointer::Misaligned, Pointer::Wild].map(|pointer| Buffer(index, pointer)));
        all.extend([0, 0x80, 0xff].map(|byte| Fill(index, byte)));
        let width = entry_width(node, index);
        let slots = node.buffers[index].bytes.len().checked_div(width).unwrap_or(0);
        let mut places = vec![0, 1, slots / 2, slots.saturating_sub(2), slots.saturating_sub(1)];
        places.dedup();
        places.retain(|place| *place < slots);
        for place in places {
            all.extend(ENTRIES.map(|value| Entry(index, place, width, value)));
        }
    }
    all
}

/// The bytes of the numbers that a buffer holds.
fn entry_width(node: &Node, index: usize) -> usize {
    match (node.kind(), index) {
        (Some(Kind::Fixed(width @ (1 | 2 | 4 | 8))), 1) => width,
        (Some(Kind::Bytes { wide: true } | Kind::List { wide: true } | Kind::ListView { wide: true }), 1 | 2) => 8,
        (Some(Kind::View), 1) => 4,
        (Some(Kind::View), index) if index + 1 == node.buffers.len() => 8,
        (Some(Kind::Bytes { .. } | Kind::List { .. } | Kind::ListView { .. } | Kind::Map), 1) => 4,
        (Some(Kind::ListView { .. }), 2) => 4,
        (Some(Kind::Dense(_)), 1) => 4,
        _ => 1,
    }
}

impl Wrong {
    /// Everything that can be wrong with a tree.
    pub(crate) fn all(node: &Node) -> Vec<Self> {
        let mut tree = node.clone();
        let paths = node.paths();
        paths
            .into_iter()
            .flat_map(|path| {
                let whats = of_node(tree.at(&path), path.is_empty());
                whats.into_iter().map(move |what| Self { path: path.clone(), what })
            })
            .collect()
    }

    /// Whether it is a fault of the schema alone.
    pub(crate) fn is_in_schema(&self) -> bool {
        matches!(
            self.what,
            What::Format(_)
                | What::Name(_)
                | What::Metadata(_)
                | What::Flags(_)
                | What::ChildCount(Side::Schema, _)
                | What::Children(Side::Schema, _)
                | What::Child(Side::Schema, _)
                | What::Dictionary(Side::Schema, _)
                | What::StrayDictionary(Side::Schema)
                | What::Released(Side::Schema)
        )
    }

    /// The same fault with another number in it, where there is one.
    pub(crate) fn with_number(mut self, number: i64) -> Self {
        match &mut self.what {
            What::Flags(own) | What::ChildCount(_, own) | What::Length(own) | What::Offset(own) => *own = number,
            What::NullCount(own) | What::BufferCount(own) | What::Entry(_, _, _, own) => *own = number,
            What::Fill(_, byte) => *byte = number.to_le_bytes()[0],
            What::Format(Some(text)) | What::Name(Some(text)) | What::Metadata(text) if !text.is_empty() => {
                let [place, .., byte] = number.to_le_bytes();
                let place = usize::from(place) % text.len();
                text[place] = byte;
            }
            _ => {}
        }
        self
    }

    /// Makes it wrong. Nothing happens where an earlier fault took away what this one is about.
    pub(crate) fn apply(&self, tree: &mut Node) {
        if !tree.paths().contains(&self.path) {
            return;
        }
        let node = tree.at(&self.path);
        let links = |node: &mut Node, side: Side, edit: &dyn Fn(&mut super::node::Links)| match side {
            Side::Schema => edit(&mut node.schema),
            Side::Array => edit(&mut node.array),
        };
        match self.what.clone() {
            What::Format(format) => node.format = format,
            What::Name(name) => node.name = name,
            What::Metadata(metadata) => node.metadata = Some(metadata),
            What::Flags(flags) => node.flags = flags,
            What::ChildCount(side, count) => links(node, side, &|links| links.count = Some(count)),
            What::Children(side, pointer) => links(node, side, &|links| links.children = pointer),
            What::Child(side, pointer) => links(node, side, &|links| links.child = pointer),
            What::Dictionary(side, pointer) => links(node, side, &|links| links.dictionary = pointer),
            What::StrayDictionary(side) => links(node, side, &|links| links.stray_dictionary = true),
            What::Released(side) => links(node, side, &|links| links.released = true),
            What::Length(length) => node.length = length,
            What::Offset(offset) => node.offset = offset,
            What::NullCount(count) => node.null_count = count,
            What::BufferCount(count) => node.buffer_count = Some(count),
            What::Buffers(pointer) => node.buffers_pointer = pointer,
            What::Buffer(index, pointer) => {
                if let Some(buffer) = node.buffers.get_mut(index) {
                    buffer.pointer = pointer;
                }
            }
            What::Fill(index, byte) => {
                if let Some(buffer) = node.buffers.get_mut(index) {
                    buffer.bytes.fill(byte);
                }
            }
            What::Entry(index, place, width, value) => {
                let entry = node
                    .buffers
                    .get_mut(index)
                    .and_then(|buffer| buffer.bytes.get_mut(place * width..(place + 1) * width));
                if let Some(entry) = entry {
                    entry.copy_from_slice(&clamped(value, width).to_le_bytes()[..width]);
                }
            }
            What::FewerChildren => drop(node.children.pop()),
            What::MoreChildren => node.children.push(node.children.first().cloned().unwrap_or_default()),
        }
    }
}

/// The extremes of 64 bits as those of fewer.
fn clamped(value: i64, width: usize) -> i64 {
    let unused = 64 - 8 * width.clamp(1, 8);
    value.clamp(i64::MIN >> unused, i64::MAX >> unused)
}
