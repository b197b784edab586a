//! Objects that yield Arrow data in parts and speak neither protocol: which methods they offer, and how to call them.
//!
//! Only the names of its methods identify a library; none is imported.

mod asked;
mod datasets;
mod find;
mod forms;
mod frames;
mod held;
mod items;
mod known;
mod offers;
mod opened;
mod projection;
mod remedies;

pub(super) use self::asked::note;
pub(super) use self::find::open;
pub(super) use self::forms::{MAX_DEPTH, counted, is_read_again, is_read_by_method, is_source};
pub(super) use self::frames::{exported, relation};
pub(super) use self::held::HeldObject;
pub(super) use self::items::raised;
pub(super) use self::known::{Known, columns, is_in_memory, is_query};
pub(super) use self::offers::{has_dunder, name_of};
pub(super) use self::opened::{Opened, stream_of};
pub(super) use self::projection::Projection;
pub(super) use self::remedies::{Reads, no_protocol, remedy};
