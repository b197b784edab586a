//! What does a plan need to know of one chunk of a column?

/// What the plan needs to know of one chunk of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkSize {
    /// Rows of the chunk.
    pub rows: usize,
    /// Null elements among its rows, those of nested lists included.
    pub nulls: usize,
    /// Whether `nulls` is exact, and not only the most that there can be.
    pub is_counted: bool,
    /// What only the memory of a device tells.
    pub unread: UnreadChunk,
    /// Whether typed access to its values is aligned.
    pub aligned: bool,
    /// Whether it is what null rows left of the chunk that the one before is of.
    pub continues: bool,
}

impl ChunkSize {
    /// An aligned chunk of so many rows, none of which has nulls.
    pub(crate) fn without_nulls(rows: usize) -> Self {
        Self { rows, nulls: 0, is_counted: true, unread: UnreadChunk::default(), aligned: true, continues: false }
    }

    /// This chunk and the next one as one.
    pub(crate) fn and(self, next: Self) -> Self {
        Self {
            rows: self.rows.saturating_add(next.rows),
            nulls: self.nulls.saturating_add(next.nulls),
            is_counted: self.is_counted && next.is_counted,
            unread: self.unread.and(next.unread),
            aligned: self.aligned && next.aligned,
            continues: self.continues,
        }
    }
}

/// What only the memory of a device tells of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnreadChunk {
    /// Whether the host has to read bitmaps to know which elements are null.
    pub bitmaps: bool,
    /// Whether values of the dictionary may be null.
    pub null_values: bool,
    /// Whether the dictionaries of the column's chunks have to be compared.
    pub dictionary: bool,
}

impl UnreadChunk {
    /// What is unknown of this chunk or the next one.
    pub(super) fn and(self, next: Self) -> Self {
        Self {
            bitmaps: self.bitmaps || next.bitmaps,
            null_values: self.null_values || next.null_values,
            dictionary: self.dictionary || next.dictionary,
        }
    }
}
