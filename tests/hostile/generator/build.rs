//! Nodes as C structs, each of which counts how often it is released. Its memory has the size that the structs claim to
//! the byte and is freed when it is released, so that AddressSanitizer sees every read beyond and after.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_char, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_dlpack::ffi::arrow_device::{ArrowArray, ArrowSchema};

use super::node::{Links, Node, Untellable, aimed};

/// Memory of so many bytes and no more, aligned as Arrow recommends, or a byte off.
#[derive(Debug)]
pub(crate) struct Block {
    start: *mut u8,
    layout: Layout,
    skip: usize,
}

impl Block {
    pub(crate) fn new(bytes: &[u8], skip: usize) -> Self {
        let layout = Layout::from_size_align(bytes.len() + skip, 64).expect("a small block");
        if bytes.is_empty() {
            return Self { start: without_provenance_mut(64), layout, skip };
        }
        // SAFETY: not empty.
        let start = unsafe { alloc(layout) };
        assert!(!start.is_null());
        let data = start.wrapping_add(skip);
        // SAFETY: the block has `skip` bytes and these.
        unsafe { data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Self { start, layout, skip }
    }

    pub(crate) fn data(&self) -> *mut u8 {
        self.start.wrapping_add(self.skip)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.layout.size() > self.skip {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.start, self.layout) };
        }
    }
}

/// Counts the releases of a struct, and holds what the first one frees.
#[derive(Debug)]
struct Tally<S> {
    expected: usize,
    released: AtomicUsize,
    held: Mutex<Option<Held<S>>>,
}

/// What a struct owns.
#[derive(Debug)]
struct Held<S> {
    _blocks: Vec<Block>,
    // Boxes would end the pointers to their memory when they are moved, by the rules of aliasing.
    _buffers: Vec<*mut c_void>,
    _children: Vec<*mut S>,
    /// Children and dictionary, whatever the struct says of them.
    parts: Vec<Owned<S>>,
}

/// A struct in memory of its own, which is freed when this is dropped.
#[derive(Debug)]
struct Owned<S>(*mut S);

impl<S> Drop for Owned<S> {
    fn drop(&mut self) {
        // SAFETY: a leaked box that only this refers to by now.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// What `ArrowSchema` and `ArrowArray` have in common.
trait Struct: Sized {
    fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)>;
    fn private_data(&self) -> *mut c_void;
}

impl Struct for ArrowSchema {
    fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)> {
        &mut self.release
    }
    fn private_data(&self) -> *mut c_void {
        self.private_data
    }
}

impl Struct for ArrowArray {
    fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)> {
        &mut self.release
    }
    fn private_data(&self) -> *mut c_void {
        self.private_data
    }
}

/// # Safety
/// A struct of [`Structs`], which is alive. Called twice, it counts twice.
unsafe extern "C" fn release<S: Struct>(target: *mut S) {
    // SAFETY: a struct of `Structs`, which is alive and in one caller's hands.
    let target = unsafe { &mut *target };
    // SAFETY: the tally of the struct, which `Structs` keeps.
    let tally = unsafe { &*target.private_data().cast::<Tally<S>>() };
    tally.released.fetch_add(1, Ordering::SeqCst);
    let held = tally.held.lock().unwrap_or_else(PoisonError::into_inner).take();
    for part in held.iter().flat_map(|held| &held.parts) {
        // SAFETY: a child that `held` owns; what was moved out has no callback any more.
        if let Some(release) = *unsafe { &mut *part.0 }.release() {
            // SAFETY: alive, and released by its parent alone.
            unsafe { release(part.0) };
        }
    }
    *target.release() = None;
}

/// The structs of a node. Keep it until nothing of them is alive, then [`Structs::check`].
#[derive(Debug)]
pub(crate) struct Structs {
    pub(crate) schema: ArrowSchema,
    pub(crate) array: ArrowArray,
    tallies: Tallies,
}

/// The structs hold their addresses.
#[derive(Debug, Default)]
struct Tallies {
    schemas: Vec<Arc<Tally<ArrowSchema>>>,
    arrays: Vec<Arc<Tally<ArrowArray>>>,
}

impl Structs {
    /// The structs of a node.
    ///
    /// # Errors
    /// When nobody could tell that they are wrong.
    pub(crate) fn new(mut node: Node) -> Result<Self, Untellable> {
        node.settle()?;
        let mut tallies = Tallies::default();
        let schema = tallies.schema(&node, true);
        let array = tallies.array(&node, true);
        Ok(Self { schema, array, tallies })
    }

    /// The schema of a node, without an array.
    ///
    /// # Errors
    /// When nobody could tell that it is wrong.
    pub(crate) fn of_schema(mut node: Node) -> Result<Self, Untellable> {
        node.settle_type()?;
        let mut tallies = Tallies::default();
        let schema = tallies.schema(&node, true);
        Ok(Self { schema, array: ArrowArray::empty(), tallies })
    }

    /// The array of a node that is settled, without its schema.
    pub(crate) fn of_array(node: &Node) -> Self {
        let mut tallies = Tallies::default();
        let array = tallies.array(node, true);
        Self { schema: ArrowSchema::empty(), array, tallies }
    }

    /// Releases the structs that nobody has taken, as their owner.
    pub(crate) fn release(&mut self) {
        if let Some(release) = self.schema.release {
            // SAFETY: alive, and ours.
            unsafe { release(&raw mut self.schema) };
        }
        if let Some(release) = self.array.release {
            // SAFETY: alive, and ours.
            unsafe { release(&raw mut self.array) };
        }
    }

    /// Which structs were not released as often as they should.
    pub(crate) fn check(&self) -> Result<(), String> {
        fn check<S>(what: &str, tallies: &[Arc<Tally<S>>]) -> Result<(), String> {
            for (number, tally) in tallies.iter().enumerate() {
                let released = tally.released.load(Ordering::SeqCst);
                if released != tally.expected {
                    let expected = tally.expected;
                    return Err(format!(
                        "{what} {number}, children first, was released {released} times, not {expected}"
                    ));
                }
            }
            Ok(())
        }
        check("ArrowSchema", &self.tallies.schemas)?;
        check("ArrowArray", &self.tallies.arrays)
    }
}

/// Pointers to the children as the struct claims them, and to the parts that it owns.
struct Parts<S> {
    owned: Vec<Owned<S>>,
    children: Vec<*mut S>,
    children_pointer: *mut *mut S,
    count: i64,
    dictionary: *mut S,
}

impl<S> Parts<S> {
    fn new(links: &Links, children: Vec<S>, dictionary: Option<S>) -> Self {
        let children_count = children.len();
        let count = links.count.unwrap_or(children_count as i64);
        let owned: Vec<Owned<S>> =
            children.into_iter().chain(dictionary).map(|part| Owned(Box::into_raw(Box::new(part)))).collect();
        let dictionary = owned.get(children_count).map_or(null_mut(), |part| aimed(links.dictionary, part.0));
        let mut entries: Vec<*mut S> = owned.iter().take(children_count).map(|part| part.0).collect();
        if let Some(last) = entries.last_mut() {
            *last = aimed(links.child, *last);
        }
        // Whoever believes a count that is too large meets NULL.
        entries.resize(entries.len().max(count.clamp(0, 64) as usize) + 1, null_mut());
        let children_pointer = aimed(links.children, entries.as_mut_ptr());
        Self { owned, children: entries, children_pointer, count, dictionary }
    }
}

impl Tallies {
    fn expected(alive: bool, links: &Links) -> bool {
        alive && !links.released
    }

    fn schema(&mut self, node: &Node, alive: bool) -> ArrowSchema {
        let alive = Self::expected(alive, &node.schema);
        let children = node.children.iter().map(|child| self.schema(child, alive)).collect();
        let stray = node.schema.stray_dictionary.then(Node::default);
        let dictionary = node.dictionary.as_deref().or(stray.as_ref()).map(|node| self.schema(node, alive));
        let parts = Parts::new(&node.schema, children, dictionary);
        let text = |text: &Option<Vec<u8>>| text.as_ref().map(|text| Block::new(&[text.as_slice(), &[0]].concat(), 0));
        let (format, name) = (text(&node.format), text(&node.name));
        // A byte off: the format asks for no alignment.
        let metadata = node.metadata.as_ref().map(|metadata| Block::new(metadata, 1));
        let start =
            |block: &Option<Block>| block.as_ref().map_or(null_mut(), Block::data).cast::<c_char>().cast_const();
        let schema = ArrowSchema {
            format: start(&format),
            name: start(&name),
            metadata: start(&metadata),
            flags: node.flags,
            n_children: parts.count,
            children: parts.children_pointer,
            dictionary: parts.dictionary,
            release: (!node.schema.released).then_some(release::<ArrowSchema>),
            private_data: null_mut(),
        };
        let held = Held {
            _blocks: [format, name, metadata].into_iter().flatten().collect(),
            _buffers: Vec::new(),
            _children: parts.children,
            parts: parts.owned,
        };
        let tally = tally(alive, held);
        let private_data = Arc::as_ptr(&tally).cast_mut().cast();
        self.schemas.push(tally);
        ArrowSchema { private_data, ..schema }
    }

    fn array(&mut self, node: &Node, alive: bool) -> ArrowArray {
        let alive = Self::expected(alive, &node.array);
        let children = node.children.iter().map(|child| self.array(child, alive)).collect();
        let stray = node.array.stray_dictionary.then(Node::default);
        let dictionary = node.dictionary.as_deref().or(stray.as_ref()).map(|node| self.array(node, alive));
        let parts = Parts::new(&node.array, children, dictionary);
        let blocks: Vec<Block> = node
            .buffers
            .iter()
            .map(|buffer| Block::new(&buffer.bytes, usize::from(buffer.pointer == super::node::Pointer::Misaligned)))
            .collect();
        let mut buffers: Vec<*mut c_void> = blocks
            .iter()
            .zip(&node.buffers)
            .map(|(block, buffer)| match buffer.pointer {
                // The block itself is a byte off.
                super::node::Pointer::Misaligned => block.data().cast(),
                pointer => aimed(pointer, block.data()).cast(),
            })
            .collect();
        let array = ArrowArray {
            length: node.length,
            null_count: node.null_count,
            offset: node.offset,
            n_buffers: node.buffer_count.unwrap_or(node.buffers.len() as i64),
            n_children: parts.count,
            buffers: aimed(node.buffers_pointer, buffers.as_mut_ptr()).cast(),
            children: parts.children_pointer,
            dictionary: parts.dictionary,
            release: (!node.array.released).then_some(release::<ArrowArray>),
            private_data: null_mut(),
        };
        let held = Held { _blocks: blocks, _buffers: buffers, _children: parts.children, parts: parts.owned };
        let tally = tally(alive, held);
        let private_data = Arc::as_ptr(&tally).cast_mut().cast();
        self.arrays.push(tally);
        ArrowArray { private_data, ..array }
    }
}

fn tally<S>(alive: bool, held: Held<S>) -> Arc<Tally<S>> {
    Arc::new(Tally { expected: usize::from(alive), released: AtomicUsize::new(0), held: Mutex::new(Some(held)) })
}
